//! The storage of simulated instances, and what a simulation reads besides.

use std::sync::Arc;

use bellbird_domain::{ConnectionId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Storage;
use crate::db::simulated_link::DatabaseSimulation;
use crate::db::sqlite::Sqlite;
use crate::db::{Db, Sql, from_row, pair, params};
use crate::error::Result;

/// A job or a queue, with its claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimState {
    /// `sync`, `refresh` or `queue`.
    pub kind: String,
    pub user: UserId,
    pub subject: String,
    pub holder: Option<Uuid>,
    pub lease_until: Option<Timestamp>,
    pub fence: Option<i64>,
    /// What only the holder changes: what is known of the syncs, or how many attempts the
    /// deliveries had, without those of connections that are being removed.
    pub progress: String,
    /// Deliveries that have not ended.
    pub open: i64,
    pub run_at: Option<Timestamp>,
}

const CLAIMS: Sql = Sql::new(
    "CLAIMS",
    "SELECT j.kind, j.user_id, j.subject, j.holder, j.lease_until, j.fence,
        CASE WHEN j.kind = 'sync' THEN (SELECT s.sequence || ' ' || COALESCE(s.synced_at, 0) || ' ' || s.change_version
            FROM syncs s WHERE s.user_id = j.user_id AND s.connection_id = j.subject) ELSE '' END
            || COALESCE((SELECT ' ' || hex(substr(f.entries, 1, 4000)) FROM fingerprints f
            WHERE f.user_id = j.user_id AND f.connection_id = j.subject AND j.kind = 'sync'), ''), 0, j.run_at
    FROM jobs j
    UNION ALL SELECT 'queue', p.user_id, p.endpoint_id, p.holder, p.lease_until, p.fence,
        (SELECT COUNT(CASE WHEN d.attempts > 0 THEN d.ended_at END) || ' ' || COALESCE(SUM(d.attempts), 0)
            FROM webhook_deliveries d WHERE d.user_id = p.user_id AND d.endpoint_id = p.endpoint_id
            AND NOT EXISTS (SELECT 1 FROM webhook_events e WHERE e.user_id = d.user_id AND e.id = d.event_id
                AND NOT EXISTS (SELECT 1 FROM connections c
                    WHERE c.user_id = e.user_id AND c.id = e.connection_id AND c.status <> 'deleting'))),
        (SELECT COUNT(*) FROM webhook_deliveries d WHERE d.user_id = p.user_id AND d.endpoint_id = p.endpoint_id
            AND d.ended_at IS NULL), p.due_at
    FROM webhook_queues p ORDER BY 1, 2, 3",
);

/// What is left of a connection, without the event of its removal.
const LEFT: Sql = Sql::new(
    "LEFT",
    "SELECT 'connections', COUNT(*) FROM connections WHERE user_id = $1 AND id = $2
    UNION ALL SELECT 'accounts', COUNT(*) FROM accounts WHERE user_id = $1 AND connection_id = $2
    UNION ALL SELECT 'syncs', COUNT(*) FROM syncs WHERE user_id = $1 AND connection_id = $2
    UNION ALL SELECT 'fingerprints', COUNT(*) FROM fingerprints WHERE user_id = $1 AND connection_id = $2
    UNION ALL SELECT 'jobs', COUNT(*) FROM jobs WHERE user_id = $1 AND subject = $2
    UNION ALL SELECT 'secrets', COUNT(*) FROM secrets WHERE user_id = $1 AND subject = $2
    UNION ALL SELECT 'events', COUNT(*) FROM webhook_events
        WHERE user_id = $1 AND connection_id = $2 AND event_type <> 'connection.removed'
    UNION ALL SELECT 'deliveries', COUNT(*) FROM webhook_deliveries d WHERE d.user_id = $1
        AND NOT EXISTS (SELECT 1 FROM webhook_events e WHERE e.user_id = d.user_id AND e.id = d.event_id)",
);

impl Storage {
    /// The storage of an instance whose every step is simulated. Shares the SQLite connections of
    /// this one.
    #[must_use]
    pub fn simulated_by(&self, simulation: Arc<dyn DatabaseSimulation>) -> Self {
        let Db::Sqlite(db) = &self.db else {
            unreachable!("simulations run on SQLite")
        };
        Self {
            db: Db::Sqlite(Arc::new(Sqlite::simulated_by(db, simulation))),
            ..self.clone()
        }
    }

    /// All jobs and queues, as they are committed.
    pub fn claims(&self) -> Result<Vec<ClaimState>> {
        let Db::Sqlite(db) = &self.db else {
            unreachable!("simulations run on SQLite")
        };
        db.all(CLAIMS, params![], claim_state)
    }

    /// The tables that hold anything of a connection, without the event of its removal, or a
    /// delivery of no event.
    pub fn find_left(&self, user: UserId, connection: ConnectionId) -> Result<Vec<String>> {
        let Db::Sqlite(db) = &self.db else {
            unreachable!("simulations run on SQLite")
        };
        let rows = db.all(LEFT, params![user, connection], pair::<String, i64>)?;
        Ok(rows
            .into_iter()
            .filter(|(_, count)| *count > 0)
            .map(|(table, _)| table)
            .collect())
    }
}

from_row! {
    fn claim_state(row) -> ClaimState {
        kind, user, subject, holder, lease_until, fence, progress, open, run_at,
    }
}
