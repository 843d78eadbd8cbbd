//! `bellbird connection`: links, imports, lists, shows, syncs and removes connections.

mod link;
mod remove;
mod sync;

use std::collections::BTreeMap;

use anyhow::bail;
use bellbird_api::v1::{AccountView, ConnectionView};
use bellbird_connections::Connections;
use bellbird_domain::{
    Connection, ConnectionId, ConnectionStatus, CurrentText, MaskedNumber, UserId,
};
use bellbird_storage::{AuditAction, PendingRemoval, Storage, UnreadableRows};
use clap::{Args, Subcommand};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::json;

use super::actor;
use super::arguments::{self, SettingArgs};
use super::output::{self, format_instant, or_dash};
use super::user::{UserArgs, UserFilter};
use crate::failure::Failure;
use crate::wiring::Wiring;
use crate::{instances, wiring};
use link::{LinkArgs, LinkStatusArgs};
use remove::RemoveArgs;
use sync::SyncArgs;

/// Link, import, list, show, sync and remove connections to institutions.
#[derive(Subcommand)]
pub(super) enum ConnectionCommand {
    Link(LinkArgs),
    LinkStatus(LinkStatusArgs),
    Import(ImportArgs),
    /// List connections with their users, including those with a pending removal.
    ///
    /// A connection with a pending removal appears only in this list, until its consent is
    /// withdrawn at the provider. The list shows the last error of the withdrawal.
    #[command(after_long_help = "Example:
  bellbird connection list --user me@example.com")]
    List(ListArgs),
    Show(ShowArgs),
    Sync(SyncArgs),
    Remove(RemoveArgs),
}

/// Import existing consents of a user from a provider.
///
/// The credentials are one JSON object with members of the provider; an error lists the expected
/// members. Without the member that names a single consent, the command imports all consents that
/// the credentials cover.
///
/// The credentials are read from a file or standard input, because other users of the machine can
/// see arguments. The command works while the service is running and returns when the accounts are
/// imported. Importing the same consent again renews its credentials and keeps all ids.
#[derive(Args)]
#[command(after_long_help = "Example:
  echo '{\"endUserId\": \"eu_123\"}' |
    bellbird connection import --user me@example.com --provider fiskil --credentials -")]
pub(super) struct ImportArgs {
    #[command(flatten)]
    user: UserArgs,

    /// Provider of the credentials; not needed if they have a `provider` member
    #[arg(long, value_parser = arguments::provider_name())]
    provider: Option<String>,

    /// File with the credentials, or - for standard input
    #[arg(long, value_name = "FILE")]
    credentials: String,
}

#[derive(Args)]
pub(super) struct ListArgs {
    #[command(flatten)]
    user: UserFilter,

    /// Show only those with this status
    #[arg(long, value_parser = arguments::one_of(ConnectionStatus::ALL, ConnectionStatus::as_str))]
    status: Option<ConnectionStatus>,
}

/// Show a connection with its accounts and its history.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird connection show 0198c7e2-7b1c-7d53-a1b2-0f4f4c1d2e3f")]
pub(super) struct ShowArgs {
    /// Id of the connection, as `connection list` shows it
    #[arg(value_parser = arguments::connection_id)]
    id: ConnectionId,
}

/// A connection as `list --json` prints it: as the API shows it, with its user, the number of its
/// accounts and its pending removal.
#[derive(Serialize)]
struct ListedConnection<'a> {
    user: &'a str,
    #[serde(flatten)]
    connection: ConnectionView<'a>,
    accounts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    removal: Option<&'a PendingRemoval>,
}

pub(super) async fn run(settings: &SettingArgs, command: ConnectionCommand) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = match &command {
        ConnectionCommand::Import(_)
        | ConnectionCommand::Sync(_)
        | ConnectionCommand::Remove(_) => wiring::open_sealed_storage(&settings).await?,
        _ => wiring::open_storage(&settings).await?,
    };
    let console = instances::console_url(&settings, &storage).await?;
    let connections = Wiring::new(&settings, &storage)
        .await?
        .connections(console.as_deref().map(CurrentText::from));
    let result = match command {
        ConnectionCommand::Link(args) => link::run(&storage, &connections, &args).await,
        ConnectionCommand::LinkStatus(args) => link::status(&connections, &args).await,
        ConnectionCommand::Import(args) => import(&storage, &connections, &args).await,
        ConnectionCommand::List(args) => list(&storage, &args).await,
        ConnectionCommand::Show(args) => show(&storage, &args).await,
        ConnectionCommand::Sync(args) => sync::run(&storage, &connections, &args).await,
        ConnectionCommand::Remove(args) => remove::run(&storage, &connections, &args).await,
    };
    storage.close().await;
    result
}

async fn import(
    storage: &Storage,
    connections: &Connections,
    args: &ImportArgs,
) -> anyhow::Result<()> {
    let credentials = arguments::read_secret(&args.credentials, "the credentials")?;
    let provider = provider_of(&credentials, args.provider.as_deref())?;
    let user = args.user.find(storage).await?;
    let imported = connections
        .imports()
        .import(user.id, &provider, &credentials)
        .await?;
    for connection in &imported.connections {
        let action = AuditAction::of_user("connection.import", user.id).about(connection.id);
        actor::record(storage, &action).await?;
    }
    for skipped in &imported.skipped {
        output::note(&format!(
            "{} was not imported: {}",
            skipped.institution_name, skipped.reason
        ));
    }
    let views: Vec<_> = imported
        .connections
        .iter()
        .map(ConnectionView::from)
        .collect();
    output::print(&views, |views| {
        let head = [
            "institution",
            "provider",
            "status",
            "consent ends",
            "refreshed",
            "id",
        ];
        output::table(head, views.iter().map(row))
    })
}

impl ListedConnection<'_> {
    fn row(&self) -> [String; 8] {
        let [institution, provider, status, ends, refreshed, id] = row(&self.connection);
        output::row![
            self.user,
            institution,
            provider,
            self.accounts,
            status,
            ends,
            refreshed,
            id,
        ]
    }
}

async fn list(storage: &Storage, args: &ListArgs) -> anyhow::Result<()> {
    let user = args.user.find(storage).await?.map(|user| user.id);
    let mut removals = storage.removals().list().await?;
    removals.retain(|removal| user.is_none_or(|user| removal.connection.user_id == user));
    let mut listed = match user {
        Some(user) => storage.connections().list(user).await?,
        None => storage.connections().list_all().await?,
    };
    // Pending removals come last, and only from `removals`: the two reads are not one transaction.
    listed.retain(|connection| connection.status != ConnectionStatus::Deleting);
    if let Some(status) = args.status {
        listed.retain(|connection| connection.status == status);
        removals.retain(|removal| removal.connection.status == status);
    }
    let others = listed.iter().map(|connection| (connection, None));
    let pending = removals
        .iter()
        .map(|removal| (&removal.connection, Some(removal)));
    let accounts = storage.accounts().count().await?;
    let emails: BTreeMap<_, _> = storage
        .users()
        .list()
        .await?
        .into_iter()
        .map(|user| (user.id, user.email))
        .collect();
    let views: Vec<_> = others
        .chain(pending)
        .map(|(connection, removal)| ListedConnection {
            user: emails.get(&connection.user_id).map_or("-", String::as_str),
            connection: ConnectionView::from(connection),
            accounts: accounts.get(&connection.id).copied().unwrap_or(0),
            removal,
        })
        .collect();
    let none = match args.status {
        Some(status) => format!("No connection is {status}."),
        None => {
            "No connections yet. Create one with `bellbird connection link` or `bellbird connection import`.".to_owned()
        }
    };
    let head = [
        "user",
        "institution",
        "provider",
        "accounts",
        "status",
        "consent ends",
        "refreshed",
        "id",
    ];
    let removing = removals.iter().map(|removal| {
        let (id, status) = (removal.connection.id, removal_status(removal));
        format!("{id} is being removed: {status}")
    });
    let removing: Vec<_> = removing.collect();
    output::print_list(&views, &none, head, ListedConnection::row, &removing)
}

/// Describes a pending removal: its last error, its attempts and its next attempt.
fn removal_status(removal: &PendingRemoval) -> String {
    let next = format_instant(removal.next_attempt_at);
    match &removal.last_error {
        None => "its consent will be withdrawn shortly.".to_owned(),
        Some(last_error) => {
            let times = output::times(removal.attempts);
            format!("{last_error}. Tried {times}; a running service retries at {next}.")
        }
    }
}

async fn show(storage: &Storage, args: &ShowArgs) -> anyhow::Result<()> {
    let connection = find(storage, args.id).await?;
    let accounts = storage
        .accounts()
        .list_of_connection(connection.user_id, connection.id)
        .await?;
    let history = storage.connections().list_audit(connection.id).await?;
    let sync = storage
        .syncs()
        .find(connection.user_id, connection.id)
        .await?;
    let user = email_of(storage, connection.user_id).await?;
    let sync = sync.as_ref();
    let more = json!({
        "user": user,
        "sync": sync,
        "accounts": accounts.iter().map(AccountView::from).collect::<Vec<_>>(),
        "history": history,
    });
    let shown = output::with_members(ConnectionView::from(&connection), more);
    output::print(&shown, |_| {
        let ends_at = connection.consent_expires_at;
        let synced_at = sync.and_then(|sync| sync.synced_at);
        let next_sync_at = sync.and_then(|sync| sync.next_at);
        let unread = sync.and_then(|sync| sync.unreadable.as_ref());
        let last_error = sync.and_then(|sync| sync.last_error.as_ref());
        let text = output::details(&[
            ("id", &connection.id),
            ("user", &user),
            ("provider", &connection.provider),
            ("institution", &connection.institution_name),
            ("status", &connection.status),
            ("consent ends", &format_instant(ends_at)),
            ("refreshed", &format_instant(connection.last_refreshed_at)),
            ("synced", &format_instant(synced_at)),
            ("next sync", &format_instant(next_sync_at)),
            ("unreadable", &or_dash(unread.map(unreadable))),
            ("last error", &or_dash(last_error)),
            ("created", &format_instant(connection.created_at)),
        ]);
        let rows = accounts.iter().map(|account| {
            output::row![
                account.name,
                account.account_type,
                or_dash(account.number.as_ref().map(MaskedNumber::as_str)),
                account.currency,
                account.id,
            ]
        });
        let table = output::table(["account", "type", "number", "currency", "id"], rows);
        let steps = history.iter().map(|row| {
            output::row![
                format_instant(row.at),
                or_dash(row.from),
                or_dash(row.to),
                row.cause,
            ]
        });
        let steps = output::table(["at", "from", "to", "cause"], steps);
        format!("{text}\n\n{table}\n\n{steps}")
    })
}

/// Describes the rows that the last sync could not read.
pub(super) fn unreadable(rows: &UnreadableRows) -> String {
    let UnreadableRows {
        count,
        reason,
        since,
    } = rows;
    let rows = output::count((*count).into(), "row", "rows");
    format!(
        "{rows} ({reason}), the oldest of {}",
        since.strftime("%Y-%m-%d")
    )
}

pub(super) async fn find(storage: &Storage, id: ConnectionId) -> anyhow::Result<Connection> {
    let found = storage.connections().find_any(id).await?;
    found.ok_or_else(|| Failure::unknown_id("connection", id, "connection list"))
}

/// The user's e-mail address, or a dash if the user was removed meanwhile.
async fn email_of(storage: &Storage, user: UserId) -> anyhow::Result<String> {
    let found = storage.users().find(user).await?;
    Ok(or_dash(found.map(|user| user.email)))
}

fn row(view: &ConnectionView<'_>) -> [String; 6] {
    output::row![
        view.institution_name,
        view.provider,
        view.status,
        format_instant(view.consent_expires_at),
        format_instant(view.last_refreshed_at),
        view.id,
    ]
}

/// Returns the requested provider, or the one in the credentials. If both are given, they must be
/// equal.
fn provider_of(credentials: &SecretString, requested: Option<&str>) -> anyhow::Result<String> {
    let Ok(serde_json::Value::Object(object)) = serde_json::from_str(credentials.expose_secret())
    else {
        bail!(
            "the credentials are not a JSON object: see the example in `bellbird connection import --help`"
        );
    };
    let named = match object.get("provider") {
        None => None,
        Some(serde_json::Value::String(name)) => Some(name.as_str()),
        Some(_) => bail!("`provider` in the credentials is not a string"),
    };
    match (requested, named) {
        (Some(requested), Some(named)) if requested != named => {
            bail!("the credentials are for the provider {named}, not for {requested}")
        }
        (Some(name), _) | (None, Some(name)) => Ok(name.to_owned()),
        (None, None) => {
            bail!("the credentials do not name their provider: pass it with --provider")
        }
    }
}
