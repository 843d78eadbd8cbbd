//! Finds the rows of events among those that are read again. Pure, but for the time that a read
//! takes.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;
use std::time::Duration;

use bellbird_domain::{ContentDigest, Digest, Fingerprints, RowDigests, RowKey};
use bellbird_storage::WebhookEvent;
use tokio::time::Instant;

use crate::event::buffer::EventRows;
use crate::event::digest::RowHasher;
use crate::event::payload::{RowJson, RowWriter};

/// Maximum bytes of JSON that one read keeps for waiting chunks.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A read that takes longer ends as soon as it has all rows of the event that is due.
const READ_TIME: Duration = Duration::from_secs(10);

/// A row of an event: the number of the event among those of the read, and that of the row among
/// its rows.
type Place = (usize, usize);

/// The rows found so far for several events, the one that is due first.
pub(super) struct RereadRows<'e> {
    events: Vec<FoundRows<'e>>,
    /// Rows that are not found yet, by what the last sync saw. Equal trades have one entry.
    missing: HashMap<(Digest, ContentDigest), Vec<Place>>,
    /// Rows that are not found yet and have no fingerprint any more.
    forgotten: HashMap<RowKey, Place>,
    /// How many rows without a fingerprint have had this digest. Counted only if some are looked
    /// for.
    unknown: HashMap<Digest, u32>,
    fingerprints: &'e Fingerprints,
    hasher: &'e RowHasher,
    writer: RowWriter,
    json_bytes: usize,
    started_at: Instant,
}

/// The rows of an event, in its order. Those that are gone stay `None`.
struct FoundRows<'e> {
    event: &'e WebhookEvent,
    rows: Vec<Option<RowJson>>,
    missing: usize,
    forgotten: usize,
    /// Not looked for any more, because the rows take too much memory.
    is_dropped: bool,
}

impl FoundRows<'_> {
    fn is_complete(&self) -> bool {
        (self.missing, self.forgotten) == (0, 0)
    }
}

impl<'e> RereadRows<'e> {
    pub(super) fn new(
        events: &[&'e WebhookEvent],
        fingerprints: &'e Fingerprints,
        hasher: &'e RowHasher,
    ) -> Self {
        let mut forgotten = HashMap::new();
        for (number, event) in events.iter().enumerate() {
            let keys = event.rows.iter().enumerate();
            forgotten.extend(keys.map(|(index, key)| (*key, (number, index))));
        }
        let rows = |event: &&'e WebhookEvent| FoundRows {
            event,
            rows: vec![None; event.rows.len()],
            missing: 0,
            forgotten: 0,
            is_dropped: false,
        };
        let mut events: Vec<FoundRows<'e>> = events.iter().map(rows).collect();
        let mut missing: HashMap<_, Vec<Place>> = HashMap::new();
        for known in &fingerprints.rows {
            if let Some(place) = forgotten.remove(&known.key)
                && !known.is_gone
            {
                missing
                    .entry((known.digests.row, known.digests.content))
                    .or_default()
                    .push(place);
                events[place.0].missing += 1;
            }
        }
        forgotten
            .values()
            .for_each(|(number, _)| events[*number].forgotten += 1);
        Self {
            events,
            missing,
            forgotten,
            unknown: HashMap::new(),
            fingerprints,
            hasher,
            writer: RowWriter::default(),
            json_bytes: 0,
            started_at: Instant::now(),
        }
    }

    /// Stores a row if one of the events still misses it. Stops the read when it is done.
    pub(super) fn take(
        &mut self,
        row: &RowDigests,
        write: impl FnOnce(&mut RowWriter) -> RowJson,
    ) -> ControlFlow<()> {
        if let Some((number, index)) = self.place_of(row) {
            let (json, event) = (write(&mut self.writer), &mut self.events[number]);
            self.json_bytes += json.bytes();
            event.rows[index] = Some(json);
            if self.json_bytes > READ_BYTES_MAX {
                self.drop_incomplete_chunks();
            }
        }
        if self.is_done() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn place_of(&mut self, row: &RowDigests) -> Option<Place> {
        if let Entry::Occupied(mut entry) = self.missing.entry((row.row, row.content)) {
            let place = entry.get_mut().pop();
            if entry.get().is_empty() {
                entry.remove();
            }
            place.inspect(|(number, _)| self.events[*number].missing -= 1)
        } else if !self.forgotten.is_empty() && !self.has_fingerprint(row.row) {
            // Its key is what a sync would give it.
            let occurrence = self.unknown.entry(row.row).or_default();
            let key = self.hasher.key(row.row, *occurrence, 0);
            *occurrence += 1;
            self.forgotten
                .remove(&key)
                .inspect(|(number, _)| self.events[*number].forgotten -= 1)
        } else {
            None
        }
    }

    fn has_fingerprint(&self, row: Digest) -> bool {
        self.fingerprints
            .rows
            .binary_search_by_key(&row, |known| known.digests.row)
            .is_ok()
    }

    /// Only the event that is due is completed, however large it is.
    fn drop_incomplete_chunks(&mut self) {
        for event in self
            .events
            .iter_mut()
            .skip(1)
            .filter(|event| !event.is_complete())
        {
            (event.rows, event.is_dropped) = (Vec::new(), true);
        }
        let events = &self.events;
        self.missing.retain(|_, places| {
            places.retain(|(number, _)| !events[*number].is_dropped);
            !places.is_empty()
        });
        self.forgotten
            .retain(|_, (number, _)| !events[*number].is_dropped);
        self.json_bytes = 0;
    }

    pub(super) fn has_first(&self) -> bool {
        self.events.first().is_some_and(FoundRows::is_complete)
    }

    pub(super) fn has_stopped_early(&self) -> bool {
        self.has_first() && self.started_at.elapsed() >= READ_TIME
    }

    pub(super) fn is_done(&self) -> bool {
        self.missing.is_empty() && self.forgotten.is_empty() || self.has_stopped_early()
    }

    /// The complete events.
    pub(super) fn into_events(self, are_forgotten_gone: bool) -> impl Iterator<Item = EventRows> {
        let is_complete = move |found: &FoundRows<'_>| {
            !found.is_dropped && found.missing == 0 && (found.forgotten == 0 || are_forgotten_gone)
        };
        self.events
            .into_iter()
            .filter(is_complete)
            .map(move |FoundRows { event, rows, .. }| {
                let new_count = usize::try_from(event.new_count)
                    .unwrap_or(usize::MAX)
                    .min(rows.len());
                let mut rows = event
                    .rows
                    .iter()
                    .zip(rows)
                    .map(|(key, json)| Some((*key, json?)));
                let new = rows.by_ref().take(new_count).flatten().collect();
                EventRows::new(event.into(), new, rows.flatten().collect())
            })
    }
}

#[cfg(test)]
mod tests;
