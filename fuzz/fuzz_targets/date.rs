//! Parses date bounds and compares them with jiff. Then it checks that an interval's days and
//! instants contain the same rows.

#![no_main]

use bellbird_domain::date::{Bound, DateRange, day_of};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;

/// With and without summer time, a quarter of an hour off, half an hour of summer time, a skipped
/// day, and clocks that change at midnight. America/St_Johns is left out: until 2011 its clocks
/// went back one minute after midnight. The day before then had two parts, which no first and last
/// instant can describe.
const ZONES: [&str; 6] = [
    "Australia/Sydney",
    "UTC",
    "Pacific/Chatham",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "America/Santiago",
];

// Index of the zone, current time in seconds, nanoseconds from an end of the interval to the row,
// `from` `..` `to`.
fuzz_target!(|input: (u8, i64, i64, &str)| {
    let (zone, now, distance, bounds) = input;
    let zone = ZONES[usize::from(zone) % ZONES.len()];
    let zone = TimeZone::get(zone).expect("bundled");
    let now = Timestamp::from_second(now % 253_402_207_200).expect("in range");
    let (from, to) = bounds.split_once("..").unwrap_or((bounds, ""));
    let (from, to) = (parse(from), parse(to));

    let interval = DateRange::resolve(from, to, now);
    assert_eq!(from.unwrap_or(interval.from), interval.from);
    assert_eq!(to.unwrap_or(interval.to), interval.to);
    assert!(
        to.is_some() || interval.to == Bound::Instant(now),
        "`to` defaults to now"
    );

    let (first, last) = interval.instants(&zone);
    for end in [first, last, now] {
        let row = end
            .checked_add(jiff::SignedDuration::from_nanos(distance))
            .unwrap_or(end);
        // The calendar's last instant lies inside its day, but not inside the range of instants. It
        // is one nanosecond of the year 9999, so it is skipped.
        for row in [row, end].into_iter().filter(|row| *row < Timestamp::MAX) {
            let inside = interval.contains(row, || day_of(row, &zone));
            assert_eq!(
                inside,
                (first..=last).contains(&row),
                "{row} in {interval:?}, {zone:?}"
            );
        }
    }
});

/// Parses a bound, and compares it with jiff's result.
fn parse(text: &str) -> Option<Bound> {
    let bound = Bound::parse(text).ok()?;
    match bound {
        Bound::Day(day) => assert_eq!(day.to_string(), text),
        Bound::Instant(instant) => {
            let formatted = instant.to_string();
            assert_eq!(
                Bound::parse(&formatted),
                Ok(bound),
                "{formatted} does not parse to the same bound"
            );
            // jiff accepts at most nine digits of a fraction, and no text after its last instant.
            assert!(
                text.parse::<Timestamp>()
                    .is_ok_and(|parsed| parsed == instant)
                    || text.len() > 30
                    || instant == Timestamp::MAX,
                "{text}"
            );
        }
    }
    Some(bound)
}
