//! `bellbird init`: what the first start and the first page of the console do, in a terminal.

mod credentials;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use bellbird_connections::provider_names;
use bellbird_domain::User;
use bellbird_management::first_start::FirstOperator;
use bellbird_management::{Refusal, sign_in};
use bellbird_storage::{Storage, StoredProviderSettings};
use clap::Args;
use jiff::tz::TimeZone;
use rustix::process::geteuid;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::arguments::{self, SettingArgs};
use super::output::{self, UsageError};
use super::{actor, ask};
use crate::config::place::SETTINGS_FILE;
use crate::config::{Settings, terminal};
use crate::first_start::{self, FirstStart, OPEN_TO_OTHERS};
use crate::provider_loader::{NO_SANDBOX, can_simulate, simulate_others};
use crate::{instances, wiring};
use bellbird_providers::registry::PROVIDERS;
use credentials::Credentials;

/// Set Bellbird up: data folder, master key, database, and the first operator.
///
/// The same as the first `serve` and its page in the browser. Asks on a terminal for what no option
/// says. Ends with a link that signs the operator in to the console, while the service runs.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird init
  bellbird init --email me@example.com --sandbox
  bellbird init --email me@example.com --provider fiskil --credentials fiskil.json")]
pub(super) struct InitArgs {
    /// E-mail address of the first operator
    #[arg(long, value_parser = arguments::email)]
    email: Option<String>,

    /// IANA timezone of the operator; if not set, that of this machine, or Australia/Sydney
    #[arg(long, value_name = "TZ", value_parser = arguments::timezone)]
    timezone: Option<String>,

    /// URL at which browsers and programs reach Bellbird, if there is a proxy in front of it
    #[arg(long, value_name = "URL", value_parser = arguments::web_url)]
    public_url: Option<String>,

    /// Use simulated providers, which need no account
    #[arg(long)]
    sandbox: bool,

    /// Provider to store credentials of
    #[arg(long, requires = "credentials", conflicts_with = "sandbox")]
    #[arg(value_parser = arguments::provider_name())]
    provider: Option<String>,

    /// File with the credentials, or - for standard input: a JSON object with the names of the
    /// settings, such as client_id
    #[arg(long, value_name = "FILE", requires = "provider")]
    credentials: Option<String>,
}

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct InitView {
    email: String,
    /// Omitted if a first start did not make it.
    #[serde(skip_serializing_if = "Option::is_none")]
    folder: Option<PathBuf>,
    settings: Option<PathBuf>,
    console_url: String,
    /// Signs the operator in once, within ten minutes, or has the button that leads to the identity
    /// provider.
    sign_in_url: String,
    #[serde(skip)]
    is_let_in_by_link: bool,
}

/// All answers, before anything is made.
struct Answers {
    email: String,
    timezone: Option<String>,
    public_url: Option<String>,
    providers: Providers,
}

enum Providers {
    Sandbox,
    Of(Credentials),
    None,
}

pub(super) async fn run(setting_args: &SettingArgs, args: &InitArgs) -> anyhow::Result<()> {
    let folder = setting_args.first_start_folder()?;
    if folder.is_none() && args.public_url.is_some() {
        let text = "--public-url is for a first start: set api.public_url and console.public_url in the settings file";
        bail!(UsageError(text.to_owned()));
    }
    // Without an installation, those of the environment.
    let present = match folder {
        Some(_) => setting_args.load_from(None, None)?,
        None => setting_args.load(None)?,
    };
    let proposes_sandbox =
        can_simulate(&present) && !has_provider(&present, folder.is_none()).await;
    let proposed = if proposes_sandbox { "sandbox" } else { "none" };
    let may_set_url = folder.is_some() && present.console.public_url.is_none();
    let answers = Answers::of(args, may_set_url, proposed)?;
    match &answers.providers {
        Providers::Of(credentials) => credentials.check(&present).await?,
        Providers::Sandbox if !can_simulate(&present) => bail!(UsageError(NO_SANDBOX.to_owned())),
        Providers::Sandbox | Providers::None => {}
    }
    let settings = match folder {
        Some(folder) => {
            if let Some(first) = FirstStart::begin(&folder, answers.public_url.as_deref())? {
                let settings = setting_args.load_from(Some(first.draft()), None)?;
                if first.is_open_to_others {
                    output::note(&format!("{}: {OPEN_TO_OTHERS}", folder.display()));
                }
                first.complete(&settings, actor::of_command()).await?;
            }
            setting_args.load(None)?
        }
        None => present,
    };
    let storage = wiring::open_sealed_storage(&settings).await?;
    let made = make(&settings, &storage, &answers).await;
    storage.close().await;
    let view = made?;
    output::print_with_note(&view, &view.sign_in_url, &text(&view))
}

impl Answers {
    /// `proposed` is what Enter means at the question about providers.
    fn of(args: &InitArgs, may_set_url: bool, proposed: &str) -> anyhow::Result<Self> {
        let asks = terminal::stdin_is_terminal() && !output::is_json();
        let email = match &args.email {
            Some(email) => email.clone(),
            None if asks => ask::until("E-mail address of the first operator: ", arguments::email)?,
            None => bail!(UsageError(
                "the e-mail address of the first operator is needed: pass --email".to_owned()
            )),
        };
        // Servers have UTC whatever the days of their users are.
        let here = TimeZone::system()
            .iana_name()
            .filter(|name| !name.ends_with("UTC") && arguments::timezone(name).is_ok())
            .map(str::to_owned);
        let timezone = match &args.timezone {
            Some(timezone) => Some(timezone.clone()),
            None if asks => {
                let proposed = here.unwrap_or_else(|| "Australia/Sydney".to_owned());
                let question = format!("Timezone, in which days begin and end [{proposed}]: ");
                let parse = |text: &str| match text {
                    "" => Ok(proposed.clone()),
                    text => arguments::timezone(text),
                };
                Some(ask::until(&question, parse)?)
            }
            None => here,
        };
        let public_url = match &args.public_url {
            None if asks && may_set_url => {
                let question = "URL at which others reach Bellbird, if there is a proxy in front of it [none]: ";
                let parse = |text: &str| match text {
                    "" => Ok(None),
                    text => arguments::web_url(text).map(Some),
                };
                ask::until(question, parse)?
            }
            url => url.clone(),
        };
        let providers = match (&args.provider, &args.credentials) {
            (Some(provider), Some(file)) => Providers::Of(Credentials::read(provider, file)?),
            _ if args.sandbox => Providers::Sandbox,
            _ if asks => Providers::ask(proposed)?,
            _ => Providers::None,
        };
        Ok(Self {
            email,
            timezone,
            public_url,
            providers,
        })
    }
}

impl Providers {
    fn ask(proposed: &str) -> anyhow::Result<Self> {
        let names: Vec<_> = provider_names().collect();
        let question = format!(
            "Provider whose credentials you have ({}), or sandbox for simulated banks, or none [{proposed}]: ",
            names.join(", ")
        );
        let parse = |text: &str| match text {
            "" => Ok(proposed.to_owned()),
            text if text == "sandbox" || text == "none" || names.contains(&text) => {
                Ok(text.to_owned())
            }
            _ => Err(format!(
                "must be sandbox, none or one of {}",
                names.join(", ")
            )),
        };
        Ok(match ask::until(&question, parse)?.as_str() {
            "sandbox" => Self::Sandbox,
            "none" => Self::None,
            provider => Self::Of(Credentials::ask(provider)?),
        })
    }
}

async fn make(
    settings: &Settings,
    storage: &Storage,
    answers: &Answers,
) -> anyhow::Result<InitView> {
    let console_url = instances::console_url(settings, storage)
        .await?
        .context("the link needs the URL of the console: set console.public_url")?;
    // Before the operators are looked for, so that an operator whom another command or the page
    // makes meanwhile shows.
    let first_start = storage.first_start().find().await?;
    let found = find_operator(settings, storage, &answers.email).await?;
    let stored = storage.provider_settings().list().await?;
    let mut change = actor::begin_change(storage).await?;
    let operator = match found {
        Some(operator) => {
            // An operator of the page, who has not kept the key there: the text says where it is.
            match bellbird_management::first_start::finish(&mut change).await {
                Ok(()) | Err(Refusal::NoFirstStart) => {}
                Err(error) => return Err(error.into()),
            }
            operator
        }
        None => {
            let operator = FirstOperator {
                email: &answers.email,
                timezone: answers.timezone.as_deref(),
            };
            let found = first_start.as_ref();
            bellbird_management::first_start::create_operator_by_command(
                &mut change, found, operator,
            )
            .await
            .map_err(|error| match error {
                Refusal::NoFirstStart => anyhow!(
                    "somebody else sets this Bellbird up, or it has just started: run `bellbird init` again"
                ),
                error => error.into(),
            })?
        }
    };
    match &answers.providers {
        Providers::Sandbox => {
            for provider in simulate_others(settings, &stored, &mut change).await? {
                output::note(&format!(
                    "{provider} is not simulated, because it is in use: remove its connections first"
                ));
            }
        }
        Providers::Of(credentials) => credentials.store(&mut change).await?,
        Providers::None => {}
    }
    let is_let_in_by_link = settings.pages.lets_in_by_link(true);
    let sign_in_url = if is_let_in_by_link {
        let url = sign_in::create_link(&mut change, operator.id, &console_url).await?;
        url.expose_secret().to_owned()
    } else {
        format!("{}/sign-in", console_url.trim_end_matches('/'))
    };
    // Of an operator who was there, and gets no link, nothing may change.
    if change.action().is_some() {
        change.commit().await?;
    }
    Ok(InitView {
        email: operator.email,
        folder: first_start::made_in(settings),
        settings: settings.file.clone(),
        console_url,
        sign_in_url,
        is_let_in_by_link,
    })
}

/// The operator, if an earlier run has made it.
async fn find_operator(
    settings: &Settings,
    storage: &Storage,
    email: &str,
) -> anyhow::Result<Option<User>> {
    match storage.users().find_by_email(email).await? {
        Some(user) if user.is_operator => return Ok(Some(user)),
        Some(user) => bail!(
            "{0} is a user, and no operator: make them one with `bellbird user set {0} --operator`",
            user.email
        ),
        None => {}
    }
    match wiring::find_operator(storage).await? {
        Some(other) if settings.pages.lets_in_by_link(true) => bail!(
            "there is an operator already, {0}: sign in with `bellbird console login --user {0}`",
            other.email
        ),
        Some(other) => bail!(
            "there is an operator already, {}: sign in at the identity provider",
            other.email
        ),
        None => Ok(None),
    }
}

/// Whether a provider is configured, or entered in the console. A database that cannot be read may
/// have one.
async fn has_provider(settings: &Settings, is_installed: bool) -> bool {
    let mut configured = PROVIDERS.iter();
    if configured.any(|provider| settings.providers.is_complete(provider)) {
        return true;
    }
    if !is_installed {
        return false;
    }
    let Ok(storage) = wiring::open_sealed_storage(settings).await else {
        return true;
    };
    let stored = storage.provider_settings().list().await;
    storage.close().await;
    stored.is_ok_and(|stored| stored.iter().any(StoredProviderSettings::is_used))
}

/// The files that a first start has made, with what each is for.
pub(super) fn contents() -> String {
    let files = output::details(&[
        (
            first_start::KEY_FILE,
            &"opens the stored credentials: keep a copy elsewhere",
        ),
        (first_start::DATABASE_FILE, &"users, keys and connections"),
        (SETTINGS_FILE, &"settings"),
    ]);
    let lines: Vec<_> = files.lines().map(|line| format!("  {line}")).collect();
    lines.join("\n")
}

fn text(view: &InitView) -> String {
    let made = view.folder.as_ref().map(|folder| {
        let contents = contents();
        format!("Bellbird is in {}:\n\n{contents}\n\n", folder.display())
    });
    // Root prepares the folder of a service, which runs as another user.
    let is_of_service = |folder: &PathBuf| {
        geteuid().is_root() && fs::metadata(folder).is_ok_and(|folder| folder.uid() != 0)
    };
    let start = match view.folder.as_ref().filter(|folder| is_of_service(folder)) {
        Some(_) => "systemctl start bellbird",
        None => "bellbird serve",
    };
    let start = format!(
        "{}Start it with `{start}`, unless it runs already, and",
        made.unwrap_or_default()
    );
    let email = &view.email;
    if !view.is_let_in_by_link {
        return format!("{start} open this page. {email} signs in there at the identity provider.");
    }
    format!(
        "{start} open this link within ten minutes. It signs in {email}.\n\n\
         Later, the console is at {}, and `bellbird console login --user {email}` prints another link.",
        view.console_url
    )
}
