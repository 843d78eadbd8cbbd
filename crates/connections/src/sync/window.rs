//! Which days a sync reads, and when the next one is. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// Clocks differ, and days begin at other moments elsewhere: a mark is kept so much longer than a window can reach.
const PRUNED_AFTER: SignedDuration = SignedDuration::from_hours(48);

/// When a sync reads, and how far back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SyncSettings {
    /// Whether a running service syncs by itself.
    pub enabled: bool,
    /// From one sync to the next, but for the spread.
    pub interval: Duration,
    /// What is read again of what the last sync has read.
    pub overlap: Duration,
    /// What the first sync reads.
    pub first: Duration,
    /// Whether what the first sync finds is told; else it is only remembered.
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
    /// The oldest instant that a sync at `now` reads. It never lies before that of the sync before (`covered_from`): what
    /// is older was seen, and perhaps forgotten, and would look new.
    #[must_use]
    pub fn from(&self, now: Timestamp, synced_at: Option<Timestamp>, covered_from: Option<Timestamp>) -> Timestamp {
        let back = |from: Timestamp, time: Duration| from.saturating_sub(time).unwrap_or(Timestamp::MIN);
        let from = synced_at.map_or_else(|| back(now, self.first), |last| back(last.min(now), self.overlap));
        // A clock that was wrong must not keep rows from being read until then.
        let covered_from = covered_from.filter(|covered| *covered <= now);
        covered_from.map_or(from, |covered| from.max(covered))
    }

    /// The end of what is forgotten: no window reaches there any more.
    #[must_use]
    pub fn prune_before(from: Timestamp) -> Timestamp {
        from.saturating_sub(PRUNED_AFTER).unwrap_or(Timestamp::MIN)
    }

    /// When the next sync is due: a tenth of the interval earlier or later, decided by `spread`, so that what was linked
    /// together is not synced together for ever.
    #[must_use]
    pub fn next(&self, now: Timestamp, spread: u64) -> Timestamp {
        let part = u32::try_from(spread % 2_001).unwrap_or_default();
        let wait = self.interval * 9 / 10 + self.interval / 10 * part / 1_000;
        now.saturating_add(wait).unwrap_or(Timestamp::MAX)
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
    fn windows() {
        let settings = SyncSettings::default();
        let now = at("2026-11-20T09:30:00Z");
        for (synced_at, covered_from, from) in [
            (None, None, "2026-10-21T09:30:00Z"),
            // A sync six hours ago, the first one.
            (Some("2026-11-20T03:30:00Z"), Some("2026-10-21T03:30:00Z"), "2026-11-13T03:30:00Z"),
            // The overlap was made longer: what was pruned would look new.
            (Some("2026-11-20T03:30:00Z"), Some("2026-11-18T03:30:00Z"), "2026-11-18T03:30:00Z"),
            // The consent was gone for three months.
            (Some("2026-08-20T00:00:00Z"), Some("2026-08-13T00:00:00Z"), "2026-08-13T00:00:00Z"),
            // A clock that was wrong.
            (Some("2027-01-01T00:00:00Z"), Some("2026-12-25T00:00:00Z"), "2026-11-13T09:30:00Z"),
            (Some("2027-01-01T00:00:00Z"), None, "2026-11-13T09:30:00Z"),
        ] {
            assert_eq!(settings.from(now, synced_at.map(at), covered_from.map(at)), at(from), "{synced_at:?}");
        }
    }

    proptest! {
        #[test]
        fn the_next_one_is_a_tenth_around_the_interval(spread: u64, seconds in 1_u32..1_000_000) {
            let settings = SyncSettings { interval: Duration::from_secs(seconds.into()), ..SyncSettings::default() };
            let now = at("2026-11-20T09:30:00Z");
            let wait = settings.next(now, spread).duration_since(now).as_millis();
            let interval = i128::from(seconds) * 1_000;
            prop_assert!(wait >= interval * 9 / 10 - 1 && wait <= interval * 11 / 10 + 1, "{wait}");
        }
    }
}
