//! Stores links: URLs with a token whose holder may link institutions for one user. Only the SHA-256 of the token is
//! kept.

use bellbird_domain::{ConnectionId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::db::{Param, Row, Tx, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::locks::lock_user;
use crate::{Links, StorageError};

statements! {
    CONNECTION_EXISTS = "SELECT id FROM connections WHERE user_id = $1 AND id = $2 AND status <> 'deleting'";

    INSERT = "INSERT INTO links (user_id, id, token_hash, provider, connection_id, created_at, expires_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";

    FIND = "SELECT user_id, provider, connection_id, open_count, expires_at FROM links WHERE token_hash = $1";

    OPEN = "UPDATE links SET open_count = open_count + 1 WHERE token_hash = $1 AND expires_at > $2 AND open_count < $3";

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
}

/// A link, which may have expired.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
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
}

impl Links<'_> {
    /// Stores a link.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if the user or the connection to repair does not exist, [`StorageError::Conflict`] if
    /// the token does.
    pub async fn insert(self, link: &NewLink<'_>, now: Timestamp) -> Result<()> {
        let mut tx = self.0.db.begin().await?;
        lock_user(&mut tx, link.user_id).await?;
        require_connection(&mut tx, link.user_id, link.connection_id).await?;
        let (id, token) = (Param::Id(Uuid::now_v7()), hash(link.token));
        let values = params![link.user_id, id, token.as_ref(), link.provider, link.connection_id, now, link.expires_at];
        tx.run(INSERT, values).await.map_err(|error| error.or_conflict("this link"))?;
        tx.commit().await
    }

    /// Finds the link with this token, also an expired one until cleanup deletes it.
    pub async fn find(self, token: &str) -> Result<Option<Link>> {
        self.0.db.one(FIND, params![hash(token).as_ref()], link).await
    }

    /// Counts one opening of a link. Returns false, and counts nothing, if the link is unknown, has expired, or was
    /// opened `max_opens` times.
    pub async fn open(self, token: &str, max_opens: u32, now: Timestamp) -> Result<bool> {
        // A read first: made-up tokens must not take SQLite's one writer.
        if self.find(token).await?.is_none() {
            return Ok(false);
        }
        let token = hash(token);
        Ok(self.0.db.run(OPEN, params![token.as_ref(), now, i64::from(max_opens)]).await? > 0)
    }
}

/// Checks that the user has the connection to repair. The caller holds the lock on the user's row, so the connection
/// stays until the commit, and a later removal finds the new row.
pub(crate) async fn require_connection(tx: &mut Tx, user: UserId, connection: Option<ConnectionId>) -> Result<()> {
    let Some(connection) = connection else { return Ok(()) };
    let found = tx.one(CONNECTION_EXISTS, params![user, connection], |_| Ok(())).await?;
    found.ok_or(StorageError::NotFound("connection"))
}

/// The caller holds the lock on the user's row.
pub(crate) async fn delete_links(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.run(DELETE_OF_USER, params![user]).await.map(|_| ())
}

/// Deletes the links that repair this connection. The caller holds the lock on the user's row.
pub(crate) async fn delete_links_to(tx: &mut Tx, user: UserId, connection: ConnectionId) -> Result<()> {
    tx.run(DELETE_TO, params![user, connection]).await.map(|_| ())
}

fn link(row: &Row<'_>) -> Result<Link> {
    Ok(Link {
        user_id: row.id(0)?,
        provider: row.opt_text(1)?.map(str::to_owned),
        connection_id: row.opt_id(2)?,
        open_count: row.int(3)?,
        expires_at: row.time(4)?,
    })
}
