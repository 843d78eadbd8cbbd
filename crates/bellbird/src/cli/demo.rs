//! `bellbird demo`: everything in one process, over made-up people.

use anyhow::{Context as _, anyhow};
use bellbird_connections::Connections;
use bellbird_domain::user::DEFAULT_TIMEZONE;
use bellbird_domain::{AccountType, ApiKey, Plan, User};
use bellbird_sandbox::{Description, Grant, Sandbox};
use bellbird_storage::{NewUser, Sealer, Storage};
use clap::Args;
use jiff::Timestamp;
use secrecy::SecretString;
use serde::Serialize;
use tempfile::TempDir;

use super::arguments::{ListenArgs, SettingArgs};
use super::output::{self, JsonFlag};
use super::sandbox::{self, DataArgs};
use crate::config::Settings;
use crate::service::{self, Listeners, Routers, Urls};
use crate::{telemetry, wiring};

const PROFESSIONAL: &str = "demo@bellbird.example";
const DEVELOPER: &str = "developer@bellbird.example";
const SAVER: &str = "saver@bellbird.example";

/// Run everything in one process, with made-up people and banks, to try it out.
///
/// Needs no settings, no database server and no account anywhere. There are three users, one for each plan. The
/// database is a temporary file, gone at the end, unless database.url is set.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird demo
  bellbird demo --json --api-listen 127.0.0.1:0 | jq -r .apiKey")]
pub(super) struct DemoArgs {
    #[command(flatten)]
    data: DataArgs,

    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `--json` prints.
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
    sandbox: &'a Description,
}

/// A user of the demo, with a key.
struct Person {
    user: User,
    key: ApiKey,
}

pub(super) async fn run(settings: &SettingArgs, args: &DemoArgs) -> anyhow::Result<()> {
    let mut settings = settings.load(Some(&args.listen))?;
    let _log = telemetry::start_log(&settings.log);
    let stop = wiring::stop_on_signal()?;
    let metrics = telemetry::start_metrics(stop.clone())?;
    let listeners = Listeners::open(&settings).await?;
    let sandbox = sandbox::start(&args.data, ([127, 0, 0, 1], 0).into()).await.context("the sandbox cannot listen")?;
    let folder = point_at_sandbox(&mut settings, &sandbox)?;
    let storage = wiring::open(&settings, wiring::sealer(&settings)?.unwrap_or_else(Sealer::random)).await?;
    service::migrate(&storage).await?;
    let providers = wiring::providers(&settings)?;
    let people = add_people(&storage, &wiring::connections(&storage, &providers), sandbox.description()).await?;
    let urls = listeners.urls();
    let routers = Routers::new(&settings, &storage, &providers, metrics, &urls);
    say_ready(&storage, args.format, &urls, &people, sandbox.description()).await?;
    listeners.serve(&settings, routers, stop).await;
    storage.close().await;
    sandbox.stop().await;
    if let Some(folder) = folder {
        folder.close().context("the demo's database cannot be removed")?;
    }
    Ok(())
}

/// Takes the sandbox's providers in the place of all configured ones, and a temporary database if none is configured.
fn point_at_sandbox(settings: &mut Settings, sandbox: &Sandbox) -> anyhow::Result<Option<TempDir>> {
    let access = &sandbox.description().fiskil;
    settings.fiskil.base_url.clone_from(&access.base_url);
    settings.fiskil.client_id = Some(access.client_id.clone());
    settings.fiskil.client_secret = Some(SecretString::from(access.client_secret.clone()));
    if settings.origin("database", "url").is_some() {
        return Ok(None);
    }
    let folder = tempfile::Builder::new().prefix("bellbird-demo-").tempdir().context("no room for a database")?;
    let path = folder.path().join("bellbird.db");
    let path = path.to_str().ok_or_else(|| anyhow!("the folder for temporary files has no readable name"))?;
    settings.database.url = SecretString::from(format!("sqlite:{path}"));
    Ok(Some(folder))
}

/// Adds the three people, professional first, and gives the first two their connections.
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
    // Two consents of the sandbox's first person, one of the second's; the others are left to try `adopt` with.
    for (grant, person) in description.grants.iter().zip([&people[0], &people[0], &people[1]]) {
        let Grant::Fiskil { .. } = grant;
        let grant = SecretString::from(serde_json::to_string(grant)?);
        connections.adopt(person.user.id, "fiskil", &grant).await.context("the sandbox's grant was not adopted")?;
    }
    Ok(people)
}

async fn add_person(storage: &Storage, email: &str, plan: Plan) -> anyhow::Result<Person> {
    let now = Timestamp::now();
    let user = match storage.find_user_by_email(email).await? {
        Some(user) => user,
        None => storage.insert_user(&NewUser { email, plan, timezone: Some(DEFAULT_TIMEZONE) }, now).await?,
    };
    let key = wiring::new_key()?;
    storage.insert_key(user.id, &key, "demo", None, now).await?;
    Ok(Person { user, key })
}

async fn say_ready(
    storage: &Storage,
    format: JsonFlag,
    urls: &Urls,
    people: &[Person; 3],
    sandbox: &Description,
) -> anyhow::Result<()> {
    let [professional, developer, saver] = people;
    let view = DemoView {
        urls,
        api_key: professional.key.expose(),
        developer_key: developer.key.expose(),
        saver_key: saver.key.expose(),
        email: &professional.user.email,
        timezone: professional.user.timezone.as_deref().unwrap_or(DEFAULT_TIMEZONE),
        sandbox,
    };
    let paths = if format.json { Vec::new() } else { paths_to_try(storage, &professional.user).await? };
    output::print(format, &view, |view| text(view, &paths))
}

/// Three paths of the API, with ids that are there.
async fn paths_to_try(storage: &Storage, user: &User) -> anyhow::Result<Vec<String>> {
    let (accounts, _) = storage.list_accounts(user.id, 50, 0).await?;
    let ids: Vec<_> = accounts.iter().take(3).map(|account| account.id.to_string()).collect();
    let everyday = accounts.iter().find(|account| account.account_type == AccountType::Transaction);
    let mut paths = vec!["/v1/accounts".to_owned(), format!("/v1/balances?accountIds={}", ids.join(","))];
    paths.extend(everyday.or(accounts.first()).map(|account| {
        let (connection, account) = (account.connection_id, account.id);
        format!("/v1/transactions?connectionId={connection}&accountId={account}&limit=5")
    }));
    Ok(paths)
}

fn text(view: &DemoView<'_>, paths: &[String]) -> String {
    let api = &view.urls.api_url;
    let curls: Vec<_> = paths
        .iter()
        .map(|path| format!("  curl -s -H \"Authorization: Bearer $BELLBIRD_KEY\" '{api}{path}'"))
        .collect();
    format!(
        "Bellbird runs at {api}, with made-up people and banks. Try it in another terminal:\n\n  \
         export BELLBIRD_KEY={}\n\n{}\n\n\
         The reference is at {api}/docs, metrics are at {}/metrics. Stop it with Ctrl-C.",
        view.api_key,
        curls.join("\n\n"),
        view.urls.ops_url
    )
}
