//! What syncs had seen of a connection's rows before a time.

use std::collections::HashSet;

use bellbird_api::http::{ApiContext, Problem};
use bellbird_connections::RowHasher;
use bellbird_domain::{Caller, ConnectionId, Digest, Fingerprint, Transaction, UtcDay};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, timeout_at};

/// How much older than the time a row may be that no sync has seen yet.
const LATE_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);

/// What syncs before a time had seen of a connection.
pub(super) struct KnownRows {
    hasher: RowHasher,
    before: Timestamp,
    rows: HashSet<Digest>,
    /// Of earlier days, syncs do not see every row.
    watched_from: UtcDay,
    /// No later than the rows that syncs have not seen before the time.
    pub(super) begins: Timestamp,
}

impl KnownRows {
    /// What syncs of the caller's connection had seen before a time.
    ///
    /// As for a page of changes, the connection is synced if its last sync is old: after a renewal,
    /// no sync may know the rows' ids yet, and all rows would be new. If that fails, the read of
    /// the rows says why. A sync that takes longer than `deadline` goes on.
    pub(super) async fn before(
        api: &ApiContext,
        caller: &Caller,
        connection: ConnectionId,
        before: Timestamp,
        deadline: Instant,
    ) -> Result<Self, Problem> {
        let (connections, user, max_age) = (
            api.connections().clone(),
            caller.user_id,
            api.changes_max_age(),
        );
        let sync =
            async move { Box::pin(connections.syncs().freshen(user, connection, max_age)).await };
        let _ = timeout_at(deadline, api.connections().tasks().spawn(sync)).await;
        let syncs = api.connections().syncs();
        let problem = |_| Problem::Internal;
        let state = syncs
            .state(caller.user_id, connection)
            .await
            .map_err(problem)?;
        let (hasher, fingerprints) = syncs
            .fingerprints(caller.user_id, connection)
            .await
            .map_err(problem)?;
        let change_version = Fingerprint::seconds(before);
        let (seen, later): (Vec<&Fingerprint>, Vec<_>) = fingerprints
            .rows
            .iter()
            .partition(|row| row.first_version < change_version);
        let late = before.saturating_sub(LATE_MAX).unwrap_or(before);
        let oldest = later.iter().map(|row| row.digests.day.start()).min();
        Ok(Self {
            hasher,
            before,
            rows: seen.iter().map(|row| row.digests.row).collect(),
            watched_from: syncs.watched_from(&state),
            begins: oldest.map_or(late, |oldest| oldest.min(late)),
        })
    }

    /// Whether no sync had seen a row before the time.
    pub(super) fn is_new(&self, row: &Transaction<'_>) -> bool {
        let digests = self.hasher.transaction(row);
        !self.rows.contains(&digests.row)
            && (row.instant >= self.before || digests.day >= self.watched_from)
    }
}
