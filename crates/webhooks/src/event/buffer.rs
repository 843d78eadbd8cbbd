//! Turns the new and changed rows of a sync into webhook events, and keeps the bodies of these events in memory for the
//! first attempt.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{
    AccountId, ApiVersion, ConnectionId, Digest, EventId, EventType, RowKey, SyncRunId, TimestampExt as _,
};
use bellbird_limits::Expiring;
use bellbird_storage::NewWebhookEvent;
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::event::chunk::chunks;
use crate::event::digest::RowHasher;
use crate::event::payload::{Envelope, body};
use crate::event::row_locator::RowLocator;

/// Maximum number of rows in an event.
pub const ROWS_MAX: usize = 500;
/// Time to live of a body in memory. A first attempt after that reads the rows again.
const BODY_TTL: Duration = Duration::from_secs(120);
/// How long a body that was rebuilt serves later attempts too.
const REBUILT_BODY_MAX_AGE: SignedDuration = SignedDuration::from_secs(60);
/// Maximum size in bytes of all bodies in memory.
const BODIES_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The run of a sync, which has found the rows.
#[derive(Debug, Clone, Copy)]
pub struct SyncRun {
    pub id: SyncRunId,
    pub connection_id: ConnectionId,
    /// The type of its events.
    pub event_type: EventType,
    /// When its events are created.
    pub started_at: Timestamp,
}

/// A row that is new or has changed.
pub struct ChangedRow {
    /// Digest of the row's identity.
    pub row: Digest,
    pub key: RowKey,
    pub instant: Timestamp,
    pub account: AccountId,
    /// The row as an event shows it. `None` if it was not kept in memory.
    pub json: Option<Vec<u8>>,
}

/// The body of an event in memory.
#[derive(Clone)]
struct HeldBody {
    body: Bytes,
    /// Its rows were read again. Otherwise it is for first attempts only, because later ones send current rows.
    is_rebuilt: bool,
}

/// Connects the syncs and the deliveries of one process. Cheap to clone; clones share all state.
#[derive(Clone)]
pub struct WebhookEventBuffer {
    rows_max: usize,
    first_delay: Duration,
    bodies: Arc<Expiring<(EventId, ApiVersion), HeldBody>>,
    pub(crate) new_events: Arc<Notify>,
}

impl Default for WebhookEventBuffer {
    fn default() -> Self {
        Self::new(ROWS_MAX)
    }
}

impl WebhookEventBuffer {
    /// `rows_max` limits the rows of one event.
    pub fn new(rows_max: usize) -> Self {
        let bytes_of = |_: &(EventId, ApiVersion), held: &HeldBody| held.body.len() + 64;
        let bodies = Arc::new(Expiring::new(BODY_TTL, BODIES_BYTES_MAX, bytes_of));
        Self { rows_max, first_delay: Duration::ZERO, bodies, new_events: Arc::default() }
    }

    /// Sets the delay before the first attempt.
    #[must_use]
    pub fn with_first_delay(self, first_delay: Duration) -> Self {
        Self { first_delay, ..self }
    }

    /// When the first attempt is due for an event created at `now`.
    pub fn first_attempt_at(&self, now: Timestamp) -> Timestamp {
        now.plus(self.first_delay)
    }

    /// Builds the events for these rows, and the bodies of those whose rows are all in memory. Takes the JSON out of
    /// each row. `hasher` seals where the rows lie.
    #[must_use]
    pub fn prepare(
        &self,
        run: SyncRun,
        new: &mut [ChangedRow],
        updated: &mut [ChangedRow],
        hasher: &RowHasher,
    ) -> (Vec<NewWebhookEvent>, Vec<(EventId, Bytes)>) {
        let all = chunks(new.len(), updated.len(), self.rows_max);
        let total_chunks = count(all.len());
        let (mut events, mut bodies) = (Vec::with_capacity(all.len()), Vec::new());
        for (number, chunk) in (1..).zip(all) {
            let (new, updated) = (&mut new[chunk.new], &mut updated[chunk.updated]);
            let envelope = Envelope {
                id: EventId::new(),
                event_type: run.event_type,
                api_version: ApiVersion::CURRENT,
                created: run.started_at,
                sync_run_id: run.id,
                connection_id: Some(run.connection_id),
                chunk: number,
                total_chunks,
            };
            let hint = RowLocator::of_rows(new.iter().chain(&*updated).map(|row| (row.instant, row.account)));
            events.push(NewWebhookEvent {
                id: envelope.id,
                row_digests: new.iter().chain(&*updated).flat_map(|row| row.row.0).collect(),
                new_count: count(new.len()),
                updated_count: count(updated.len()),
                chunk: number,
                total_chunks,
                hint: hint.map_or_else(Vec::new, |hint| hint.seal(hasher, envelope.id)),
            });
            if let Some((new, updated)) = take_json(new).zip(take_json(updated)) {
                bodies.push((envelope.id, body(&envelope, &new, &updated)));
            }
        }
        (events, bodies)
    }

    /// Keeps the bodies of events for their first attempt. Call this before storing the events, because delivery may
    /// start as soon as they are stored.
    pub fn hold_bodies(&self, bodies: &[(EventId, Bytes)], now: Timestamp) {
        for (id, body) in bodies {
            let held = HeldBody { body: body.clone(), is_rebuilt: false };
            self.bodies.insert((*id, ApiVersion::CURRENT), held, now);
        }
    }

    pub(crate) fn hold_rebuilt_body(&self, id: EventId, version: ApiVersion, body: Bytes, now: Timestamp) {
        self.bodies.insert((id, version), HeldBody { body, is_rebuilt: true }, now);
    }

    /// Frees the memory of expired bodies.
    pub(crate) fn purge_expired_bodies(&self) {
        self.bodies.purge_expired();
    }

    /// Wakes the delivery loop after events were stored.
    pub fn wake(&self) {
        self.new_events.notify_one();
    }

    /// Drops the bodies of events that were not stored.
    pub fn evict_bodies(&self, bodies: &[(EventId, Bytes)]) {
        for (id, _) in bodies {
            self.bodies.remove(&(*id, ApiVersion::CURRENT));
        }
    }

    /// Returns the body of an event if this process built it recently. A later attempt gets only a body whose rows were
    /// read again within the last minute.
    pub fn find_body(&self, id: EventId, version: ApiVersion, now: Timestamp, is_first: bool) -> Option<Bytes> {
        let (held, age) = self.bodies.get(&(id, version), now)?;
        (is_first || held.is_rebuilt && age < REBUILT_BODY_MAX_AGE).then_some(held.body)
    }
}

/// Takes the JSON of all rows. `None` if one of them has none.
fn take_json(rows: &mut [ChangedRow]) -> Option<Vec<Vec<u8>>> {
    rows.iter_mut().map(|row| row.json.take()).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
