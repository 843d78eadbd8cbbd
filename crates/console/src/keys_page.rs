//! `/keys`: the user's API keys. A new key is shown once, on the response to the form that makes
//! it.

use askama::Template;
use axum::extract::RawQuery;
use bellbird_domain::{ApiKey, KeyId, KeyStatus};
use bellbird_management::Refusal;
use bellbird_management::keys::{self, NewKey};
use bellbird_management::values::KeyName;
use bellbird_storage::{KeyReadCount, KeyRecord, StorageError};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};

use crate::error_page::{Failure, PageResult};
use crate::pages::names::sanitized;
use crate::pages::{Done, SignedInFrame, When, page_response};
use crate::plan;
use crate::session::{OwnForm, Session, newest_of};

/// What a user sees at first who is signed in for the first time, if others have made keys or
/// endpoints.
pub(crate) const FIRST_SIGN_IN: &str = "/keys?first";

/// How long a new key works: the value of the form, its text, and the days. The first is chosen.
const LIVES: [(&str, &str, Option<i64>); 4] = [
    ("", "until you revoke it", None),
    ("30", "30 days", Some(30)),
    ("90", "90 days", Some(90)),
    ("365", "1 year", Some(365)),
];

#[derive(Template)]
#[template(path = "keys.html")]
struct KeysPage<'a> {
    frame: &'a SignedInFrame<'a>,
    api_url: &'a str,
    shown: Shown<'a>,
    /// Those that work, newest first.
    keys: Vec<KeyRow>,
    ended: Vec<KeyRow>,
    /// See [`newest_of`].
    newest: String,
}

/// What the page shows beside the keys.
#[derive(Default)]
struct Shown<'a> {
    /// Now, and never again.
    new_key: Option<&'a ApiKey>,
    /// The page says that others have made the keys.
    is_first_sign_in: bool,
    /// Why no key was made.
    not_made: Option<&'static str>,
    /// Why no key was changed.
    not_changed: Option<&'static str>,
}

struct KeyRow {
    id: KeyId,
    name: String,
    prefix: String,
    created: String,
    /// None: never.
    used: Option<When>,
    expires: Option<String>,
    works: bool,
    /// Requests of the last 30 days.
    requests: u64,
    routes: Vec<KeyReadCount<String>>,
}

/// `GET /keys`
pub(crate) async fn show(session: Session, RawQuery(query): RawQuery) -> PageResult {
    let shown = Shown {
        is_first_sign_in: query.as_deref() == Some("first"),
        ..Shown::default()
    };
    page(&session, shown).await
}

async fn page(session: &Session, shown: Shown<'_>) -> PageResult {
    let keys = rows(session).await?;
    let status = match shown.not_made.or(shown.not_changed) {
        Some(_) => StatusCode::BAD_REQUEST,
        None => StatusCode::OK,
    };
    let newest = newest_of(keys.iter().map(|key| key.id));
    let (keys, ended) = keys.into_iter().partition(|key| key.works);
    let page = KeysPage {
        frame: &session.frame("/keys"),
        api_url: &session.api_url(),
        shown,
        keys,
        ended,
        newest,
    };
    Ok(page_response(status, &page))
}

/// As [`newest_of`], of the user's keys.
pub(crate) async fn newest(session: &Session) -> Result<String, StorageError> {
    let keys = session.storage().keys().list(session.user()).await?;
    Ok(newest_of(keys.iter().map(|key| key.id)))
}

/// What works comes first, newest first.
async fn rows(session: &Session) -> Result<Vec<KeyRow>, StorageError> {
    let (storage, user, now) = (session.storage(), session.user(), session.now);
    let mut keys = storage.keys().list(user).await?;
    keys.sort_by_key(|key| {
        (
            key.status(now) != KeyStatus::Active,
            std::cmp::Reverse((key.created_at, key.id)),
        )
    });
    let counts = storage.key_reads().list(user, now).await?;
    let zone = session.zone();
    let row = |key: KeyRecord| {
        let of_key = counts.iter().filter(|count| count.key_id == key.id);
        let routes: Vec<_> = of_key.cloned().collect();
        KeyRow {
            id: key.id,
            name: sanitized(&key.name),
            created: zone.day(key.created_at),
            used: key.last_used_at.map(|at| zone.when(at)),
            expires: key.expires_at.map(|at| zone.at(at)),
            works: key.status(now) == KeyStatus::Active,
            requests: routes.iter().map(|count| count.requests).sum(),
            routes,
            prefix: key.prefix,
        }
    };
    Ok(keys.into_iter().map(row).collect())
}

/// `POST /keys`, with the field `name`, `rotate` or `revoke`. The first two with `newest`, so that
/// a reload makes no other key, and the first with `works`, how many days the key works.
pub(crate) async fn change(form: OwnForm) -> PageResult {
    let session = &form.session;
    if form.field("revoke").is_none()
        && let Some(refused) = plan::refuse_form(session)
    {
        return Ok(refused);
    }
    let not_made = |why| Shown {
        not_made: Some(why),
        ..Shown::default()
    };
    let made = match (
        form.field("name"),
        form.parsed::<KeyId>("rotate"),
        form.parsed::<KeyId>("revoke"),
    ) {
        (Some(name), ..) => {
            let expires_at = expiry(&form).ok_or(Failure::InvalidForm)?;
            let Ok(name) = name.parse() else {
                let why = "Give the key a name of up to 100 characters.";
                return page(session, not_made(why)).await;
            };
            create_key(&form, &name, expires_at).await
        }
        (None, Some(id), None) => rotate(&form, id).await,
        (None, None, Some(id)) => {
            return match revoke(session, id).await {
                Ok(()) => Ok(Done::KeyRevoked.redirect(session, "/keys", "keys")),
                Err(refusal) => not_changed(session, refusal).await,
            };
        }
        _ => return Err(Failure::InvalidForm),
    };
    match made {
        Ok(Some(key)) => {
            let shown = Shown {
                new_key: Some(&key),
                ..Shown::default()
            };
            page(session, shown).await
        }
        Ok(None) => Ok(Done::KeyShownBefore.redirect(session, "/keys", "keys")),
        Err(Refusal::TooMany(why)) => page(session, not_made(why)).await,
        Err(refusal) => not_changed(session, refusal).await,
    }
}

async fn not_changed(session: &Session, refusal: Refusal) -> PageResult {
    if !matches!(refusal, Refusal::NotFound(_) | Refusal::KeyEnded) {
        return Err(refusal.into());
    }
    let shown = Shown {
        not_changed: Some("This key does not work any more."),
        ..Shown::default()
    };
    page(session, shown).await
}

/// When the new key of a form ends. None: the form is not one of ours.
fn expiry(form: &OwnForm) -> Option<Option<Timestamp>> {
    let works = form.field("works").unwrap_or_default();
    let (_, _, days) = LIVES.iter().find(|(value, ..)| *value == works)?;
    Some(days.map(|days| form.session.now + SignedDuration::from_hours(24 * days)))
}

/// Makes a key with this name. None: the form was sent before, and has made its key.
pub(crate) async fn create_key(
    form: &OwnForm,
    name: &KeyName,
    expires_at: Option<Timestamp>,
) -> Result<Option<ApiKey>, Refusal> {
    let session = &form.session;
    let mut change = session.begin().await?;
    let newest = keys::newest(&mut change, session.user()).await?;
    if form.is_sent_again(newest) {
        return Ok(None);
    }
    let new = NewKey {
        user_id: session.user(),
        name: Some(name),
        expires_at,
    };
    let created = keys::create(&mut change, new).await?;
    session.commit(change).await?;
    Ok(Some(created.key))
}

async fn rotate(form: &OwnForm, id: KeyId) -> Result<Option<ApiKey>, Refusal> {
    let session = &form.session;
    let mut change = session.begin().await?;
    let newest = keys::newest(&mut change, session.user()).await?;
    if form.is_sent_again(newest) {
        return Ok(None);
    }
    let rotated = keys::rotate(&mut change, id, keys::DEFAULT_GRACE).await?;
    session.commit(change).await?;
    Ok(Some(rotated.new.key))
}

async fn revoke(session: &Session, id: KeyId) -> Result<(), Refusal> {
    let mut change = session.begin().await?;
    keys::revoke(&mut change, id).await?;
    session.commit(change).await
}
