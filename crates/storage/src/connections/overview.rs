//! Sums up the connections of all users for the operator.

use bellbird_domain::ConnectionStatus;

use crate::Storage;
use crate::db::{Row, params, statements};
use crate::error::Result;

statements! {
    COUNT = "SELECT provider, status, COUNT(*) FROM connections GROUP BY status, provider";
}

/// The connections of one provider with one status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionCount {
    pub provider: String,
    pub status: ConnectionStatus,
    pub count: u64,
}

impl Storage {
    /// Counts the connections of each provider by status.
    pub async fn count_connections(&self) -> Result<Vec<ConnectionCount>> {
        self.db.all(COUNT, params![], counted).await
    }
}

fn counted(row: &Row<'_>) -> Result<ConnectionCount> {
    Ok(ConnectionCount {
        provider: row.text(0)?.to_owned(),
        status: row.word(1, "a connection status")?,
        count: row.number(2, "a count")?,
    })
}
