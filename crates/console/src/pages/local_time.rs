//! Times as the user's clock shows them, with the name of the zone.

use bellbird_domain::user::{DEFAULT_TIMEZONE, find_timezone};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The timezone of the page's user.
pub(crate) struct LocalTime {
    zone: TimeZone,
    name: String,
}

impl LocalTime {
    /// `timezone` is an IANA name, or None for the default.
    pub(crate) fn of(timezone: Option<&str>) -> Self {
        let name = timezone.unwrap_or(DEFAULT_TIMEZONE);
        match find_timezone(name) {
            Ok(zone) => Self {
                zone,
                name: zone_name(name),
            },
            Err(_) => Self {
                zone: TimeZone::UTC,
                name: "UTC".to_owned(),
            },
        }
    }

    /// Such as `20:54 Sydney time`.
    pub(crate) fn time(&self, at: Timestamp) -> String {
        format!(
            "{} {}",
            at.to_zoned(self.zone.clone()).strftime("%H:%M"),
            self.name
        )
    }

    /// Such as `20 November 2026, 20:54 Sydney time`.
    pub(crate) fn at(&self, at: Timestamp) -> String {
        format!("{}, {}", self.day(at), self.time(at))
    }

    /// Such as `20 November 2026`.
    pub(crate) fn day(&self, at: Timestamp) -> String {
        at.to_zoned(self.zone.clone())
            .strftime("%-d %B %Y")
            .to_string()
    }
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
    fn times_name_their_zone() {
        let at: Timestamp = "2026-11-20T13:40:00Z".parse().unwrap();
        for (zone, time, day) in [
            (None, "00:40 Sydney time", "21 November 2026"),
            (
                Some("Pacific/Auckland"),
                "02:40 Auckland time",
                "21 November 2026",
            ),
            (
                Some("America/Argentina/Buenos_Aires"),
                "10:40 Buenos Aires time",
                "20 November 2026",
            ),
            (Some("Etc/UTC"), "13:40 UTC", "20 November 2026"),
            (Some("UTC"), "13:40 UTC", "20 November 2026"),
            (Some("NZ"), "02:40 NZ time", "21 November 2026"),
            (Some("No/Where"), "13:40 UTC", "20 November 2026"),
        ] {
            let local = LocalTime::of(zone);
            assert_eq!(
                (local.time(at).as_str(), local.day(at).as_str()),
                (time, day),
                "{zone:?}"
            );
        }
    }
}
