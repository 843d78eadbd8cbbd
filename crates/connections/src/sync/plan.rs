//! Plans a run of a sync from what is known: the date range that it reads. Pure.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use bellbird_storage::SyncState;
use jiff::{SignedDuration, Timestamp};

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
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::sync::fixtures::{at, state, unread_to, unreadable_since};

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;

    fn seconds_after(start: Timestamp, seconds: i64) -> Timestamp {
        start
            .saturating_add(SignedDuration::from_secs(seconds))
            .unwrap()
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
            let start = settings.range_start(now, &state(synced_at, covered_from));
            assert_eq!(start, at(from), "{synced_at:?}");
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
        for (sentence, (settings, state), from) in [
            (
                "a week before the newest row",
                (settings, last.clone()),
                "2026-11-12T00:00:00Z",
            ),
            (
                "which may be old",
                (settings, newest("2026-10-19T00:00:00Z")),
                "2026-10-12T00:00:00Z",
            ),
            (
                "but only so old",
                (settings, newest("2026-01-01T00:00:00Z")),
                "2026-08-14T12:00:00Z",
            ),
            (
                "without any row",
                (settings, no_rows.clone()),
                "2026-08-14T12:00:00Z",
            ),
            (
                "a first sync that notified nobody reports no row before it",
                (quiet, no_rows),
                "2026-11-03T00:00:00Z",
            ),
            (
                "a day after a gap",
                (settings, began("2026-11-19T00:00:01Z")),
                "2025-01-01T00:00:00Z",
            ),
            (
                "also without a first report",
                (quiet, began("2026-11-19T00:00:01Z")),
                "2025-01-01T00:00:00Z",
            ),
            (
                "not longer",
                (settings, began("2026-11-19T00:00:00Z")),
                "2026-11-12T00:00:00Z",
            ),
            (
                "an unreadable row",
                (settings, unreadable("2026-10-10T00:00:00Z")),
                "2026-10-10T00:00:00Z",
            ),
            (
                "one in the usual range",
                (settings, unreadable("2026-11-18T00:00:00Z")),
                "2026-11-12T00:00:00Z",
            ),
            (
                "not forever",
                (settings, unreadable("2026-01-01T00:00:00Z")),
                "2026-08-21T12:00:00Z",
            ),
        ] {
            assert_eq!(settings.range_start(now, &state), at(from), "{sentence}");
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
        for (sentence, (settings, now, last), (from, next, retry)) in [
            (
                "an early sync leaves the scheduled first one",
                (settings, 60, None),
                (60 - 30 * DAY, 600, Some(600)),
            ),
            (
                "rows may be late for an hour",
                (settings, 600, None),
                (600 - 30 * DAY, 6 * HOUR + 600, Some(1_200)),
            ),
            (
                "after that, no rows means that there are none",
                (settings, HOUR, None),
                (HOUR - 30 * DAY, 7 * HOUR, None),
            ),
            (
                "it stays the range of the first",
                (settings, 1_200, Some(600)),
                (600 - 30 * DAY, 6 * HOUR + 1_200, None),
            ),
            (
                "unless late rows would be reported",
                (quiet, 1_200, Some(600)),
                (600 - 7 * DAY, 6 * HOUR + 1_200, None),
            ),
            (
                "later the range overlaps the last",
                (settings, 9 * HOUR, Some(600)),
                (600 - 7 * DAY, 15 * HOUR, None),
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
        let range = (missing.from, missing.kept_from);
        assert_eq!(range, (at("2026-11-12T12:00:00Z"), week_before));
        let returned = SyncState {
            reread_from: since,
            ..last.clone()
        };
        let plan = settings.plan(now, &returned, 0);
        assert_eq!((plan.from, plan.kept_from), (week_before, week_before));
        // What a run has left is read first.
        let unread = unread_to(at("2026-11-14T00:00:00Z"));
        let continued = settings.plan(now, &SyncState { unread, ..returned }, 0);
        let range = (continued.from, continued.kept_from);
        assert_eq!(range, (at("2026-11-12T12:00:00Z"), week_before));
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

    }
}
