//! Plans a sync: the date range that it reads, and the time of the next one. Pure.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use bellbird_limits::jitter::jittered;
use jiff::{SignedDuration, Timestamp};

use crate::schedule;

/// Delay before the next sync of a connection that was linked recently and has no rows yet.
const EMPTY_FIRST_SYNC_RETRY: Duration = Duration::from_secs(600);
/// Backfill window of rows after linking: for this long, every sync reads the range of the first one, and a sync
/// without any row does not count as the first. Accounts have a shorter one, [`schedule::BACKFILL_SECONDS`].
///
/// With `announce_first` off, only the first sync reads that range, because a second one would report its late rows.
const LINKING_WINDOW: SignedDuration = SignedDuration::from_hours(1);
/// Backfill window after a gap: a renewal, or the first rows after a silence. The range starts where it did before.
const GAP_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// How far before the last sync a silence, or a row that cannot be read, can hold the start of the range. So a
/// connection that rarely has rows is read at most this far back, and there is little to read.
const HELD_MAX: SignedDuration = SignedDuration::from_hours(90 * 24);
/// A run that stopped early may have read a few rows out of order, so the next one reads this much again.
const CONTINUED_OVERLAP: SignedDuration = SignedDuration::from_hours(24);

/// Fingerprints are kept this much longer than a date range can reach back: clocks differ, and so do the time zones in
/// which providers count days.
const PRUNE_MARGIN: SignedDuration = SignedDuration::from_hours(48);

/// When connections are synced, and how far back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSettings {
    /// Whether instances sync on a schedule and after provider events.
    pub enabled: bool,
    /// Time between two syncs, before jitter.
    pub interval: Duration,
    /// How far before the previous sync a sync starts to read.
    pub overlap: Duration,
    /// How far back the first sync reads.
    pub first: Duration,
    /// Whether the rows of the first sync become webhook events. Otherwise only their fingerprints are stored.
    pub announce_first: bool,
    /// A run begins no further page or account after this time. The next run continues.
    pub run_time: Duration,
}

impl Default for SyncSettings {
    fn default() -> Self {
        const DAY: u64 = 86_400;
        Self {
            enabled: true,
            interval: Duration::from_secs(DAY / 4),
            overlap: Duration::from_secs(7 * DAY),
            first: Duration::from_secs(30 * DAY),
            announce_first: true,
            run_time: Duration::from_secs(480),
        }
    }
}

/// What a connection's syncs have done so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyncHistory {
    /// When the connection was linked.
    pub(crate) linked_at: Timestamp,
    /// When it was linked or renewed last, or when a silence ended.
    pub(crate) backfill_began_at: Timestamp,
    pub(crate) synced_at: Option<Timestamp>,
    /// The start of the last date range.
    pub(crate) covered_from: Option<Timestamp>,
    /// The newest row that was read.
    pub(crate) newest_row_at: Option<Timestamp>,
    /// The last sync has not read its date range up to this time.
    pub(crate) unread_to: Option<Timestamp>,
    /// The oldest row that cannot be read.
    pub(crate) unreadable_since: Option<Timestamp>,
    /// Since when an account is missing from the provider's list.
    pub(crate) missing_since: Option<Timestamp>,
    /// Since when an account was missing that is listed again. No sync has read its rows since.
    pub(crate) absent_since: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncPlan {
    /// The date range.
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Fingerprints of rows from this time on are kept.
    pub(crate) kept_from: Timestamp,
    /// Whether the run reads what the one before it has left.
    pub(crate) continues: bool,
    pub(crate) next_sync_at: Timestamp,
    /// When to sync again if no row is found. Such a sync does not count as the first, because rows may be late.
    pub(crate) retry_if_empty_at: Option<Timestamp>,
}

impl SyncSettings {
    pub(crate) fn plan(&self, now: Timestamp, history: SyncHistory, jitter: u64) -> SyncPlan {
        let SyncHistory { backfill_began_at, synced_at, covered_from, unread_to, .. } = history;
        let rows_may_be_late = now.duration_since(backfill_began_at) < LINKING_WINDOW;
        // An earlier sync must not replace the scheduled one, when all rows should be there.
        let scheduled = Some(schedule::first_sync_at(backfill_began_at)).filter(|scheduled| now < *scheduled);
        let next_sync_at = self.next_sync_at(now, jitter);
        let next_sync_at = scheduled.map_or(next_sync_at, |scheduled| scheduled.min(next_sync_at));
        let retry_at = now.plus(EMPTY_FIRST_SYNC_RETRY).min(next_sync_at);
        let unread = covered_from.zip(unread_to);
        // An account that is listed again is read from its absence on. Until then its fingerprints are kept.
        let or_absence = |from: Timestamp, since: Option<Timestamp>| {
            since.map_or(from, |since| from.min(self.range_start_of_absence(since, history.linked_at)))
        };
        let (from, to) =
            unread.unwrap_or_else(|| (or_absence(self.range_start(now, history), history.absent_since), now));
        SyncPlan {
            from,
            to,
            kept_from: or_absence(or_absence(from, history.absent_since), history.missing_since),
            continues: unread.is_some(),
            next_sync_at,
            retry_if_empty_at: (rows_may_be_late && synced_at.is_none()).then_some(retry_at),
        }
    }

    /// Returns the oldest instant that a sync at `now` reads.
    ///
    /// It goes back from the newest row that was read, because the provider may have had no data since. It is never
    /// before the start of the previous date range (`covered_from`). Fingerprints of older rows may have been deleted,
    /// and such rows would be reported as new.
    fn range_start(&self, now: Timestamp, history: SyncHistory) -> Timestamp {
        // A value in the future comes from a wrong clock. It would hide all rows until that time.
        let covered_from = history.covered_from.filter(|covered| *covered <= now);
        let Some(synced_at) = history.synced_at.map(|synced| synced.min(now)) else {
            let from = now.minus(self.first);
            return covered_from.map_or(from, |covered| from.max(covered));
        };
        let held_from = synced_at.minus(HELD_MAX);
        let newest = match history.newest_row_at {
            Some(newest) => newest.min(synced_at),
            None if self.announce_first => held_from,
            None => history.linked_at.min(synced_at),
        };
        let mut from = newest.max(held_from).minus(self.overlap);
        if let Some(unreadable) = history.unreadable_since {
            from = from.min(unreadable.max(held_from));
        }
        match covered_from {
            Some(covered) if self.is_backfilling(now, history) => covered,
            Some(covered) => from.max(covered),
            None => from,
        }
    }

    /// Whether rows of the previous date range may still be late.
    fn is_backfilling(&self, now: Timestamp, history: SyncHistory) -> bool {
        let is_linking = history.backfill_began_at <= history.linked_at;
        let window = if is_linking { LINKING_WINDOW } else { GAP_WINDOW };
        (self.announce_first || !is_linking) && now.duration_since(history.backfill_began_at) < window
    }

    /// When the present backfill began, after a sync at `now` that read rows up to `newest`. It begins anew with the
    /// first rows after a silence, since older ones may follow.
    pub(crate) fn backfill_after(&self, now: Timestamp, history: SyncHistory, newest: Option<Timestamp>) -> Timestamp {
        let (Some(_), Some(newest)) = (history.synced_at, newest) else { return history.backfill_began_at };
        let was_silent = match history.newest_row_at {
            Some(before) => newest.duration_since(before) > self.overlap_duration(),
            None => self.announce_first,
        };
        if was_silent { now } else { history.backfill_began_at }
    }

    fn overlap_duration(&self) -> SignedDuration {
        SignedDuration::try_from(self.overlap).unwrap_or(SignedDuration::MAX)
    }

    /// The end of what is left to read, after a run up to `to` stopped before a row at `stopped_at`, which is before
    /// `to`.
    pub(crate) fn unread_to(to: Timestamp, stopped_at: Timestamp) -> Timestamp {
        let again = stopped_at.plus(CONTINUED_OVERLAP);
        // Each run has to leave less than the one before.
        if again.plus(CONTINUED_OVERLAP) < to { again } else { stopped_at }
    }

    /// Returns the oldest instant to read when an account that was missing `since` then is listed again: no sync has
    /// read its rows meanwhile. Never before the start of the first sync's range.
    fn range_start_of_absence(&self, since: Timestamp, linked_at: Timestamp) -> Timestamp {
        since.minus(self.overlap).max(linked_at.minus(self.first))
    }

    /// Fingerprints last seen before the returned instant can be deleted: no later date range reaches back so far.
    pub fn prune_before(from: Timestamp) -> Timestamp {
        from.minus(PRUNE_MARGIN)
    }

    /// Returns the time of the next sync.
    ///
    /// `jitter` moves it by up to a tenth of the interval in either direction, so that connections linked together are
    /// not synced together for ever.
    pub fn next_sync_at(&self, now: Timestamp, jitter: u64) -> Timestamp {
        now.plus(jittered(self.interval * 9 / 10, self.interval / 5, jitter))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    const HOUR: i64 = 3_600;
    const DAY: i64 = 24 * HOUR;

    fn seconds_after(start: Timestamp, seconds: i64) -> Timestamp {
        start.saturating_add(SignedDuration::from_secs(seconds)).unwrap()
    }

    /// A connection that was linked years ago, and has had rows until its last sync.
    fn history(synced_at: Option<&str>, covered_from: Option<&str>) -> SyncHistory {
        SyncHistory {
            linked_at: at("2020-01-01T00:00:00Z"),
            backfill_began_at: at("2020-01-01T00:00:00Z"),
            synced_at: synced_at.map(at),
            covered_from: covered_from.map(at),
            newest_row_at: synced_at.map(at),
            unread_to: None,
            unreadable_since: None,
            missing_since: None,
            absent_since: None,
        }
    }

    #[test]
    fn range_starts() {
        let settings = SyncSettings::default();
        let now = at("2026-11-20T09:30:00Z");
        for (synced_at, covered_from, from) in [
            (None, None, "2026-10-21T09:30:00Z"),
            // The first sync was six hours ago.
            (Some("2026-11-20T03:30:00Z"), Some("2026-10-21T03:30:00Z"), "2026-11-13T03:30:00Z"),
            // The overlap was made longer: rows with deleted fingerprints would be reported as new.
            (Some("2026-11-20T03:30:00Z"), Some("2026-11-18T03:30:00Z"), "2026-11-18T03:30:00Z"),
            // The consent was inactive for three months.
            (Some("2026-08-20T00:00:00Z"), Some("2026-08-13T00:00:00Z"), "2026-08-13T00:00:00Z"),
            // A clock that was wrong.
            (Some("2027-01-01T00:00:00Z"), Some("2026-12-25T00:00:00Z"), "2026-11-13T09:30:00Z"),
            (Some("2027-01-01T00:00:00Z"), None, "2026-11-13T09:30:00Z"),
        ] {
            assert_eq!(settings.range_start(now, history(synced_at, covered_from)), at(from), "{synced_at:?}");
        }
    }

    #[test]
    fn range_is_held_by_what_is_missing() {
        let now = at("2026-11-20T00:00:00Z");
        let settings = SyncSettings::default();
        let quiet = SyncSettings { announce_first: false, ..settings };
        let last = SyncHistory {
            newest_row_at: Some(at("2026-11-19T00:00:00Z")),
            ..history(Some("2026-11-19T12:00:00Z"), Some("2025-01-01T00:00:00Z"))
        };
        let newest = |text: &str| SyncHistory { newest_row_at: Some(at(text)), ..last };
        let began = |text: &str| SyncHistory { backfill_began_at: at(text), ..last };
        let unreadable = |text: &str| SyncHistory { unreadable_since: Some(at(text)), ..last };
        let no_rows = SyncHistory { newest_row_at: None, linked_at: at("2026-11-10T00:00:00Z"), ..last };
        for (sentence, settings, history, from) in [
            ("a week before the newest row", settings, last, "2026-11-12T00:00:00Z"),
            ("which may be old", settings, newest("2026-10-19T00:00:00Z"), "2026-10-12T00:00:00Z"),
            ("but only so old", settings, newest("2026-01-01T00:00:00Z"), "2026-08-14T12:00:00Z"),
            ("without any row", settings, no_rows, "2026-08-14T12:00:00Z"),
            ("a silent first sync reports no row before it", quiet, no_rows, "2026-11-03T00:00:00Z"),
            ("a day after a gap", settings, began("2026-11-19T00:00:01Z"), "2025-01-01T00:00:00Z"),
            ("also without a first report", quiet, began("2026-11-19T00:00:01Z"), "2025-01-01T00:00:00Z"),
            ("not longer", settings, began("2026-11-19T00:00:00Z"), "2026-11-12T00:00:00Z"),
            ("an unreadable row", settings, unreadable("2026-10-10T00:00:00Z"), "2026-10-10T00:00:00Z"),
            ("one in the usual range", settings, unreadable("2026-11-18T00:00:00Z"), "2026-11-12T00:00:00Z"),
            ("not for ever", settings, unreadable("2026-01-01T00:00:00Z"), "2026-08-21T12:00:00Z"),
        ] {
            assert_eq!(settings.range_start(now, history), at(from), "{sentence}");
        }
    }

    #[test]
    fn silence_ends_with_a_row() {
        let now = at("2026-11-20T00:00:00Z");
        let settings = SyncSettings::default();
        let known = history(Some("2026-11-19T12:00:00Z"), Some("2026-11-01T00:00:00Z"));
        let began = known.backfill_began_at;
        let newest = |text: &str| SyncHistory { newest_row_at: Some(at(text)), ..known };
        for (sentence, history, read, expected) in [
            ("a row a week later", newest("2026-11-12T00:00:00Z"), Some("2026-11-19T00:00:00Z"), began),
            ("more than a week later", newest("2026-11-11T00:00:00Z"), Some("2026-11-19T00:00:00Z"), now),
            ("no row", newest("2026-11-01T00:00:00Z"), None, began),
            ("the first sync", SyncHistory { synced_at: None, ..known }, Some("2026-11-19T00:00:00Z"), began),
            ("the first row", SyncHistory { newest_row_at: None, ..known }, Some("2026-11-19T00:00:00Z"), now),
        ] {
            assert_eq!(settings.backfill_after(now, history, read.map(at)), expected, "{sentence}");
        }
    }

    #[test]
    fn plans() {
        let linked_at = at("2026-11-20T00:00:00Z");
        let later = |seconds: i64| seconds_after(linked_at, seconds);
        let settings = SyncSettings::default();
        let quiet = SyncSettings { announce_first: false, ..settings };
        // Seconds after linking: now, the last sync, the start of the range, the next sync, the retry if empty.
        for (sentence, settings, now, last, from, next, retry) in [
            ("an early sync leaves the scheduled first one", settings, 60, None, 60 - 30 * DAY, 600, Some(600)),
            ("rows may be late for an hour", settings, 600, None, 600 - 30 * DAY, 6 * HOUR + 600, Some(1_200)),
            ("after that, no rows means that there are none", settings, HOUR, None, HOUR - 30 * DAY, 7 * HOUR, None),
            ("it stays the range of the first", settings, 1_200, Some(600), 600 - 30 * DAY, 6 * HOUR + 1_200, None),
            ("unless late rows would be reported", quiet, 1_200, Some(600), 600 - 7 * DAY, 6 * HOUR + 1_200, None),
            ("later the range overlaps the last", settings, 9 * HOUR, Some(600), 600 - 7 * DAY, 15 * HOUR, None),
        ] {
            let history = SyncHistory {
                linked_at,
                backfill_began_at: linked_at,
                synced_at: last.map(later),
                covered_from: last.map(|last| later(last - 30 * DAY)),
                newest_row_at: last.map(later),
                ..history(None, None)
            };
            // A jitter of 1,000 leaves the interval as it is.
            let plan = settings.plan(later(now), history, 1_000);
            let expected = SyncPlan {
                from: later(from),
                to: later(now),
                kept_from: later(from),
                continues: false,
                next_sync_at: later(next),
                retry_if_empty_at: retry.map(later),
            };
            assert_eq!(plan, expected, "{sentence}");
            let unread_to = Some(later(-DAY));
            let continued = settings.plan(later(now), SyncHistory { unread_to, ..history }, 1_000);
            let (range, covered) = ((continued.from, continued.to), history.covered_from);
            assert_eq!(continued.continues, last.is_some(), "{sentence}");
            assert!(!continued.continues || range == (covered.unwrap(), later(-DAY)), "{sentence}");
        }
    }

    #[test]
    fn account_that_returns_is_read_from_its_absence_on() {
        let (settings, now) = (SyncSettings::default(), at("2026-11-20T00:00:00Z"));
        let last = history(Some("2026-11-19T12:00:00Z"), Some("2026-11-12T12:00:00Z"));
        let since = Some(at("2026-11-01T00:00:00Z"));
        let week_before = at("2026-10-25T00:00:00Z");
        let missing = settings.plan(now, SyncHistory { missing_since: since, ..last }, 1_000);
        assert_eq!((missing.from, missing.kept_from), (at("2026-11-12T12:00:00Z"), week_before));
        let returned = SyncHistory { absent_since: since, ..last };
        let plan = settings.plan(now, returned, 1_000);
        assert_eq!((plan.from, plan.kept_from), (week_before, week_before));
        // What a run has left is read first.
        let unread_to = Some(at("2026-11-14T00:00:00Z"));
        let continued = settings.plan(now, SyncHistory { unread_to, ..returned }, 1_000);
        assert_eq!((continued.from, continued.kept_from), (at("2026-11-12T12:00:00Z"), week_before));
        let linked_at = at("2026-11-10T00:00:00Z");
        assert_eq!(
            settings.plan(now, SyncHistory { linked_at, absent_since: Some(linked_at), ..last }, 1_000).from,
            at("2026-11-03T00:00:00Z"),
        );
    }

    prop_compose! {
        /// Times of a connection's syncs, in any order that clocks and settings allow.
        fn histories()(
            linked in 0..9_999_999_i64,
            began in 0..9_999_999_i64,
            synced in proptest::option::of(0..9_999_999_i64),
            covered in -9_999_999..9_999_999_i64,
            newest in proptest::option::of(-9_999_999..9_999_999_i64),
            unreadable in proptest::option::of(-9_999_999..9_999_999_i64),
        ) -> SyncHistory {
            let time = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
            SyncHistory {
                linked_at: time(linked),
                backfill_began_at: time(linked.max(began)),
                synced_at: synced.map(time),
                covered_from: synced.map(|synced| time(covered.min(synced))),
                newest_row_at: newest.map(time),
                unread_to: None,
                unreadable_since: unreadable.map(time),
                missing_since: None,
                absent_since: None,
            }
        }
    }

    proptest! {
        /// No sync starts before the last range did or leaves out what may be missing, and a connection is synced
        /// again in a bounded time.
        #[test]
        fn plan_stays_in_bounds(history in histories(), wait in 0..9_999_999_i64, jitter: u64, announce_first: bool) {
            let began = history.backfill_began_at;
            let now = seconds_after(history.synced_at.map_or(began, |last| last.max(began)), wait);
            let settings = SyncSettings { announce_first, ..SyncSettings::default() };
            let plan = settings.plan(now, history, jitter);
            let covered_from = history.covered_from.unwrap_or(Timestamp::MIN);
            prop_assert!(plan.from <= now && plan.from >= covered_from && plan.to == now);
            if let Some(synced_at) = history.synced_at {
                prop_assert!(plan.from <= synced_at.minus(settings.overlap).max(covered_from), "a week overlaps");
                let held_from = synced_at.minus(HELD_MAX);
                for missing in [history.newest_row_at, history.unreadable_since].into_iter().flatten() {
                    prop_assert!(plan.from <= missing.max(held_from).max(covered_from), "nothing is left out");
                }
                let is_held = plan.from == covered_from;
                prop_assert!(is_held || plan.from >= held_from.minus(settings.overlap), "bounded");
            }
            prop_assert!(plan.next_sync_at > now && plan.next_sync_at <= settings.next_sync_at(now, jitter));
            prop_assert!(plan.retry_if_empty_at.is_none_or(|retry| retry > now && retry <= plan.next_sync_at));
        }

        #[test]
        fn each_run_leaves_less(to in 1..9_999_999_i64, before in 1..9_999_999_i64) {
            let time = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
            let left = SyncSettings::unread_to(time(to), time(to - before));
            prop_assert!(left < time(to) && left >= time(to - before));
        }

        #[test]
        fn next_sync_is_within_a_tenth_of_the_interval(jitter: u64, seconds in 1_u32..1_000_000) {
            let settings = SyncSettings { interval: Duration::from_secs(seconds.into()), ..SyncSettings::default() };
            let now = at("2026-11-20T09:30:00Z");
            let wait = settings.next_sync_at(now, jitter).duration_since(now).as_millis();
            let interval = i128::from(seconds) * 1_000;
            prop_assert!(wait >= interval * 9 / 10 - 1 && wait <= interval * 11 / 10 + 1, "{wait}");
        }
    }
}
