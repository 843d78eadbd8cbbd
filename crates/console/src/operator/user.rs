//! `/operator/users/{id}`: a user's plan, connections and keys. Its forms change the plan, make a
//! sign-in link or send it by e-mail, end the sessions, and remove the user.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Connection, ConnectionStatus, KeyStatus, Plan, User, UserId};
use bellbird_management::{Refusal, sign_in, users};
use bellbird_storage::{KeyRecord, StorageError, SyncState, UserChange};
use http::{HeaderMap, StatusCode};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};

use super::deliveries::EndpointRow;
use super::{Operator, OperatorForm, PathText, count, gives, parsed, status_text};
use crate::emails::InvitationEmail;
use crate::error_page;
use crate::local::is_loopback_url;
use crate::pages::names::{institution_name, sanitized};
use crate::pages::{Done, LocalTime, SignedInFrame, When, page_response};
use crate::qr_code;
use crate::session::{OwnForm, Session};
use crate::state::Console;

#[derive(Template)]
#[template(path = "operator_user.html")]
struct UserPage<'a> {
    frame: &'a SignedInFrame<'a>,
    user: &'a User,
    /// Name, what it gives, and whether the user has it.
    plans: Vec<(&'static str, &'static str, bool)>,
    gives_now: &'static str,
    reference: Option<String>,
    created: String,
    connections: Vec<ConnectionRow>,
    keys: Vec<KeyRow>,
    /// How many programs can read now, and with which plan. None: none.
    programs: Option<String>,
    endpoints: Vec<EndpointRow>,
    sessions: usize,
    /// Shown now, and never again.
    link: Option<&'a SecretString>,
    /// The same as a QR code.
    qr_code: Option<String>,
    /// Whether only browsers on this machine reach the console.
    is_local: bool,
    /// Whether a link can be sent by e-mail.
    sends_links: bool,
    /// Whether the operator is this user.
    is_self: bool,
    problem: Option<String>,
    /// What was written in place of the address, so that nobody is removed.
    other_address: Option<String>,
}

struct ConnectionRow {
    name: String,
    is_sandbox: bool,
    provider: String,
    status: &'static str,
    is_active: bool,
    since: String,
    /// None: never.
    synced: Option<When>,
    consent_end: Option<String>,
    /// Why the last sync failed.
    sync_error: Option<String>,
}

struct KeyRow {
    name: String,
    prefix: String,
    /// None: never.
    used: Option<When>,
    /// Such as `works until 1 Dec 2026`.
    status: String,
    works: bool,
}

/// The page beside its user.
enum Shown<'a> {
    Only,
    Link(&'a SecretString),
    Problem(String),
    OtherAddress(String),
}

/// `GET /operator/users/{id}`
pub(super) async fn show(
    State(console): State<Console>,
    headers: HeaderMap,
    Operator(session): Operator,
    id: PathText,
) -> Response {
    match parsed(id) {
        Some(id) => page(&console, &headers, &session, id, Shown::Only).await,
        None => error_page::not_found(&console, &headers),
    }
}

async fn page(
    console: &Console,
    headers: &HeaderMap,
    session: &Session,
    id: UserId,
    shown: Shown<'_>,
) -> Response {
    let user = match console.storage().users().find(id).await {
        Ok(Some(user)) => user,
        Ok(None) => return error_page::not_found(console, headers),
        Err(error) => return error_page::storage_error(console, &error),
    };
    let frame = session.frame(console, "/operator/users");
    let page = match load(console, session, &frame, &user).await {
        Ok(page) => page,
        Err(error) => return error_page::storage_error(console, &error),
    };
    match shown {
        Shown::Only => page_response(StatusCode::OK, &page),
        Shown::Link(link) => page_response(
            StatusCode::OK,
            &UserPage {
                link: Some(link),
                qr_code: (!page.is_local)
                    .then(|| qr_code::svg(link.expose_secret()))
                    .flatten(),
                ..page
            },
        ),
        Shown::OtherAddress(written) => page_response(
            StatusCode::BAD_REQUEST,
            &UserPage {
                other_address: Some(written),
                ..page
            },
        ),
        Shown::Problem(text) => page_response(
            StatusCode::BAD_REQUEST,
            &UserPage {
                problem: Some(text),
                ..page
            },
        ),
    }
}

async fn load<'a>(
    console: &Console,
    session: &Session,
    frame: &'a SignedInFrame<'a>,
    user: &'a User,
) -> Result<UserPage<'a>, StorageError> {
    let (storage, zone) = (console.storage(), session.zone());
    let mut connections = Vec::new();
    for connection in storage
        .connections()
        .list_after(None, Some(user.id), u32::MAX)
        .await?
    {
        let sync = storage.syncs().find(user.id, connection.id).await?;
        connections.push(row(console, connection, sync, &zone, session.now));
    }
    let keys = storage.keys().list(user.id).await?;
    let keys: Vec<_> = keys
        .iter()
        .map(|key| key_row(key, &zone, session.now))
        .collect();
    let programs = keys.iter().filter(|key| key.works).count();
    let endpoints = storage.endpoints().list(user.id).await?;
    let endpoint =
        |endpoint| EndpointRow::new(endpoint, Some(user.email.clone()), &zone, session.now);
    Ok(UserPage {
        frame,
        user,
        plans: Plan::ALL
            .iter()
            .map(|plan| (plan.as_str(), gives(*plan), *plan == user.plan))
            .collect(),
        gives_now: gives(user.plan),
        reference: user.reference.as_deref().map(sanitized),
        created: zone.day(user.created_at),
        connections,
        programs: (programs > 0).then(|| count(programs as u64, "program")),
        keys,
        endpoints: endpoints.iter().map(endpoint).collect(),
        sessions: storage.sessions().list(user.id, session.now).await?.len(),
        link: None,
        qr_code: None,
        is_local: is_loopback_url(&session.console_url(console)),
        sends_links: console.inner.site.mailer.is_some() && user.console_sign_in,
        is_self: session.user() == user.id,
        problem: None,
        other_address: None,
    })
}

fn row(
    console: &Console,
    connection: Connection,
    sync: Option<SyncState>,
    zone: &LocalTime,
    now: Timestamp,
) -> ConnectionRow {
    let is_active = connection.status == ConnectionStatus::Active;
    ConnectionRow {
        name: institution_name(&connection),
        is_sandbox: console
            .inner
            .frame
            .providers
            .is_sandbox(&connection.provider),
        provider: console
            .inner
            .connections
            .links()
            .provider_title(&connection.provider)
            .to_owned(),
        status: status_text(connection.status),
        is_active,
        since: zone.day(connection.created_at),
        synced: connection.last_refreshed_at.map(|at| zone.when(at, now)),
        consent_end: connection
            .consent_expires_at
            .filter(|_| is_active)
            .map(|at| zone.day(at)),
        sync_error: sync.and_then(|sync| sync.last_error),
    }
}

fn key_row(key: &KeyRecord, zone: &LocalTime, now: Timestamp) -> KeyRow {
    let status = match (key.status(now), key.expires_at) {
        (KeyStatus::Active, Some(at)) => format!("works until {}", zone.day(at)),
        (KeyStatus::Active, None) => "works".to_owned(),
        (KeyStatus::Expired, _) => "expired".to_owned(),
        (KeyStatus::Revoked, _) => "revoked".to_owned(),
    };
    KeyRow {
        name: sanitized(&key.name),
        prefix: key.prefix.clone(),
        used: key.last_used_at.map(|at| zone.when(at, now)),
        status,
        works: key.status(now) == KeyStatus::Active,
    }
}

/// `POST /operator/users/{id}`, with the field `plan`, `sign-in-link`, `send-link`, `end-sessions`,
/// or `remove` and the user's address in `confirm-email`.
pub(super) async fn change(
    State(console): State<Console>,
    headers: HeaderMap,
    id: PathText,
    OperatorForm(form): OperatorForm,
) -> Response {
    let Some(id) = parsed(id) else {
        return error_page::not_found(&console, &headers);
    };
    let session = &form.session;
    if form.field("remove").is_some() {
        return remove(&console, &headers, &form, id).await;
    }
    let done = if let Some(plan) = form.parsed::<Plan>("plan") {
        let saved = set_plan(&console, session, id, plan).await;
        saved.map(|()| (Done::PlanSaved, "plan"))
    } else if form.field("sign-in-link").is_some() {
        match create_link(&console, session, id).await {
            Ok(link) => return page(&console, &headers, session, id, Shown::Link(&link)).await,
            Err(refusal) => Err(refusal),
        }
    } else if form.field("send-link").is_some() {
        match send_link(&console, session, id).await {
            Ok(Ok(())) => Ok((Done::LinkSent, "access")),
            Ok(Err(text)) => {
                return page(&console, &headers, session, id, Shown::Problem(text)).await;
            }
            Err(refusal) => Err(refusal),
        }
    } else if form.field("end-sessions").is_some() {
        let ended = end_sessions(&console, session, id).await;
        ended.map(|()| (Done::SessionsOfUserEnded, "access"))
    } else {
        return error_page::invalid_form(&console);
    };
    match done {
        Ok((done, place)) => done.redirect(&console, &format!("/operator/users/{id}"), place),
        Err(refusal) => refused(&console, &headers, session, id, refusal).await,
    }
}

async fn refused(
    console: &Console,
    headers: &HeaderMap,
    session: &Session,
    id: UserId,
    refusal: Refusal,
) -> Response {
    const TOO_MANY: &str = "20 sign-in links of this user work already. Wait ten minutes.";
    const MAY_NOT: &str =
        "This user may not sign in, because nobody has verified the e-mail address.";
    let problem = match refusal {
        Refusal::NotFound(_) => return error_page::not_found(console, headers),
        Refusal::MayNotSignIn => MAY_NOT,
        Refusal::TooManySignInLinks => TOO_MANY,
        other => return error_page::refused(console, other),
    };
    let problem = Shown::Problem(problem.to_owned());
    page(console, headers, session, id, problem).await
}

/// Ends all access of the user at once, and begins the removal of their connections, which are
/// withdrawn at the providers, and then of the user.
async fn remove(console: &Console, headers: &HeaderMap, form: &OwnForm, id: UserId) -> Response {
    let session = &form.session;
    if id == session.user() {
        let own = Shown::Problem("You delete yourself on the page Settings.".to_owned());
        return page(console, headers, session, id, own).await;
    }
    let written = form.field("confirm-email").unwrap_or_default().trim();
    let removed = async {
        let user = console.storage().users().find(id).await?;
        let user = user.ok_or(Refusal::NotFound("User"))?;
        if !written.eq_ignore_ascii_case(&user.email) {
            return Ok(false);
        }
        let mut change = session.begin_as_operator(console).await?;
        if users::begin_removal(&mut change, id).await? {
            change.commit().await?;
            console.inner.connections.user_removals().wake();
        }
        Ok(true)
    };
    match removed.await {
        Ok(true) => Done::UserRemoved.redirect(console, "/operator/users", "users"),
        Ok(false) => {
            let other = Shown::OtherAddress(written.to_owned());
            page(console, headers, session, id, other).await
        }
        Err(refusal) => refused(console, headers, session, id, refusal).await,
    }
}

/// Sends a link by e-mail. The inner error says why the mail server did not take it.
async fn send_link(
    console: &Console,
    session: &Session,
    id: UserId,
) -> Result<Result<(), String>, Refusal> {
    let Some(mailer) = &console.inner.site.mailer else {
        return Ok(Err("This service sends no e-mails.".to_owned()));
    };
    let user = console.storage().users().find(id).await?;
    let user = user.ok_or(Refusal::NotFound("User"))?;
    let mut change = session.begin_as_operator(console).await?;
    let url = sign_in::create_invitation(&mut change, id, &session.console_url(console)).await?;
    change.commit().await?;
    let url = url.expose_secret();
    let Ok(text) = (InvitationEmail { url }).text() else {
        return Ok(Err("The e-mail could not be written.".to_owned()));
    };
    let sent = mailer.send(&user.email, text).await;
    Ok(sent.map_err(|error| format!("The e-mail was not sent: {error}.")))
}

async fn set_plan(
    console: &Console,
    session: &Session,
    id: UserId,
    plan: Plan,
) -> Result<(), Refusal> {
    let mut change = session.begin_as_operator(console).await?;
    let to = UserChange {
        plan: Some(plan),
        ..UserChange::default()
    };
    users::update(&mut change, id, &to).await?;
    Ok(change.commit().await?)
}

async fn create_link(
    console: &Console,
    session: &Session,
    id: UserId,
) -> Result<SecretString, Refusal> {
    let mut change = session.begin_as_operator(console).await?;
    let link = sign_in::create_link(&mut change, id, &session.console_url(console)).await?;
    change.commit().await?;
    Ok(link)
}

async fn end_sessions(console: &Console, session: &Session, id: UserId) -> Result<(), Refusal> {
    let mut change = session.begin_as_operator(console).await?;
    sign_in::end_all_sessions(&mut change, id).await?;
    Ok(change.commit().await?)
}
