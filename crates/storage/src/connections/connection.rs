//! Lists and finds connections. `imports.rs` creates and renews them, `refreshes.rs` and
//! `removals.rs` change their status.
//!
//! A connection that is being deleted is hidden from its user. Its removal, the command line and
//! `storage.secrets().find_credentials` still find it. Until it is deleted, its consent cannot be
//! imported and its user cannot be deleted.

use bellbird_domain::{Connection, ConnectionId, UserId};
use jiff::Timestamp;

use crate::Connections;
use crate::db::{Param, Tx, from_row, params, statements};
use crate::error::Result;

/// The columns that [`connection`] expects, in its order.
macro_rules! select_connections {
    ($rest:literal) => {
        concat!(
            "SELECT id, user_id, provider, category, institution_id, institution_name, institution_logo, status,
                last_refreshed_at, created_at, consent_expires_at
            FROM connections ",
            $rest
        )
    };
}
pub(crate) use select_connections;

statements! {
    LIST = select_connections!("WHERE user_id = $1 AND status <> 'deleting' ORDER BY created_at DESC, id");

    LIST_ALL = select_connections!("ORDER BY created_at DESC, id");

    /// Ids are UUIDv7, so the oldest come first.
    LIST_AFTER = select_connections!("WHERE id > $1 ORDER BY id LIMIT $2");

    LIST_AFTER_OF_USER = select_connections!("WHERE user_id = $3 AND id > $1 ORDER BY id LIMIT $2");

    FIND = select_connections!("WHERE user_id = $1 AND id = $2 AND status <> 'deleting'");

    FIND_ANY = select_connections!("WHERE id = $1");

    SET_LAST_REFRESHED_AT = "UPDATE connections SET last_refreshed_at = $3
        WHERE user_id = $1 AND id = $2 AND status <> 'deleting'";
}

impl Connections<'_> {
    pub async fn list(self, user: UserId) -> Result<Vec<Connection>> {
        self.db.all(LIST, params![user], connection).await
    }

    /// All users' connections, newest first, including those being deleted. For the command line.
    pub async fn list_all(self) -> Result<Vec<Connection>> {
        self.db.all(LIST_ALL, params![], connection).await
    }

    /// Connections behind this one, oldest first, of one user or of all, including those being
    /// deleted.
    pub async fn list_after(
        self,
        after: Option<ConnectionId>,
        user: Option<UserId>,
        limit: u32,
    ) -> Result<Vec<Connection>> {
        let after = after.map_or(Param::BEFORE_ALL_IDS, Param::from);
        match user {
            Some(user) => {
                self.db
                    .all(LIST_AFTER_OF_USER, params![after, limit, user], connection)
                    .await
            }
            None => {
                self.db
                    .all(LIST_AFTER, params![after, limit], connection)
                    .await
            }
        }
    }

    pub async fn find(self, user: UserId, id: ConnectionId) -> Result<Option<Connection>> {
        self.db.one(FIND, params![user, id], connection).await
    }

    /// Finds a connection of any user, even one being deleted. For the command line.
    pub async fn find_any(self, id: ConnectionId) -> Result<Option<Connection>> {
        self.db.one(FIND_ANY, params![id], connection).await
    }

    /// Records that the provider returned data. Does nothing if the connection is gone. Raises no
    /// revision, because each read does this, and what is kept by revision would not last longer
    /// than a minute.
    pub async fn set_last_refreshed_at(
        self,
        user: UserId,
        connection: ConnectionId,
        now: Timestamp,
    ) -> Result<()> {
        self.db
            .execute(SET_LAST_REFRESHED_AT, params![user, connection, now])
            .await
    }
}

/// As `storage.connections().find`, in a transaction.
pub(crate) async fn find(
    tx: &mut Tx,
    user: UserId,
    id: ConnectionId,
) -> Result<Option<Connection>> {
    tx.one(FIND, params![user, id], connection).await
}

/// As `storage.connections().set_last_refreshed_at`, in a transaction. The caller holds the lock on
/// the user's row.
pub(crate) async fn write_last_refreshed_at(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    now: Timestamp,
) -> Result<()> {
    tx.execute(SET_LAST_REFRESHED_AT, params![user, connection, now])
        .await
}

from_row! {
    /// Reads a connection from the first columns of a row.
    pub(crate) fn connection(row) -> Connection {
        id, user_id, provider, category, institution_id, institution_name, institution_logo, status,
        last_refreshed_at, created_at, consent_expires_at,
    }
}
