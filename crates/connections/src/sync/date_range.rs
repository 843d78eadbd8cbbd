//! Plans a sync: the date range that it reads, and the time of the next one. Pure.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use jiff::{SignedDuration, Timestamp};

use crate::schedule;

/// Delay before the next sync of a connection that was linked recently and has no rows yet.
const EMPTY_FIRST_SYNC_RETRY: Duration = Duration::from_secs(600);
/// Backfill window of rows: for this long after linking, every sync reads the range of the first one, and a sync
/// without any row does not count as the first. Accounts have a shorter one, [`schedule::BACKFILL_SECONDS`].
///
/// With `announce_first` off, only the first sync reads that range, because a second one would report its late rows.
const ROWS_BACKFILL_WINDOW: SignedDuration = SignedDuration::from_hours(1);

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
        }
    }
}

/// What a connection's syncs have done so far.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SyncHistory {
    /// When the connection was linked.
    pub(crate) linked_at: Timestamp,
    pub(crate) synced_at: Option<Timestamp>,
    /// The start of the last date range.
    pub(crate) covered_from: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncPlan {
    /// The start of the date range, which ends now.
    pub(crate) from: Timestamp,
    pub(crate) next_sync_at: Timestamp,
    /// When to sync again if no row is found. Such a sync does not count as the first, because rows may be late.
    pub(crate) retry_if_empty_at: Option<Timestamp>,
}

impl SyncSettings {
    pub(crate) fn plan(&self, now: Timestamp, history: SyncHistory, jitter: u64) -> SyncPlan {
        let SyncHistory { linked_at, synced_at, covered_from } = history;
        let rows_may_be_late = now.duration_since(linked_at) < ROWS_BACKFILL_WINDOW;
        let reads_first_range = rows_may_be_late && self.announce_first;
        // An earlier sync must not replace the scheduled first one, when all rows should be there.
        let first_sync_at = Some(schedule::first_sync_at(linked_at)).filter(|first| now < *first);
        let next_sync_at = self.next_sync_at(now, jitter);
        let next_sync_at = first_sync_at.map_or(next_sync_at, |first| first.min(next_sync_at));
        let retry_at = now.plus(EMPTY_FIRST_SYNC_RETRY).min(next_sync_at);
        SyncPlan {
            from: self.range_start(now, synced_at.filter(|_| !reads_first_range), covered_from),
            next_sync_at,
            retry_if_empty_at: (rows_may_be_late && synced_at.is_none()).then_some(retry_at),
        }
    }

    /// Returns the oldest instant that a sync at `now` reads.
    ///
    /// It is never before the start of the previous date range (`covered_from`). Fingerprints of older rows may have
    /// been deleted, and such rows would be reported as new.
    pub fn range_start(
        &self,
        now: Timestamp,
        synced_at: Option<Timestamp>,
        covered_from: Option<Timestamp>,
    ) -> Timestamp {
        let from = synced_at.map_or_else(|| now.minus(self.first), |last| last.min(now).minus(self.overlap));
        // A value in the future comes from a wrong clock. It would hide all rows until that time.
        let covered_from = covered_from.filter(|covered| *covered <= now);
        covered_from.map_or(from, |covered| from.max(covered))
    }

    /// Returns the oldest instant to read when an account that was missing `since` then is listed again: no sync has read
    /// its rows meanwhile. Never before the start of the first sync's range.
    pub(crate) fn range_start_of_absence(&self, since: Timestamp, linked_at: Timestamp) -> Timestamp {
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
        let part = u32::try_from(jitter % 2_001).unwrap_or_default();
        let wait = self.interval * 9 / 10 + self.interval / 10 * part / 1_000;
        now.plus(wait)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
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
            assert_eq!(settings.range_start(now, synced_at.map(at), covered_from.map(at)), at(from), "{synced_at:?}");
        }
    }

    #[test]
    fn plans() {
        let linked_at = at("2026-11-20T00:00:00Z");
        let later = |seconds: i64| linked_at.saturating_add(SignedDuration::from_secs(seconds)).unwrap();
        let settings = SyncSettings::default();
        let quiet = SyncSettings { announce_first: false, ..settings };
        const HOUR: i64 = 3_600;
        const DAY: i64 = 24 * HOUR;
        // Seconds after linking: now, the last sync, the start of the range, the next sync, the retry if empty.
        for (sentence, settings, now, last, from, next, retry) in [
            ("an early sync leaves the scheduled first one", settings, 60, None, 60 - 30 * DAY, 600, Some(600)),
            ("rows may be late for an hour", settings, 600, None, 600 - 30 * DAY, 6 * HOUR + 600, Some(1_200)),
            ("after that, no rows means that there are none", settings, HOUR, None, HOUR - 30 * DAY, 7 * HOUR, None),
            ("it stays the range of the first", settings, 1_200, Some(600), 1_200 - 30 * DAY, 6 * HOUR + 1_200, None),
            ("unless late rows would be reported", quiet, 1_200, Some(600), 600 - 7 * DAY, 6 * HOUR + 1_200, None),
            ("later the range overlaps the last", settings, 9 * HOUR, Some(600), 600 - 7 * DAY, 15 * HOUR, None),
        ] {
            let covered_from = last.map(|last| later(last - 30 * DAY));
            let history = SyncHistory { linked_at, synced_at: last.map(later), covered_from };
            // A jitter of 1,000 leaves the interval as it is.
            let plan = settings.plan(later(now), history, 1_000);
            let expected =
                SyncPlan { from: later(from), next_sync_at: later(next), retry_if_empty_at: retry.map(later) };
            assert_eq!(plan, expected, "{sentence}");
        }
    }

    proptest! {
        /// No sync starts before the last range did, and a connection is synced again in a bounded time.
        #[test]
        fn plan_stays_in_bounds(
            now in 0..9_999_999_i64,
            linked in 0..9_999_999_i64,
            last: bool,
            from: bool,
            jitter: u64,
            announce_first: bool,
        ) {
            let time = |seconds: i64| Timestamp::from_second(1_800_000_000 + seconds).unwrap();
            let (now, linked_at) = (time(now.max(linked)), time(linked));
            let covered_from = from.then(|| linked_at.saturating_sub(SignedDuration::from_hours(48)).unwrap());
            let history = SyncHistory { linked_at, synced_at: last.then_some(linked_at), covered_from };
            let settings = SyncSettings { announce_first, ..SyncSettings::default() };
            let plan = settings.plan(now, history, jitter);
            prop_assert!(plan.from <= now && covered_from.is_none_or(|covered| plan.from >= covered));
            prop_assert!(plan.next_sync_at > now && plan.next_sync_at <= settings.next_sync_at(now, jitter));
            prop_assert!(plan.retry_if_empty_at.is_none_or(|retry| retry > now && retry <= plan.next_sync_at));
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
