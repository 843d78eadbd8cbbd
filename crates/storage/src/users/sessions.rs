//! Stores who is signed in to the console, and the links with which users sign in. Of cookies and
//! tokens, which have 248 random bits, only the SHA-256 is kept.

use bellbird_domain::{Caller, KeyId, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::db::{Row, Tx, from_row, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::locks::{lock_staying_user, lock_user, lock_user_if_exists, stays};
use crate::management::audit;
use crate::outdated::{delete_in_steps, delete_some};
use crate::users::caller_lookups::caller;
use crate::{Sessions, StorageError};

/// A session ends when it was not used for so long,
pub const SESSION_TTL: SignedDuration = SignedDuration::from_hours(14 * 24);
/// and at the latest so long after its user signed in.
pub const SESSION_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Sessions of a user. One more ends the one that was used least recently.
const SESSIONS_MAX: i64 = 50;
/// Browsers in which a user is known to have signed in.
const BROWSERS_MAX: i64 = 50;
const BROWSERS_FOR: SignedDuration = SignedDuration::from_hours(400 * 24);
/// One write a minute for each session, not one for each page.
const LAST_USED_WRITE_INTERVAL: SignedDuration = SignedDuration::from_secs(60);

/// Of a row of `users`. Whoever has another's address must not get in by it, nor a user who is
/// being removed.
macro_rules! may_sign_in {
    () => {
        concat!("console_sign_in = 1 AND ", stays!())
    };
}

statements! {
    MAY_SIGN_IN = concat!("SELECT id FROM users WHERE id = $1 AND ", may_sign_in!());

    HAS_OTHER_OPERATOR = concat!(
        "SELECT id FROM users WHERE is_operator = 1 AND id <> $1 AND ", may_sign_in!(), " LIMIT 1"
    );

    COUNT_LINKS = "SELECT COUNT(*) FROM sign_in_links WHERE user_id = $1 AND expires_at > $2";

    INSERT_LINK = "INSERT INTO sign_in_links (user_id, id, token_hash, browser_hash, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6)";

    /// $3 is NULL for a browser without the cookie, which equals nothing.
    FIND_LINK = "SELECT l.user_id, u.email, CASE WHEN l.browser_hash = $3 THEN 'yes' ELSE 'no' END,
            u.is_operator FROM sign_in_links l JOIN users u ON u.id = l.user_id
        WHERE l.token_hash = $1 AND l.expires_at > $2 AND u.console_sign_in = 1";

    USE_LINK = "DELETE FROM sign_in_links WHERE token_hash = $1 AND user_id = $2 AND expires_at > $3 RETURNING user_id";

    INSERT = "INSERT INTO sessions (user_id, id, token_hash, browser, created_at, last_used_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $5, $6)";

    HAS_BROWSER = "SELECT user_id FROM known_browsers WHERE user_id = $1 LIMIT 1";

    USE_BROWSER = "UPDATE known_browsers SET signed_in_at = $3 WHERE user_id = $1 AND cookie_hash = $2";

    HAS_OLD_BROWSERS = "SELECT user_id FROM known_browsers WHERE signed_in_at <= $1 LIMIT 1";

    FORGET_BROWSERS = delete_some!("known_browsers", "user_id, cookie_hash", "signed_in_at <= $1", ""),
        on_postgres =
            delete_some!("known_browsers", "user_id, cookie_hash", "signed_in_at <= $1", " FOR UPDATE SKIP LOCKED");

    INSERT_BROWSER = "INSERT INTO known_browsers (user_id, cookie_hash, signed_in_at) VALUES ($1, $2, $3)";

    FIND = "SELECT s.id, s.user_id, s.last_used_at, u.plan, u.timezone, u.revision, u.email, u.is_operator
        FROM sessions s JOIN users u ON u.id = s.user_id
        WHERE s.token_hash = $1 AND s.expires_at > $2 AND u.console_sign_in = 1";

    FIND_BY_ID = "SELECT s.id, s.user_id, s.last_used_at, u.plan, u.timezone, u.revision, u.email, u.is_operator
        FROM sessions s JOIN users u ON u.id = s.user_id
        WHERE s.user_id = $1 AND s.id = $2 AND s.expires_at > $3 AND u.console_sign_in = 1";

    /// All but the newest.
    DELETE_OLDEST = "DELETE FROM sessions WHERE user_id = $1 AND id NOT IN
        (SELECT id FROM sessions WHERE user_id = $1 ORDER BY last_used_at DESC, id DESC LIMIT $2)";

    DELETE_OLDEST_BROWSERS = "DELETE FROM known_browsers WHERE user_id = $1 AND cookie_hash NOT IN
        (SELECT cookie_hash FROM known_browsers WHERE user_id = $1 ORDER BY signed_in_at DESC, cookie_hash LIMIT $2)";

    /// $4 is the end of a session that is used now, and $5 the longest time that one lasts.
    TOUCH = "UPDATE sessions SET last_used_at = $3,
            expires_at = CASE WHEN expires_at > $4 THEN expires_at
                WHEN created_at + $5 < $4 THEN created_at + $5 ELSE $4 END
        WHERE user_id = $1 AND id = $2 AND last_used_at < $3";

    LIST = "SELECT id, browser, created_at, last_used_at, expires_at FROM sessions
        WHERE user_id = $1 AND expires_at > $2 ORDER BY last_used_at DESC, id";

    REVOKE = "DELETE FROM sessions WHERE user_id = $1 AND id = $2";

    DELETE_SIGN_IN_LINKS = "DELETE FROM sign_in_links WHERE user_id = $1";

    REVOKE_OTHERS = "DELETE FROM sessions WHERE user_id = $1 AND id <> $2";
}

/// The text of the conflict.
pub const NO_CONSOLE_SIGN_IN: &str = "this user may not sign in to the console: allow it with \
    `bellbird user set USER --console-sign-in`, or by API with `consoleSignIn`";

/// A link that signs in. Has no `Debug`, because it holds the token.
#[derive(Clone, Copy)]
pub struct NewSignInLink<'a> {
    pub user_id: UserId,
    /// The secret part of the URL.
    pub token: &'a str,
    /// The cookie of the browser that asks for it. None: an operator makes it.
    pub browser: Option<&'a str>,
    /// The link works before this time.
    pub expires_at: Timestamp,
}

/// Whom a link signs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignInLink {
    pub user_id: UserId,
    pub email: String,
    /// Whether this browser asked for it.
    pub is_of_browser: bool,
    pub is_operator: bool,
}

/// A session to begin. Has no `Debug`, because it holds the cookie.
#[derive(Clone, Copy)]
pub struct NewSession<'a> {
    /// The value of the cookie.
    pub token: &'a str,
    /// Browser and system, for the user to recognise it.
    pub browser: &'a str,
    /// A cookie that the browser keeps after the session.
    pub known_browser: &'a str,
    /// The session works before this time.
    pub expires_at: Timestamp,
}

/// A session that has begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BegunSession {
    pub user_id: UserId,
    pub id: Uuid,
    /// Whether the user was never signed in before, so that all keys were made by others.
    pub is_first: bool,
}

/// Who is signed in. In the caller, the id of the key is the id of the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SignedIn {
    pub caller: Caller,
    pub email: String,
    pub is_operator: bool,
    last_used_at: Timestamp,
}

/// A session, as its user sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRecord {
    pub id: Uuid,
    pub browser: String,
    pub created_at: Timestamp,
    /// Exact to a minute.
    pub last_used_at: Timestamp,
    pub expires_at: Timestamp,
}

impl Sessions<'_> {
    /// Stores a link. Returns false, and stores nothing, if the user has `links_max` that work
    /// already.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if the user does not exist, [`StorageError::Conflict`] if the
    /// user may not sign in, or is being removed.
    pub async fn insert_link(
        self,
        link: &NewSignInLink<'_>,
        links_max: u64,
        now: Timestamp,
    ) -> Result<bool> {
        let mut tx = self.db.begin().await?;
        let is_stored = insert_link(&mut tx, link, links_max, now).await?;
        tx.commit().await?;
        Ok(is_stored)
    }

    /// Finds a link that still works. `browser` is the cookie of the browser that opens it.
    pub async fn find_link(
        self,
        token: &str,
        browser: Option<&str>,
        now: Timestamp,
    ) -> Result<Option<SignInLink>> {
        let (token, browser) = (hash(token), browser.map(hash));
        let values = params![&token, now, browser.as_ref()];
        self.db.one(FIND_LINK, values, link).await
    }

    /// Begins a session with a link, which works no more. Returns None if the link does not work.
    pub async fn sign_in(
        self,
        link: &str,
        session: &NewSession<'_>,
        now: Timestamp,
    ) -> Result<Option<BegunSession>> {
        let Some(found) = self.find_link(link, None, now).await? else {
            return Ok(None);
        };
        let mut tx = self.db.begin().await?;
        let hash = hash(link);
        let values = params![&hash, found.user_id, now];
        if !lock_user_if_exists(&mut tx, found.user_id).await?
            || !tx.exists(USE_LINK, values).await?
        {
            return Ok(None);
        }
        let begun = insert(&mut tx, found.user_id, session, now).await?;
        tx.commit().await?;
        Ok(Some(begun))
    }

    /// Finds who is signed in with this cookie, as one indexed read, and records the use, at most
    /// once a minute. A session that is used lasts longer.
    pub async fn find(self, token: &str, now: Timestamp) -> Result<Option<SignedIn>> {
        let found = self
            .db
            .one(FIND, params![&hash(token), now], signed_in)
            .await?;
        if let Some(found) = &found
            && now.duration_since(found.last_used_at) >= LAST_USED_WRITE_INTERVAL
        {
            let (user, session, end) = (
                found.caller.user_id,
                found.caller.key_id,
                now.plus(SESSION_TTL),
            );
            let longest = i64::try_from(SESSION_MAX.as_micros()).unwrap_or(i64::MAX);
            self.db
                .run(TOUCH, params![user, session, now, end, longest])
                .await?;
        }
        Ok(found)
    }

    /// Deletes browsers in which nobody has signed in for 400 days, which is as long as they keep
    /// the cookie. Returns how many.
    pub async fn forget_browsers(self, now: Timestamp) -> Result<u64> {
        let until = now.minus(BROWSERS_FOR);
        delete_in_steps(&self.db, HAS_OLD_BROWSERS, FORGET_BROWSERS, until.into()).await
    }

    /// The sessions of a user that work, the one used last first.
    pub async fn list(self, user: UserId, now: Timestamp) -> Result<Vec<SessionRecord>> {
        self.db.all(LIST, params![user, now], record).await
    }

    /// Ends a session of the user that another one replaces. Returns whether there was one.
    pub async fn revoke(self, user: UserId, id: Uuid) -> Result<bool> {
        self.db.changes(REVOKE, params![user, id]).await
    }

    /// Whether somebody else may sign in as an operator.
    pub async fn has_other_operator(self, user: UserId) -> Result<bool> {
        self.db.exists(HAS_OTHER_OPERATOR, params![user]).await
    }

    /// As [`Self::find`], for a session that was found before: a long response checks it again.
    pub(crate) async fn find_by_id(
        self,
        user: UserId,
        id: KeyId,
        now: Timestamp,
    ) -> Result<Option<SignedIn>> {
        self.db
            .one(FIND_BY_ID, params![user, id, now], signed_in)
            .await
    }
}

/// As `storage.sessions().insert_link`, in a transaction.
pub async fn insert_link(
    tx: &mut Tx,
    link: &NewSignInLink<'_>,
    links_max: u64,
    now: Timestamp,
) -> Result<bool> {
    lock_staying_user(tx, link.user_id).await?;
    if !may_sign_in(tx, link.user_id).await? {
        return Err(StorageError::Conflict(NO_CONSOLE_SIGN_IN));
    }
    if tx.count(COUNT_LINKS, params![link.user_id, now]).await? >= links_max {
        return Ok(false);
    }
    let (token, browser) = (hash(link.token), link.browser.map(hash));
    let values = params![
        link.user_id,
        Uuid::now_v7(),
        &token,
        browser.as_ref(),
        now,
        link.expires_at
    ];
    tx.execute_or_conflict(INSERT_LINK, values, "this link")
        .await?;
    Ok(true)
}

/// The caller holds the lock on the user's row.
pub(super) async fn may_sign_in(tx: &mut Tx, user: UserId) -> Result<bool> {
    tx.exists(MAY_SIGN_IN, params![user]).await
}

/// Ends a session of the user. Returns whether there was one.
pub async fn revoke(tx: &mut Tx, user: UserId, id: Uuid) -> Result<bool> {
    tx.changes(REVOKE, params![user, id]).await
}

/// Ends all sessions of the user but one, and the links that would begin another one.
pub async fn revoke_others(tx: &mut Tx, user: UserId, kept: Uuid) -> Result<()> {
    lock_user(tx, user).await?;
    tx.run(DELETE_SIGN_IN_LINKS, params![user]).await?;
    tx.execute(REVOKE_OTHERS, params![user, kept]).await
}

/// Ends all sessions of a user, and the links that would begin another one.
pub async fn revoke_all(tx: &mut Tx, user: UserId) -> Result<()> {
    revoke_others(tx, user, Uuid::nil()).await
}

/// Begins a session of a user, in a transaction that holds the lock on the user's row.
pub async fn insert(
    tx: &mut Tx,
    user: UserId,
    session: &NewSession<'_>,
    now: Timestamp,
) -> Result<BegunSession> {
    let (id, token, browser) = (
        Uuid::now_v7(),
        hash(session.token),
        hash(session.known_browser),
    );
    let is_new = !tx
        .changes(USE_BROWSER, params![user, &browser, now])
        .await?;
    let is_first = is_new && !tx.exists(HAS_BROWSER, params![user]).await?;
    if is_new {
        tx.run(INSERT_BROWSER, params![user, &browser, now]).await?;
        tx.run(DELETE_OLDEST_BROWSERS, params![user, BROWSERS_MAX])
            .await?;
    }
    let values = params![user, id, &token, session.browser, now, session.expires_at];
    tx.execute_or_conflict(INSERT, values, "this session")
        .await?;
    tx.run(DELETE_OLDEST, params![user, SESSIONS_MAX]).await?;
    audit::insert_sign_in(tx, (user, id), session.browser, is_new, now).await?;
    Ok(BegunSession {
        user_id: user,
        id,
        is_first,
    })
}

fn signed_in(row: &Row<'_>) -> Result<SignedIn> {
    Ok(SignedIn {
        caller: caller(row)?,
        email: row.get(6)?,
        is_operator: row.get(7)?,
        last_used_at: row.get(2)?,
    })
}

from_row! {
    fn link(row) -> SignInLink {
        user_id, email, is_of_browser = row.text(2)? == "yes", is_operator,
    }
}

from_row! {
    fn record(row) -> SessionRecord {
        id, browser, created_at, last_used_at, expires_at,
    }
}
