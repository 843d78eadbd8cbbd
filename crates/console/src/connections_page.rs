//! `/connections`, the page *Banks*: what is linked, and how it is doing. Its forms link,
//! reconnect, read, remove and confirm. A form that needs a link makes one for itself, which does
//! what a link URL of the operator does.

use askama::Template;
use bellbird_connections::{
    ConnectionsError, LinkTarget, LinkableProvider, LinkedConnection, UnfinishedSession,
};
use bellbird_domain::{Connection, ConnectionId, ConnectionStatus};
use bellbird_management::refusal::CONNECTION;
use bellbird_management::{Refusal, connections, links};
use bellbird_storage::{ConnectionAuditRow, StorageError};
use http::header::REFRESH;
use http::{HeaderMap, StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::cookie::with_cookies;
use crate::error_page::{Failure, PageResult};
use crate::link::{Submitted, in_own_task, start_consent_session};
use crate::pages::names::sanitized_up_to;
use crate::pages::{
    BankNames, BankRow, BankRows, BankState, Done, ImageOrigins, LocalTime, SignedInFrame,
    page_with_images, refresh_of, status_text,
};
use crate::rows::linked::load_all;
use crate::session::{OwnForm, Session};

const PATH: &str = "/connections";
/// The place of what has no row any more.
const LIST: &str = "banks";
/// Changes of a connection that are shown.
const HISTORY_ROWS: u32 = 10;
/// Of a bank with one of its accounts.
const FULL_NAME_CHARS_MAX: usize = 200;
/// A bank that was read a moment ago is read again within this time.
const REQUESTED_WITHIN: SignedDuration = SignedDuration::from_secs(60);

#[derive(Template)]
#[template(path = "connections.html")]
struct ConnectionsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    /// Those that the plan includes.
    providers: Vec<LinkableProvider>,
    not_in_plan: Vec<LinkableProvider>,
    /// What this browser began at a provider and did not return from.
    unfinished: Vec<UnfinishedSession>,
    names: BankNames,
    zone: LocalTime,
    /// Those that have to be reconnected.
    broken: Vec<OwnRow>,
    working: Vec<OwnRow>,
    /// What a form has just removed, if its name is known.
    removed: Option<String>,
}

impl ConnectionsPage<'_> {
    /// Whether the user has to say what came of a consent.
    fn awaits_answer(&self) -> bool {
        self.unfinished.iter().any(|one| !one.is_confirmed)
    }
}

/// A bank with what only its owner sees.
struct OwnRow {
    bank: BankRow,
    /// What tells it from others of its name.
    full_name: String,
    /// What happened to it, after the day of it.
    history: Vec<(String, &'static str)>,
    /// Whether it is read on request.
    can_sync: bool,
    is_open: bool,
    /// Since when it should be read, if it is read now or within a minute, which the line of the
    /// form then says.
    syncs_since: Option<Timestamp>,
}

/// `GET /connections`
pub(crate) async fn show(session: Session, uri: Uri, headers: HeaderMap) -> PageResult {
    let frame = session.frame(PATH);
    let (rows, names) = load(&session, &frame).await?;
    let links = session.connections.links();
    let browser = session.cookies.browser.value(&headers);
    let unfinished = links.find_unfinished(session.user(), browser).await?;
    let (providers, not_in_plan) = links
        .providers()
        .into_iter()
        .partition(|provider| frame.plan.reads(provider.category));
    let confirmed = unfinished.iter().filter(|one| one.is_confirmed);
    let awaited = confirmed.map(|one| one.started_at);
    let awaited_since = awaited
        .chain(rows.iter().filter_map(|row| row.syncs_since))
        .max();
    let origins = ImageOrigins::of(rows.iter().map(|row| &row.bank.institution));
    let (broken, working) = rows.into_iter().partition(|row| row.bank.is_broken);
    let page = ConnectionsPage {
        frame: &frame,
        providers,
        not_in_plan,
        unfinished,
        names,
        zone: session.zone(),
        broken,
        working,
        removed: frame
            .done_at(LIST)
            .and_then(|_| removed_name(&session, &headers)),
    };
    let mut response = page_with_images(StatusCode::OK, &page, origins);
    if let Some(since) = awaited_since {
        let refresh = refresh_of(&uri, session.now.duration_since(since));
        response.headers_mut().insert(REFRESH, refresh);
    }
    Ok(response)
}

async fn load(
    session: &Session,
    frame: &SignedInFrame<'_>,
) -> Result<(Vec<OwnRow>, BankNames), StorageError> {
    let (connections, accounts, names) = load_all(session).await?;
    let linked: Vec<_> = connections
        .into_iter()
        .map(|connection| {
            let of_it = accounts
                .iter()
                .filter(|account| account.connection_id == connection.id);
            LinkedConnection {
                accounts: of_it.cloned().collect(),
                connection,
            }
        })
        .collect();
    let linkable = session.connections.links().providers();
    let is_in_plan = |connection: &Connection| frame.plan.reads(connection.category);
    let rows = BankRow::list(
        &linked,
        &BankRows {
            frame,
            zone: session.zone(),
            linkable: &linkable,
            is_in_plan: &is_in_plan,
        },
    );
    let mut own = Vec::new();
    for bank in rows {
        own.push(own_row(session, frame, bank, &names).await?);
    }
    Ok((own, names))
}

async fn own_row(
    session: &Session,
    frame: &SignedInFrame<'_>,
    mut bank: BankRow,
    names: &BankNames,
) -> Result<OwnRow, StorageError> {
    bank.link_accounts(&frame.root);
    let connection = &bank.connection;
    let (storage, user) = (session.storage(), connection.user_id);
    let (now, zone) = (session.now, session.zone());
    let history = storage
        .connections()
        .list_history(user, connection.id, HISTORY_ROWS)
        .await?;
    let is_open = frame.done_at(connection.id).is_some();
    let can_sync = session.connections.syncs().are_enabled()
        && connection.status == ConnectionStatus::Active
        && frame.plan.reads(connection.category);
    let state = match can_sync {
        true => storage.syncs().find(user, connection.id).await?,
        false => None,
    };
    let next_at = state.as_ref().and_then(|state| state.next_at);
    let is_due_within =
        |time: SignedDuration| next_at.is_some_and(|next| next.duration_since(now) <= time);
    let is_running = is_due_within(SignedDuration::ZERO);
    let is_requested = is_open && is_due_within(REQUESTED_WITHIN);
    if is_running {
        bank.state = BankState::READING;
    } else if let Some(state) = state {
        let read_at = connection.last_refreshed_at.max(state.synced_at);
        bank.state = BankState::of_read(read_at, state.attempts > 0, &zone);
    }
    Ok(OwnRow {
        full_name: names.of(connection),
        bank,
        history: history
            .iter()
            .map(|change| (zone.day(change.at), change_text(change)))
            .collect(),
        can_sync,
        is_open,
        syncs_since: next_at.filter(|_| is_running || is_requested),
    })
}

fn change_text(change: &ConnectionAuditRow) -> &'static str {
    match (change.from, change.to, change.cause.as_str()) {
        (None, ..) => "Linked",
        (_, _, "reconnected") => "You renewed your consent",
        (_, Some(status), _) => status_text(status),
        (_, None, _) => "Removed",
    }
}

/// `POST /connections`, with one field: `provider`, `connection`, `session`, `sync` or
/// `confirm-removal`.
pub(crate) async fn change(headers: HeaderMap, form: OwnForm) -> PageResult {
    if let Some(id) = form.parsed::<ConnectionId>("sync") {
        return sync_now(&form.session, id).await;
    }
    let providers = form.session.connections.links().providers();
    let to = match Submitted::of_fields(&form.fields, &providers) {
        Some(Submitted::Start(to)) => to,
        Some(Submitted::Remove(id)) => return remove(&form.session, id).await,
        Some(Submitted::Confirm(id)) => return confirm(&form.session, &headers, id).await,
        Some(Submitted::AskRemoval(_)) | None => return Err(Failure::InvalidForm),
    };
    let url = create_link(&form.session, to).await;
    let url = url.map_err(or_bank_not_found)?;
    let token = url.expose_secret().rsplit('/').next().unwrap_or_default();
    start_consent_session(&form.session, &headers, token.to_owned(), to).await
}

/// Confirms a consent session of this browser, which has not returned from the provider.
async fn confirm(session: &Session, headers: &HeaderMap, id: Uuid) -> PageResult {
    let browser = session.cookies.browser.value(headers);
    let browser = browser.ok_or(Failure::InvalidForm)?.to_owned();
    let (connections, user) = (session.connections.clone(), session.user());
    let confirm = async move {
        connections
            .links()
            .confirm_own_consent_session(user, id, &browser)
            .await
    };
    match in_own_task(session, confirm).await? {
        // Pressed twice, or returned meanwhile: the page shows what has come of it.
        Ok(()) | Err(ConnectionsError::LinkExpired) => Ok(session.redirect(PATH)),
        Err(error) => Err(error.into()),
    }
}

/// Makes a link for the console itself, which ends with the session.
async fn create_link(session: &Session, to: LinkTarget<'_>) -> Result<SecretString, Refusal> {
    let links = session.connections.links();
    let prepared = links.prepare_own_link(session.user(), session.id(), to);
    let prepared = prepared.await?;
    let mut change = session.begin().await?;
    let created = links::create(&mut change, prepared).await?;
    session.commit(change).await?;
    Ok(created.url)
}

/// A connection of the user.
async fn find(session: &Session, id: ConnectionId) -> Result<Connection, Failure> {
    let found = session.storage().connections().find(session.user(), id);
    found.await?.ok_or(Failure::BankNotFound)
}

/// Another browser may have removed the bank meanwhile.
fn or_bank_not_found(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::NotFound(CONNECTION) => Failure::BankNotFound,
        other => other.into(),
    }
}

async fn sync_now(session: &Session, id: ConnectionId) -> PageResult {
    let connection = find(session, id).await?;
    let mut change = session.begin().await?;
    let requested = connections::request_sync(&mut change, &connection).await;
    requested.map_err(or_bank_not_found)?;
    session.commit(change).await?;
    session.connections.syncs().wake(&connection.provider);
    Ok(Done::SyncRequested.redirect(session, PATH, id))
}

/// What this browser's user called the bank that they have just removed. None: it is not known, or
/// is nothing that can be shown.
fn removed_name(session: &Session, headers: &HeaderMap) -> Option<String> {
    let name = session.cookies.removed_bank.text(headers)?;
    let name = sanitized_up_to(FULL_NAME_CHARS_MAX, &name);
    (!name.trim().is_empty()).then_some(name)
}

/// Hides a connection at once. A job withdraws its consent.
async fn remove(session: &Session, id: ConnectionId) -> PageResult {
    let connection = find(session, id).await?;
    let (_, _, names) = load_all(session).await?;
    let mut change = session.begin().await?;
    if connections::remove(&mut change, &connection).await? {
        session.commit(change).await?;
        session.connections.removals().wake(&connection.provider);
    }
    let cookie = &session.cookies.removed_bank;
    let name = cookie.text_header(&names.of(&connection));
    Ok(with_cookies(
        Done::ConnectionRemoved.redirect(session, PATH, LIST),
        // The name of a bank that was removed before must not stay.
        [name.or_else(|| cookie.removal())],
    ))
}
