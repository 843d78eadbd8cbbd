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
enum Shown<'a> {
    Nothing,
    /// Now, and never again.
    NewKey(&'a ApiKey),
    /// That others have made the keys.
    FirstSignIn,
    /// Why no key was made.
    NotMade(&'static str),
    /// That no key was changed.
    NotChanged,
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
    let shown = match query.as_deref() {
        Some("first") => Shown::FirstSignIn,
        _ => Shown::Nothing,
    };
    page(&session, shown).await
}

async fn page(session: &Session, shown: Shown<'_>) -> PageResult {
    let keys = rows(session).await?;
    let status = match shown {
        Shown::NotMade(_) | Shown::NotChanged => StatusCode::BAD_REQUEST,
        Shown::Nothing | Shown::NewKey(_) | Shown::FirstSignIn => StatusCode::OK,
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
    let made = match (
        form.field("name"),
        form.parsed::<KeyId>("rotate"),
        form.parsed::<KeyId>("revoke"),
    ) {
        (Some(name), ..) => {
            let expires_at = expiry(&form).ok_or(Failure::InvalidForm)?;
            let Ok(name) = name.parse() else {
                let why = "Give the key a name of up to 100 characters.";
                return page(session, Shown::NotMade(why)).await;
            };
            create_key(&form, &name, expires_at).await
        }
        (None, Some(id), None) => rotate(&form, id).await,
        (None, None, Some(id)) => match revoke(session, id).await {
            Ok(()) => return Ok(Done::KeyRevoked.redirect(session, "/keys", "keys")),
            Err(refusal) => Err(refusal),
        },
        _ => return Err(Failure::InvalidForm),
    };
    match made {
        Ok(Some(key)) => page(session, Shown::NewKey(&key)).await,
        Ok(None) => Ok(Done::KeyShownBefore.redirect(session, "/keys", "keys")),
        Err(Refusal::TooMany(why)) => page(session, Shown::NotMade(why)).await,
        Err(Refusal::NotFound(_) | Refusal::KeyEnded) => page(session, Shown::NotChanged).await,
        Err(refusal) => Err(refusal.into()),
    }
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
