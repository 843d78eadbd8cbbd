//! Records each status change of a connection: ids, times, statuses and a cause. The records
//! outlive the connection, for two years.

use bellbird_domain::{ConnectionId, ConnectionStatus, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use uuid::Uuid;

use crate::Connections;
use crate::db::{Tx, from_row, pair, params, statements};
use crate::error::Result;
use crate::outdated::{delete_in_steps, delete_some};

/// As long as the audit of operators.
pub(crate) const AUDIT_RETENTION: SignedDuration = SignedDuration::from_hours(2 * 365 * 24);

/// The columns of [`ConnectionAuditRow`], in its order.
macro_rules! select_changes {
    ($rest:literal) => {
        concat!(
            "SELECT changed_at, connection_id, user_id, from_status, to_status, cause FROM connection_audit ",
            $rest
        )
    };
}

statements! {
    INSERT = "INSERT INTO connection_audit (user_id, id, connection_id, changed_at, from_status, to_status, cause)
        VALUES ($1, $2, $3, $4, $5, $6, $7)";

    LIST = select_changes!("WHERE connection_id = $1 ORDER BY changed_at, id");

    LIST_NEWEST = select_changes!(
        "WHERE user_id = $1 AND connection_id = $2 ORDER BY changed_at DESC, id DESC LIMIT $3"
    );

    LIST_ENDS = "SELECT user_id, connection_id FROM connection_audit
        WHERE changed_at >= $1 AND (to_status IS NULL OR to_status = 'deleting')";

    HAS_OUTDATED = "SELECT id FROM connection_audit WHERE changed_at <= $1 LIMIT 1";

    DELETE_OUTDATED = delete_some!("connection_audit", "user_id, id", "changed_at <= $1", ""),
        on_postgres =
            delete_some!("connection_audit", "user_id, id", "changed_at <= $1", " FOR UPDATE SKIP LOCKED");
}

/// One status change of a connection. Serialized as commands print it with `--json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ConnectionAuditRow {
    pub at: Timestamp,
    #[serde(skip)]
    pub connection_id: ConnectionId,
    #[serde(skip)]
    pub user_id: UserId,
    /// None: the connection is new.
    pub from: Option<ConnectionStatus>,
    /// None: the connection is deleted.
    pub to: Option<ConnectionStatus>,
    /// One word: see docs/monitoring.md#jobs.
    pub cause: String,
}

impl Connections<'_> {
    /// Lists the status changes of any user's connection, oldest first, even after its deletion.
    /// For the command line.
    pub async fn list_audit(self, connection: ConnectionId) -> Result<Vec<ConnectionAuditRow>> {
        self.db.all(LIST, params![connection], audit_row).await
    }

    /// Lists the last status changes of a user's connection, newest first.
    pub async fn list_history(
        self,
        user: UserId,
        connection: ConnectionId,
        limit: u32,
    ) -> Result<Vec<ConnectionAuditRow>> {
        self.db
            .all(LIST_NEWEST, params![user, connection, limit], audit_row)
            .await
    }

    /// Lists the connections that were hidden or deleted since `since`, once for each of both. It
    /// shows what other instances and the command line removed.
    pub async fn list_ended(self, since: Timestamp) -> Result<Vec<(UserId, ConnectionId)>> {
        self.db.all(LIST_ENDS, params![since], pair).await
    }

    /// Deletes changes that are older than two years. Returns their number.
    pub async fn delete_outdated_audit(self, now: Timestamp) -> Result<u64> {
        let until = now.minus(AUDIT_RETENTION);
        delete_in_steps(&self.db, HAS_OUTDATED, DELETE_OUTDATED, until.into()).await
    }
}

/// A status change to record.
pub(crate) struct StatusChange<'a> {
    pub(crate) user: UserId,
    pub(crate) connection: ConnectionId,
    pub(crate) from: Option<ConnectionStatus>,
    pub(crate) to: Option<ConnectionStatus>,
    pub(crate) cause: &'a str,
}

/// Records a status change, in the transaction that makes it.
pub(crate) async fn record(tx: &mut Tx, change: &StatusChange<'_>, now: Timestamp) -> Result<()> {
    // UUIDv7 ids increase, so changes at the same time keep their order.
    let id = Uuid::now_v7();
    let values = params![
        change.user,
        id,
        change.connection,
        now,
        change.from,
        change.to,
        change.cause
    ];
    tx.execute(INSERT, values).await
}

from_row! {
    fn audit_row(row) -> ConnectionAuditRow {
        at, connection_id, user_id, from, to, cause,
    }
}
