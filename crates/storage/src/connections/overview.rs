//! Sums up the connections of all users for the operator.

use bellbird_domain::{ConnectionId, ConnectionStatus};
use jiff::Timestamp;

use crate::Connections;
use crate::db::{Row, params, statements};
use crate::error::Result;

statements! {
    COUNT = "SELECT provider, status, COUNT(*) FROM connections GROUP BY status, provider";

    /// The last audit row is that of the present status.
    LIST_BROKEN = "SELECT c.id, u.email, c.provider, c.institution_name, c.status,
            (SELECT MAX(a.changed_at) FROM connection_audit a WHERE a.connection_id = c.id)
        FROM connections c JOIN users u ON u.id = c.user_id
        WHERE c.status IN ('invalidated', 'pending_mfa', 'revoked') ORDER BY 6 DESC, c.id LIMIT $1";
}

/// The connections of one provider with one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionCount {
    pub provider: String,
    pub status: ConnectionStatus,
    pub count: u64,
}

/// A connection that the user must reconnect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenConnection {
    pub id: ConnectionId,
    pub user_email: String,
    pub provider: String,
    pub institution_name: String,
    pub status: ConnectionStatus,
    /// Since when it has this status.
    pub since: Option<Timestamp>,
}

impl Connections<'_> {
    /// Counts the connections of each provider by status. Reads one index.
    pub async fn count(self) -> Result<Vec<ConnectionCount>> {
        self.0.db.all(COUNT, params![], counted).await
    }

    /// Lists connections that must be reconnected, those that broke last first.
    pub async fn list_broken(self, limit: u32) -> Result<Vec<BrokenConnection>> {
        self.0.db.all(LIST_BROKEN, params![i64::from(limit)], broken).await
    }
}

fn counted(row: &Row<'_>) -> Result<ConnectionCount> {
    Ok(ConnectionCount {
        provider: row.text(0)?.to_owned(),
        status: row.word(1, "a connection status")?,
        count: row.number(2, "a count")?,
    })
}

fn broken(row: &Row<'_>) -> Result<BrokenConnection> {
    Ok(BrokenConnection {
        id: row.id(0)?,
        user_email: row.text(1)?.to_owned(),
        provider: row.text(2)?.to_owned(),
        institution_name: row.text(3)?.to_owned(),
        status: row.word(4, "a connection status")?,
        since: row.opt_time(5)?,
    })
}
