//! Sums up the connections of all users for the operator.

use std::collections::{BTreeMap, HashMap};

use bellbird_domain::{ConnectionId, ConnectionStatus, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::Connections;
use crate::db::{Row, from_row, pair, params, statements};
use crate::error::Result;

statements! {
    COUNT = "SELECT provider, status, COUNT(*) FROM connections GROUP BY status, provider";

    COUNT_BY_USER = "SELECT user_id, COUNT(*),
            CAST(SUM(CASE WHEN status IN ('invalidated', 'pending_mfa', 'revoked') THEN 1 ELSE 0 END) AS BIGINT)
        FROM connections WHERE user_id >= $1 AND user_id <= $2 GROUP BY user_id";

    /// The last audit row is that of the present status.
    LIST_BROKEN = "SELECT c.id, u.email, c.provider, c.institution_name, c.status,
            (SELECT MAX(a.changed_at) FROM connection_audit a WHERE a.connection_id = c.id)
        FROM connections c JOIN users u ON u.id = c.user_id
        WHERE c.status IN ('invalidated', 'pending_mfa', 'revoked') ORDER BY 6 DESC, c.id LIMIT $1";

    COUNT_ENDING = "SELECT provider, COUNT(*) FROM connections
        WHERE consent_expires_at <= $1 AND status = 'active' GROUP BY provider";

    LIST_ENDING = "SELECT c.id, u.email, c.institution_name, c.consent_expires_at
        FROM connections c JOIN users u ON u.id = c.user_id
        WHERE c.consent_expires_at <= $1 AND c.status = 'active' ORDER BY c.consent_expires_at, c.id LIMIT $2";
}

/// The operator sees a consent that ends within this time, and endpoints get their first event
/// about it: long enough for users to renew it.
pub(super) const ENDING_WITHIN: SignedDuration = SignedDuration::from_hours(14 * 24);

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

/// An active connection whose consent ends soon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndingConsent {
    pub id: ConnectionId,
    pub user_email: String,
    pub institution_name: String,
    pub expires_at: Timestamp,
}

impl Connections<'_> {
    /// Counts the connections of each provider by status. Reads one index.
    pub async fn count(self) -> Result<Vec<ConnectionCount>> {
        self.db.all(COUNT, params![], counted).await
    }

    /// Counts the connections of each user from one to another, by their ids, who has any: all of
    /// them, and those that must be reconnected.
    pub async fn count_by_user(
        self,
        first: UserId,
        last: UserId,
    ) -> Result<HashMap<UserId, (u64, u64)>> {
        let counted = |row: &Row<'_>| Ok((row.get(0)?, (row.get(1)?, row.get(2)?)));
        Ok(self
            .db
            .all(COUNT_BY_USER, params![first, last], counted)
            .await?
            .into_iter()
            .collect())
    }

    /// Lists connections that must be reconnected, those that broke last first.
    pub async fn list_broken(self, limit: u32) -> Result<Vec<BrokenConnection>> {
        self.db.all(LIST_BROKEN, params![limit], broken).await
    }

    /// Counts, by provider, the active connections whose consent ends within 14 days.
    pub async fn count_ending(self, now: Timestamp) -> Result<BTreeMap<String, u64>> {
        Ok(self
            .db
            .all(COUNT_ENDING, params![now.plus(ENDING_WITHIN)], pair)
            .await?
            .into_iter()
            .collect())
    }

    /// Lists the connections that [`Self::count_ending`] counts, those that end first before
    /// others.
    pub async fn list_ending(self, now: Timestamp, limit: u32) -> Result<Vec<EndingConsent>> {
        self.db
            .all(LIST_ENDING, params![now.plus(ENDING_WITHIN), limit], ending)
            .await
    }
}

from_row! {
    fn ending(row) -> EndingConsent {
        id, user_email, institution_name, expires_at,
    }
}

from_row! {
    fn counted(row) -> ConnectionCount {
        provider, status, count,
    }
}

from_row! {
    fn broken(row) -> BrokenConnection {
        id, user_email, provider, institution_name, status, since,
    }
}
