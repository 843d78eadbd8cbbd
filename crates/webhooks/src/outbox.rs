//! From a sync to the endpoints: changed rows become events, and their bodies wait in memory for the first attempt.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{ApiVersion, Digest, EventId, EventType, SyncRunId};
use bellbird_shared_state::Expiring;
use bytes::Bytes;
use jiff::Timestamp;
use tokio::sync::Notify;

use crate::chunk::chunks;
use crate::payload::{Envelope, body};

/// The most rows of an event.
pub const ROWS_MAX: usize = 500;
/// How long a body waits for its first attempt. After that its rows are read again.
const FRESH_LIFE: Duration = Duration::from_secs(120);
/// All bodies that wait, in bytes.
const FRESH_BYTES_MAX: u64 = 64 * 1024 * 1024;

/// A row that is new or has changed.
pub struct ChangedRow {
    /// Which one.
    pub row: Digest,
    /// What is told of it; none where there was no room to keep it.
    pub json: Option<Vec<u8>>,
}

/// An event, ready to be stored without its rows.
pub struct Prepared {
    /// Its id.
    pub id: EventId,
    /// Which rows it has: new ones, then changed ones.
    pub rows: Vec<Digest>,
    /// How many are new.
    pub new_count: u32,
    /// How many have changed.
    pub updated_count: u32,
    /// Its number, from 1.
    pub chunk: u32,
    /// How many there are.
    pub total_chunks: u32,
    body: Option<Bytes>,
}

/// What a sync and the deliveries have in common within one program. Cheap to clone; the clones share everything.
#[derive(Clone)]
pub struct Outbox {
    rows_max: usize,
    first_delay: Duration,
    fresh: Arc<Expiring<(EventId, ApiVersion), Bytes>>,
    pub(crate) wanted: Arc<Notify>,
}

impl Default for Outbox {
    /// For events of as many rows as they can have.
    fn default() -> Self {
        Self::new(ROWS_MAX)
    }
}

impl Outbox {
    /// For events of at most `rows_max` rows.
    #[must_use]
    pub fn new(rows_max: usize) -> Self {
        let bytes_of = |_: &(EventId, ApiVersion), body: &Bytes| body.len() + 64;
        let fresh = Arc::new(Expiring::latest(FRESH_LIFE, FRESH_BYTES_MAX, bytes_of));
        Self { rows_max, first_delay: Duration::ZERO, fresh, wanted: Arc::default() }
    }

    /// With a time to wait before the first attempt.
    #[must_use]
    pub fn delayed(self, first_delay: Duration) -> Self {
        Self { first_delay, ..self }
    }

    /// When the first attempt is due for what is found at `now`.
    #[must_use]
    pub fn due_from(&self, now: Timestamp) -> Timestamp {
        now.saturating_add(self.first_delay).unwrap_or(now)
    }

    /// The events that tell of these rows. What was written of each row is used up on the way.
    #[must_use]
    pub fn prepare(
        &self,
        event_type: EventType,
        run: SyncRunId,
        created: Timestamp,
        new: &mut [ChangedRow],
        updated: &mut [ChangedRow],
    ) -> Vec<Prepared> {
        let all = chunks(new.len(), updated.len(), self.rows_max);
        let total_chunks = count(all.len());
        let mut prepared = Vec::with_capacity(all.len());
        for (number, chunk) in (1..).zip(all) {
            let (new, updated) = (&mut new[chunk.new], &mut updated[chunk.updated]);
            let envelope = Envelope {
                id: EventId::new(),
                event_type,
                api_version: ApiVersion::CURRENT,
                created,
                sync_run_id: run,
                chunk: number,
                total_chunks,
            };
            prepared.push(Prepared {
                id: envelope.id,
                rows: new.iter().chain(&*updated).map(|row| row.row).collect(),
                new_count: count(new.len()),
                updated_count: count(updated.len()),
                chunk: number,
                total_chunks,
                body: take(new).zip(take(updated)).map(|(new, updated)| body(&envelope, &new, &updated)),
            });
        }
        prepared
    }

    /// Keeps the bodies of events for their first attempt. To be called before the events are stored: whoever delivers may
    /// be faster than we are.
    pub fn hold(&self, prepared: &[Prepared], now: Timestamp) {
        for event in prepared {
            if let Some(body) = &event.body {
                self.keep(event.id, ApiVersion::CURRENT, body.clone(), now);
            }
        }
    }

    /// Keeps one body for a first attempt.
    pub(crate) fn keep(&self, id: EventId, version: ApiVersion, body: Bytes, now: Timestamp) {
        self.fresh.insert((id, version), body, now);
    }

    /// Wakes whoever makes first attempts: events are stored.
    pub fn wake(&self) {
        self.wanted.notify_one();
    }

    /// Forgets the bodies of events that nobody asks for.
    pub fn forget(&self, prepared: &[Prepared]) {
        for event in prepared {
            self.fresh.remove(&(event.id, ApiVersion::CURRENT));
        }
    }

    /// The body of an event that was made here a moment ago.
    #[must_use]
    pub fn find(&self, id: EventId, version: ApiVersion, now: Timestamp) -> Option<Bytes> {
        self.fresh.get(&(id, version), now).map(|(body, _)| body)
    }
}

/// What was written of all of these rows; none when one is missing.
fn take(rows: &mut [ChangedRow]) -> Option<Vec<Vec<u8>>> {
    rows.iter_mut().map(|row| row.json.take()).collect()
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
