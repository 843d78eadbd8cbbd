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
use crate::pages::{Done, LocalTime, SignedInFrame, page_response};
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
    zone: LocalTime,
    api_url: &'a str,
    shown: Shown<'a>,
    /// Those that work, newest first.
    keys: Vec<KeyRecord>,
    ended: Vec<KeyRecord>,
    /// Requests of the last 30 days.
    reads: Vec<KeyReadCount<String>>,
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

impl KeysPage<'_> {
    fn reads_of(&self, key: KeyId) -> impl Iterator<Item = &KeyReadCount<String>> {
        self.reads.iter().filter(move |count| count.key_id == key)
    }

    fn requests_of(&self, key: KeyId) -> u64 {
        self.reads_of(key).map(|count| count.requests).sum()
    }
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
    let (storage, user, now) = (session.storage(), session.user(), session.now);
    let mut keys = storage.keys().list(user).await?;
    keys.sort_by_key(|key| std::cmp::Reverse((key.created_at, key.id)));
    let newest = newest_of(keys.iter().map(|key| key.id));
    let works = |key: &KeyRecord| key.status(now) == KeyStatus::Active;
    let (keys, ended) = keys.into_iter().partition(works);
    let status = match shown {
        Shown::NotMade(_) | Shown::NotChanged => StatusCode::BAD_REQUEST,
        Shown::Nothing | Shown::NewKey(_) | Shown::FirstSignIn => StatusCode::OK,
    };
    let page = KeysPage {
        frame: &session.frame("/keys"),
        zone: session.zone(),
        api_url: &session.api_url(),
        shown,
        keys,
        ended,
        reads: storage.key_reads().list(user, now).await?,
        newest,
    };
    Ok(page_response(status, &page))
}

/// As [`newest_of`], of the user's keys.
pub(crate) async fn newest(session: &Session) -> Result<String, StorageError> {
    let keys = session.storage().keys().list(session.user()).await?;
    Ok(newest_of(keys.iter().map(|key| key.id)))
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
            make_key(&form, MadeFor::New(&name, expires_at)).await
        }
        (None, Some(id), None) => make_key(&form, MadeFor::Replaced(id)).await,
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

/// What a form makes a key for.
#[derive(Clone, Copy)]
pub(crate) enum MadeFor<'a> {
    /// A program, until then.
    New(&'a KeyName, Option<Timestamp>),
    /// The program that has this key.
    Replaced(KeyId),
}

/// Makes a key. None: the form was sent before, and has made its key.
pub(crate) async fn make_key(
    form: &OwnForm,
    made_for: MadeFor<'_>,
) -> Result<Option<ApiKey>, Refusal> {
    let session = &form.session;
    let user_id = session.user();
    let mut change = session.begin().await?;
    let newest = keys::newest(&mut change, user_id).await?;
    if form.is_sent_again(newest) {
        return Ok(None);
    }
    let made = match made_for {
        MadeFor::New(name, expires_at) => {
            let new = NewKey {
                user_id,
                name: Some(name),
                expires_at,
            };
            keys::create(&mut change, new).await?
        }
        MadeFor::Replaced(id) => {
            keys::rotate(&mut change, id, keys::DEFAULT_GRACE)
                .await?
                .new
        }
    };
    session.commit(change).await?;
    Ok(Some(made.key))
}

async fn revoke(session: &Session, id: KeyId) -> Result<(), Refusal> {
    let mut change = session.begin().await?;
    keys::revoke(&mut change, id).await?;
    session.commit(change).await
}
