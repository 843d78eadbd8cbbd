//! Links with which a user signs in, once.

use bellbird_domain::{TimestampExt as _, UserId};
use bellbird_storage::{NewSignInLink, OperatorChange, Storage, StorageError};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};

/// How long a link works.
const LINK_TTL: SignedDuration = SignedDuration::from_mins(10);
/// Links of one user that work at the same time.
const LINKS_MAX: i64 = 20;

const TOO_MANY_LINKS: StorageError =
    StorageError::Conflict("20 sign-in links that work: wait ten minutes");

/// Makes a link with which a user signs in, for a user who did not ask for it in a browser:
/// `bellbird console login`.
///
/// # Errors
/// [`StorageError::NotFound`] if there is no such user, and [`StorageError::Conflict`] if the user
/// may not sign in, or too many of the user's links still work.
pub async fn create_sign_in_link(
    storage: &Storage,
    user_id: UserId,
    console_url: &str,
    now: Timestamp,
) -> Result<SecretString, StorageError> {
    insert_link(storage, user_id, None, console_url, now).await
}

/// As [`create_sign_in_link`]. `browser` is the cookie of the browser that asks.
pub(crate) async fn insert_link(
    storage: &Storage,
    user_id: UserId,
    browser: Option<&str>,
    console_url: &str,
    now: Timestamp,
) -> Result<SecretString, StorageError> {
    let token = bellbird_storage::new_token();
    let link = new_link(user_id, &token, browser, now);
    if !storage
        .sessions()
        .insert_link(&link, LINKS_MAX, now)
        .await?
    {
        return Err(TOO_MANY_LINKS);
    }
    Ok(url_of(console_url, &token))
}

/// As [`create_sign_in_link`], for an operator in the console. None of it is stored before the
/// change is committed.
pub(crate) async fn create_sign_in_link_in(
    change: &mut OperatorChange<'_>,
    user_id: UserId,
    console_url: &str,
    now: Timestamp,
) -> Result<SecretString, StorageError> {
    let token = bellbird_storage::new_token();
    if !change
        .insert_sign_in_link(&new_link(user_id, &token, None, now), LINKS_MAX)
        .await?
    {
        return Err(TOO_MANY_LINKS);
    }
    Ok(url_of(console_url, &token))
}

fn new_link<'a>(
    user_id: UserId,
    token: &'a SecretString,
    browser: Option<&'a str>,
    now: Timestamp,
) -> NewSignInLink<'a> {
    NewSignInLink {
        user_id,
        token: token.expose_secret(),
        browser,
        expires_at: now.plus(LINK_TTL),
    }
}

fn url_of(console_url: &str, token: &SecretString) -> SecretString {
    SecretString::from(format!(
        "{}/sign-in/{}",
        console_url.trim_end_matches('/'),
        token.expose_secret()
    ))
}
