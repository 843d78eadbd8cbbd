//! What happened to connections: ids, times, statuses and a short cause. It outlives the connection.

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Storage;
use crate::db::{Param, Row, Tx, params, statements};
use crate::error::Result;

statements! {
    INSERT = "INSERT INTO connection_audit (user_id, id, connection_id, changed_at, from_status, to_status, cause)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";

    LIST = "SELECT changed_at, connection_id, user_id, from_status, to_status, cause
        FROM connection_audit WHERE connection_id = $1 ORDER BY changed_at, id";

    LIST_ENDS = "SELECT DISTINCT user_id, connection_id FROM connection_audit
        WHERE changed_at >= $1 AND (to_status IS NULL OR to_status = 'deleting')";
}

/// One step in the life of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditRow {
    /// When.
    pub at: Timestamp,
    /// Of which connection.
    pub connection_id: ConnectionId,
    /// Whose it was.
    pub user_id: UserId,
    /// Its status before; none: it was new.
    pub from: Option<ConnectionStatus>,
    /// Its status after; none: it is gone.
    pub to: Option<ConnectionStatus>,
    /// A short word for the reason: `imported`, `refreshed`, `reconnected`, `replaced`, `removed`, `deleted`.
    pub cause: String,
}

impl Storage {
    /// The life of a connection, oldest step first, after its end too. For the command line: of whatever user.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_audit(&self, connection: ConnectionId) -> Result<Vec<AuditRow>> {
        self.db.all(LIST, params![connection], audit_row).await
    }

    /// The connections that were hidden or went since then, each once, with their owners. By it a copy of the service
    /// learns what another one, or the command line, removed.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_ended_connections(&self, since: Timestamp) -> Result<Vec<(UserId, ConnectionId)>> {
        self.db.all(LIST_ENDS, params![since], |row| Ok((row.id(0)?, row.id(1)?))).await
    }
}

/// A step to write down.
pub(crate) struct Step<'a> {
    pub(crate) user: UserId,
    pub(crate) connection: ConnectionId,
    pub(crate) from: Option<ConnectionStatus>,
    pub(crate) to: Option<ConnectionStatus>,
    pub(crate) cause: &'a str,
}

/// Writes a step down in the transaction that makes it.
pub(crate) async fn record(tx: &mut Tx, step: &Step<'_>, now: Timestamp) -> Result<()> {
    // Version 7 grows, so steps of one instant keep their order.
    let id = Param::Id(Uuid::now_v7());
    let (from, to) = (step.from.map(ConnectionStatus::as_str), step.to.map(ConnectionStatus::as_str));
    tx.run(INSERT, params![step.user, id, step.connection, now, from, to, step.cause]).await.map(|_| ())
}

fn audit_row(row: &Row<'_>) -> Result<AuditRow> {
    Ok(AuditRow {
        at: row.time(0)?,
        connection_id: row.id(1)?,
        user_id: row.id(2)?,
        from: row.opt_word(3, "a connection status")?,
        to: row.opt_word(4, "a connection status")?,
        cause: row.text(5)?.to_owned(),
    })
}
