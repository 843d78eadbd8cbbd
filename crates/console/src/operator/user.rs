//! `/operator/users/{id}`: a user's plan, connections and keys. Its forms change the plan, make a
//! sign-in link or send it by e-mail, allow to sign in, end the sessions, and remove the user.

use askama::Template;
use bellbird_domain::{
    Connection, ConnectionCategory, ConnectionStatus, KeyStatus, Plan, User, UserId,
};
use bellbird_management::{Refusal, sign_in, users};
use bellbird_storage::{AuditFilter, KeyRecord, StorageError, UserChange};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use super::deliveries::EndpointRow;
use super::{Operator, OperatorForm};
use crate::emails::{InvitationEmail, SendError, Text};
use crate::error_page::{Failure, PageResult};
use crate::local::is_loopback_url;
use crate::pages::{Done, LocalTime, SignedInFrame, page_response};
use crate::qr_code;
use crate::session::{OwnForm, PathText, Session, id_of, newest_of};
use crate::state::Console;

#[derive(Template)]
#[template(path = "operator_user.html")]
struct UserPage<'a> {
    frame: &'a SignedInFrame<'a>,
    zone: LocalTime,
    user: &'a User,
    connections: Vec<ConnectionRow>,
    keys: Vec<KeyRecord>,
    endpoints: Vec<EndpointRow>,
    sessions: usize,
    /// See [`newest_of`].
    newest_link: String,
    shown: Shown<'a>,
    /// The shown link as a QR code.
    qr_code: Option<String>,
    /// Whether only browsers on this machine reach the console.
    is_local: bool,
    /// Whether a link would sign the user in, if the user may sign in.
    is_let_in_by_link: bool,
    /// Whether a link can be sent by e-mail.
    sends_links: bool,
    /// Whether the operator is this user.
    is_self: bool,
    is_being_removed: bool,
}

struct ConnectionRow {
    connection: Connection,
    /// When its last sync began. None: never.
    synced_at: Option<Timestamp>,
    /// Why the last sync failed.
    sync_error: Option<String>,
}

/// What a form adds to the page.
enum Shown<'a> {
    Nothing,
    /// Now, and never again.
    Link(SecretString),
    Problem(&'a str),
    /// What was written in place of the address, so that nobody is removed.
    OtherAddress(&'a str),
}

impl UserPage<'_> {
    /// Such as `works until 1 Dec 2026`, and the time if it is within a day.
    fn key_status(&self, key: &KeyRecord) -> String {
        match (key.status(self.zone.now), key.expires_at) {
            (KeyStatus::Active, _) if !self.reads() => "reads nothing with this plan".to_owned(),
            (KeyStatus::Active, Some(at)) => {
                let left = at.duration_since(self.zone.now);
                let is_soon = left < SignedDuration::from_hours(24);
                let end = match is_soon {
                    true => self.zone.time(at),
                    false => self.zone.day(at),
                };
                format!("works until {end}")
            }
            (KeyStatus::Active, None) => "works".to_owned(),
            (ended, _) => ended.to_string(),
        }
    }

    /// Whether the plan includes accounts.
    fn reads(&self) -> bool {
        self.user.plan.reads(ConnectionCategory::Banking)
    }

    /// How many programs can read now.
    fn programs(&self) -> u64 {
        let reads =
            |key: &&KeyRecord| self.reads() && key.status(self.zone.now) == KeyStatus::Active;
        self.keys.iter().filter(reads).count() as u64
    }
}

/// `GET /operator/users/{id}`
pub(super) async fn show(Operator(session): Operator, id: PathText) -> PageResult {
    page(&session, id_of(id)?, Shown::Nothing).await
}

async fn find(console: &Console, id: UserId) -> Result<User, Failure> {
    let found = console.storage().users().find(id).await?;
    found.ok_or(Failure::NotFound)
}

async fn page(session: &Session, id: UserId, shown: Shown<'_>) -> PageResult {
    let user = &find(session, id).await?;
    let storage = session.storage();
    let mut connections = Vec::new();
    for connection in storage
        .connections()
        .list_after(None, Some(id), u32::MAX)
        .await?
    {
        let sync = storage.syncs().find(id, connection.id).await?;
        connections.push(ConnectionRow {
            connection,
            synced_at: sync.as_ref().and_then(|sync| sync.synced_at),
            sync_error: sync.and_then(|sync| sync.last_error),
        });
    }
    let mut endpoints = Vec::new();
    for endpoint in storage.endpoints().list(id).await? {
        let email = Some(user.email.clone());
        endpoints.push(EndpointRow { endpoint, email });
    }
    let is_local = is_loopback_url(&session.console_url());
    let (status, qr_code) = match &shown {
        Shown::Nothing => (StatusCode::OK, None),
        Shown::Link(_) if is_local => (StatusCode::OK, None),
        Shown::Link(link) => (StatusCode::OK, qr_code::svg(link.expose_secret())),
        Shown::Problem(_) | Shown::OtherAddress(_) => (StatusCode::BAD_REQUEST, None),
    };
    let page = UserPage {
        frame: &session.frame("/operator/users"),
        zone: session.zone(),
        user,
        connections,
        keys: storage.keys().list(id).await?,
        endpoints,
        sessions: storage.sessions().list(id, session.now).await?.len(),
        newest_link: newest_of(newest_link(session, id).await?),
        shown,
        qr_code,
        is_local,
        is_let_in_by_link: session.settings.lets_in_by_link(user.is_operator),
        sends_links: session.site.mailer.is_some(),
        is_self: session.user() == id,
        is_being_removed: storage.users().is_being_removed(id).await?,
    };
    Ok(page_response(status, &page))
}

/// `POST /operator/users/{id}`, with the field `plan`, `sign-in-link`, `send-link`, `end-sessions`,
/// `allow-sign-in`, or `remove` and the user's address in `confirm-email`.
pub(super) async fn change(id: PathText, OperatorForm(form): OperatorForm) -> PageResult {
    const TOO_MANY: &str = "20 sign-in links of this user work already. Wait until one has ended.";
    const MAY_NOT: &str = "This user may not sign in. Allow it first.";
    const REMOVED: &str = "This user is being removed, and gets no new link.";
    let id = id_of(id)?;
    let changed = submit(&form, id).await;
    let Err(Failure::Refused(refusal)) = &changed else {
        return changed;
    };
    let problem = match **refusal {
        Refusal::NotFound(_) => return Err(Failure::NotFound),
        Refusal::MayNotSignIn => MAY_NOT,
        Refusal::TooManySignInLinks => TOO_MANY,
        Refusal::UserBeingRemoved => REMOVED,
        _ => return changed,
    };
    page(&form.session, id, Shown::Problem(problem)).await
}

async fn submit(form: &OwnForm, id: UserId) -> PageResult {
    let session = &form.session;
    let path = format!("/operator/users/{id}");
    if form.field("remove").is_some() {
        return remove(form, id).await;
    }
    if form.field("send-link").is_some() || form.field("sign-in-link").is_some() {
        let user = find(session, id).await?;
        if !session.settings.lets_in_by_link(user.is_operator) {
            return Err(Failure::InvalidForm);
        }
    }
    if form.field("send-link").is_some() {
        if let Err(why) = send_link(session, id).await? {
            let why = format!("The e-mail was not sent: {why}.");
            return page(session, id, Shown::Problem(&why)).await;
        }
        return Ok(Done::LinkSent.redirect(session, &path, "access"));
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
        return page(session, id, Shown::Link(link)).await;
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
        let own = Shown::Problem("You delete yourself on the page Settings.");
        return page(session, id, own).await;
    }
    let user = find(session, id).await?;
    let written = form.field("confirm-email").unwrap_or_default().trim();
    if !written.eq_ignore_ascii_case(&user.email) {
        return page(session, id, Shown::OtherAddress(written)).await;
    }
    let mut change = session.begin_as_operator().await?;
    users::begin_removal(&mut change, id).await?;
    change.commit().await?;
    session.connections.user_removals().wake();
    Ok(Done::UserRemoved.redirect(session, "/operator/users", "users"))
}

/// Sends a link by e-mail. The inner error says why the mail server did not take it.
async fn send_link(session: &Session, id: UserId) -> Result<Result<(), SendError>, Failure> {
    let mailer = session.site.mailer.as_ref().ok_or(Failure::InvalidForm)?;
    let user = find(session, id).await?;
    let url = session.console_url();
    let mut change = session.begin_as_operator().await?;
    let url = sign_in::create_invitation(&mut change, id, &url).await?;
    change.commit().await?;
    let url = url.expose_secret();
    let text = Text::of(&InvitationEmail { url }).map_err(|error| {
        tracing::error!(%error, "could not render e-mail");
        Failure::Internal
    })?;
    Ok(mailer.send(&user.email, text).await)
}
