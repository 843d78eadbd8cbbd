//! Times as the user's clock shows them, with the name of the zone, and relative to now.

use bellbird_domain::user::{DEFAULT_TIMEZONE, find_timezone};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _};

use super::words::count;

/// A time on a page, which shows how long ago it was, and all of it on request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct When {
    /// Such as `3 minutes ago`, or the day if it is long ago.
    pub(crate) text: String,
    /// As [`LocalTime::at`].
    pub(crate) exact: String,
    /// RFC 3339, for the attribute.
    pub(crate) datetime: String,
}

/// The timezone of the page's user, and the time of the request.
pub(crate) struct LocalTime {
    pub(crate) now: Timestamp,
    zone: TimeZone,
    name: String,
}

impl LocalTime {
    /// `timezone` is an IANA name, or None for the default.
    pub(crate) fn of(timezone: Option<&str>, now: Timestamp) -> Self {
        let name = timezone.unwrap_or(DEFAULT_TIMEZONE);
        let (zone, name) = match find_timezone(name) {
            Ok(zone) => (zone, zone_name(name)),
            Err(_) => (TimeZone::UTC, "UTC".to_owned()),
        };
        Self { now, zone, name }
    }

    /// Such as `20:54`.
    pub(crate) fn clock(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone()).strftime("%H:%M").to_string()
    }

    /// Such as `20:54 Sydney time`.
    pub(crate) fn time(&self, at: Timestamp) -> String {
        format!("{} {}", self.clock(at), self.name)
    }

    /// When the day so many days ago began.
    pub(crate) fn day_start(&self, days_ago: i64) -> Timestamp {
        let today = self.now.to_zoned(self.zone.clone()).date();
        let day = today.saturating_sub(days_ago.days());
        day.to_zoned(self.zone.clone())
            .map_or(self.now, |start| start.timestamp())
    }

    /// Such as `20 Nov 2026, 20:54 Sydney time`.
    pub(crate) fn at(&self, at: Timestamp) -> String {
        format!("{}, {}", self.day(at), self.time(at))
    }

    /// Such as `20 Nov 2026`.
    pub(crate) fn day(&self, at: Timestamp) -> String {
        shown_day(at.to_zoned(self.zone.clone()).date())
    }

    /// As [`Self::when`], to the second, for what happens from one second to the next.
    pub(crate) fn moment(&self, at: Timestamp) -> When {
        let seconds = self.now.as_second() - at.as_second();
        let exact = format!(
            "{}, {} {}",
            self.day(at),
            at.to_zoned(self.zone.clone()).strftime("%H:%M:%S"),
            self.name
        );
        let when = self.when(at);
        let text = match seconds {
            2..60 => format!("{seconds} seconds ago"),
            -59..=-2 => format!("in {} seconds", -seconds),
            _ => when.text,
        };
        When {
            text,
            exact,
            ..when
        }
    }

    /// As [`Self::moment`], of what happens then: `now` if it is due.
    pub(crate) fn due(&self, at: Timestamp) -> When {
        let when = self.moment(at);
        match at.as_second() - self.now.as_second() {
            ..=1 => When {
                text: "now".to_owned(),
                ..when
            },
            _ => when,
        }
    }

    /// In words up to two weeks before or after now.
    pub(crate) fn when(&self, at: Timestamp) -> When {
        When {
            text: relative(at, self.now).unwrap_or_else(|| self.day(at)),
            exact: self.at(at),
            datetime: at.to_string(),
        }
    }
}

/// The form of all days, such as `20 Nov 2026`.
pub(crate) fn shown_day(day: Date) -> String {
    day.strftime("%-d %b %Y").to_string()
}

/// The heading of the rows of a day, such as `Fri 20 Nov 2026`.
pub(crate) fn day_of_week(day: Date) -> String {
    format!("{} {}", day.strftime("%a"), shown_day(day))
}

fn relative(at: Timestamp, now: Timestamp) -> Option<String> {
    let seconds = at.as_second() - now.as_second();
    let (number, unit) = match seconds.unsigned_abs() {
        // The clocks of two instances differ a little.
        0..45 if seconds > 5 => return Some("in a moment".to_owned()),
        0..45 => return Some("just now".to_owned()),
        size @ ..3_600 => (size.div_ceil(60).max(1), "minute"),
        size @ ..86_400 => (size / 3_600, "hour"),
        size @ ..1_209_600 => (size / 86_400, "day"),
        _ => return None,
    };
    let size = count(number, unit);
    Some(match seconds < 0 {
        true => format!("{size} ago"),
        false => format!("in {size}"),
    })
}

/// The place of an IANA name, for people.
fn zone_name(name: &str) -> String {
    match name.rsplit_once('/') {
        Some(("Etc", offset)) => offset.to_owned(),
        Some((_, place)) => format!("{} time", place.replace('_', " ")),
        None if name == "UTC" || name == "GMT" => name.to_owned(),
        None => format!("{name} time"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_have_seconds() {
        let now: Timestamp = "2026-11-20T13:40:00Z".parse().unwrap();
        let local = LocalTime::of(Some("UTC"), now);
        for (at, text) in [
            ("2026-11-20T13:39:48Z", "12 seconds ago"),
            ("2026-11-20T13:40:05Z", "in 5 seconds"),
            ("2026-11-20T13:39:59Z", "just now"),
            ("2026-11-20T13:30:00Z", "10 minutes ago"),
        ] {
            let moment = local.moment(at.parse().unwrap());
            assert_eq!(moment.text, text);
            let seconds = &at[17..19];
            assert!(
                moment.exact.contains(&format!(":{seconds} UTC")),
                "{moment:?}"
            );
        }
        for (seconds, text) in [(-90, "now"), (1, "now"), (5, "in 5 seconds")] {
            let at = now + jiff::SignedDuration::from_secs(seconds);
            assert_eq!(local.due(at).text, text);
        }
    }

    #[test]
    fn times_are_relative_to_now() {
        let now: Timestamp = "2026-11-20T13:40:00Z".parse().unwrap();
        let local = LocalTime::of(Some("UTC"), now);
        for (at, text) in [
            ("2026-11-20T13:39:30Z", "just now"),
            ("2026-11-20T13:37:00Z", "3 minutes ago"),
            ("2026-11-20T13:40:03Z", "just now"),
            ("2026-11-20T13:40:20Z", "in a moment"),
            ("2026-11-20T13:45:00Z", "in 5 minutes"),
            ("2026-11-20T12:30:00Z", "1 hour ago"),
            ("2026-11-19T12:30:00Z", "1 day ago"),
            ("2026-12-03T13:40:00Z", "in 13 days"),
            ("2026-11-05T13:40:00Z", "5 Nov 2026"),
        ] {
            assert_eq!(local.when(at.parse().unwrap()).text, text);
        }
        assert_eq!(local.when(now).exact, "20 Nov 2026, 13:40 UTC");
    }

    #[test]
    fn times_name_their_zone() {
        let at: Timestamp = "2026-11-20T13:40:00Z".parse().unwrap();
        for (zone, time, day) in [
            (None, "00:40 Sydney time", "21 Nov 2026"),
            (
                Some("Pacific/Auckland"),
                "02:40 Auckland time",
                "21 Nov 2026",
            ),
            (
                Some("America/Argentina/Buenos_Aires"),
                "10:40 Buenos Aires time",
                "20 Nov 2026",
            ),
            (Some("Etc/UTC"), "13:40 UTC", "20 Nov 2026"),
            (Some("UTC"), "13:40 UTC", "20 Nov 2026"),
            (Some("NZ"), "02:40 NZ time", "21 Nov 2026"),
            (Some("No/Where"), "13:40 UTC", "20 Nov 2026"),
        ] {
            let local = LocalTime::of(zone, at);
            assert_eq!(
                (local.time(at).as_str(), local.day(at).as_str()),
                (time, day),
                "{zone:?}"
            );
        }
    }
}
