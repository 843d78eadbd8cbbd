//! Stores links: URLs with a token whose holder may link institutions for one user. Only the
//! SHA-256 of the token is kept. A link session is a link that an app created: it connects once,
//! its browser returns to the app, and the app asks for its result.

use bellbird_domain::{ConnectionId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::connections::connection;
use crate::db::{Tx, from_row, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::locks::lock_staying_user;
use crate::{Links, StorageError};

/// Links of a user, which stay for a day after they have expired.
const LINKS_MAX: u64 = 1_000;
const TOO_MANY_LINKS: &str = "There are 1,000 links of the last day: wait until they are deleted";

/// The columns that [`link`] expects, in its order.
macro_rules! columns {
    () => {
        "user_id, id, provider, connection_id, open_count, expires_at, has_connected, return_url, app_state, session_id"
    };
}

statements! {
    COUNT = "SELECT COUNT(*) FROM links WHERE user_id = $1";

    INSERT = "INSERT INTO links
            (user_id, id, token_hash, provider, connection_id, created_at, expires_at, is_session, return_url,
                app_state, session_id)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)";

    /// A link that the console made for itself ends with the session, however that ends.
    FIND = concat!(
        "SELECT ", columns!(), " FROM links WHERE token_hash = $1 AND (session_id IS NULL
            OR EXISTS (SELECT 1 FROM sessions s WHERE s.user_id = links.user_id AND s.id = links.session_id))"
    );

    FIND_SESSION = concat!("SELECT ", columns!(), " FROM links WHERE id = $1 AND is_session = 1");

    OPEN = "UPDATE links SET open_count = open_count + 1
        WHERE token_hash = $1 AND expires_at > $2 AND open_count < $3 AND has_connected = 0";

    SET_CONNECTED = "UPDATE links SET has_connected = 1 WHERE user_id = $1 AND id = $2 AND is_session = 1";

    DELETE_OF_USER = "DELETE FROM links WHERE user_id = $1";

    DELETE_TO = "DELETE FROM links WHERE user_id = $1 AND connection_id = $2";
}

/// Without `Debug`, because it holds the token.
#[derive(Clone, Copy)]
pub struct NewLink<'a> {
    /// The user for whom the holder may link.
    pub user_id: UserId,
    /// The secret part of the link URL.
    pub token: &'a str,
    /// None: the user chooses.
    pub provider: Option<&'a str>,
    /// The connection to repair. None: a new connection.
    pub connection_id: Option<ConnectionId>,
    /// The link works before this time.
    pub expires_at: Timestamp,
    /// None: a link, and not a link session.
    pub session: Option<NewLinkSession<'a>>,
    /// The session of the console that makes it for itself.
    pub console_session: Option<Uuid>,
}

/// What an app gives for a link session. Without `Debug`, because the app may have put anything
/// into it.
#[derive(Clone, Copy, Default)]
pub struct NewLinkSession<'a> {
    /// Where the browser returns. None: nowhere.
    pub return_url: Option<&'a str>,
    /// The app's own text for the return.
    pub state: Option<&'a str>,
}

/// A link, which may have expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    pub id: Uuid,
    /// The user for whom the holder may link.
    pub user_id: UserId,
    /// None: the user chooses.
    pub provider: Option<String>,
    /// The connection to repair. None: a new connection.
    pub connection_id: Option<ConnectionId>,
    /// Consent sessions that it has started.
    pub open_count: i64,
    /// The link works before this time.
    pub expires_at: Timestamp,
    /// Whether the link session has connected. Always false of a link.
    pub has_connected: bool,
    pub return_url: Option<String>,
    pub app_state: Option<String>,
    /// The session of the console that made it for itself.
    pub console_session: Option<Uuid>,
}

impl Links<'_> {
    /// Finds the link with this token, also an expired one until cleanup deletes it.
    pub async fn find(self, token: &str) -> Result<Option<Link>> {
        self.db.one(FIND, params![&hash(token)], link).await
    }

    /// Finds a link session of any user, also an expired one until cleanup deletes it. For the
    /// operator.
    pub async fn find_any_session(self, id: Uuid) -> Result<Option<Link>> {
        self.db.one(FIND_SESSION, params![id], link).await
    }

    /// Counts one opening of a link. Returns false, and counts nothing, if the link is unknown, has
    /// expired, was opened `max_opens` times, or is a link session that has connected.
    pub async fn open(self, token: &str, max_opens: u32, now: Timestamp) -> Result<bool> {
        // A read first: made-up tokens must not take SQLite's one writer.
        if self.find(token).await?.is_none() {
            return Ok(false);
        }
        let token = hash(token);
        self.db.changes(OPEN, params![&token, now, max_opens]).await
    }
}

/// Stores a link, and returns its id.
///
/// # Errors
/// [`StorageError::NotFound`] if the user or the connection to repair does not exist,
/// [`StorageError::Conflict`] if the token does or the user is being removed, and
/// [`StorageError::TooMany`] if the user has 1,000 links.
pub async fn insert(tx: &mut Tx, link: &NewLink<'_>, now: Timestamp) -> Result<Uuid> {
    lock_staying_user(tx, link.user_id).await?;
    if tx.count(COUNT, params![link.user_id]).await? >= LINKS_MAX {
        return Err(StorageError::TooMany(TOO_MANY_LINKS));
    }
    require_connection(tx, link.user_id, link.connection_id).await?;
    let (id, token) = (Uuid::now_v7(), hash(link.token));
    let NewLinkSession { return_url, state } = link.session.unwrap_or_default();
    let values = params![
        link.user_id,
        id,
        &token,
        link.provider,
        link.connection_id,
        now,
        link.expires_at,
        link.session.is_some(),
        return_url,
        state,
        link.console_session
    ];
    tx.execute_or_conflict(INSERT, values, "this link").await?;
    Ok(id)
}

/// Checks that the user has the connection to repair. The caller holds the lock on the user's row,
/// so the connection stays until the commit, and a later removal finds the new row.
pub(crate) async fn require_connection(
    tx: &mut Tx,
    user: UserId,
    connection: Option<ConnectionId>,
) -> Result<()> {
    if let Some(id) = connection
        && connection::find(tx, user, id).await?.is_none()
    {
        return Err(StorageError::NotFound("connection"));
    }
    Ok(())
}

/// Records that a link session has connected. Does nothing if the link is gone, or is no link
/// session.
pub(crate) async fn set_connected(tx: &mut Tx, user: UserId, id: Uuid) -> Result<()> {
    tx.execute(SET_CONNECTED, params![user, id]).await
}

/// The caller holds the lock on the user's row.
pub(crate) async fn delete_links(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.execute(DELETE_OF_USER, params![user]).await
}

/// Deletes the links that repair this connection. The caller holds the lock on the user's row.
pub(crate) async fn delete_links_to(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
) -> Result<()> {
    tx.execute(DELETE_TO, params![user, connection]).await
}

from_row! {
    fn link(row) -> Link {
        user_id, id, provider, connection_id, open_count, expires_at, has_connected, return_url,
        app_state, console_session,
    }
}
