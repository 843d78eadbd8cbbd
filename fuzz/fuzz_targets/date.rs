//! Bounds are read or refused, and an interval says the same of an instant in both of its ways.

#![no_main]

use bellbird_domain::date::{Bound, Interval, day_of};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;

/// With and without summer time, a quarter of an hour off, half an hour of summer time, a day that never was, and
/// clocks that change at midnight. Not America/St_Johns: until 2011 its clocks went back one minute past midnight, so
/// that the day before had two parts, and no first and last instant describe it.
const ZONES: [&str; 6] =
    ["Australia/Sydney", "UTC", "Pacific/Chatham", "Australia/Lord_Howe", "Pacific/Apia", "America/Santiago"];

// Zone, the present moment in seconds, nanoseconds between the end of the interval and the row, `from` `..` `to`.
fuzz_target!(|input: (u8, i64, i64, &str)| {
    let (zone, now, distance, bounds) = input;
    let zone = ZONES[usize::from(zone) % ZONES.len()];
    let zone = TimeZone::get(zone).expect("bundled");
    let now = Timestamp::from_second(now % 253_402_207_200).expect("in range");
    let (from, to) = bounds.split_once("..").unwrap_or((bounds, ""));
    let (from, to) = (read(from), read(to));

    let interval = Interval::resolve(from, to, now);
    assert_eq!(from.unwrap_or(interval.from), interval.from);
    assert_eq!(to.unwrap_or(interval.to), interval.to);
    assert!(to.is_some() || interval.to == Bound::Instant(now), "the end by default is now");

    let (first, last) = interval.instants(&zone);
    for end in [first, last, now] {
        let row = end.checked_add(jiff::SignedDuration::from_nanos(distance)).unwrap_or(end);
        // The calendar's very last instant is inside its day and not asked for: one nanosecond of the year 9999.
        for row in [row, end].into_iter().filter(|row| *row < Timestamp::MAX) {
            let inside = interval.contains(row, || day_of(row, &zone));
            assert_eq!(inside, (first..=last).contains(&row), "{row} in {interval:?}, {zone:?}");
        }
    }
});

/// Reads a bound, and compares it with jiff's own reading.
fn read(text: &str) -> Option<Bound> {
    let bound = Bound::parse(text).ok()?;
    match bound {
        Bound::Day(day) => assert_eq!(day.to_string(), text),
        Bound::Instant(instant) => {
            let written = instant.to_string();
            assert_eq!(Bound::parse(&written), Ok(bound), "{written} does not read back");
            // jiff takes nine digits of a fraction, and nothing behind its last instant.
            assert!(
                text.parse::<Timestamp>().is_ok_and(|parsed| parsed == instant)
                    || text.len() > 30
                    || instant == Timestamp::MAX,
                "{text}"
            );
        }
    }
    Some(bound)
}
