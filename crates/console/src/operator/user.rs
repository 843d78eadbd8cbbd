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
use crate::pages::{Done, LocalTime, SignedInFrame, When};
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

/// A request about one user.
struct OfUser<'a> {
    console: &'a Console,
    headers: &'a HeaderMap,
    session: &'a Session,
    id: UserId,
}

/// `GET /operator/users/{id}`
pub(super) async fn show(
    State(console): State<Console>,
    headers: HeaderMap,
    Operator(session): Operator,
    id: PathText,
) -> Response {
    let Some(id) = parsed(id) else {
        return error_page::not_found(&console, &headers);
    };
    let of = OfUser {
        console: &console,
        headers: &headers,
        session: &session,
        id,
    };
    of.page(Shown::default()).await
}

async fn load<'a>(
    console: &Console,
    session: &Session,
    frame: &'a SignedInFrame<'a>,
    user: &'a User,
    shown: Shown<'a>,
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
    let is_local = is_loopback_url(&session.console_url(console));
    let public_link = shown.link.filter(|_| !is_local);
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
        qr_code: public_link.and_then(|link| qr_code::svg(link.expose_secret())),
        shown,
        is_local,
        sends_links: console.inner.site.mailer.is_some() && user.console_sign_in,
        is_self: session.user() == user.id,
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
    let of = OfUser {
        console: &console,
        headers: &headers,
        session: &form.session,
        id,
    };
    if form.field("remove").is_some() {
        let written = form.field("confirm-email").unwrap_or_default();
        return of.remove(written.trim()).await;
    }
    let path = format!("/operator/users/{id}");
    if form.field("send-link").is_some() {
        return match of.send_link().await {
            Ok(Ok(())) => Done::LinkSent.redirect(&console, &path, "access"),
            Ok(Err(text)) => of.page(Shown::problem(&text)).await,
            Err(refusal) => of.refused(refusal).await,
        };
    }
    match of.change(&form).await {
        Ok(Changed::Saved(done, place)) => done.redirect(&console, &path, place),
        Ok(Changed::Link(link)) => {
            let shown = Shown {
                link: Some(&link),
                ..Shown::default()
            };
            of.page(shown).await
        }
        Ok(Changed::Nothing) => error_page::invalid_form(&console),
        Err(refusal) => of.refused(refusal).await,
    }
}

/// What a form has changed, and the place of the page that says so.
enum Changed {
    Saved(Done, &'static str),
    Link(SecretString),
    /// The form is not one of the page's.
    Nothing,
}

impl OfUser<'_> {
    async fn page(&self, shown: Shown<'_>) -> Response {
        let console = self.console;
        let user = match console.storage().users().find(self.id).await {
            Ok(Some(user)) => user,
            Ok(None) => return error_page::not_found(console, self.headers),
            Err(error) => return error_page::storage_error(console, &error),
        };
        let frame = self.session.frame(console, "/operator/users");
        let status = match (shown.problem, shown.other_address) {
            (None, None) => StatusCode::OK,
            _ => StatusCode::BAD_REQUEST,
        };
        let page = load(console, self.session, &frame, &user, shown).await;
        super::shown(console, status, page)
    }

    async fn refused(&self, refusal: Refusal) -> Response {
        const TOO_MANY: &str = "20 sign-in links of this user work already. Wait ten minutes.";
        const MAY_NOT: &str =
            "This user may not sign in, because nobody has verified the e-mail address.";
        let problem = match refusal {
            Refusal::NotFound(_) => return error_page::not_found(self.console, self.headers),
            Refusal::MayNotSignIn => MAY_NOT,
            Refusal::TooManySignInLinks => TOO_MANY,
            other => return error_page::refused(self.console, other),
        };
        self.page(Shown::problem(problem)).await
    }

    /// Ends all access of the user at once, and begins the removal of their connections, which are
    /// withdrawn at the providers, and then of the user. `written` confirms it.
    async fn remove(&self, written: &str) -> Response {
        let console = self.console;
        if self.id == self.session.user() {
            let own = "You delete yourself on the page Settings.";
            return self.page(Shown::problem(own)).await;
        }
        let removed = async {
            let user = console.storage().users().find(self.id).await?;
            let user = user.ok_or(Refusal::NotFound("User"))?;
            if !written.eq_ignore_ascii_case(&user.email) {
                return Ok(false);
            }
            let mut change = self.session.begin_as_operator(console).await?;
            if users::begin_removal(&mut change, self.id).await? {
                change.commit().await?;
                console.inner.connections.user_removals().wake();
            }
            Ok(true)
        };
        match removed.await {
            Ok(true) => Done::UserRemoved.redirect(console, "/operator/users", "users"),
            Ok(false) => {
                let other = Shown {
                    other_address: Some(written),
                    ..Shown::default()
                };
                self.page(other).await
            }
            Err(refusal) => self.refused(refusal).await,
        }
    }

    /// Sends a link by e-mail. The inner error says why the mail server did not take it.
    async fn send_link(&self) -> Result<Result<(), String>, Refusal> {
        let Some(mailer) = &self.console.inner.site.mailer else {
            return Ok(Err("This service sends no e-mails.".to_owned()));
        };
        let user = self.console.storage().users().find(self.id).await?;
        let user = user.ok_or(Refusal::NotFound("User"))?;
        let url = self.session.console_url(self.console);
        let mut change = self.session.begin_as_operator(self.console).await?;
        let url = sign_in::create_invitation(&mut change, self.id, &url).await?;
        change.commit().await?;
        let url = url.expose_secret();
        let Ok(text) = (InvitationEmail { url }).text() else {
            return Ok(Err("The e-mail could not be written.".to_owned()));
        };
        let sent = mailer.send(&user.email, text).await;
        Ok(sent.map_err(|error| format!("The e-mail was not sent: {error}.")))
    }

    async fn change(&self, form: &OwnForm) -> Result<Changed, Refusal> {
        let mut change = self.session.begin_as_operator(self.console).await?;
        let changed = if let Some(plan) = form.parsed::<Plan>("plan") {
            let to = UserChange {
                plan: Some(plan),
                ..UserChange::default()
            };
            users::update(&mut change, self.id, &to).await?;
            Changed::Saved(Done::PlanSaved, "plan")
        } else if form.field("sign-in-link").is_some() {
            let url = self.session.console_url(self.console);
            Changed::Link(sign_in::create_link(&mut change, self.id, &url).await?)
        } else if form.field("end-sessions").is_some() {
            sign_in::end_all_sessions(&mut change, self.id).await?;
            Changed::Saved(Done::SessionsOfUserEnded, "access")
        } else {
            return Ok(Changed::Nothing);
        };
        change.commit().await?;
        Ok(changed)
    }
}
