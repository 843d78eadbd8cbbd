//! Turns the new and changed rows of a sync into webhook events, and keeps these rows in memory for
//! the first attempt.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{
    AccountId, ConnectionId, EventId, EventType, RemovedRow, RowKey, SyncRunId, TimestampExt as _,
};
use bellbird_limits::Expiring;
use bellbird_storage::{NewWebhookEvent, removed_bytes};
use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::Notify;

use crate::event::chunk::chunks;
use crate::event::digest::RowHasher;
use crate::event::payload::{Envelope, Format, RowJson, body};
use crate::event::row_locator::RowLocator;

pub const ROWS_MAX: usize = 500;
/// Time to live of rows in memory. A first attempt after that reads them again.
const ROWS_TTL: Duration = Duration::from_secs(120);
/// How long rows that were read again serve later attempts too.
const REREAD_MAX_AGE: SignedDuration = SignedDuration::from_secs(60);
/// Maximum size in bytes of all rows in memory.
const ROWS_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// The run of a sync, which has found the rows.
#[derive(Debug, Clone, Copy)]
pub struct SyncRun {
    pub id: SyncRunId,
    pub connection_id: ConnectionId,
    pub event_type: EventType,
    /// When its events are created.
    pub started_at: Timestamp,
}

/// A row that is new or has changed.
pub struct ChangedRow {
    pub key: RowKey,
    pub instant: Timestamp,
    pub account: AccountId,
    /// The row as an event shows it. `None` if it was not kept in memory.
    pub json: Option<RowJson>,
}

/// The rows of an event in memory.
#[derive(Clone)]
struct HeldRows {
    rows: Arc<EventRows>,
    /// They were read again. Otherwise they are for first attempts only, because later ones send
    /// current rows.
    is_reread: bool,
}

/// An event with its rows.
#[derive(PartialEq, Eq)]
pub struct EventRows {
    pub(crate) envelope: Envelope,
    new: Vec<(RowKey, RowJson)>,
    updated: Vec<(RowKey, RowJson)>,
}

impl EventRows {
    pub(crate) fn new(
        envelope: Envelope,
        mut new: Vec<(RowKey, RowJson)>,
        mut updated: Vec<(RowKey, RowJson)>,
    ) -> Self {
        RowJson::move_together(&mut new, &mut updated);
        Self {
            envelope,
            new,
            updated,
        }
    }

    /// The body in this format.
    #[must_use]
    pub fn body(&self, format: Format<'_>) -> Bytes {
        body(&self.envelope, format, &self.new, &self.updated)
    }

    fn bytes(&self) -> usize {
        self.new
            .iter()
            .chain(&self.updated)
            .map(|(_, row)| row.bytes() + size_of::<(RowKey, RowJson)>())
            .sum()
    }
}

/// Connects the syncs and the deliveries of one process. Cheap to clone; clones share all state.
#[derive(Clone)]
pub struct WebhookEventBuffer {
    rows_max: usize,
    first_delay: Duration,
    held: Arc<Expiring<EventId, HeldRows>>,
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
        let bytes_of = |_: &EventId, held: &HeldRows| held.rows.bytes() + 64;
        let held = Arc::new(Expiring::new(ROWS_TTL, ROWS_BYTES_MAX, bytes_of));
        Self {
            rows_max,
            first_delay: Duration::ZERO,
            held,
            new_events: Arc::default(),
        }
    }

    #[must_use]
    pub fn with_first_delay(self, first_delay: Duration) -> Self {
        Self {
            first_delay,
            ..self
        }
    }

    /// When the first attempt is due for an event created at `now`.
    pub fn first_attempt_at(&self, now: Timestamp) -> Timestamp {
        now.plus(self.first_delay)
    }

    /// Builds the events for these rows, with the rows of those that are in memory whole.
    /// Takes the JSON out of each row. `hasher` seals where the rows lie.
    #[must_use]
    pub fn prepare(
        &self,
        run: SyncRun,
        new: &mut [ChangedRow],
        updated: &mut [ChangedRow],
        hasher: &RowHasher,
    ) -> (Vec<NewWebhookEvent>, Vec<EventRows>) {
        let all = chunks(new.len(), updated.len(), self.rows_max);
        let total_chunks = count(all.len());
        let (mut events, mut in_memory) = (Vec::with_capacity(all.len()), Vec::new());
        for (number, chunk) in (1..).zip(all) {
            let (new, updated) = (&mut new[chunk.new], &mut updated[chunk.updated]);
            let envelope = Envelope {
                id: EventId::new(),
                event_type: run.event_type,
                created: run.started_at,
                sync_run_id: run.id,
                connection_id: Some(run.connection_id),
                chunk: number,
                total_chunks,
            };
            let locator = RowLocator::of_rows(
                new.iter()
                    .chain(&*updated)
                    .map(|row| (row.instant, row.account)),
            );
            events.push(NewWebhookEvent {
                id: envelope.id,
                row_keys: new
                    .iter()
                    .chain(&*updated)
                    .flat_map(|row| row.key.0)
                    .collect(),
                new_count: count(new.len()),
                updated_count: count(updated.len()),
                chunk: number,
                total_chunks,
                row_locator: locator
                    .map_or_else(Vec::new, |locator| locator.seal(hasher, envelope.id)),
                removed: Vec::new(),
            });
            if let Some((new, updated)) = take_json(new).zip(take_json(updated)) {
                in_memory.push(EventRows::new(envelope, new, updated));
            }
        }
        (events, in_memory)
    }

    /// Keeps the rows of events for their first attempt. Call this before storing the events,
    /// because delivery may start as soon as they are stored.
    pub fn hold(&self, events: Vec<EventRows>, now: Timestamp) {
        for rows in events {
            self.insert(Arc::new(rows), false, now);
        }
    }

    pub(crate) fn hold_reread(&self, rows: Arc<EventRows>, now: Timestamp) {
        self.insert(rows, true, now);
    }

    fn insert(&self, rows: Arc<EventRows>, is_reread: bool, now: Timestamp) {
        let id = rows.envelope.id;
        self.held.insert(id, HeldRows { rows, is_reread }, now);
    }

    /// Frees the memory of expired rows.
    pub(crate) fn purge_expired(&self) {
        self.held.purge_expired();
    }

    /// Wakes the delivery loop after events were stored.
    pub fn wake(&self) {
        self.new_events.notify_one();
    }

    /// Drops the rows of events that were not stored.
    pub fn evict(&self, events: &[NewWebhookEvent]) {
        for event in events {
            self.held.remove(&event.id);
        }
    }

    /// Returns the rows of an event if this process read them recently. A later attempt gets only
    /// those that were read again within the last minute.
    pub fn find_rows(&self, id: EventId, now: Timestamp, is_first: bool) -> Option<Arc<EventRows>> {
        let (held, age) = self.held.get(&id, now)?;
        (is_first || held.is_reread && age < REREAD_MAX_AGE).then_some(held.rows)
    }
}

/// Takes the JSON of all rows. `None` if one of them has none.
fn take_json(rows: &mut [ChangedRow]) -> Option<Vec<(RowKey, RowJson)>> {
    rows.iter_mut()
        .map(|row| Some((row.key, row.json.take()?)))
        .collect()
}

/// The events of rows that are gone.
#[must_use]
pub fn removed_events(removed: &[RemovedRow]) -> Vec<NewWebhookEvent> {
    let total_chunks = count(removed.len().div_ceil(ROWS_MAX));
    let event = |(chunk, rows)| NewWebhookEvent {
        chunk,
        total_chunks,
        removed: removed_bytes(rows),
        ..NewWebhookEvent::without_rows(EventId::new())
    };
    (1..).zip(removed.chunks(ROWS_MAX)).map(event).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row of a megabyte.
    fn large(id: EventId, now: Timestamp) -> EventRows {
        let envelope = Envelope {
            id,
            event_type: EventType::TransactionsSynced,
            created: now,
            sync_run_id: SyncRunId::new(),
            connection_id: None,
            chunk: 1,
            total_chunks: 1,
        };
        EventRows {
            envelope,
            new: vec![(RowKey([0; 8]), RowJson::of(vec![b' '; 1024 * 1024]))],
            updated: Vec::new(),
        }
    }

    #[test]
    fn rows_that_were_sent_make_room_for_new_ones() {
        let (buffer, now) = (WebhookEventBuffer::default(), Timestamp::UNIX_EPOCH);
        let ids: Vec<EventId> = std::iter::repeat_with(EventId::new).take(160).collect();
        let is_held = |id: &EventId| buffer.held.get(id, now).is_some();
        for (number, id) in ids.iter().enumerate() {
            buffer.hold(vec![large(*id, now)], now);
            // Each is sent once 30 later ones wait.
            if let Some(sent) = number.checked_sub(30) {
                assert!(is_held(&ids[sent]), "{sent}");
                assert!(buffer.find_rows(ids[sent], now, true).is_some());
            }
        }
        assert!(ids.iter().filter(|id| is_held(id)).count() < 64);
    }
}
