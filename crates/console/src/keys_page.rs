//! `/keys`: the user's API keys. A new key is shown once, on the response to the form that makes
//! it.

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::{ApiKey, KeyId, KeyStatus, UserId};
use bellbird_management::Refusal;
use bellbird_management::keys::{self, NewKey};
use bellbird_management::values::KeyName;
use bellbird_storage::{KeyReadCount, KeyRecord, StorageError};
use http::StatusCode;
use jiff::Timestamp;

use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::{LocalTime, SignedInFrame, page_response};
use crate::plan;
use crate::session::{OwnForm, Session};
use crate::state::Console;

/// What a user sees at first who is signed in for the first time, if others have made keys or
/// endpoints.
pub(crate) const FIRST_SIGN_IN: &str = "/keys?first";

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage<'a> {
    frame: &'a SignedInFrame<'a>,
    api_url: &'a str,
    /// Shown now, and never again.
    new_key: Option<&'a ApiKey>,
    keys: Vec<KeyRow>,
    /// The newest key. A form that is sent again, by a reload, has another one.
    newest: String,
    /// The page says that others have made the keys.
    is_first_sign_in: bool,
    problem: Option<&'static str>,
}

pub(crate) struct KeyRow {
    id: KeyId,
    pub(crate) name: String,
    pub(crate) prefix: String,
    pub(crate) created: String,
    /// None: never.
    pub(crate) last_used: Option<String>,
    pub(crate) expires: Option<String>,
    pub(crate) works: bool,
    /// Requests of the last 30 days.
    requests: u64,
    routes: Vec<KeyReadCount<String>>,
}

/// `GET /keys`
pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    RawQuery(query): RawQuery,
) -> Response {
    let is_first_sign_in = query.as_deref() == Some("first");
    render(&console, &session, None, is_first_sign_in, None).await
}

async fn page(
    console: &Console,
    session: &Session,
    new_key: Option<&ApiKey>,
    problem: Option<&'static str>,
) -> Response {
    render(console, session, new_key, false, problem).await
}

async fn render(
    console: &Console,
    session: &Session,
    new_key: Option<&ApiKey>,
    is_first_sign_in: bool,
    problem: Option<&'static str>,
) -> Response {
    let keys = match rows(console, session, session.user()).await {
        Ok(keys) => keys,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let frame = session.frame(console, "/keys");
    let api_url = console.inner.site.api_url.trim_end_matches('/');
    let status = if problem.is_some() {
        StatusCode::BAD_REQUEST
    } else {
        StatusCode::OK
    };
    page_response(
        status,
        &KeysPage {
            frame: &frame,
            api_url,
            new_key,
            newest: newest(keys.iter().map(|key| key.id)),
            keys,
            is_first_sign_in,
            problem,
        },
    )
}

/// Ids are UUIDv7, so the largest is the newest. Empty without keys.
fn newest(ids: impl Iterator<Item = KeyId>) -> String {
    ids.max().map(|id| id.to_string()).unwrap_or_default()
}

/// Whether the form is of a page that does not list the newest key: it has made that key itself, if
/// the page with the key is reloaded.
async fn is_sent_again(console: &Console, form: &OwnForm) -> Result<bool, StorageError> {
    let Some(known) = form.field("newest") else {
        return Ok(false);
    };
    let keys = console.storage().keys().list(form.session.user()).await?;
    Ok(newest(keys.iter().map(|key| key.id)) != known)
}

/// The keys of a user. What works comes first, newest first.
pub(crate) async fn rows(
    console: &Console,
    session: &Session,
    user: UserId,
) -> Result<Vec<KeyRow>, StorageError> {
    let mut keys = console.storage().keys().list(user).await?;
    keys.sort_by_key(|key| {
        (
            key.status(session.now) != KeyStatus::Active,
            std::cmp::Reverse((key.created_at, key.id)),
        )
    });
    let counts = console
        .storage()
        .key_reads()
        .list(user, session.now)
        .await?;
    let zone = session.zone();
    Ok(keys
        .iter()
        .map(|key| row(key, &counts, session.now, &zone))
        .collect())
}

fn row(
    key: &KeyRecord,
    counts: &[KeyReadCount<String>],
    now: Timestamp,
    zone: &LocalTime,
) -> KeyRow {
    let routes: Vec<_> = counts
        .iter()
        .filter(|count| count.key_id == key.id)
        .cloned()
        .collect();
    KeyRow {
        id: key.id,
        name: sanitized(&key.name),
        prefix: key.prefix.clone(),
        created: zone.day(key.created_at),
        last_used: key
            .last_used_at
            .map(|at| format!("{}, {}", zone.day(at), zone.time(at))),
        expires: key
            .expires_at
            .map(|at| format!("{}, {}", zone.day(at), zone.time(at))),
        works: key.status(now) == KeyStatus::Active,
        requests: routes.iter().map(|count| count.requests).sum(),
        routes,
    }
}

/// `POST /keys`, with the field `name`, `rotate` or `revoke`. The first two with `newest`, which
/// keeps a reload from making another key.
pub(crate) async fn change(State(console): State<Console>, form: OwnForm) -> Response {
    let session = &form.session;
    if form.field("revoke").is_none()
        && let Some(refused) = plan::refuse_form(&console, session)
    {
        return refused;
    }
    match is_sent_again(&console, &form).await {
        Ok(false) => {}
        Ok(true) => return Redirect::to(&console.path("/keys")).into_response(),
        Err(error) => return error_page::storage_error(&console, &error),
    }
    let changed = match (
        form.field("name"),
        form.parsed::<KeyId>("rotate"),
        form.parsed::<KeyId>("revoke"),
    ) {
        (Some(name), ..) => match name.parse() {
            Ok(name) => create_key(&console, session, &name).await.map(Some),
            Err(_) => {
                let text = "Give the key a name of up to 100 characters.";
                return page(&console, session, None, Some(text)).await;
            }
        },
        (None, Some(id), None) => rotate(&console, session, id).await.map(Some),
        (None, None, Some(id)) => revoke(&console, session, id).await.map(|()| None),
        _ => return error_page::invalid_form(&console),
    };
    match changed {
        Ok(Some(key)) => page(&console, session, Some(&key), None).await,
        Ok(None) => Redirect::to(&console.path("/keys")).into_response(),
        Err(Refusal::NotFound(_) | Refusal::KeyEnded) => {
            let text = "This key does not work any more.";
            page(&console, session, None, Some(text)).await
        }
        Err(Refusal::TooMany(text)) => page(&console, session, None, Some(text)).await,
        Err(refusal) => error_page::refused(&console, refusal),
    }
}

/// Makes a key with this name.
pub(crate) async fn create_key(
    console: &Console,
    session: &Session,
    name: &KeyName,
) -> Result<ApiKey, Refusal> {
    let mut change = session.begin(console).await?;
    let new = NewKey {
        user_id: session.user(),
        name: Some(name),
        expires_at: None,
    };
    let created = keys::create(&mut change, new).await?;
    session.commit(change).await?;
    Ok(created.key)
}

async fn rotate(console: &Console, session: &Session, id: KeyId) -> Result<ApiKey, Refusal> {
    let mut change = session.begin(console).await?;
    let rotated = keys::rotate(&mut change, id, keys::DEFAULT_GRACE).await?;
    session.commit(change).await?;
    Ok(rotated.new.key)
}

async fn revoke(console: &Console, session: &Session, id: KeyId) -> Result<(), Refusal> {
    let mut change = session.begin(console).await?;
    keys::revoke(&mut change, id).await?;
    session.commit(change).await
}
