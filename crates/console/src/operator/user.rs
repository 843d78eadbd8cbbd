//! `/operator/users/{id}`: a user's plan, connections and keys. Its forms change the plan, make a
//! sign-in link or send it by e-mail, allow to sign in, end the sessions, and remove the user.

use askama::Template;
use bellbird_domain::{
    Connection, ConnectionCategory, ConnectionStatus, KeyStatus, Plan, User, UserId,
};
use bellbird_management::{Refusal, sign_in, users};
use bellbird_providers::registry::provider_title;
use bellbird_storage::{AuditFilter, KeyRecord, StorageError, SyncState, UserChange};
use http::StatusCode;
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::deliveries::EndpointRow;
use super::{Operator, OperatorForm, gives, status_text};
use crate::emails::{InvitationEmail, Text};
use crate::error_page::{Failure, PageResult};
use crate::local::is_loopback_url;
use crate::pages::names::{institution_name, sanitized};
use crate::pages::{Done, LocalTime, SignedInFrame, When, count, page_response};
use crate::qr_code;
use crate::session::{OwnForm, PathText, Session, id_of, newest_of};
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
    /// See [`newest_of`].
    newest_link: String,
    shown: Shown<'a>,
    /// The shown link as a QR code.
    qr_code: Option<String>,
    /// Whether only browsers on this machine reach the console.
    is_local: bool,
    /// Whether a link can be sent by e-mail.
    sends_links: bool,
    /// Whether the operator is this user.
    is_self: bool,
}

struct ConnectionRow {
    name: String,
    is_sandbox: bool,
    provider: String,
    status: &'static str,
    is_active: bool,
    since: String,
    /// When its last sync began. None: never.
    synced: Option<When>,
    /// When it was last read, in whatever way. None: never.
    read: Option<When>,
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

/// What a form adds to the page.
#[derive(Default)]
struct Shown<'a> {
    /// Shown now, and never again.
    link: Option<&'a SecretString>,
    problem: Option<&'a str>,
    /// What was written in place of the address, so that nobody is removed.
    other_address: Option<&'a str>,
}

impl<'a> Shown<'a> {
    fn problem(text: &'a str) -> Self {
        Self {
            problem: Some(text),
            ..Self::default()
        }
    }
}

/// `GET /operator/users/{id}`
pub(super) async fn show(Operator(session): Operator, id: PathText) -> PageResult {
    page(&session, id_of(id)?, Shown::default()).await
}

async fn find(console: &Console, id: UserId) -> Result<User, Failure> {
    let found = console.storage().users().find(id).await?;
    found.ok_or(Failure::NotFound)
}

async fn page(session: &Session, id: UserId, shown: Shown<'_>) -> PageResult {
    let user = &find(session, id).await?;
    let (storage, zone) = (session.storage(), session.zone());
    let mut connections = Vec::new();
    for connection in storage
        .connections()
        .list_after(None, Some(id), u32::MAX)
        .await?
    {
        let sync = storage.syncs().find(id, connection.id).await?;
        connections.push(row(session, connection, sync, &zone));
    }
    let keys = storage.keys().list(id).await?;
    let reads = user.plan.reads(ConnectionCategory::Banking);
    let keys: Vec<_> = keys.iter().map(|key| key_row(key, reads, &zone)).collect();
    let programs = keys.iter().filter(|key| key.works && reads).count();
    let endpoints = storage.endpoints().list(id).await?;
    let endpoint = |endpoint| EndpointRow::new(endpoint, Some(user.email.clone()), &zone);
    let is_local = is_loopback_url(&session.console_url());
    let public_link = shown.link.filter(|_| !is_local);
    let status = match (shown.problem, shown.other_address) {
        (None, None) => StatusCode::OK,
        _ => StatusCode::BAD_REQUEST,
    };
    let page = UserPage {
        frame: &session.frame("/operator/users"),
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
        sessions: storage.sessions().list(id, session.now).await?.len(),
        newest_link: newest_of(newest_link(session, id).await?),
        qr_code: public_link.and_then(|link| qr_code::svg(link.expose_secret())),
        shown,
        is_local,
        sends_links: session.site.mailer.is_some() && user.console_sign_in,
        is_self: session.user() == id,
    };
    Ok(page_response(status, &page))
}

fn row(
    console: &Console,
    connection: Connection,
    sync: Option<SyncState>,
    zone: &LocalTime,
) -> ConnectionRow {
    let is_active = connection.status == ConnectionStatus::Active;
    ConnectionRow {
        name: institution_name(&connection),
        is_sandbox: console.frame.providers.is_sandbox(&connection.provider),
        provider: provider_title(&connection.provider).to_owned(),
        status: status_text(connection.status),
        is_active,
        since: zone.day(connection.created_at),
        synced: sync
            .as_ref()
            .and_then(|sync| sync.synced_at)
            .map(|at| zone.when(at)),
        read: connection.last_refreshed_at.map(|at| zone.when(at)),
        consent_end: connection
            .consent_expires_at
            .filter(|_| is_active)
            .map(|at| zone.day(at)),
        sync_error: sync.and_then(|sync| sync.last_error),
    }
}

/// `reads`: whether the plan of the user includes accounts.
fn key_row(key: &KeyRecord, reads: bool, zone: &LocalTime) -> KeyRow {
    let key_status = key.status(zone.now);
    let status = match (key_status, key.expires_at) {
        (KeyStatus::Active, _) if !reads => "reads nothing with this plan".to_owned(),
        (KeyStatus::Active, Some(at)) => format!("works until {}", zone.day(at)),
        (KeyStatus::Active, None) => "works".to_owned(),
        (KeyStatus::Expired, _) => "expired".to_owned(),
        (KeyStatus::Revoked, _) => "revoked".to_owned(),
    };
    KeyRow {
        name: sanitized(&key.name),
        prefix: key.prefix.clone(),
        used: key.last_used_at.map(|at| zone.when(at)),
        status,
        works: key_status == KeyStatus::Active,
    }
}

/// `POST /operator/users/{id}`, with the field `plan`, `sign-in-link`, `send-link`, `end-sessions`,
/// `allow-sign-in`, or `remove` and the user's address in `confirm-email`.
pub(super) async fn change(id: PathText, OperatorForm(form): OperatorForm) -> PageResult {
    const TOO_MANY: &str = "20 sign-in links of this user work already. Wait ten minutes.";
    const MAY_NOT: &str = "This user may not sign in. Allow it first.";
    let id = id_of(id)?;
    let changed = submit(&form, id).await;
    let Err(Failure::Refused(refusal)) = &changed else {
        return changed;
    };
    let problem = match **refusal {
        Refusal::NotFound(_) => return Err(Failure::NotFound),
        Refusal::MayNotSignIn => MAY_NOT,
        Refusal::TooManySignInLinks => TOO_MANY,
        _ => return changed,
    };
    page(&form.session, id, Shown::problem(problem)).await
}

async fn submit(form: &OwnForm, id: UserId) -> PageResult {
    let session = &form.session;
    let path = format!("/operator/users/{id}");
    if form.field("remove").is_some() {
        return remove(form, id).await;
    }
    if form.field("send-link").is_some() {
        return match send_link(session, id).await? {
            Ok(()) => Ok(Done::LinkSent.redirect(session, &path, "access")),
            Err(text) => page(session, id, Shown::problem(&text)).await,
        };
    }
    let mut change = session.begin_as_operator().await?;
    let (done, place) = if let Some(plan) = form.parsed::<Plan>("plan") {
        let to = UserChange {
            plan: Some(plan),
            ..UserChange::default()
        };
        users::update(&mut change, id, &to).await?;
        (Done::PlanSaved, "plan")
    } else if form.field("sign-in-link").is_some() {
        if form.is_sent_again(newest_link(session, id).await?) {
            return Ok(Done::LinkShownBefore.redirect(session, &path, "access"));
        }
        let url = session.console_url();
        let link = sign_in::create_link(&mut change, id, &url).await?;
        change.commit().await?;
        let shown = Shown {
            link: Some(&link),
            ..Shown::default()
        };
        return page(session, id, shown).await;
    } else if form.field("allow-sign-in").is_some() {
        let to = UserChange {
            console_sign_in: Some(true),
            ..UserChange::default()
        };
        users::update(&mut change, id, &to).await?;
        (Done::SignInAllowed, "access")
    } else if form.field("end-sessions").is_some() {
        sign_in::end_all_sessions(&mut change, id).await?;
        (Done::SessionsOfUserEnded, "access")
    } else {
        return Err(Failure::InvalidForm);
    };
    change.commit().await?;
    Ok(done.redirect(session, &path, place))
}

/// The change that last made a link for this user to sign in.
async fn newest_link(session: &Session, id: UserId) -> Result<Option<Uuid>, StorageError> {
    let filter = AuditFilter {
        user: Some(id),
        subject: "sign_in_link",
        ..AuditFilter::default()
    };
    let audit = session.storage().audit();
    let rows = audit.list_matching(&filter, None, 1).await?;
    Ok(rows.first().map(|row| row.id))
}

/// Ends all access of the user at once, and begins the removal of their connections, which are
/// withdrawn at the providers, and then of the user. The user's address confirms it.
async fn remove(form: &OwnForm, id: UserId) -> PageResult {
    let session = &form.session;
    if id == session.user() {
        let own = "You delete yourself on the page Settings.";
        return page(session, id, Shown::problem(own)).await;
    }
    let user = find(session, id).await?;
    let written = form.field("confirm-email").unwrap_or_default().trim();
    if !written.eq_ignore_ascii_case(&user.email) {
        let other = Shown {
            other_address: Some(written),
            ..Shown::default()
        };
        return page(session, id, other).await;
    }
    let mut change = session.begin_as_operator().await?;
    if users::begin_removal(&mut change, id).await? {
        change.commit().await?;
        session.connections.user_removals().wake();
    }
    Ok(Done::UserRemoved.redirect(session, "/operator/users", "users"))
}

/// Sends a link by e-mail. The inner error says why the mail server did not take it.
async fn send_link(session: &Session, id: UserId) -> Result<Result<(), String>, Failure> {
    let Some(mailer) = &session.site.mailer else {
        return Ok(Err("This service sends no e-mails.".to_owned()));
    };
    let user = find(session, id).await?;
    let url = session.console_url();
    let mut change = session.begin_as_operator().await?;
    let url = sign_in::create_invitation(&mut change, id, &url).await?;
    change.commit().await?;
    let url = url.expose_secret();
    let Ok(text) = Text::of(&InvitationEmail { url }) else {
        return Ok(Err("The e-mail could not be written.".to_owned()));
    };
    let sent = mailer.send(&user.email, text).await;
    Ok(sent.map_err(|error| format!("The e-mail was not sent: {error}.")))
}
