//! How users get into the console: links to sign in, sessions, and the accounts at an identity
//! provider.

use bellbird_domain::{TimestampExt as _, UserId};
use bellbird_storage::writes::{identities, sessions};
use bellbird_storage::{AuditAction, ManagementChange, NewSignInLink, Storage};
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use uuid::Uuid;

use crate::change::require_owner;
use crate::refusal::{Refusal, SESSION, USER};

/// How long a link works.
const LINK_TTL: SignedDuration = SignedDuration::from_mins(10);
/// How long a link works that an operator sends, because its user may be away.
const INVITATION_TTL: SignedDuration = SignedDuration::from_hours(24);
/// Links of one user that work at the same time.
const LINKS_MAX: u64 = 20;

/// Makes a link with which a user signs in, once, for a user who did not ask for it in a browser.
/// An e-mail tells the user, because whoever it is shown to could use it.
pub async fn create_link(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
    console_url: &str,
) -> Result<SecretString, Refusal> {
    let action = AuditAction::of_user("sign_in_link.create", user_id);
    insert_link(change, user_id, console_url, LINK_TTL, &action).await
}

/// As [`create_link`], for an e-mail to the user, which works for a day. It is shown to nobody
/// else, so no other e-mail tells of it.
pub async fn create_invitation(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
    console_url: &str,
) -> Result<SecretString, Refusal> {
    let action = AuditAction::of_user("sign_in_link.send", user_id);
    insert_link(change, user_id, console_url, INVITATION_TTL, &action).await
}

async fn insert_link(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
    console_url: &str,
    ttl: SignedDuration,
    action: &AuditAction<'_>,
) -> Result<SecretString, Refusal> {
    require_owner(change, user_id, USER)?;
    let (token, now) = (bellbird_storage::new_token(), change.now());
    let link = NewSignInLink {
        expires_at: now.plus(ttl),
        ..new_link(user_id, &token, None, now)
    };
    if !sessions::insert_link(change.tx(), &link, LINKS_MAX, now).await? {
        return Err(Refusal::TooManySignInLinks);
    }
    change.record(action).await?;
    Ok(link_url(console_url, &token))
}

/// Makes a link that a user asked for in the browser with this cookie, or that the demo signs in
/// with. It is no change of management: the audit has the sign-in.
pub async fn create_asked_link(
    storage: &Storage,
    user_id: UserId,
    browser: Option<&str>,
    console_url: &str,
    now: Timestamp,
) -> Result<SecretString, Refusal> {
    let token = bellbird_storage::new_token();
    let link = new_link(user_id, &token, browser, now);
    if !storage
        .sessions()
        .insert_link(&link, LINKS_MAX, now)
        .await?
    {
        return Err(Refusal::TooManySignInLinks);
    }
    Ok(link_url(console_url, &token))
}

/// Ends a session, with its links.
pub async fn end_session(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
    session: Uuid,
) -> Result<(), Refusal> {
    require_owner(change, user_id, SESSION)?;
    if !sessions::revoke(change.tx(), user_id, session).await? {
        return Err(Refusal::NotFound(SESSION));
    }
    let action = AuditAction::of_user("session.revoke", user_id).about(session);
    Ok(change.record(&action).await?)
}

/// Ends all sessions of a user but one.
pub async fn end_other_sessions(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
    kept: Uuid,
) -> Result<(), Refusal> {
    require_owner(change, user_id, SESSION)?;
    sessions::revoke_others(change.tx(), user_id, kept).await?;
    let action = AuditAction::of_user("session.revoke_others", user_id);
    Ok(change.record(&action).await?)
}

/// Ends all sessions of a user, and the links that would begin another one.
pub async fn end_all_sessions(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
) -> Result<(), Refusal> {
    require_owner(change, user_id, SESSION)?;
    sessions::revoke_all(change.tx(), user_id).await?;
    let action = AuditAction::of_user("session.revoke_all", user_id);
    Ok(change.record(&action).await?)
}

/// Forgets with which accounts of identity providers a user signs in. Returns how many there were.
pub async fn forget_identities(
    change: &mut ManagementChange<'_>,
    user_id: UserId,
) -> Result<u64, Refusal> {
    require_owner(change, user_id, USER)?;
    let forgotten = identities::forget(change.tx(), user_id).await?;
    let action = AuditAction::of_user("identity.forget", user_id);
    change.record(&action).await?;
    Ok(forgotten)
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

fn link_url(console_url: &str, token: &SecretString) -> SecretString {
    SecretString::from(format!(
        "{}/sign-in/{}",
        console_url.trim_end_matches('/'),
        token.expose_secret()
    ))
}
