//! `bellbird serve`: starts the service and runs it until a signal.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;

use anyhow::bail;
use bellbird_domain::Clock;
use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::{ListenArgs, SettingArgs};
use super::output;
use super::{actor, init, secrets};
use crate::config::{self, Settings, terminal};
use crate::first_start::{self, FirstStart};
use crate::instances::{self, Finding};
use crate::provider_loader::ProcessSandbox;
use crate::roles::{Role, Roles};
#[cfg(feature = "sandbox")]
use crate::sandbox_beside::{self, SandboxBeside};
use crate::service::{self, Service, Start};
use crate::telemetry::traces::Traces;
use crate::telemetry::{self, LogGuard};
use crate::wiring::{self, Urls};
use bellbird_api::serve::raise_open_files_limit;

/// Run the service.
///
/// Where there are no settings, no key and no database, it makes them in the data folder and prints
/// the address of a page that goes on from there: the first start. Applies pending database
/// migrations and listens on three addresses (API, console, ops). SIGTERM or Ctrl-C stops the
/// service after it has finished the requests in flight. SIGHUP reads log.level again. All settings
/// are listed in bellbird.example.toml.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird serve
  bellbird serve --sandbox
  BELLBIRD_SECRETS__KEY=\"main:...\" bellbird serve --config /etc/bellbird.toml")]
pub(super) struct ServeArgs {
    /// What this instance does, if others share its PostgreSQL database; everything by default
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    only: Vec<Role>,

    /// Simulate the providers that have no credentials, with made-up people, in this process; needs
    /// SQLite
    #[cfg(feature = "sandbox")]
    #[arg(long)]
    sandbox: bool,

    #[command(flatten)]
    listen: ListenArgs,
}

pub(super) async fn run(setting_args: &SettingArgs, args: &ServeArgs) -> anyhow::Result<()> {
    let roles = Roles::only(args.only.clone());
    let first = match setting_args.first_start_folder()? {
        // Before anything is made.
        Some(_) if !roles.are_all() => bail!(service::SQLITE_SERVES_ONE),
        Some(folder) => FirstStart::begin(&folder, None)?,
        None => None,
    };
    let mut settings = match &first {
        Some(first) => setting_args.load_from(Some(first.draft()), Some(&args.listen))?,
        None => setting_args.load(Some(&args.listen))?,
    };
    let traces = settings
        .traces_url
        .as_ref()
        .map(|url| Traces::start(url))
        .transpose()
        .map_err(anyhow::Error::msg)?;
    let log = telemetry::start_log(&settings.log, traces.as_ref());
    change_level_on_hangup(setting_args.clone(), args.listen.clone(), &log)?;
    raise_open_files_limit();
    let stop = wiring::stop_on_signal(service::stop_timeout(&settings))?;
    let metrics = telemetry::start_metrics(&log, stop.clone())?;
    match first {
        Some(first) => {
            first.complete(&settings, actor::of_command()).await?;
            settings = setting_args.load(Some(&args.listen))?;
        }
        None => first_start::check_database(&settings)?,
    }
    // Says what is wrong with them before anything else is opened.
    wiring::providers(&settings, None)?;
    let sealer = wiring::required_sealer(&settings).await?;
    let sandbox = sandbox(&settings);
    let start = Start {
        roles,
        sealer,
        clock: Clock::system(),
        metrics,
        sandbox: sandbox.clone(),
        stop,
    };
    let mut service = Service::open(settings.clone(), start).await?;
    #[cfg(feature = "sandbox")]
    if args.sandbox {
        // Only now, because another service on the database may simulate the same providers. An
        // error ends this one, and below it would only leave out a provider.
        if let Some(sandbox) = &sandbox {
            sandbox.settings().await?;
        }
        let (storage, loader) = (&service.parts.storage, &service.parts.provider_loader);
        sandbox_beside::simulate_others(&settings, storage, loader, actor::of_command()).await?;
    }
    let setup_url = setup_url(&service).await?;
    // The page at that address asks for them.
    if setup_url.is_none() && service.parts.connections.provider_calls().is_empty() {
        tracing::warn!("providers: {}", wiring::no_provider_hint());
    }
    warn_operator(&service, &settings).await?;
    if setup_url.is_none()
        && !service.urls.console_url.is_empty()
        && wiring::find_operator(&service.parts.storage)
            .await?
            .is_none()
    {
        tracing::warn!("{}", wiring::NO_OPERATOR);
    }
    let urls = &service.urls;
    tracing::info!(
        api = urls.api_url,
        console = urls.console_url,
        ops = urls.ops_url,
        admin = urls.admin_url,
        "ready"
    );
    let setup_url = setup_url.as_ref().map(|url| url.expose_secret());
    let mut view = json!(urls);
    if let Some(url) = setup_url {
        view["setupUrl"] = json!(url);
    }
    output::print(&view, |_| text(&settings, urls, setup_url))?;
    service.start_background();
    if let Some(socket) = config::notify_socket()
        && let Err(error) = notify_ready(&socket)
    {
        tracing::warn!(%error, "could not tell systemd that the service is ready");
    }
    let served = service.serve(None).await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    tracing::info!("stopped");
    served
}

/// Simulates what operators choose in the console.
#[cfg(feature = "sandbox")]
fn sandbox(settings: &Settings) -> Option<Arc<dyn ProcessSandbox>> {
    let sandbox = SandboxBeside::of_service(settings)?;
    Some(Arc::new(sandbox))
}

#[cfg(not(feature = "sandbox"))]
fn sandbox(_: &Settings) -> Option<Arc<dyn ProcessSandbox>> {
    None
}

/// The address of the first page, until there is an operator. The code in it replaces the one of an
/// earlier start.
async fn setup_url(service: &Service) -> anyhow::Result<Option<SecretString>> {
    if service.urls.console_url.is_empty() {
        return Ok(None);
    }
    let mut change = actor::begin_change(&service.parts.storage).await?;
    let Some(code) = bellbird_management::first_start::new_code(&mut change).await? else {
        return Ok(None);
    };
    change.commit().await?;
    Ok(Some(code.url(&service.urls.public.console_url.get())))
}

fn text(settings: &Settings, urls: &Urls, setup_url: Option<&str>) -> String {
    let Urls {
        api_url,
        console_url,
        ops_url,
        admin_url,
        public,
        ..
    } = urls;
    let [public_api, public_console, _] = public.texts();
    let public = |own: &str, public: &str| match own == public {
        true => String::new(),
        false => format!(", public at {public}"),
    };
    let admin_url = admin_url.as_deref().unwrap_or_default();
    let urls = [
        ("API    ", api_url.as_str(), public(api_url, &public_api)),
        ("console", console_url, public(console_url, &public_console)),
        ("ops    ", ops_url, String::new()),
        ("admin  ", admin_url, String::new()),
    ];
    let lines: String = urls
        .iter()
        .filter(|(_, url, _)| !url.is_empty())
        .map(|(name, url, public)| format!("\n{name}  {url}{public}"))
        .collect();
    let setup = setup_url.map(|url| setup_text(settings, url));
    let setup = setup.unwrap_or_default();
    let stop = if terminal::stdout_is_terminal() {
        "\n\nPress Ctrl-C to stop."
    } else {
        ""
    };
    format!("Bellbird is running.\n{lines}{setup}{stop}")
}

fn setup_text(settings: &Settings, url: &str) -> String {
    let made = first_start::made_in(settings).map(|folder| {
        let contents = init::contents();
        format!("\n\nAll of it is in {}:\n\n{contents}", folder.display())
    });
    let is_for_others =
        settings.console.public_url.is_none() && !settings.console.listen.ip().is_loopback();
    let elsewhere = if is_for_others {
        "\n\nOn another computer, write the address or the .local name of this machine in the place of 127.0.0.1."
    } else {
        ""
    };
    format!(
        "\n\nSet it up in a browser. This address works once, in one browser, for an hour:\n\n  {url}{elsewhere}{}",
        made.unwrap_or_default()
    )
}

/// systemd then starts what is ordered after the unit, and `systemctl start` returns.
fn notify_ready(socket: &OsStr) -> io::Result<()> {
    UnixDatagram::unbound()?
        .send_to(b"READY=1", socket)
        .map(|_| ())
}

/// Reads the log level again when SIGHUP comes. Other settings need a restart.
fn change_level_on_hangup(
    settings: SettingArgs,
    listen: ListenArgs,
    log: &LogGuard,
) -> io::Result<()> {
    let (mut hangup, filter) = (signal(SignalKind::hangup())?, log.filter.clone());
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match settings.load(Some(&listen)) {
                Ok(settings) => {
                    filter.set(settings.log.level);
                    tracing::warn!(level = ?settings.log.level, "log level set");
                }
                Err(error) => {
                    tracing::error!(%error, "could not read settings, log level unchanged");
                }
            }
        }
    });
    Ok(())
}

/// Warns of secrets and instances that will not work together.
async fn warn_operator(service: &Service, settings: &Settings) -> anyhow::Result<()> {
    let storage = &service.parts.storage;
    for message in secrets::unopenable_messages(&storage.secrets().sealed().await?.unopenable) {
        tracing::warn!("secrets: {message}");
    }
    for Finding { text, .. } in
        instances::compare_with(&instances::running(storage).await?, settings)
    {
        tracing::warn!("instances: {text}");
    }
    Ok(())
}
