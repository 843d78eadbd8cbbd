//! `bellbird demo`: runs the service and the sandbox providers in one process, with made-up users.

use std::path::absolute;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use bellbird_connections::{Connections, LinkTarget};
use bellbird_console::Demo;
use bellbird_domain::user::DEFAULT_TIMEZONE;
use bellbird_domain::{AccountType, ApiKey, Clock, ConnectionCategory, Plan, User, UserId, random};
use bellbird_management::keys::{self, NewKey};
use bellbird_management::users;
use bellbird_providers::registry::ProviderSettings;
use bellbird_sandbox::Description;
use bellbird_storage::{NewUser, Sealer, Storage, UserChange};
use clap::Args;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

use super::arguments::{ListenArgs, SettingArgs};
use super::sandbox::DataArgs;
use super::webhook::add::{self as webhook, checked_url};
use super::{actor, output, simplefin};
use crate::config::{Settings, terminal};
use crate::first_start;
use crate::roles::Roles;
use crate::sandbox_beside::{SandboxBeside, simulate_others};
use crate::service::{self, Service, Start};
use crate::telemetry;
use crate::wiring::{self, Urls};

const PROFESSIONAL: &str = "demo@bellbird.example";
const DEVELOPER: &str = "developer@bellbird.example";
const SAVER: &str = "saver@bellbird.example";

/// Try Bellbird with simulated providers and made-up users.
///
/// Needs no settings, no database server and no provider account. There are three users, one for
/// each plan. The database is a temporary file that is deleted at the end, unless database.url is
/// set. The console opens in a browser, if there is one, and its start page makes new link URLs.
/// With --webhook, it prints the secret of the endpoint, and the first events follow at once.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird demo
  bellbird demo --webhook http://127.0.0.1:9000/
  bellbird demo --json --api-listen 127.0.0.1:0 | jq -r .apiKey")]
pub(super) struct DemoArgs {
    /// Send webhook events of the first user to this URL, which may be of this machine
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,

    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    listen: ListenArgs,
}

/// What `--json` prints once the service is ready.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct DemoView<'a> {
    #[serde(flatten)]
    urls: &'a Urls,
    api_key: &'a str,
    developer_key: &'a str,
    saver_key: &'a str,
    email: &'a str,
    timezone: &'a str,
    link_url: &'a str,
    /// Of the professional user.
    simplefin_token: &'a str,
    /// With `--webhook`.
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook_secret: Option<&'a str>,
    /// None if its URL has a password.
    database: Option<&'a str>,
    /// The master key, if none is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    secrets_key: Option<&'a str>,
    sandbox: &'a Description,
}

/// A user of the demo with an API key.
struct Person {
    user: User,
    key: ApiKey,
}

pub(super) async fn run(settings: &SettingArgs, args: &DemoArgs) -> anyhow::Result<()> {
    // Not those of an installation elsewhere: made-up users do not belong there.
    let mut settings = settings.load_here(Some(&args.listen))?;
    // Receivers are on this machine, and made-up accounts have nothing to lose.
    settings.webhooks.rules.allow_loopback = true;
    let webhook = match &args.webhook {
        Some(url) => Some(checked_url(&settings, url).await?),
        None => None,
    };
    let log = telemetry::start_log(&settings.log, None);
    let stop = wiring::stop_on_signal(service::stop_timeout(&settings))?;
    let metrics = telemetry::start_metrics(&log, stop.clone())?;
    settings.providers = ProviderSettings::default();
    // They would take the places of others in the folder.
    settings.backups = None;
    let folder = use_temporary_database(&mut settings)?;
    let sandbox = Arc::new(SandboxBeside::new(&settings, args.data.options()));
    let database = shown_database(&settings);
    // The database may outlive the demo, and each run that makes a key makes another one.
    let made_key = first_start::new_master_key(&format!("demo-{:016x}", random::number()));
    let (sealer, secrets_key) = match wiring::sealer(&settings)? {
        Some(sealer) => (sealer, None),
        None => (Sealer::parse(&made_key)?, Some(made_key.as_str())),
    };
    let start = Start {
        roles: Roles::all(),
        sealer,
        clock: Clock::system(),
        metrics,
        sandbox: Some(Arc::clone(&sandbox) as _),
        stop: stop.clone(),
    };
    let mut service = Service::open(settings.clone(), start).await?;
    let (storage, loader) = (&service.parts.storage, &service.parts.provider_loader);
    simulate_others(&settings, storage, loader, actor::of_command()).await?;
    let description = sandbox.running().await?.description();
    let (storage, connections) = (
        service.parts.storage.clone(),
        service.parts.connections.clone(),
    );
    let [professional, developer, saver] = add_people(&storage, &connections, description).await?;
    let user = &professional.user;
    let endpoint = match &webhook {
        Some(url) => Some(webhook::insert(&storage, Some(user), url, None, None).await?),
        None => None,
    };
    let demo = Demo {
        user: user.id,
        email: user.email.clone(),
        database: database.clone(),
    };
    // The button of its pages needs no key, so it is for this machine only.
    let is_local = service.is_console_local();
    let links = connections.links();
    let prepared = links
        .prepare_link(user.id, LinkTarget::UserChoice, None)
        .await?;
    let mut change = actor::begin_change(&storage).await?;
    let link = bellbird_management::links::create(&mut change, prepared).await?;
    change.commit().await?;
    let api_url = service.urls.public.api_url.get();
    let (token, _) = simplefin::create_setup_token(&storage, user.id, None, &api_url).await?;
    let view = DemoView {
        urls: &service.urls,
        api_key: professional.key.expose(),
        developer_key: developer.key.expose(),
        saver_key: saver.key.expose(),
        email: &user.email,
        timezone: user.timezone.as_deref().unwrap_or(DEFAULT_TIMEZONE),
        link_url: link.url.expose_secret(),
        simplefin_token: token.expose_secret(),
        webhook_secret: endpoint.as_ref().map(|made| made.secret.expose_secret()),
        database: database.as_deref(),
        secrets_key,
        sandbox: description,
    };
    let paths = if output::is_json() {
        Vec::new()
    } else {
        paths_to_try(&storage, user).await?
    };
    output::print(&view, |view| text(view, &paths, folder.is_some(), is_local))?;
    service.start_background();
    if is_local && !output::is_json() && terminal::has_browser() {
        // Without one, the address is on the terminal.
        let _ = open::that_detached(&service.urls.console_url);
    }
    if webhook.is_some() {
        let (connections, user) = (connections.clone(), user.id);
        let syncing = async move { sync_all(&storage, &connections, user).await };
        tokio::spawn(stop.run_until_cancelled_owned(syncing));
    }
    service.serve(is_local.then_some(demo)).await?;
    if let Some(folder) = folder {
        folder
            .close()
            .context("could not delete the temporary database")?;
    }
    if !output::is_json() {
        output::print_text("The demo has ended.")?;
    }
    Ok(())
}

/// The URL of the database for commands that run beside the demo. None if it may hold a password.
fn shown_database(settings: &Settings) -> Option<String> {
    let path = Storage::sqlite_path(settings.database.url.expose_secret())?;
    Some(format!(
        "sqlite:{}",
        absolute(&path).unwrap_or(path).display()
    ))
}

/// Sets a temporary database, unless the settings name one.
fn use_temporary_database(settings: &mut Settings) -> anyhow::Result<Option<TempDir>> {
    if settings.origin("database.url").is_some() {
        return Ok(None);
    }
    let folder = tempfile::Builder::new()
        .prefix("bellbird-demo-")
        .tempdir()
        .context("could not create a folder for the temporary database")?;
    let path = folder.path().join("bellbird.db");
    let path = path.to_str().ok_or_else(|| {
        anyhow!("the path of the temporary folder is not UTF-8: set TMPDIR to another folder")
    })?;
    settings.database.url = SecretString::from(format!("sqlite:{path}"));
    Ok(Some(folder))
}

/// Adds the three users, professional first, and imports the connections of the first two.
async fn add_people(
    storage: &Storage,
    connections: &Connections,
    description: &Description,
) -> anyhow::Result<[Person; 3]> {
    let people = [
        add_person(storage, PROFESSIONAL, Plan::Professional).await?,
        add_person(storage, DEVELOPER, Plan::Developer).await?,
        add_person(storage, SAVER, Plan::Saver).await?,
    ];
    // The first two credentials of each provider belong to the sandbox's first person, the third of
    // all to its second person. The rest is left to try `connection import` with.
    let all_credentials = description
        .credentials
        .iter()
        .map(serde_json::to_value)
        .collect::<Result<Vec<_>, _>>()?;
    let providers = all_credentials.chunk_by(|one, next| one["provider"] == next["provider"]);
    for credentials in providers.flat_map(|all_credentials| all_credentials.iter().take(2)) {
        import(connections, &people[0], credentials).await?;
    }
    if let Some(credentials) = all_credentials.get(2) {
        import(connections, &people[1], credentials).await?;
    }
    Ok(people)
}

async fn import(
    connections: &Connections,
    person: &Person,
    credentials: &Value,
) -> anyhow::Result<()> {
    let provider = credentials["provider"].as_str().unwrap_or_default();
    let imported = connections
        .imports()
        .import(
            person.user.id,
            provider,
            &SecretString::from(credentials.to_string()),
        )
        .await;
    imported
        .with_context(|| format!("could not import the sandbox's credentials for {provider}"))?;
    Ok(())
}

async fn add_person(storage: &Storage, email: &str, plan: Plan) -> anyhow::Result<Person> {
    let found = storage.users().find_by_email(email).await?;
    let mut change = actor::begin_change(storage).await?;
    let user = match found {
        Some(user) => user,
        None => {
            let timezone = Some(DEFAULT_TIMEZONE);
            let new = NewUser {
                email,
                plan,
                timezone,
                reference: None,
                console_sign_in: true,
            };
            users::create(&mut change, &new).await?
        }
    };
    let operator = UserChange {
        is_operator: Some(email == PROFESSIONAL),
        ..UserChange::default()
    };
    let user = users::update(&mut change, user.id, &operator).await?;
    let name = "demo".parse().map_err(anyhow::Error::msg)?;
    let new = NewKey {
        user_id: user.id,
        name: Some(&name),
        expires_at: None,
    };
    let key = keys::create(&mut change, new).await?.key;
    change.commit().await?;
    Ok(Person { user, key })
}

/// Syncs the user's connections, so that their first events need not wait for the schedule. The end
/// of the demo interrupts it.
async fn sync_all(storage: &Storage, connections: &Connections, user: UserId) {
    let all = match storage.connections().list(user).await {
        Ok(all) => all,
        Err(error) => return tracing::warn!(%error, "could not list the connections of the demo"),
    };
    for connection in all {
        if let Err(error) = connections.syncs().run(user, connection.id).await {
            tracing::warn!(%error, connection_id = %connection.id, "could not sync");
        }
    }
}

/// Example paths of the API, with ids of this demo.
async fn paths_to_try(storage: &Storage, user: &User) -> anyhow::Result<Vec<String>> {
    let (accounts, _) = storage.accounts().list(user.id, 50, 0).await?;
    let ids: Vec<_> = accounts
        .iter()
        .take(3)
        .map(|account| account.id.to_string())
        .collect();
    let mut paths = vec![
        "/v1/accounts".to_owned(),
        format!("/v1/balances?accountIds={}", ids.join(",")),
    ];
    let connections = storage.connections().list(user.id).await?;
    let (brokers, banks): (Vec<_>, Vec<_>) = connections
        .iter()
        .partition(|connection| connection.category == ConnectionCategory::Brokerage);
    let mut at_banks = accounts
        .iter()
        .filter(|account| banks.iter().any(|bank| bank.id == account.connection_id));
    if let Some(account) = at_banks.find(|account| account.account_type == AccountType::Transaction)
    {
        let (connection, account) = (account.connection_id, account.id);
        paths.push(format!(
            "/v1/transactions?connectionId={connection}&accountId={account}&limit=5"
        ));
    }
    if let Some(broker) = brokers.first() {
        paths.push(format!("/v1/holdings?connectionId={}", broker.id));
        paths.push(format!("/v1/trades?connectionId={}&limit=5", broker.id));
    }
    Ok(paths)
}

fn text(view: &DemoView<'_>, paths: &[String], is_temporary: bool, is_local: bool) -> String {
    let Urls {
        api_url: api,
        console_url: console,
        ops_url: ops,
        ..
    } = view.urls;
    let curls: Vec<_> = paths
        .iter()
        .map(|path| format!("  curl -s -H \"Authorization: Bearer $BELLBIRD_KEY\" '{api}{path}'"))
        .collect();
    let look = if is_local {
        format!("See the accounts in a browser:\n\n  {console}\n\n")
    } else {
        String::new()
    };
    let new_links = if is_local {
        format!(" After that, {console} makes a new link.")
    } else {
        String::new()
    };
    let mut settings = match view.database {
        Some(url) => format!("export BELLBIRD_DATABASE__URL='{url}'"),
        None => "database.url as it is set here".to_owned(),
    };
    if let Some(key) = view.secrets_key {
        settings.push_str(&format!("\n  export BELLBIRD_SECRETS__KEY='{key}'"));
    }
    let webhook = view.webhook_secret.map_or_else(String::new, |secret| {
        format!(
            "Webhook events of the last thirty days are being sent. Their receiver verifies them with this secret, and \
             an event that\nfinds no receiver is sent again, at first after seconds:\n\n  \
             export BELLBIRD_WEBHOOK_SECRET={secret}\n\n"
        )
    });
    let fate = if is_temporary {
        ", which is deleted at the end,"
    } else {
        ""
    };
    format!(
        "Bellbird is running at {api} with simulated providers and made-up users.\n\n\
         {look}Try it in another terminal:\n\n  \
         export BELLBIRD_KEY={}\n\n{}\n\n\
         Link another bank or broker in the browser. This link works for half an hour.{new_links}\n\n  {}\n\n\
         Read the accounts with Actual Budget or another program that speaks SimpleFIN. It takes this setup token \
         once,\nwithin an hour:\n\n  {}\n\n\
         Let an assistant that speaks MCP read them: at {api}/mcp with that key, or by the command\n\n  \
         BELLBIRD_URL={api} BELLBIRD_KEY=$BELLBIRD_KEY bellbird mcp\n\n\
         Save the transactions of the last 30 days as a file, or more with ?from=2026-01-01:\n\n  \
         curl -fsS -o transactions.csv -H \"Authorization: Bearer $BELLBIRD_KEY\" \
         '{api}/v1/export/transactions.csv'\n\n\
         {webhook}\
         Commands such as `bellbird user` and `bellbird webhook` find the database{fate} with\n\n  {settings}\n\n\
         The API reference is at {api}/docs, and metrics are at {ops}/metrics. Press Ctrl-C to stop.",
        view.api_key,
        curls.join("\n\n"),
        view.link_url,
        view.simplefin_token,
    )
}
