//! `bellbird connection`.

mod sync;

use std::io::Read as _;
use std::process::ExitCode;

use anyhow::{Context as _, bail};
use bellbird_api::views::{AccountView, ConnectionView};
use bellbird_connections::{Connections, LinkTo, Removal};
use bellbird_domain::{Connection, ConnectionId, ConnectionStatus};
use bellbird_providers::registry::PROVIDERS;
use bellbird_storage::{AuditRow, PendingRemoval, Storage, SyncState};
use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag};
use super::user::find_user;
use crate::{service, wiring};
use sync::SyncArgs;

/// No grant is longer.
const GRANT_BYTES_MAX: u64 = 64 * 1024;

/// Link, take over, list, show, sync and remove connections to institutions.
#[derive(Debug, Subcommand)]
pub(super) enum ConnectionCommand {
    Link(LinkArgs),
    Adopt(AdoptArgs),
    List(ListArgs),
    Show(ShowArgs),
    Sync(SyncArgs),
    Remove(RemoveArgs),
}

/// Print an address at which a user links an institution in the browser.
///
/// There the provider's own page asks for consent, and sends the user back to the console of the running service. The
/// address is a secret: who opens it links for this user. It can be opened for half an hour, several times. Without
/// --provider, its page lets the user choose, and shows what could be repaired.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  bellbird connection link --user me@example.com --provider fiskil
  bellbird connection link --reconnect 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(super) struct LinkArgs {
    /// Who links: e-mail address or id
    #[arg(long, required_unless_present = "reconnect")]
    user: Option<String>,

    /// The provider to link at
    #[arg(long, value_parser = PossibleValuesParser::new(PROVIDERS.iter().map(|provider| provider.name.as_str())))]
    provider: Option<String>,

    /// Connection to repair, whose user and provider are known: it keeps its id, and those of its accounts
    #[arg(long, value_name = "ID", conflicts_with_all = ["user", "provider"])]
    reconnect: Option<ConnectionId>,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `link --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LinkView<'a> {
    url: &'a str,
    expires_at: Timestamp,
}

/// Take over a consent that a user has given at a provider already.
///
/// The grant is one JSON object, whose members are the provider's own; when they are wrong, the command says what they
/// should be. Without the member that names one consent, all that the user has given are adopted. It is read from a
/// file or from standard input, never from an argument, as others on the machine can see those. The command works
/// beside a running service, and returns when the accounts are there. Adopting the same consent again renews it and
/// keeps all ids.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  echo '{\"endUserId\": \"eu_123\"}' | bellbird connection adopt --user me@example.com --provider fiskil --grant -")]
pub(super) struct AdoptArgs {
    /// Whose connection it will be: e-mail address or id
    #[arg(long)]
    user: String,

    /// The provider; not needed when the grant names it
    #[arg(long, value_parser = PossibleValuesParser::new(PROVIDERS.iter().map(|provider| provider.name.as_str())))]
    provider: Option<String>,

    /// File that holds the grant, or - for standard input
    #[arg(long, value_name = "FILE")]
    grant: String,

    #[command(flatten)]
    format: JsonFlag,
}

/// List connections, those that are being removed included.
///
/// One that is being removed is hidden from everybody but this list, until its consent is withdrawn at the provider. The
/// list says why that has not been done yet.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird connection list --user me@example.com")]
pub(super) struct ListArgs {
    /// One user's only: e-mail address or id
    #[arg(long)]
    user: Option<String>,

    #[command(flatten)]
    format: JsonFlag,
}

/// Show a connection, its accounts, and what has happened to it.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird connection show 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(super) struct ShowArgs {
    /// Id of the connection, as `connection list` shows it
    id: ConnectionId,

    #[command(flatten)]
    format: JsonFlag,
}

/// Withdraw a connection's consent at the provider, and forget everything about it.
///
/// The connection is hidden at once. When its consent cannot be withdrawn now, the command says why and ends with status
/// 1: a running service tries again until it is done, and `connection list` shows it until then. Running the command
/// again tries at once.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird connection remove 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(super) struct RemoveArgs {
    /// Id of the connection, as `connection list` shows it
    id: ConnectionId,

    /// Forget it without telling the provider, where the consent stays until the user withdraws it there. For a provider
    /// that can never be told again, or a grant whose master key is lost
    #[arg(long)]
    forget: bool,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `list --json` prints of each: the connection as the API shows it, and how its removal stands.
#[derive(Serialize)]
struct ListedConnection<'a> {
    #[serde(flatten)]
    connection: ConnectionView<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    removal: Option<RemovalView<'a>>,
}

/// A removal that waits.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RemovalView<'a> {
    attempts: u32,
    next_attempt_at: Option<Timestamp>,
    reason: Option<&'a str>,
}

/// What `remove --json` prints: the connection as it was, and what became of it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RemovedConnection<'a> {
    #[serde(flatten)]
    connection: ConnectionView<'a>,
    /// Nothing is left of it.
    removed: bool,
    consent_withdrawn: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    removal: Option<RemovalView<'a>>,
}

/// What `show --json` prints: the connection as the API shows it, with its syncs, its accounts, and its
/// history, oldest step first.
#[derive(Serialize)]
struct ShownConnection<'a> {
    #[serde(flatten)]
    connection: ConnectionView<'a>,
    sync: Option<SyncView<'a>>,
    accounts: Vec<AccountView<'a>>,
    history: Vec<StepView<'a>>,
}

/// How the syncs of a connection stand.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SyncView<'a> {
    synced_at: Option<Timestamp>,
    next_at: Option<Timestamp>,
    failed_attempts: u32,
    problem: Option<&'a str>,
}

impl<'a> From<&'a SyncState> for SyncView<'a> {
    fn from(state: &'a SyncState) -> Self {
        let SyncState { synced_at, next_at, attempts, problem } = state;
        Self { synced_at: *synced_at, next_at: *next_at, failed_attempts: *attempts, problem: problem.as_deref() }
    }
}

/// One step in a connection's life.
#[derive(Serialize)]
struct StepView<'a> {
    at: Timestamp,
    from: Option<ConnectionStatus>,
    to: Option<ConnectionStatus>,
    cause: &'a str,
}

pub(super) async fn run(settings: &SettingArgs, command: ConnectionCommand) -> anyhow::Result<ExitCode> {
    let settings = settings.load(None)?;
    let storage = match &command {
        ConnectionCommand::Adopt(_) | ConnectionCommand::Sync(_) | ConnectionCommand::Remove(_) => {
            wiring::open_sealed_storage(&settings).await?
        }
        ConnectionCommand::Link(_) | ConnectionCommand::List(_) | ConnectionCommand::Show(_) => {
            wiring::open_storage(&settings).await?
        }
    };
    let console = service::console_url(&settings);
    let providers = wiring::providers(&settings)?;
    let connections =
        wiring::connections(&settings, &storage, &providers, &wiring::outbox(&settings), console.as_deref());
    let result = match command {
        ConnectionCommand::Link(args) => link(&storage, &connections, &args).await.map(|()| ExitCode::SUCCESS),
        ConnectionCommand::Adopt(args) => adopt(&storage, &connections, &args).await.map(|()| ExitCode::SUCCESS),
        ConnectionCommand::List(args) => list(&storage, &args).await.map(|()| ExitCode::SUCCESS),
        ConnectionCommand::Show(args) => show(&storage, &args).await.map(|()| ExitCode::SUCCESS),
        ConnectionCommand::Sync(args) => sync::run(&storage, &connections, &args).await,
        ConnectionCommand::Remove(args) => remove(&storage, &connections, &args).await,
    };
    storage.close().await;
    result
}

async fn link(storage: &Storage, connections: &Connections, args: &LinkArgs) -> anyhow::Result<()> {
    let (user, to) = match (args.reconnect, &args.user) {
        (Some(id), _) => {
            let user = find(storage, id).await?.user_id;
            (storage.find_user(user).await?.context("the connection's user is gone")?, LinkTo::Connection(id))
        }
        (None, given) => {
            let to = args.provider.as_deref().map_or(LinkTo::Choice, LinkTo::Provider);
            (find_user(storage, given.as_deref().unwrap_or_default()).await?, to)
        }
    };
    let address = connections.new_address(user.id, to).await?;
    let view = LinkView { url: address.url.expose_secret(), expires_at: address.expires_at };
    output::print(args.format, &view, |view| view.url.to_owned())?;
    if !args.format.json {
        output::note(&format!(
            "Open it in a browser within half an hour, while the service runs. Who opens it links for {}.",
            user.email
        ));
    }
    Ok(())
}

async fn adopt(storage: &Storage, connections: &Connections, args: &AdoptArgs) -> anyhow::Result<()> {
    let grant = read_grant(&args.grant)?;
    let provider = provider_of(&grant, args.provider.as_deref())?;
    let user = find_user(storage, &args.user).await?;
    let adopted = connections.adopt(user.id, &provider, &grant).await?;
    for left_out in &adopted.left_out {
        output::note(&format!("{} was left out: {}", left_out.institution_name, left_out.reason));
    }
    let views: Vec<_> = adopted.connections.iter().map(ConnectionView::from).collect();
    output::print(args.format, &views, |views| table(views.iter()))
}

async fn list(storage: &Storage, args: &ListArgs) -> anyhow::Result<()> {
    let user = match &args.user {
        Some(user) => Some(find_user(storage, user).await?.id),
        None => None,
    };
    let mut removals = storage.list_removals().await?;
    removals.retain(|removal| user.is_none_or(|user| removal.connection.user_id == user));
    let mut listed = match user {
        Some(user) => storage.list_connections(user).await?,
        None => storage.list_all_connections().await?,
    };
    // What is being removed comes last. It may have gone, or come, between the two reads.
    listed.retain(|connection| connection.status != ConnectionStatus::Deleting);
    let staying = listed.iter().map(|connection| (connection, None));
    let going = removals.iter().map(|removal| (&removal.connection, Some(RemovalView::from(removal))));
    let views: Vec<_> = staying
        .chain(going)
        .map(|(connection, removal)| ListedConnection { connection: ConnectionView::from(connection), removal })
        .collect();
    output::print(args.format, &views, |views| {
        if views.is_empty() {
            return "There are no connections yet: `bellbird connection link --help` tells how to make one.".to_owned();
        }
        let mut text = table(views.iter().map(|view| &view.connection));
        for removal in &removals {
            text = format!("{text}\n\n{} is being removed: {}", removal.connection.id, stands(removal));
        }
        text
    })
}

/// How a removal stands, in words.
pub(super) fn stands(removal: &PendingRemoval) -> String {
    let next = output::when(removal.next_attempt_at);
    match &removal.problem {
        None => "its consent is about to be withdrawn.".to_owned(),
        Some(problem) => {
            let times = if removal.attempts == 1 { "once".to_owned() } else { format!("{} times", removal.attempts) };
            format!("{problem}. Tried {times}; a running service tries again at {next}.")
        }
    }
}

async fn show(storage: &Storage, args: &ShowArgs) -> anyhow::Result<()> {
    let connection = find(storage, args.id).await?;
    let accounts = storage.list_connection_accounts(connection.user_id, connection.id).await?;
    let history = storage.list_audit(connection.id).await?;
    let sync = storage.find_sync(connection.user_id, connection.id).await?;
    if args.format.json {
        let accounts = accounts.iter().map(AccountView::from).collect();
        fn step(row: &AuditRow) -> StepView<'_> {
            StepView { at: row.at, from: row.from, to: row.to, cause: &row.cause }
        }
        let history = history.iter().map(step).collect();
        let sync = sync.as_ref().map(SyncView::from);
        let shown = ShownConnection { connection: ConnectionView::from(&connection), sync, accounts, history };
        return output::print(args.format, &shown, |_| String::new());
    }
    let user = storage.find_user(connection.user_id).await?.map_or_else(|| "-".to_owned(), |user| user.email);
    let text = output::details(&[
        ("id", connection.id.to_string()),
        ("user", user),
        ("provider", connection.provider.clone()),
        ("institution", connection.institution_name.clone()),
        ("status", connection.status.to_string()),
        ("refreshed", output::when(connection.last_refreshed_at)),
        ("synced", output::when(sync.as_ref().and_then(|sync| sync.synced_at))),
        ("next sync", output::when(sync.as_ref().and_then(|sync| sync.next_at))),
        ("problem", sync.and_then(|sync| sync.problem).unwrap_or_else(|| "-".to_owned())),
        ("created", output::when(Some(connection.created_at))),
    ]);
    let rows = accounts.iter().map(|account| {
        let number = account.number.as_ref().map_or("-", |number| number.as_str()).to_owned();
        let currency = account.currency.to_string();
        [account.name.clone(), account.account_type.to_string(), number, currency, account.id.to_string()]
    });
    let table = output::table(["account", "type", "number", "currency", "id"], rows);
    let status = |status: Option<ConnectionStatus>| status.map_or_else(|| "-".to_owned(), |status| status.to_string());
    let steps =
        history.iter().map(|row| [output::when(Some(row.at)), status(row.from), status(row.to), row.cause.clone()]);
    let steps = output::table(["at", "from", "to", "cause"], steps);
    output::print_text(&format!("{text}\n\n{table}\n\n{steps}"))
}

async fn remove(storage: &Storage, connections: &Connections, args: &RemoveArgs) -> anyhow::Result<ExitCode> {
    let connection = find(storage, args.id).await?;
    let removal = if args.forget { connections.forget(args.id).await? } else { connections.remove(args.id).await? };
    let removed = removal == Removal::Done;
    let waiting = match &removal {
        Removal::Done => None,
        Removal::Waiting { .. } => storage.list_removals().await?.into_iter().find(|one| one.connection.id == args.id),
    };
    let view = RemovedConnection {
        connection: ConnectionView::from(waiting.as_ref().map_or(&connection, |waiting| &waiting.connection)),
        removed,
        consent_withdrawn: removed && !args.forget,
        removal: waiting.as_ref().map(RemovalView::from),
    };
    let name = &connection.institution_name;
    match removal {
        Removal::Done => {
            output::print(args.format, &view, |_| {
                if args.forget {
                    format!(
                        "Forgot the connection to {name}. Its consent stays at the provider until the user withdraws it there."
                    )
                } else {
                    format!("Removed the connection to {name}.")
                }
            })?;
            Ok(ExitCode::SUCCESS)
        }
        Removal::Waiting { reason, next_attempt_at } => {
            if args.format.json {
                output::print(args.format, &view, |_| String::new())?;
            }
            let again = next_attempt_at
                .map_or_else(|| "in a few minutes".to_owned(), |next| format!("at {}", output::when(Some(next))));
            output::note(&format!(
                "error: the connection to {name} is hidden, but its consent is not withdrawn yet: {reason}. A running \
                 service tries again {again} and goes on until it is done; `bellbird connection list` shows it until then"
            ));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn find(storage: &Storage, id: ConnectionId) -> anyhow::Result<Connection> {
    let found = storage.find_connection_any(id).await?;
    found.with_context(|| format!("there is no connection {id}: `bellbird connection list` shows the ids"))
}

fn table<'v>(views: impl Iterator<Item = &'v ConnectionView<'v>>) -> String {
    let rows = views.map(|view| {
        [
            view.institution_name.to_owned(),
            view.provider.to_owned(),
            view.status.to_string(),
            output::when(view.last_refreshed_at),
            view.id.to_string(),
        ]
    });
    output::table(["institution", "provider", "status", "refreshed", "id"], rows)
}

impl<'a> From<&'a PendingRemoval> for RemovalView<'a> {
    fn from(removal: &'a PendingRemoval) -> Self {
        let PendingRemoval { attempts, next_attempt_at, problem, .. } = removal;
        Self { attempts: *attempts, next_attempt_at: *next_attempt_at, reason: problem.as_deref() }
    }
}

/// Reads the grant and sees to it that it is a JSON object. No error repeats any of it.
fn read_grant(from: &str) -> anyhow::Result<SecretString> {
    let mut text = String::new();
    let read = if from == "-" {
        std::io::stdin().lock().take(GRANT_BYTES_MAX).read_to_string(&mut text)
    } else {
        std::fs::File::open(from).and_then(|file| file.take(GRANT_BYTES_MAX).read_to_string(&mut text))
    };
    read.with_context(|| match from {
        "-" => "the grant cannot be read from standard input".to_owned(),
        file => format!("the grant cannot be read from {file}"),
    })?;
    Ok(SecretString::from(text))
}

/// The provider that was asked for, or the one that the grant names; both must agree.
fn provider_of(grant: &SecretString, asked: Option<&str>) -> anyhow::Result<String> {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(grant.expose_secret()) else {
        bail!("the grant is not a JSON object: `bellbird connection adopt --help` shows one");
    };
    let named = match object.get("provider") {
        None => None,
        Some(serde_json::Value::String(name)) => Some(name.as_str()),
        Some(_) => bail!("the grant's `provider` is not text"),
    };
    match (asked, named) {
        (Some(asked), Some(named)) if asked != named => {
            bail!("the grant is for the provider {named}, not for {asked}")
        }
        (Some(name), _) | (None, Some(name)) => Ok(name.to_owned()),
        (None, None) => bail!("the grant does not name its provider: say it with --provider"),
    }
}
