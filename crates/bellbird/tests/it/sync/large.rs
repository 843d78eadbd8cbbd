//! Syncs that are too large for one run: each run keeps what it has read, and the next continues.

use std::collections::BTreeSet;
use std::time::Duration;

use bellbird_connections::{Connections, SyncReport};
use bellbird_domain::Connection;
use bellbird_sandbox::Fault;
use jiff::SignedDuration;
use serde_json::Value;

use crate::support::crash::{CrashPoint, PAST_EVERY_LEASE};
use crate::support::harness::{App, Person, Setup, simulated_providers};
use crate::support::process::text;
use crate::support::receiver::Hook;
use crate::support::rows::all_rows;

const DAY: SignedDuration = SignedDuration::from_hours(24);
const DAY_MICROSECONDS: i64 = 86_400_000_000;

/// Each run stops as soon as it may: after the rows of one instant, or after one account of a
/// broker.
fn short_runs(first_days: u64) -> Setup {
    Setup::with(|settings| {
        (settings.sync.first, settings.sync.run_time) =
            (Duration::from_secs(first_days * 86_400), Duration::ZERO);
    })
}

impl App {
    async fn sync_once(&self, connection: &Connection) -> SyncReport {
        let syncs = self.connections.syncs();
        let synced = syncs.run_once(connection.user_id, connection.id).await;
        synced.unwrap()
    }

    async fn ids_delivered_to(&self, hook: &Hook) -> Vec<String> {
        ids(all_rows(&self.delivered_to(hook).await, "new"))
    }

    /// The ids that the first sync reports.
    async fn ids_shown(&self, person: &Person, days: u64) -> Vec<String> {
        let from = self.clock.now() - Duration::from_secs(days * 86_400);
        let shown = self.rows_of(&person.connections[0]).by(person).from(from);
        ids(&shown.all(500).await)
    }
}

fn ids<'v>(rows: impl IntoIterator<Item = &'v Value>) -> Vec<String> {
    let rows = rows.into_iter();
    rows.map(|row| text(row, "id").to_owned()).collect()
}

fn sorted(mut ids: Vec<String>) -> Vec<String> {
    ids.sort_unstable();
    ids
}

#[tokio::test]
async fn large_sync_continues_in_later_runs() {
    const DAYS: u64 = 9;
    let app = App::start(short_runs(DAYS)).await;
    let other = app.shared.new_instance().await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let (user, connection) = (person.user.id, &person.connections[0]);
        let hook = app.hook(&person.user).await;
        let expected = app.ids_shown(&person, DAYS).await;
        let (mut delivered, mut runs, mut left) = (Vec::new(), BTreeSet::new(), None);
        for instance in [&app.connections, &other].into_iter().cycle() {
            let report = instance
                .syncs()
                .run_once(user, connection.id)
                .await
                .unwrap();
            runs.insert(report.run);
            // The next run is due at once.
            let sync_state = app.sync_state(user, connection.id).await;
            let is_due = sync_state.next_at == Some(app.clock.now());
            assert_eq!(is_due, !report.is_complete, "{provider}");
            delivered.extend(app.ids_delivered_to(&hook).await);
            if report.is_complete {
                break;
            }
            assert_ne!(sync_state.unread, left, "{provider}: each run leaves less");
            left = sync_state.unread;
        }
        assert!(runs.len() > 1, "{provider}: {} runs", runs.len());
        // No time of a row: the start of the date range, or of a day.
        let sync_state = app.sync_state(user, connection.id).await;
        let covered_from = sync_state.covered_from.unwrap().as_microsecond();
        let sql = format!(
            "SELECT date_range_from FROM webhook_events WHERE connection_id = '{}'",
            connection.id
        );
        for row in app.query(&sql).await {
            let from: i64 = row[0].parse().unwrap();
            assert!(
                from == covered_from || from % DAY_MICROSECONDS == 0,
                "{provider}: {from}"
            );
        }
        assert_eq!(
            sorted(delivered),
            sorted(expected),
            "{provider}: every row once"
        );
        app.advance_clock(DAY);
        app.assert_nothing_new(connection).await;
    }
}

/// Also in the runs that continue the first sync.
#[tokio::test]
async fn large_first_sync_can_be_silent() {
    let mut setup = short_runs(3);
    setup.settings.sync.notify_initial = false;
    let app = App::start(setup).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        let first = app.sync_once(connection).await;
        assert!(!first.is_complete, "{provider}");
        let rest = app.sync(connection).await;
        assert_eq!((first.events, rest.events), (0, 0), "{provider}");
        app.add_row(connection, "AFTERWARDS", app.clock.now()).await;
        app.sync(connection).await;
        assert_eq!(app.announced_to(&hook).await, ["AFTERWARDS"], "{provider}");
    }
}

/// A broker limits the calls of each account. What the run has read before it meets the limit
/// is kept.
#[tokio::test]
async fn limit_of_one_account_keeps_the_rows_of_others() {
    const DAYS: u64 = 30;
    let setup = Setup::with(|settings| settings.sync.first = Duration::from_secs(DAYS * 86_400));
    let app = App::start(setup).await;
    let person = app.person_at("snaptrade").await;
    let (user, connection) = (person.user.id, &person.connections[0]);
    let hook = app.hook(&person.user).await;
    let mut accounts = app.stored_accounts(user, connection.id).await;
    accounts.sort_unstable_by_key(|account| account.id);
    let [before, limited] = [0, 1].map(|number| &accounts[number].provider_account_id);
    for (account, text) in [(before, "BEFORE"), (limited, "AFTER")] {
        app.add_row_to(connection, account, text, app.clock.now() - DAY);
    }
    let expected = app.ids_shown(&person, DAYS).await;
    let fault = Fault::status(429).at(format!("/accounts/{limited}/activities"));
    app.bank("snaptrade").add_fault(fault);

    let report = app.sync(connection).await;
    assert!(!report.is_complete);
    let state = app.sync_state(user, connection.id).await;
    assert_eq!(state.unread.unwrap().after_account, Some(accounts[0].id));
    let next_at = state.next_at.unwrap();
    let wait = next_at.duration_since(app.clock.now()).as_secs();
    let is_of_a_failure = (30..=36).contains(&wait);
    assert!(is_of_a_failure, "{wait} seconds");
    let mut delivered = app.ids_delivered_to(&hook).await;
    assert!(!delivered.is_empty());

    app.clear_faults();
    app.advance_clock(SignedDuration::from_secs(wait));
    assert!(app.sync(connection).await.is_complete);
    delivered.extend(app.ids_delivered_to(&hook).await);
    assert_eq!(sorted(delivered), sorted(expected), "every row once");
}

#[tokio::test]
async fn crashed_large_sync_announces_every_row_once() {
    const DAYS: u64 = 5;
    let app = App::start(short_runs(DAYS)).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let (user, connection) = (person.user.id, &person.connections[0]);
        let hook = app.hook(&person.user).await;
        let expected = app.ids_shown(&person, DAYS).await;
        // Its first run fixes the date range.
        let first = app.sync_once(connection).await;
        assert!(!first.is_complete, "{provider}");
        let mut delivered = app.ids_delivered_to(&hook).await;
        // Several runs, then a crash, each time at another place.
        for polls in (40..).step_by(67) {
            let id = connection.id;
            let sync = async move |instance: Connections| {
                let _ = instance.syncs().run(user, id).await;
            };
            let outcome = app
                .run_until_crash(provider, CrashPoint::AfterPolls(polls), sync)
                .await;
            delivered.extend(app.ids_delivered_to(&hook).await);
            app.advance_clock(PAST_EVERY_LEASE);
            if outcome.finished {
                break;
            }
        }
        app.sync(connection).await;
        delivered.extend(app.ids_delivered_to(&hook).await);
        assert_eq!(
            sorted(delivered),
            sorted(expected),
            "{provider}: every row once"
        );
    }
}
