//! Computes the date range that a sync reads, and the time of the next sync. Pure.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use jiff::{SignedDuration, Timestamp};

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

impl SyncSettings {
    /// Returns the oldest instant that a sync at `now` reads.
    ///
    /// It is never before the start of the previous date range (`covered_from`). Fingerprints of older rows may have
    /// been deleted, and such rows would be reported as new.
    #[must_use]
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

    /// Fingerprints last seen before the returned instant can be deleted: no later date range reaches back so far.
    #[must_use]
    pub fn prune_before(from: Timestamp) -> Timestamp {
        from.minus(PRUNE_MARGIN)
    }

    /// Returns the time of the next sync.
    ///
    /// `jitter` moves it by up to a tenth of the interval in either direction, so that connections linked together are
    /// not synced together for ever.
    #[must_use]
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

    proptest! {
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
