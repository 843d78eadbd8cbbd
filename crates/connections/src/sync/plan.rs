//! Plans a run of a sync from what is known: the date range that it reads, and the time of the next
//! one. Then says what is known after it. Pure.

use std::time::Duration;

use bellbird_domain::{ConnectionId, TimestampExt as _};
use bellbird_providers::UnreadableRow;
use bellbird_storage::{SyncState, UnreadableRows};
use jiff::{SignedDuration, Timestamp};

use super::pull::Pulled;
use super::start_of_day;
use crate::schedule;
use crate::sync_settings::SyncSettings;

/// Delay before the next sync of a connection that was linked recently and has no rows yet.
const EMPTY_FIRST_SYNC_RETRY: Duration = Duration::from_secs(600);
/// Backfill window of rows after linking: for this long, every sync reads the range of the first
/// one, and a sync without any row does not count as the first. Accounts have a shorter one,
/// [`schedule::BACKFILL_SECONDS`].
///
/// With `notify_initial` off, only the first sync reads that range, because a second one would
/// report its late rows.
const LINKING_WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// Backfill window after a gap: a renewal, or the first rows for long. The range starts where it
/// did before.
const GAP_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// How far before the last sync a gap, or a row that cannot be read, can hold the start of the
/// range. So a connection that rarely has rows is read at most this far back, and there is little
/// to read.
const HELD_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);
/// A run that stopped early may have read a few rows out of order, so the next one reads this much
/// again.
const CONTINUED_OVERLAP: SignedDuration = SignedDuration::from_hours(24);

/// Fingerprints are kept this much longer than a date range can reach back: clocks differ, and so
/// do the time zones in which providers count days.
const PRUNE_MARGIN: SignedDuration = SignedDuration::from_hours(48);

/// What a run does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncPlan {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Fingerprints of rows from this time on are kept.
    pub(crate) kept_from: Timestamp,
    /// Whether the run reads what the one before it has left.
    pub(crate) continues: bool,
    /// The number of the sync among those of the connection. A run that continues a sync has its
    /// number.
    pub(crate) sequence: u32,
    pub(crate) next_sync_at: Timestamp,
    /// When to sync again if no row is found. Such a sync does not count as the first, because rows
    /// may be late.
    pub(crate) retry_if_empty_at: Option<Timestamp>,
}

impl SyncSettings {
    pub(crate) fn plan(&self, now: Timestamp, state: &SyncState, phase: u64) -> SyncPlan {
        let began = state.rows_backfill_began_at;
        let rows_may_be_late = now.duration_since(began) < LINKING_WINDOW;
        // An earlier sync must not replace the scheduled one, when all rows should be there.
        let scheduled = Some(schedule::first_sync_at(began)).filter(|scheduled| now < *scheduled);
        let next_sync_at = self.next_sync_at(now, phase);
        let next_sync_at = scheduled.map_or(next_sync_at, |scheduled| scheduled.min(next_sync_at));
        let retry_at = now.plus(EMPTY_FIRST_SYNC_RETRY).min(next_sync_at);
        let unread = state
            .covered_from
            .zip(state.unread.as_ref().map(|unread| unread.to));
        // An account that is listed again is read from when it went missing. Until then its
        // fingerprints are kept.
        let or_missing = |from: Timestamp, since: Option<Timestamp>| {
            since.map_or(from, |since| {
                from.min(self.range_start_of_missing(since, state.linked_at))
            })
        };
        let (from, to) = unread.unwrap_or_else(|| {
            (
                or_missing(self.range_start(now, state), state.reread_from),
                now,
            )
        });
        SyncPlan {
            from,
            to,
            kept_from: or_missing(or_missing(from, state.reread_from), state.missing_since),
            continues: unread.is_some(),
            sequence: state.sequence.saturating_add(u32::from(unread.is_none())),
            next_sync_at,
            retry_if_empty_at: (rows_may_be_late && state.synced_at.is_none()).then_some(retry_at),
        }
    }

    /// What is known after a run that began at `now`.
    pub(super) fn next_state(
        &self,
        now: Timestamp,
        state: &SyncState,
        plan: &SyncPlan,
        pulled: &Pulled,
        next_at: Timestamp,
    ) -> SyncState {
        let unreadable_before = state.unreadable.as_ref().filter(|_| plan.continues);
        SyncState {
            linked_at: state.linked_at,
            sequence: plan.sequence,
            synced_at: state.synced_at.filter(|_| plan.continues).or(Some(now)),
            covered_from: Some(plan.from),
            newest_row_at: state.newest_row_at.max(pulled.newest_row_at),
            rows_backfill_began_at: self.backfill_after(now, state, pulled.newest_row_at),
            missing_since: state.missing_since,
            // Only a new date range reaches back so far.
            reread_from: state.reread_from.filter(|_| plan.continues),
            unread: pulled.unread.clone(),
            restore_id: state.restore_id,
            change_version: pulled.change_version,
            removal_hints: pulled.removal_hints.clone(),
            last_changes_poll_at: state.last_changes_poll_at,
            unreadable: add_unreadable(unreadable_before, &pulled.unreadable, plan.from),
            next_at: Some(next_at),
            attempts: 0,
            last_error: None,
        }
    }

    /// Returns the oldest instant that a sync at `now` reads.
    ///
    /// It goes back from the newest row that was read, because the provider may have had no data
    /// since. It is never before the start of the previous date range (`covered_from`).
    /// Fingerprints of older rows may have been deleted, and such rows would be reported as new.
    fn range_start(&self, now: Timestamp, state: &SyncState) -> Timestamp {
        // A value in the future comes from a wrong clock. It would hide all rows until that time.
        let covered_from = state.covered_from.filter(|covered| *covered <= now);
        let Some(synced_at) = state.synced_at.map(|synced| synced.min(now)) else {
            let from = now.minus(self.first);
            return covered_from.map_or(from, |covered| from.max(covered));
        };
        let held_from = synced_at.minus(HELD_MAX);
        let newest = match state.newest_row_at {
            Some(newest) => newest.min(synced_at),
            None if self.notify_initial => held_from,
            None => state.linked_at.min(synced_at),
        };
        let mut from = newest.max(held_from).minus(self.overlap);
        if let Some(unreadable) = &state.unreadable {
            from = from.min(unreadable.since.max(held_from));
        }
        match covered_from {
            Some(covered) if self.is_backfilling(now, state) => covered,
            Some(covered) => from.max(covered),
            None => from,
        }
    }

    /// Whether rows of the previous date range may still be late.
    fn is_backfilling(&self, now: Timestamp, state: &SyncState) -> bool {
        let began = state.rows_backfill_began_at;
        let is_linking = began <= state.linked_at;
        let window = if is_linking {
            LINKING_WINDOW
        } else {
            GAP_WINDOW
        };
        (self.notify_initial || !is_linking) && now.duration_since(began) < window
    }

    /// When the present backfill began, after a sync at `now` that read rows up to `newest`. It
    /// begins again with the first rows after a gap, since older ones may follow.
    fn backfill_after(
        &self,
        now: Timestamp,
        state: &SyncState,
        newest: Option<Timestamp>,
    ) -> Timestamp {
        let began = state.rows_backfill_began_at;
        let (Some(_), Some(newest)) = (state.synced_at, newest) else {
            return began;
        };
        let ends_gap = match state.newest_row_at {
            Some(before) => newest.duration_since(before) > self.overlap_duration(),
            None => self.notify_initial,
        };
        if ends_gap { now } else { began }
    }

    fn overlap_duration(&self) -> SignedDuration {
        SignedDuration::try_from(self.overlap).unwrap_or(SignedDuration::MAX)
    }

    /// The end of what is left to read, after a run up to `to` stopped before a row at
    /// `stopped_at`, which is before `to`.
    pub(crate) fn unread_to(to: Timestamp, stopped_at: Timestamp) -> Timestamp {
        let again = stopped_at.plus(CONTINUED_OVERLAP);
        // Each run has to leave less than the one before.
        if again.plus(CONTINUED_OVERLAP) < to {
            again
        } else {
            stopped_at
        }
    }

    /// Returns the oldest instant to read when an account that was missing `since` then is listed
    /// again: no sync has read its rows meanwhile. Never before the start of the first sync's
    /// range.
    fn range_start_of_missing(&self, since: Timestamp, linked_at: Timestamp) -> Timestamp {
        since.minus(self.overlap).max(linked_at.minus(self.first))
    }

    /// Fingerprints last seen before the returned instant can be deleted: no later date range
    /// reaches back so far.
    pub fn prune_before(from: Timestamp) -> Timestamp {
        from.minus(PRUNE_MARGIN)
    }

    /// Returns the time of the next sync of a connection: the first of its own times that is at
    /// least half an interval away. They are an interval apart, and `phase`, any number that stays
    /// with the connection, says where they lie. So the syncs of all connections are spread evenly,
    /// and are again at once after an outage, when all were late.
    pub fn next_sync_at(&self, now: Timestamp, phase: u64) -> Timestamp {
        let interval = u64::try_from(self.interval.as_micros())
            .unwrap_or(u64::MAX)
            .max(1);
        let least = now.plus(self.interval / 2);
        let since = u64::try_from(least.as_microsecond()).unwrap_or_default() % interval;
        let offset = phase % interval;
        let wait = if offset >= since {
            offset - since
        } else {
            offset + (interval - since)
        };
        least.plus(Duration::from_micros(wait))
    }
}

/// The phase of a connection: the random bits of its id.
pub(crate) fn phase_of(id: ConnectionId) -> u64 {
    id.uuid().as_u64_pair().1
}

/// Adds the unreadable rows of a run to those that the runs `before` it have met. A row without a
/// time counts as one of the start of the date range. Runs overlap by a day, whose unreadable rows
/// count twice.
fn add_unreadable(
    before: Option<&UnreadableRows>,
    found: &[UnreadableRow],
    from: Timestamp,
) -> Option<UnreadableRows> {
    let oldest = found
        .iter()
        .map(|row| (row.at.unwrap_or(from), row.reason))
        .min_by_key(|(at, _)| *at);
    let Some((since, reason)) = oldest else {
        return before.cloned();
    };
    let count = u32::try_from(found.len()).unwrap_or(u32::MAX);
    let rows = UnreadableRows {
        count,
        reason: reason.as_str().to_owned(),
        since: start_of_day(since).max(from),
    };
    Some(match before {
        None => rows,
        Some(before) => UnreadableRows {
            count: before.count.saturating_add(count),
            ..if before.since < rows.since {
                before.clone()
            } else {
                rows
            }
        },
    })
}

#[cfg(test)]
mod tests {
    use bellbird_domain::{Digest, EventType};
    use bellbird_providers::UnreadableReason;
    use bellbird_storage::UnreadRange;
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;

    fn seconds_after(start: Timestamp, seconds: i64) -> Timestamp {
        start
            .saturating_add(SignedDuration::from_secs(seconds))
            .unwrap()
    }

    /// A connection that was linked years ago, and has had rows until its last sync.
    fn state(synced_at: Option<&str>, covered_from: Option<&str>) -> SyncState {
        SyncState {
            linked_at: at("2020-01-01T00:00:00Z"),
            sequence: u32::from(synced_at.is_some()),
            synced_at: synced_at.map(at),
            covered_from: covered_from.map(at),
            newest_row_at: synced_at.map(at),
            rows_backfill_began_at: at("2020-01-01T00:00:00Z"),
            missing_since: None,
            reread_from: None,
            unread: None,
            restore_id: 0,
            change_version: 0,
            removal_hints: Vec::new(),
            last_changes_poll_at: None,
            unreadable: None,
            next_at: None,
            attempts: 0,
            last_error: None,
        }
    }

    fn unread_to(to: Timestamp) -> Option<UnreadRange> {
        Some(UnreadRange {
            to,
            after_account: None,
        })
    }

    fn unreadable_since(since: Timestamp) -> UnreadableRows {
        UnreadableRows {
            count: 1,
            reason: "invalid_amount".to_owned(),
            since,
        }
    }

    #[test]
    fn range_starts() {
        let settings = SyncSettings::default();
        let now = at("2026-11-20T09:30:00Z");
        for (synced_at, covered_from, from) in [
            (None, None, "2026-10-21T09:30:00Z"),
            // The first sync was six hours ago.
            (
                Some("2026-11-20T03:30:00Z"),
                Some("2026-10-21T03:30:00Z"),
                "2026-11-13T03:30:00Z",
            ),
            // The overlap was made longer: rows with deleted fingerprints would be reported as new.
            (
                Some("2026-11-20T03:30:00Z"),
                Some("2026-11-18T03:30:00Z"),
                "2026-11-18T03:30:00Z",
            ),
            // The consent was inactive for three months.
            (
                Some("2026-08-20T00:00:00Z"),
                Some("2026-08-13T00:00:00Z"),
                "2026-08-13T00:00:00Z",
            ),
            // A clock that was wrong.
            (
                Some("2027-01-01T00:00:00Z"),
                Some("2026-12-25T00:00:00Z"),
                "2026-11-13T09:30:00Z",
            ),
            (Some("2027-01-01T00:00:00Z"), None, "2026-11-13T09:30:00Z"),
        ] {
            assert_eq!(
                settings.range_start(now, &state(synced_at, covered_from)),
                at(from),
                "{synced_at:?}"
            );
        }
    }

    #[test]
    fn range_is_held_by_what_is_missing() {
        let now = at("2026-11-20T00:00:00Z");
        let settings = SyncSettings::default();
        let quiet = SyncSettings {
            notify_initial: false,
            ..settings
        };
        let last = SyncState {
            newest_row_at: Some(at("2026-11-19T00:00:00Z")),
            ..state(Some("2026-11-19T12:00:00Z"), Some("2025-01-01T00:00:00Z"))
        };
        let newest = |text: &str| SyncState {
            newest_row_at: Some(at(text)),
            ..last.clone()
        };
        let began = |text: &str| SyncState {
            rows_backfill_began_at: at(text),
            ..last.clone()
        };
        let unreadable = |text: &str| SyncState {
            unreadable: Some(unreadable_since(at(text))),
            ..last.clone()
        };
        let no_rows = SyncState {
            newest_row_at: None,
            linked_at: at("2026-11-10T00:00:00Z"),
            ..last.clone()
        };
        for (sentence, settings, state, from) in [
            (
                "a week before the newest row",
                settings,
                last.clone(),
                "2026-11-12T00:00:00Z",
            ),
            (
                "which may be old",
                settings,
                newest("2026-10-19T00:00:00Z"),
                "2026-10-12T00:00:00Z",
            ),
            (
                "but only so old",
                settings,
                newest("2026-01-01T00:00:00Z"),
                "2026-08-14T12:00:00Z",
            ),
            (
                "without any row",
                settings,
                no_rows.clone(),
                "2026-08-14T12:00:00Z",
            ),
            (
                "a first sync that notified nobody reports no row before it",
                quiet,
                no_rows,
                "2026-11-03T00:00:00Z",
            ),
            (
                "a day after a gap",
                settings,
                began("2026-11-19T00:00:01Z"),
                "2025-01-01T00:00:00Z",
            ),
            (
                "also without a first report",
                quiet,
                began("2026-11-19T00:00:01Z"),
                "2025-01-01T00:00:00Z",
            ),
            (
                "not longer",
                settings,
                began("2026-11-19T00:00:00Z"),
                "2026-11-12T00:00:00Z",
            ),
            (
                "an unreadable row",
                settings,
                unreadable("2026-10-10T00:00:00Z"),
                "2026-10-10T00:00:00Z",
            ),
            (
                "one in the usual range",
                settings,
                unreadable("2026-11-18T00:00:00Z"),
                "2026-11-12T00:00:00Z",
            ),
            (
                "not forever",
                settings,
                unreadable("2026-01-01T00:00:00Z"),
                "2026-08-21T12:00:00Z",
            ),
        ] {
            assert_eq!(settings.range_start(now, &state), at(from), "{sentence}");
        }
    }

    #[test]
    fn gap_ends_with_a_row() {
        let now = at("2026-11-20T00:00:00Z");
        let settings = SyncSettings::default();
        let known = state(Some("2026-11-19T12:00:00Z"), Some("2026-11-01T00:00:00Z"));
        let began = known.rows_backfill_began_at;
        let newest = |text: &str| SyncState {
            newest_row_at: Some(at(text)),
            ..known.clone()
        };
        for (sentence, state, read, expected) in [
            (
                "a row a week later",
                newest("2026-11-12T00:00:00Z"),
                Some("2026-11-19T00:00:00Z"),
                began,
            ),
            (
                "more than a week later",
                newest("2026-11-11T00:00:00Z"),
                Some("2026-11-19T00:00:00Z"),
                now,
            ),
            ("no row", newest("2026-11-01T00:00:00Z"), None, began),
            (
                "the first sync",
                SyncState {
                    synced_at: None,
                    ..known.clone()
                },
                Some("2026-11-19T00:00:00Z"),
                began,
            ),
            (
                "the first row",
                SyncState {
                    newest_row_at: None,
                    ..known.clone()
                },
                Some("2026-11-19T00:00:00Z"),
                now,
            ),
        ] {
            assert_eq!(
                settings.backfill_after(now, &state, read.map(at)),
                expected,
                "{sentence}"
            );
        }
    }

    #[test]
    fn plans() {
        let linked_at = at("2026-11-20T00:00:00Z");
        let later = |seconds: i64| seconds_after(linked_at, seconds);
        let settings = SyncSettings::default();
        let quiet = SyncSettings {
            notify_initial: false,
            ..settings
        };
        // Seconds after linking: now, the last sync, the start of the range, the next sync, the
        // retry if empty.
        for (sentence, settings, now, last, from, next, retry) in [
            (
                "an early sync leaves the scheduled first one",
                settings,
                60,
                None,
                60 - 30 * DAY,
                600,
                Some(600),
            ),
            (
                "rows may be late for an hour",
                settings,
                600,
                None,
                600 - 30 * DAY,
                6 * HOUR + 600,
                Some(1_200),
            ),
            (
                "after that, no rows means that there are none",
                settings,
                HOUR,
                None,
                HOUR - 30 * DAY,
                7 * HOUR,
                None,
            ),
            (
                "it stays the range of the first",
                settings,
                1_200,
                Some(600),
                600 - 30 * DAY,
                6 * HOUR + 1_200,
                None,
            ),
            (
                "unless late rows would be reported",
                quiet,
                1_200,
                Some(600),
                600 - 7 * DAY,
                6 * HOUR + 1_200,
                None,
            ),
            (
                "later the range overlaps the last",
                settings,
                9 * HOUR,
                Some(600),
                600 - 7 * DAY,
                15 * HOUR,
                None,
            ),
        ] {
            let state = SyncState {
                linked_at,
                rows_backfill_began_at: linked_at,
                sequence: u32::from(last.is_some()),
                synced_at: last.map(later),
                covered_from: last.map(|last| later(last - 30 * DAY)),
                newest_row_at: last.map(later),
                ..state(None, None)
            };
            let plan = settings.plan(later(now), &state, phase_at(settings, later(now)));
            let expected = SyncPlan {
                from: later(from),
                to: later(now),
                kept_from: later(from),
                continues: false,
                sequence: 1 + state.sequence,
                next_sync_at: later(next),
                retry_if_empty_at: retry.map(later),
            };
            assert_eq!(plan, expected, "{sentence}");
            let covered = state.covered_from;
            let left = SyncState {
                unread: unread_to(later(-DAY)),
                ..state
            };
            let continued = settings.plan(later(now), &left, 0);
            let range = (continued.from, continued.to);
            assert_eq!(
                (continued.continues, continued.sequence),
                (last.is_some(), 1),
                "{sentence}"
            );
            assert!(
                !continued.continues || range == (covered.unwrap(), later(-DAY)),
                "{sentence}"
            );
        }
    }

    #[test]
    fn account_that_returns_is_read_from_when_it_went_missing() {
        let (settings, now) = (SyncSettings::default(), at("2026-11-20T00:00:00Z"));
        let last = state(Some("2026-11-19T12:00:00Z"), Some("2026-11-12T12:00:00Z"));
        let since = Some(at("2026-11-01T00:00:00Z"));
        let week_before = at("2026-10-25T00:00:00Z");
        let missing = settings.plan(
            now,
            &SyncState {
                missing_since: since,
                ..last.clone()
            },
            0,
        );
        assert_eq!(
            (missing.from, missing.kept_from),
            (at("2026-11-12T12:00:00Z"), week_before)
        );
        let returned = SyncState {
            reread_from: since,
            ..last.clone()
        };
        let plan = settings.plan(now, &returned, 0);
        assert_eq!((plan.from, plan.kept_from), (week_before, week_before));
        // What a run has left is read first.
        let unread = unread_to(at("2026-11-14T00:00:00Z"));
        let continued = settings.plan(now, &SyncState { unread, ..returned }, 0);
        assert_eq!(
            (continued.from, continued.kept_from),
            (at("2026-11-12T12:00:00Z"), week_before)
        );
        let linked_at = at("2026-11-10T00:00:00Z");
        assert_eq!(
            settings
                .plan(
                    now,
                    &SyncState {
                        linked_at,
                        reread_from: Some(linked_at),
                        ..last
                    },
                    0
                )
                .from,
            at("2026-11-03T00:00:00Z"),
        );
    }

    #[test]
    fn run_leaves_what_the_next_one_needs() {
        let (settings, now, later) = (
            SyncSettings::default(),
            at("2026-11-20T00:00:00Z"),
            at("2026-11-20T06:00:00Z"),
        );
        let day = |text: &str| at(&format!("2026-11-{text}T00:00:00Z"));
        let before = SyncState {
            newest_row_at: Some(day("18")),
            reread_from: Some(day("10")),
            unreadable: Some(unreadable_since(day("15"))),
            attempts: 3,
            last_error: Some("the provider is not available".to_owned()),
            ..state(Some("2026-11-19T12:00:00Z"), Some("2026-11-12T12:00:00Z"))
        };
        let pulled =
            |newest: Option<&str>, unread: Option<UnreadRange>, unreadable: &[&str]| Pulled {
                event_type: EventType::TransactionsSynced,
                is_empty: newest.is_none(),
                new_count: 0,
                updated_count: 0,
                new: Vec::new(),
                updated: Vec::new(),
                gone: Vec::new(),
                fingerprints: None,
                removal_hints: vec![Digest([1; 16])],
                change_version: 9,
                newest_row_at: newest.map(day),
                read_from: day("01"),
                unread,
                wait: None,
                unreadable: unreadable
                    .iter()
                    .map(|text| UnreadableRow {
                        at: Some(at(text)),
                        reason: UnreadableReason::MissingAmount,
                    })
                    .collect(),
            };
        let plan = settings.plan(now, &before, 0);
        let left = unread_to(day("14"));
        let stopped = settings.next_state(
            now,
            &before,
            &plan,
            &pulled(Some("19"), left.clone(), &[]),
            now,
        );
        let expected = SyncState {
            sequence: 2,
            synced_at: Some(now),
            covered_from: Some(plan.from),
            newest_row_at: Some(day("19")),
            reread_from: None,
            unread: left,
            removal_hints: vec![Digest([1; 16])],
            change_version: 9,
            unreadable: None,
            next_at: Some(now),
            attempts: 0,
            last_error: None,
            ..before.clone()
        };
        assert_eq!(stopped, expected, "a new sync");

        // An account returns, and a row becomes unreadable, while the sync is not complete.
        let stopped = SyncState {
            reread_from: Some(day("11")),
            unreadable: Some(unreadable_since(day("15"))),
            ..stopped
        };
        let plan = settings.plan(later, &stopped, 0);
        let found = pulled(
            None,
            None,
            &["2026-11-13T20:00:00Z", "2026-11-13T09:00:00Z"],
        );
        let complete = settings.next_state(later, &stopped, &plan, &found, plan.next_sync_at);
        let oldest = UnreadableRows {
            count: 3,
            reason: "missing_amount".to_owned(),
            since: day("13"),
        };
        let next_at = Some(plan.next_sync_at);
        let expected = SyncState {
            unread: None,
            unreadable: Some(oldest),
            next_at,
            ..stopped
        };
        assert_eq!(complete, expected, "the rest of it");
    }

    prop_compose! {
        /// Times of a connection's syncs, in any order that clocks and settings allow.
        fn states()(
            linked in 0..9_999_999_i64,
            began in 0..9_999_999_i64,
            synced in proptest::option::of(0..9_999_999_i64),
            covered in -9_999_999..9_999_999_i64,
            newest in proptest::option::of(-9_999_999..9_999_999_i64),
            unreadable in proptest::option::of(-9_999_999..9_999_999_i64),
        ) -> SyncState {
            let time = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
            SyncState {
                linked_at: time(linked),
                rows_backfill_began_at: time(linked.max(began)),
                synced_at: synced.map(time),
                covered_from: synced.map(|synced| time(covered.min(synced))),
                newest_row_at: newest.map(time),
                unreadable: unreadable.map(time).map(unreadable_since),
                ..state(None, None)
            }
        }
    }

    /// With which the next sync is an interval away.
    fn phase_at(settings: SyncSettings, now: Timestamp) -> u64 {
        u64::try_from(now.as_microsecond()).unwrap()
            % u64::try_from(settings.interval.as_micros()).unwrap()
    }

    proptest! {
        /// No sync starts before the last range did or leaves out what may be missing, and a
        /// connection is synced again in a bounded time.
        #[test]
        fn plan_stays_in_bounds(state in states(), wait in 0..9_999_999_i64, phase: u64, notify_initial: bool) {
            let began = state.rows_backfill_began_at;
            let now = seconds_after(state.synced_at.map_or(began, |last| last.max(began)), wait);
            let settings = SyncSettings { notify_initial, ..SyncSettings::default() };
            let plan = settings.plan(now, &state, phase);
            let covered_from = state.covered_from.unwrap_or(Timestamp::MIN);
            prop_assert!(plan.from <= now && plan.from >= covered_from && plan.to == now);
            if let Some(synced_at) = state.synced_at {
                prop_assert!(plan.from <= synced_at.minus(settings.overlap).max(covered_from), "a week overlaps");
                let held_from = synced_at.minus(HELD_MAX);
                let unreadable_since = state.unreadable.as_ref().map(|rows| rows.since);
                for missing in [state.newest_row_at, unreadable_since].into_iter().flatten() {
                    prop_assert!(plan.from <= missing.max(held_from).max(covered_from), "nothing is left out");
                }
                let is_held = plan.from == covered_from;
                prop_assert!(is_held || plan.from >= held_from.minus(settings.overlap), "bounded");
            }
            prop_assert!(plan.next_sync_at > now && plan.next_sync_at <= settings.next_sync_at(now, phase));
            prop_assert!(plan.retry_if_empty_at.is_none_or(|retry| retry > now && retry <= plan.next_sync_at));
        }

        #[test]
        fn each_run_leaves_less(to in 1..9_999_999_i64, before in 1..9_999_999_i64) {
            let time = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
            let left = SyncSettings::unread_to(time(to), time(to - before));
            prop_assert!(left < time(to) && left >= time(to - before));
        }

        #[test]
        fn next_sync_is_at_a_time_of_the_connection(phase: u64, seconds in 1_u32..1_000_000, late in 0..900_000_i64) {
            let settings = SyncSettings { interval: Duration::from_secs(seconds.into()), ..SyncSettings::default() };
            let now = at("2026-11-20T09:30:00Z");
            let next = settings.next_sync_at(now, phase);
            let wait = next.duration_since(now).as_micros();
            let interval = i128::from(seconds) * 1_000_000;
            prop_assert!((interval / 2..=interval * 3 / 2).contains(&wait), "{wait}");
            // However late a sync runs, the one after it is at a time of the connection again.
            let later = settings.next_sync_at(next.plus(Duration::from_millis(late.unsigned_abs())), phase);
            prop_assert_eq!(later.duration_since(next).as_micros() % interval, 0);
        }
    }

    /// After two hours in which nothing ran, the load of each tenth of an interval is the mean
    /// again.
    #[test]
    fn load_is_even_after_an_outage() {
        let settings = SyncSettings::default();
        let (end, interval) = (at("2026-11-20T09:30:00Z"), settings.interval);
        let phases = (0..20_000_u64).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut tenths = [0_u32; 10];
        for phase in phases {
            // All that fell due during the outage run at its end.
            let before = settings.next_sync_at(
                end.minus(SignedDuration::try_from(interval).unwrap()),
                phase,
            );
            let ran = before.max(end);
            let second = settings.next_sync_at(settings.next_sync_at(ran, phase), phase);
            let from = second.duration_since(end).as_micros().unsigned_abs() % interval.as_micros();
            tenths[usize::try_from(from * 10 / interval.as_micros()).unwrap()] += 1;
        }
        assert!(
            tenths.iter().all(|count| (1_900..2_100).contains(count)),
            "{tenths:?}"
        );
    }
}
