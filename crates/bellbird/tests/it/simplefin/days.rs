//! Every row keeps its day, and windows lose and repeat none.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{AccountSet, account_set, posted, set_of};
use crate::support::harness::{App, Person, Setup};
use crate::support::provider_spec::bank_names;

/// The days of all rows by `/v1`, by account and row.
async fn days_by_v1(app: &App, person: &Person) -> BTreeMap<(String, String), String> {
    let mut days = BTreeMap::new();
    for connection in &person.connections {
        let read = app.all_transactions(connection.id).by(person);
        for row in read.from("2000-01-01").all(500).await {
            days.insert((row.account_id, row.id), row.date);
        }
    }
    days
}

fn days_sent(set: AccountSet) -> BTreeMap<(String, String), String> {
    let mut days = BTreeMap::new();
    for account in set.accounts {
        for row in account.transactions {
            let instant = Timestamp::from_second(row.posted).unwrap().to_string();
            let day = instant.strip_suffix("T10:59:00Z").expect("10:59 UTC");
            let key = (account.id.clone(), row.id);
            let earlier = days.insert(key, day.to_owned());
            assert_eq!(earlier, None, "each row once");
        }
    }
    days
}

#[tokio::test]
async fn every_row_has_its_day() {
    let app = App::start(Setup::with_rows(200)).await;
    windows_without_a_day_call_no_provider_for_rows(&app).await;
    let mut people = Vec::new();
    for provider in bank_names() {
        people.push((provider, app.person_at(provider).await));
    }
    adjoining_windows_lose_and_repeat_no_row(&app, &people).await;
    every_row_has_the_day_of_v1_in_every_timezone(&app, &people).await;
}

/// Fiskil's rows have times, some in the evening. Akahu's have days that no timezone shifts.
async fn every_row_has_the_day_of_v1_in_every_timezone(app: &App, people: &[(&str, Person)]) {
    for (provider, person) in people {
        for zone in [
            "Pacific/Pago_Pago",
            "America/Los_Angeles",
            "UTC",
            "Australia/Sydney",
            "Pacific/Auckland",
            "Etc/GMT-13",
        ] {
            app.set_timezone(person.user.id, zone).await;
            let expected = days_by_v1(app, person).await;
            assert!(expected.len() > 50);
            // With an end far ahead, as /v1 without one would leave out rows that are posted ahead
            // of now.
            let sent = days_sent(set_of(app, person, "?start-date=0").await);
            assert_eq!(sent, expected, "{provider} in {zone}");
        }
    }
}

async fn adjoining_windows_lose_and_repeat_no_row(app: &App, people: &[(&str, Person)]) {
    for (provider, person) in people {
        let (start, end) = (posted("2026-09-01"), posted("2026-11-15"));
        let between = async |start: i64, end: i64| {
            let query = format!("?start-date={start}&end-date={end}");
            days_sent(set_of(app, person, &query).await)
        };
        let whole = between(start, end).await;
        assert!(whole.len() > 20, "{provider}");
        // Bounds just before, at and after the second of a day.
        let mut bounds = vec![start];
        for (at, day) in (1_i64..)
            .map(|day| start + day * 4 * 86_400)
            .take_while(|day| *day < end)
            .enumerate()
        {
            bounds.push(day + [-1, 0, 1, 20_000][at % 4]);
        }
        bounds.push(end);
        let mut pieces = BTreeMap::new();
        for pair in bounds.windows(2) {
            for (row, day) in between(pair[0], pair[1]).await {
                let is_inside = (pair[0]..pair[1]).contains(&posted(&day));
                assert!(is_inside, "{day} outside of {pair:?}");
                assert_eq!(pieces.insert(row, day), None, "twice");
            }
        }
        assert_eq!(pieces, whole, "{provider}");
    }
}

async fn windows_without_a_day_call_no_provider_for_rows(app: &App) {
    app.reset_calls();
    let at = posted("2026-11-10");
    for (start, end) in [
        (at + 1, at + 2),
        (at, at),
        (at, at - 1),
        (i64::MIN, 0),
        (i64::MAX, i64::MAX),
    ] {
        let set = account_set(app, &format!("?start-date={start}&end-date={end}")).await;
        assert!(!set.accounts.is_empty());
        assert_eq!(set.rows().len(), 0, "{start} {end}");
    }
    assert_eq!(app.transaction_calls(), 0);
    let set = account_set(app, &format!("?start-date={at}&end-date={}", at + 1)).await;
    for day in days_sent(set).values() {
        assert_eq!(day, "2026-11-10");
    }
}
