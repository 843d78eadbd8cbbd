//! `/settings`: the user's timezone, and where the user is signed in.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::EmailKind;
use bellbird_domain::user::find_timezone;
use bellbird_storage::{SessionRecord, StorageError, UserChange};
use http::StatusCode;
use uuid::Uuid;

use crate::error_page;
use crate::pages::{LocalTime, SignedInFrame, page_response};
use crate::session::{OwnForm, Session};
use crate::sign_in::signed_out;
use crate::state::Console;

#[derive(Template)]
#[template(path = "settings.html")]
struct SettingsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    plan: &'static str,
    timezone: &'a str,
    sessions: Vec<SessionRow>,
    /// Empty: this service sends none.
    emails: Vec<EmailSwitch>,
    problem: Option<&'static str>,
}

struct SessionRow {
    id: Uuid,
    browser: String,
    is_this: bool,
    since: String,
    last_used: String,
}

struct EmailSwitch {
    kind: EmailKind,
    label: &'static str,
    is_on: bool,
}

/// `GET /settings`
pub(crate) async fn show(State(console): State<Console>, session: Session) -> Response {
    page(&console, &session, None).await
}

async fn page(console: &Console, session: &Session, problem: Option<&'static str>) -> Response {
    let sessions = match console.storage().sessions().list(session.user(), session.now).await {
        Ok(sessions) => sessions,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let emails = match email_switches(console, session).await {
        Ok(emails) => emails,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let timezone = session.caller.timezone.iana_name().unwrap_or("UTC");
    let zone = LocalTime::of(Some(timezone));
    let row = |record: &SessionRecord| SessionRow {
        id: record.id,
        browser: record.browser.clone(),
        is_this: record.id == session.caller.key_id.uuid(),
        since: zone.day(record.created_at),
        last_used: format!("{}, {}", zone.day(record.last_used_at), zone.time(record.last_used_at)),
    };
    let sessions = sessions.iter().map(row).collect();
    let frame = SignedInFrame::new(&console.inner.frame, &session.email, "/settings");
    let status = if problem.is_some() { StatusCode::BAD_REQUEST } else { StatusCode::OK };
    let plan = session.caller.plan.as_str();
    page_response(status, &SettingsPage { frame: &frame, plan, timezone, sessions, emails, problem })
}

async fn email_switches(console: &Console, session: &Session) -> Result<Vec<EmailSwitch>, StorageError> {
    if console.inner.site.mailer.is_none() {
        return Ok(Vec::new());
    }
    let off = console.storage().emails().find_off(session.user()).await?;
    let switch = |kind: &EmailKind| {
        let label = match kind {
            EmailKind::Connection => "A connection needs me, or will soon",
            EmailKind::Endpoint => "A webhook endpoint was disabled",
            EmailKind::SignIn => "I sign in from a new browser",
        };
        EmailSwitch { kind: *kind, label, is_on: !off.contains(kind) }
    };
    Ok(EmailKind::ALL.iter().map(switch).collect())
}

/// `POST /settings`, with the field `timezone`, `end`, `end-others`, or `emails` with the kinds that are wanted.
pub(crate) async fn change(State(console): State<Console>, form: OwnForm) -> Response {
    let session = &form.session;
    let own = session.caller.key_id.uuid();
    let sessions = console.storage().sessions();
    let changed = if let Some(name) = form.field("timezone") {
        if find_timezone(name).is_err() {
            return page(&console, session, Some("Choose a name such as Australia/Sydney.")).await;
        }
        let change = UserChange { timezone: Some(Some(name)), ..UserChange::default() };
        console.storage().users().update(session.user(), &change).await.map(|_| ())
    } else if form.field("emails").is_some() {
        let is_off = |kind: &EmailKind| form.field(kind.as_str()).is_none();
        let off: Vec<_> = EmailKind::ALL.iter().copied().filter(is_off).collect();
        console.storage().emails().set_off(session.user(), &off).await
    } else if form.field("end-others").is_some() {
        sessions.revoke_others(session.user(), own).await.map(|_| ())
    } else if let Some(id) = form.parsed::<Uuid>("end") {
        match sessions.revoke(session.user(), id).await {
            Ok(true) if id == own => return signed_out(&console),
            Ok(true) => Ok(()),
            Ok(false) => Err(StorageError::NotFound("session")),
            Err(error) => Err(error),
        }
    } else {
        return error_page::invalid_form(&console);
    };
    match changed {
        Ok(()) => Redirect::to(&console.path("/settings")).into_response(),
        Err(StorageError::NotFound(_)) => page(&console, session, Some("This session has ended already.")).await,
        Err(error) => error_page::storage_error(&console, &error),
    }
}
