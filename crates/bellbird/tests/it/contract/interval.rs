//! A read with an interval gives every row inside it, and no row far outside.

use bellbird_domain::{Bound, DateRange};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::fixture::{Fixture, ReadRequest, Row, walk};

/// Clocks change on both days: forward in Sydney, back in Los Angeles.
const FIRST: &str = "2026-10-04";
const LAST: &str = "2026-11-01";

fn instant(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

/// Noon in UTC: about the middle of all hours that are `day` in some timezone.
fn noon(day: &str) -> Timestamp {
    instant(&format!("{day}T12:00:00Z"))
}

/// The times of rows: on and just before each full hour of the 30 hours before and after the middle
/// of both days, where days begin in all zones below; and far outside.
fn moments() -> Vec<Timestamp> {
    let mut moments = Vec::new();
    for day in [FIRST, LAST] {
        for hour in -30..=30 {
            let at = noon(day) + SignedDuration::from_hours(hour);
            moments.extend([at, at - SignedDuration::from_millis(1)]);
        }
    }
    moments.extend(outside());
    moments
}

fn outside() -> [Timestamp; 4] {
    let far = |day, days: i64| noon(day) + SignedDuration::from_hours(24 * days);
    [
        far(FIRST, -60),
        far(FIRST, -10),
        far(LAST, 10),
        far(LAST, 15),
    ]
}

/// Days in several zones; and instants at rows, just beside rows, and between two milliseconds.
fn intervals() -> Vec<(DateRange, &'static str)> {
    let mut intervals = Vec::new();
    let day = |text: &str| Bound::Day(text.parse().expect("a day"));
    let at = |text: &str| Bound::Instant(instant(text));
    for zone in [
        "Australia/Sydney",
        "Pacific/Auckland",
        "America/Los_Angeles",
        "Pacific/Kiritimati",
    ] {
        for (from, to) in [
            (day(FIRST), day(LAST)),
            (day(FIRST), day(FIRST)),
            (day(LAST), day(LAST)),
            (day(FIRST), at("2026-11-01T03:00:00Z")),
            (at("2026-10-04T03:00:00Z"), day(LAST)),
        ] {
            intervals.push((DateRange { from, to }, zone));
        }
    }
    for (from, to) in [
        ("2026-10-04T03:00:00Z", "2026-11-01T03:00:00Z"),
        ("2026-10-04T02:59:59.999Z", "2026-11-01T02:59:59.999Z"),
        (
            "2026-10-04T03:00:00.000000001Z",
            "2026-11-01T02:59:59.999999999Z",
        ),
        (
            "2026-10-04T02:59:59.9990001Z",
            "2026-11-01T02:59:59.9989999Z",
        ),
        ("2026-10-04T00:00:00Z", "2026-10-04T00:00:00Z"),
        ("2026-10-04T03:00:00Z", "2026-10-04T03:00:00Z"),
    ] {
        intervals.push((
            DateRange {
                from: at(from),
                to: at(to),
            },
            "Australia/Sydney",
        ));
    }
    intervals
}

promise! {
    async fn interval_is_complete_and_read_narrowly(fixture) {
        let link = fixture.links().await.remove(0);
        let account = fixture.add_account(&link, json!({}));
        let moments = moments();
        fixture.add_rows(&account, &moments);
        let accounts = [account];
        let everything =
            walk(&*fixture.provider, &ReadRequest::all(&link.credentials, &accounts, 1_000)).await.expect("rows");
        assert_eq!(everything.len(), moments.len());
        for (interval, zone_name) in intervals() {
            let zone = TimeZone::get(zone_name).expect("a zone");
            let request =
                ReadRequest { interval, zone: zone.clone(), ..ReadRequest::all(&link.credentials, &accounts, 1_000) };
            let given = walk(&*fixture.provider, &request).await.expect("rows");
            let inside = |rows: &[Row]| -> Vec<String> {
                rows.iter().filter(|row| row.is_inside(&interval, &zone)).map(|row| row.text.clone()).collect()
            };
            let expected = inside(&everything);
            assert!(!expected.is_empty(), "{interval:?}");
            assert_eq!(inside(&given), expected, "{interval:?} {zone_name}");
            let far = given.iter().find(|row| outside().contains(&row.instant()));
            assert_eq!(far, None, "{interval:?} {zone_name}");
        }
    }
}
