//! `/keys`: the user's API keys. A new key is shown once, on the response to the form that makes
//! it.

use askama::Template;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_domain::{ApiKey, KeyId, TimestampExt as _, UserId};
use bellbird_storage::{KeyReadCount, KeyRecord, OwnAction, StorageError};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use crate::error_page;
use crate::pages::names::sanitized;
use crate::pages::{LocalTime, SignedInFrame, page_response};
use crate::plan;
use crate::session::{OwnForm, Session};
use crate::state::Console;

/// How long the old key works after a rotation, so that its program can be changed.
const ROTATION_GRACE: SignedDuration = SignedDuration::from_hours(24);
/// As commands accept.
const NAME_CHARS_MAX: usize = 100;
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
            keys,
            is_first_sign_in,
            problem,
        },
    )
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
            !works(key, session.now),
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

pub(crate) fn works(key: &KeyRecord, now: Timestamp) -> bool {
    key.revoked_at.is_none() && key.expires_at.is_none_or(|at| at > now)
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
        works: works(key, now),
        requests: routes.iter().map(|count| count.requests).sum(),
        routes,
    }
}

/// `POST /keys`, with the field `name`, `rotate` or `revoke`.
pub(crate) async fn change(State(console): State<Console>, form: OwnForm) -> Response {
    let session = &form.session;
    if form.field("revoke").is_none()
        && let Some(refused) = plan::refuse_form(&console, session)
    {
        return refused;
    }
    if let Some(name) = form.field("name") {
        let name = name.trim();
        if name.is_empty()
            || name.chars().count() > NAME_CHARS_MAX
            || name.chars().any(char::is_control)
        {
            return page(
                &console,
                session,
                None,
                Some("Give the key a name of up to 100 characters."),
            )
            .await;
        }
        return match create_key(&console, session, name).await {
            Ok(key) => page(&console, session, Some(&key), None).await,
            Err(StorageError::TooMany(text)) => page(&console, session, None, Some(text)).await,
            Err(error) => error_page::storage_error(&console, &error),
        };
    }
    let changed = match (
        form.parsed::<KeyId>("rotate"),
        form.parsed::<KeyId>("revoke"),
    ) {
        (Some(id), None) => rotate(&console, session, id).await.map(Some),
        (None, Some(id)) => revoke(&console, session, id).await.map(|()| None),
        _ => return error_page::invalid_form(&console),
    };
    match changed {
        Ok(Some(key)) => page(&console, session, Some(&key), None).await,
        Ok(None) => Redirect::to(&console.path("/keys")).into_response(),
        Err(StorageError::NotFound(_)) => {
            page(
                &console,
                session,
                None,
                Some("This key does not work any more."),
            )
            .await
        }
        Err(StorageError::TooMany(text)) => page(&console, session, None, Some(text)).await,
        Err(error) => error_page::storage_error(&console, &error),
    }
}

/// Makes a key with this name.
pub(crate) async fn create_key(
    console: &Console,
    session: &Session,
    name: &str,
) -> Result<ApiKey, StorageError> {
    let key = bellbird_storage::new_key();
    let mut change = session.begin(console).await?;
    let id = change
        .insert_key(session.user(), &key, name, None)
        .await?
        .id
        .to_string();
    session
        .commit(
            change,
            &OwnAction {
                name: "key.create",
                subject: Some(&id),
                detail: name,
            },
        )
        .await?;
    Ok(key)
}

async fn rotate(console: &Console, session: &Session, id: KeyId) -> Result<ApiKey, StorageError> {
    let old = own_key(console, session, id).await?;
    let new = bellbird_storage::new_key();
    let ends_at = session.now.plus(ROTATION_GRACE);
    let mut change = session.begin(console).await?;
    change.rotate_key(&old, &new, ends_at).await?;
    let id = old.id.to_string();
    session
        .commit(
            change,
            &OwnAction {
                name: "key.rotate",
                subject: Some(&id),
                detail: &old.name,
            },
        )
        .await?;
    Ok(new)
}

async fn revoke(console: &Console, session: &Session, id: KeyId) -> Result<(), StorageError> {
    let key = own_key(console, session, id).await?;
    let mut change = session.begin(console).await?;
    change.revoke_key(key.id).await?;
    let id = key.id.to_string();
    session
        .commit(
            change,
            &OwnAction {
                name: "key.revoke",
                subject: Some(&id),
                detail: &key.name,
            },
        )
        .await
}

/// A key of this user that works. Another user's looks like a missing one.
async fn own_key(
    console: &Console,
    session: &Session,
    id: KeyId,
) -> Result<KeyRecord, StorageError> {
    let keys = console.storage().keys().list(session.user()).await?;
    let key = keys
        .into_iter()
        .find(|key| key.id == id && works(key, session.now));
    key.ok_or(StorageError::NotFound("key"))
}
