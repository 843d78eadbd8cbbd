//! When connections are synced. Pure.

use std::time::Duration;

use bellbird_domain::{ConnectionId, TimestampExt as _};
use jiff::Timestamp;

use crate::sync_settings::SyncSettings;

impl SyncSettings {
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

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use proptest::prelude::*;

    use super::*;
    use crate::sync::fixtures::at;

    proptest! {
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
