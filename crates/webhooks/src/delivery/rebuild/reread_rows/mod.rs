//! Finds the rows of events among those that are read again. Pure, but for the time that a read
//! takes.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::ops::ControlFlow;
use std::time::Duration;

use bellbird_domain::{ContentDigest, Digest, Fingerprint, Fingerprints, RowDigests, RowKey};
use bellbird_storage::WebhookEvent;
use tokio::time::Instant;

use crate::event::buffer::EventRows;
use crate::event::digest::RowHasher;
use crate::event::payload::{RowJson, RowWriter};

/// Maximum bytes of JSON that one read keeps for waiting chunks.
const READ_BYTES_MAX: usize = 8 * 1024 * 1024;
/// A read that takes longer ends as soon as it has all rows of the event that is due.
const READ_TIME: Duration = Duration::from_secs(10);
/// Known rows with one id that are compared with a row. More of them mean that the provider is
/// faulty.
const EQUAL_IDS_MAX: usize = 100;

/// A row of an event: the number of the event among those of the read, and that of the row among
/// its rows.
type Place = (usize, usize);

/// The rows found so far for several events, the one that is due first.
pub(super) struct RereadRows<'e> {
    events: Vec<FoundRows<'e>>,
    /// Rows that are not found yet, by what the last sync saw. Equal trades have one entry.
    missing: HashMap<(Digest, ContentDigest), Vec<Place>>,
    /// Those of `missing`, by id, whose days no sync reads any more.
    unwatched: HashMap<Digest, Unwatched>,
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

/// The rows with one id of which no sync will say what became of them.
#[derive(Default)]
struct Unwatched {
    rows: usize,
    /// What the list has under the id, with contents that no sync saw.
    changed: Vec<RowJson>,
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
    /// `is_unwatched` says whether no sync reads the day of a row any more.
    pub(super) fn new(
        events: &[&'e WebhookEvent],
        fingerprints: &'e Fingerprints,
        hasher: &'e RowHasher,
        is_unwatched: impl Fn(&RowDigests) -> bool,
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
        let mut unwatched: HashMap<Digest, Unwatched> = HashMap::new();
        for known in &fingerprints.rows {
            if let Some(place) = forgotten.remove(&known.key)
                && !known.is_gone
            {
                let mut visible = *known;
                hasher.mask_days(std::slice::from_mut(&mut visible));
                if is_unwatched(&visible.digests) {
                    unwatched.entry(known.digests.row).or_default().rows += 1;
                }
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
            unwatched,
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
            let json = self.written(write);
            self.events[number].rows[index] = Some(json);
        } else if self.is_changed(row) {
            let json = self.written(write);
            if let Some(unwatched) = self.unwatched.get_mut(&row.row) {
                unwatched.changed.push(json);
            }
        }
        if self.json_bytes > READ_BYTES_MAX {
            self.drop_incomplete_chunks();
        }
        if self.is_done() {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn written(&mut self, write: impl FnOnce(&mut RowWriter) -> RowJson) -> RowJson {
        let json = write(&mut self.writer);
        self.json_bytes += json.bytes();
        json
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
        self.fingerprints_of(row).next().is_some()
    }

    fn fingerprints_of(&self, row: Digest) -> impl Iterator<Item = &Fingerprint> {
        let known = &self.fingerprints.rows;
        let first = known.partition_point(|known| known.digests.row < row);
        known[first..]
            .iter()
            .take_while(move |known| known.digests.row == row)
    }

    /// Whether a row may be one that no sync reads any more, with another content. If there are
    /// more of them, the first ones count.
    fn is_changed(&self, row: &RowDigests) -> bool {
        self.unwatched
            .get(&row.row)
            .is_some_and(|unwatched| unwatched.changed.len() < unwatched.rows)
            && self
                .fingerprints_of(row.row)
                .take(EQUAL_IDS_MAX)
                .all(|known| known.digests.content != row.content)
    }

    /// The list has ended. So what it has under the id of a row that no sync reads any more, and
    /// not with the content that the last one saw, is that row.
    pub(super) fn take_changed(&mut self) {
        if self.has_stopped_early() {
            return;
        }
        self.missing.retain(|(row, _), places| {
            let Some(Unwatched { changed, .. }) = self.unwatched.get_mut(row) else {
                return true;
            };
            let count = changed.len().min(places.len());
            let found = places.drain(..count).zip(changed.drain(..count));
            for ((number, index), json) in found {
                self.events[number].rows[index] = Some(json);
                self.events[number].missing -= 1;
            }
            !places.is_empty()
        });
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
        let missing: HashSet<Digest> = self.missing.keys().map(|(row, _)| *row).collect();
        self.unwatched.retain(|row, _| missing.contains(row));
        self.json_bytes = 0;
    }

    pub(super) fn has_first(&self) -> bool {
        self.events.first().is_some_and(FoundRows::is_complete)
    }

    fn has_stopped_early(&self) -> bool {
        self.has_first() && self.started_at.elapsed() >= READ_TIME
    }

    pub(super) fn is_done(&self) -> bool {
        self.missing.is_empty() && self.forgotten.is_empty() || self.has_stopped_early()
    }

    /// The complete events. What was not found of rows without a fingerprint, and of rows that no
    /// sync reads any more, is gone or is waited for.
    pub(super) fn into_events(self, are_gone: bool) -> impl Iterator<Item = EventRows> {
        let is_gone = |row: &Digest| are_gone && self.unwatched.contains_key(row);
        let waited_for = self.missing.iter().filter(|((row, _), _)| !is_gone(row));
        let incomplete: HashSet<usize> = waited_for
            .flat_map(|(_, places)| places)
            .map(|(number, _)| *number)
            .collect();
        let is_complete = move |(number, found): &(usize, FoundRows<'_>)| {
            !found.is_dropped && !incomplete.contains(number) && (found.forgotten == 0 || are_gone)
        };
        self.events.into_iter().enumerate().filter(is_complete).map(
            move |(_, FoundRows { event, rows, .. })| {
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
            },
        )
    }
}

#[cfg(test)]
mod tests;
