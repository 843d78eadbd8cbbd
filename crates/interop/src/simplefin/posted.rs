//! Days as seconds. SimpleFIN has no days, so a row's day is sent as one second of it.
//!
//! Clients turn the second into a day of UTC, or of their own timezone. 10:59:00 UTC lies on the
//! same day everywhere from UTC-10:59 to UTC+13:00.

use bellbird_domain::{Bound, DateFilter};
use jiff::civil::Date;

const DAY_SECONDS: i64 = 86_400;
/// 10:59:00 UTC.
const SECOND_OF_DAY: i64 = 10 * 3_600 + 59 * 60;
const EPOCH: Date = Date::constant(1970, 1, 1);
/// 9999-12-31, the last day that a date can hold.
const LAST_DAY: i64 = 2_932_896;

/// The second that is sent for a row of this day.
pub(super) fn posted(day: Date) -> i64 {
    epoch_day(day) * DAY_SECONDS + SECOND_OF_DAY
}

/// Days since 1970.
fn epoch_day(day: Date) -> i64 {
    day.duration_since(EPOCH).as_hours() / 24
}

fn date(epoch_day: i64) -> Date {
    let days = jiff::Span::new().days(epoch_day.clamp(0, LAST_DAY));
    EPOCH.checked_add(days).unwrap_or(Date::MAX)
}

/// The days whose [`posted`] lies in a window of seconds. No row is older than 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Days {
    /// The first day, if the window has a start.
    first: Option<Date>,
    /// The last day, if the window has an end.
    last: Option<Date>,
    is_empty: bool,
}

impl Days {
    /// The window contains its start, and not its end.
    pub(super) fn new(start: Option<i64>, end: Option<i64>) -> Self {
        // The first day with a second at or after the bound.
        let day_from = |second: i64| {
            second
                .saturating_sub(SECOND_OF_DAY)
                .saturating_add(DAY_SECONDS - 1)
                .div_euclid(DAY_SECONDS)
        };
        let (first, end) = (start.map(day_from), end.map(day_from));
        let is_before_all = end.is_some_and(|end| end <= 0);
        let is_after_all = first.is_some_and(|first| first > LAST_DAY);
        let is_reversed = first.zip(end).is_some_and(|(first, end)| first >= end);
        Self {
            first: first.map(date),
            last: end.map(|end| date(end - 1)),
            is_empty: is_before_all || is_after_all || is_reversed,
        }
    }

    /// No day lies in the window.
    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }

    pub(super) fn last(&self) -> Option<Date> {
        self.last
    }

    /// The days as a read takes them. Without dates, that is the last 30 days, as for
    /// `/v1/transactions`.
    pub(super) fn dates(&self) -> DateFilter {
        DateFilter {
            from: self.first.map(Bound::Day),
            to: self.last.map(Bound::Day),
        }
    }
}

/// A date in milliseconds is such a second.
pub(super) fn is_beyond_all_days(second: i64) -> bool {
    second.div_euclid(DAY_SECONDS) > LAST_DAY
}

/// All days up to this one.
pub(super) fn span_until(day: Date) -> DateFilter {
    DateFilter {
        from: Some(Bound::Day(EPOCH)),
        to: Some(Bound::Day(day)),
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use jiff::tz::{Offset, TimeZone};
    use proptest::prelude::*;

    use super::*;

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    #[test]
    fn posted_is_on_the_same_day_in_every_zone() {
        for text in ["1970-01-01", "2024-02-29", "2026-11-20", "9999-12-30"] {
            let instant = Timestamp::from_second(posted(day(text))).unwrap();
            for minutes in -(10 * 60 + 59)..=13 * 60 {
                let zone = TimeZone::fixed(Offset::from_seconds(minutes * 60).unwrap());
                assert_eq!(
                    zone.to_datetime(instant).date(),
                    day(text),
                    "{minutes} minutes from UTC"
                );
            }
        }
        let noon = Timestamp::from_second(posted(day("2026-11-20"))).unwrap();
        assert_eq!(noon.to_string(), "2026-11-20T10:59:00Z");
    }

    #[test]
    fn window_contains_its_start_and_not_its_end() {
        let at = posted(day("2026-11-20"));
        let days = |start, end| {
            let window = Days::new(start, end);
            (!window.is_empty()).then_some((
                window.first.map(|day| day.to_string()),
                window.last.map(|day| day.to_string()),
            ))
        };
        let expected =
            |first: &str, last: &str| Some((Some(first.to_owned()), Some(last.to_owned())));
        assert_eq!(
            days(Some(at), Some(at + 1)),
            expected("2026-11-20", "2026-11-20")
        );
        assert_eq!(days(Some(at + 1), Some(at + DAY_SECONDS)), None);
        assert_eq!(days(Some(at), Some(at)), None);
        assert_eq!(
            days(Some(at + 1), Some(at + DAY_SECONDS + 1)),
            expected("2026-11-21", "2026-11-21")
        );
        assert_eq!(days(None, None), Some((None, None)));
        assert_eq!(days(Some(i64::MIN), Some(0)), None);
        assert_eq!(days(Some(i64::MAX), None), None);
        assert_eq!(
            days(Some(0), Some(i64::MAX)),
            expected("1970-01-01", "9999-12-31")
        );
        assert_eq!(
            days(Some(i64::MIN), Some(i64::MAX)),
            expected("1970-01-01", "9999-12-31")
        );
    }

    proptest! {
        /// Model: the seconds of the days themselves.
        #[test]
        fn window_has_the_days_whose_second_lies_in_it(start in -200_000_i64..5_000_000, length in 0_i64..3_000_000) {
            let end = start + length;
            let window = Days::new(Some(start), Some(end));
            let inside: Vec<Date> =
                (0..100).map(date).filter(|day| (start..end).contains(&posted(*day))).collect();
            prop_assert_eq!(window.is_empty(), inside.is_empty());
            if !inside.is_empty() {
                prop_assert_eq!((window.first, window.last), (inside.first().copied(), inside.last().copied()));
            }
        }
    }
}
