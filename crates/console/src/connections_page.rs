//! `/connections`: what is linked, and how it is doing. Its forms link, reconnect, sync and remove.
//! A form that needs a link makes one for itself, which does what a link URL of the operator does.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_connections::{LinkTarget, LinkableProvider, LinkedConnection};
use bellbird_domain::{Account, Connection, ConnectionId, ConnectionStatus, Plan};
use bellbird_management::{Refusal, connections, links};
use bellbird_storage::{ConnectionAuditRow, StorageError, SyncState};
use http::header::REFRESH;
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use crate::error_page;
use crate::link::{Submitted, submit};
use crate::pages::institution::{AccountRow, account_rows};
use crate::pages::names::institution_name;
use crate::pages::{LocalTime, REFRESH_AFTER, SignedInFrame, page_response, status_text};
use crate::session::{OwnForm, Session};
use crate::state::Console;

/// Changes of a connection that are shown.
const HISTORY_ROWS: u32 = 10;

#[derive(Template)]
#[template(path = "connections.html")]
struct ConnectionsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    /// Those that the plan includes.
    providers: Vec<LinkableProvider>,
    not_in_plan: Vec<LinkableProvider>,
    rows: Vec<ConnectionRow>,
    /// Whether rows are synced by themselves, and on request.
    are_synced: bool,
}

struct ConnectionRow {
    id: ConnectionId,
    name: String,
    is_sandbox: bool,
    provider: String,
    status: &'static str,
    is_active: bool,
    since: String,
    /// None: never.
    refreshed: Option<String>,
    consent_end: Option<String>,
    accounts: Vec<AccountRow>,
    history: Vec<HistoryRow>,
    sync: Sync,
    can_reconnect: bool,
}

/// What happened to a connection, and when.
struct HistoryRow {
    day: String,
    text: &'static str,
}

/// The last sync, for its user.
enum Sync {
    Running,
    At(String),
    /// The last one failed, or there was none.
    Waiting,
}

/// `GET /connections`
pub(crate) async fn show(State(console): State<Console>, session: Session) -> Response {
    match load(&console, &session).await {
        Ok((rows, is_syncing)) => {
            let frame = session.frame(&console, "/connections");
            let linkable = console.inner.connections.links().providers();
            let (providers, not_in_plan) = linkable
                .into_iter()
                .partition(|provider| frame.plan.reads(provider.category));
            let are_synced = console.inner.connections.syncs().are_enabled();
            let page = ConnectionsPage {
                frame: &frame,
                providers,
                not_in_plan,
                rows,
                are_synced,
            };
            let mut response = page_response(StatusCode::OK, &page);
            if is_syncing {
                response.headers_mut().insert(REFRESH, REFRESH_AFTER);
            }
            response
        }
        Err(error) => error_page::storage_error(&console, &error),
    }
}

/// Whether a sync is running, too.
async fn load(
    console: &Console,
    session: &Session,
) -> Result<(Vec<ConnectionRow>, bool), StorageError> {
    let storage = console.storage();
    let (accounts, _) = storage.accounts().list(session.user(), u32::MAX, 0).await?;
    let zone = session.zone();
    let (mut rows, mut is_syncing) = (Vec::new(), false);
    for connection in storage.connections().list(session.user()).await? {
        let state = storage.syncs().find(session.user(), connection.id).await?;
        let sync = sync_of(state.as_ref(), session.now, &zone);
        is_syncing |= matches!(sync, Sync::Running);
        let history = storage
            .connections()
            .list_history(session.user(), connection.id, HISTORY_ROWS)
            .await?;
        let mut row = row(
            console,
            connection,
            &accounts,
            sync,
            session.caller.plan,
            &zone,
        );
        row.history = history
            .iter()
            .map(|change| history_row(change, &zone))
            .collect();
        rows.push(row);
    }
    Ok((rows, is_syncing))
}

fn row(
    console: &Console,
    connection: Connection,
    accounts: &[Account],
    sync: Sync,
    plan: Plan,
    zone: &LocalTime,
) -> ConnectionRow {
    let links = console.inner.connections.links();
    let is_active = connection.status == ConnectionStatus::Active;
    let accounts = accounts
        .iter()
        .filter(|account| account.connection_id == connection.id)
        .cloned()
        .collect();
    let linked = LinkedConnection {
        connection,
        accounts,
    };
    let connection = &linked.connection;
    ConnectionRow {
        id: connection.id,
        name: institution_name(connection),
        is_sandbox: console
            .inner
            .frame
            .providers
            .is_sandbox(&connection.provider),
        provider: links.provider_title(&connection.provider).to_owned(),
        status: status_text(connection.status),
        is_active,
        since: zone.day(connection.created_at),
        refreshed: connection
            .last_refreshed_at
            .map(|at| format!("{}, {}", zone.day(at), zone.time(at))),
        consent_end: connection
            .consent_expires_at
            .filter(|_| is_active)
            .map(|at| zone.day(at)),
        can_reconnect: plan.reads(connection.category)
            && links
                .providers()
                .iter()
                .any(|provider| provider.name == connection.provider),
        accounts: account_rows(&linked, usize::MAX).0,
        history: Vec::new(),
        sync,
    }
}

fn history_row(change: &ConnectionAuditRow, zone: &LocalTime) -> HistoryRow {
    let text = match (change.from, change.to, change.cause.as_str()) {
        (None, ..) => "Linked",
        (_, _, "reconnected") => "You renewed your consent",
        (_, Some(status), _) => status_text(status),
        (_, None, _) => "Removed",
    };
    HistoryRow {
        day: zone.day(change.at),
        text,
    }
}

fn sync_of(state: Option<&SyncState>, now: Timestamp, zone: &LocalTime) -> Sync {
    let Some(state) = state else {
        return Sync::Waiting;
    };
    match (state.next_at, state.synced_at) {
        (Some(next), _) if next <= now => Sync::Running,
        (_, Some(at)) => Sync::At(format!("{}, {}", zone.day(at), zone.time(at))),
        _ => Sync::Waiting,
    }
}

/// `POST /connections`, with one field: those of a link's page, or `sync`.
pub(crate) async fn change(
    State(console): State<Console>,
    headers: HeaderMap,
    form: OwnForm,
) -> Response {
    if let Some(id) = form.parsed::<ConnectionId>("sync") {
        return sync_now(&console, &form.session, id).await;
    }
    let providers = console.inner.connections.links().providers();
    let Some(submitted) = Submitted::of_fields(form.fields(), &providers) else {
        return error_page::invalid_form(&console);
    };
    let to = match &submitted {
        Submitted::Start(to) => *to,
        Submitted::Confirm(_) | Submitted::AskRemoval(_) | Submitted::Remove(_) => {
            LinkTarget::UserChoice
        }
    };
    match create_link(&console, &form.session, to).await {
        Ok(url) => {
            let token = url
                .expose_secret()
                .rsplit('/')
                .next()
                .unwrap_or_default()
                .to_owned();
            submit(&console, &headers, token, submitted).await
        }
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

/// Makes a link for the console itself, which ends with the session.
async fn create_link(
    console: &Console,
    session: &Session,
    to: LinkTarget<'_>,
) -> Result<SecretString, Refusal> {
    let prepared = console
        .inner
        .connections
        .links()
        .prepare_own_link(session.user(), session.id(), to)
        .await?;
    let mut change = session.begin(console).await?;
    let created = links::create(&mut change, prepared).await?;
    session.commit(change).await?;
    Ok(created.url)
}

async fn sync_now(console: &Console, session: &Session, id: ConnectionId) -> Response {
    let found = console.storage().connections().find(session.user(), id);
    let requested = match found.await {
        Ok(Some(found)) => request_sync(console, session, &found).await,
        Ok(None) => return error_page::connection_not_found(console),
        Err(error) => Err(error.into()),
    };
    match requested {
        Ok(()) => Redirect::to(&console.path("/connections")).into_response(),
        Err(refusal) => error_page::refused(console, refusal),
    }
}

async fn request_sync(
    console: &Console,
    session: &Session,
    connection: &Connection,
) -> Result<(), Refusal> {
    let mut change = session.begin(console).await?;
    connections::request_sync(&mut change, connection).await?;
    session.commit(change).await?;
    console.inner.connections.syncs().wake(&connection.provider);
    Ok(())
}
