//! The days of a time zone, counted back from the day of the start.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan, civil};

/// Milliseconds per second.
pub(crate) const SECOND: i64 = 1000;
/// Milliseconds per hour.
pub(crate) const HOUR: i64 = 3600 * SECOND;
/// Milliseconds per day, except on days of clock changes.
pub(crate) const DAY: i64 = 24 * HOUR;

/// The midnights of recent years in one time zone.
pub(crate) struct Calendar {
    zone: TimeZone,
    today: civil::Date,
    /// Midnight of the day `index` days ago; index 0 is today.
    midnights: Vec<i64>,
    now: Timestamp,
}

impl Calendar {
    /// Sydney's days up to that of `now`.
    pub(crate) fn new(now: Timestamp, days: u32) -> Self {
        Self::in_zone("Australia/Sydney", now, days)
    }

    /// A zone's days up to that of `now`.
    pub(crate) fn in_zone(zone: &str, now: Timestamp, days: u32) -> Self {
        let zone = TimeZone::get(zone).expect("the time zone database is built in");
        let today = zone.to_datetime(now).date();
        let midnights = (0..=days)
            .map(|back| {
                let day = today.saturating_sub(i64::from(back).days());
                zone.to_timestamp(day.at(0, 0, 0, 0))
                    .unwrap_or(now)
                    .as_millisecond()
            })
            .collect();
        Self {
            zone,
            today,
            midnights,
            now,
        }
    }

    /// The instant `offset_ms` after the midnight of the day `back` days ago. It is clamped to that
    /// day, so that rows of yesterday are never in the future.
    pub(crate) fn instant(&self, back: u32, offset_ms: i64) -> i64 {
        let last = self.midnights.len() - 1;
        let index = (back as usize).clamp(1, last.max(1)).min(last);
        let end = if index == 0 {
            i64::MAX
        } else {
            self.midnights[index - 1] - SECOND
        };
        (self.midnights[index] + offset_ms).min(end)
    }

    /// The zone's offset from UTC at `instant` (milliseconds), in minutes.
    pub(crate) fn offset_minutes(&self, instant: i64) -> i16 {
        let at = Timestamp::from_millisecond(instant).unwrap_or(self.now);
        (self.zone.to_offset(at).seconds() / 60) as i16
    }

    /// The last clock changes before the start, newest first.
    pub(crate) fn clock_changes(&self, count: usize) -> Vec<i64> {
        let before = Timestamp::from_millisecond(self.midnights[0]).unwrap_or(self.now);
        self.zone
            .preceding(before)
            .take(count)
            .map(|change| change.timestamp().as_millisecond())
            .collect()
    }

    /// The midnights of the day before, the day and the day after `instant` (milliseconds).
    pub(crate) fn midnights_around(&self, instant: i64) -> [i64; 3] {
        let day = self
            .zone
            .to_datetime(Timestamp::from_millisecond(instant).unwrap_or(self.now))
            .date();
        [-1, 0, 1].map(|days: i64| {
            let midnight = day.saturating_add(days.days()).at(0, 0, 0, 0);
            self.zone
                .to_timestamp(midnight)
                .unwrap_or(self.now)
                .as_millisecond()
        })
    }

    pub(crate) fn day(&self, back: u32) -> civil::Date {
        self.today.saturating_sub(i64::from(back).days())
    }
}
