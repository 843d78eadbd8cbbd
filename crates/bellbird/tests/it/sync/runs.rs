//! Syncs: which rows they report as new or updated, their date ranges, and the fingerprints that
//! they store.

use bellbird_connections::ConnectionsError;
use bellbird_domain::{Connection, ConnectionStatus};
use bellbird_sandbox::{ConsentState, Fault, WebhookSettings};
use bellbird_storage::{JobKey, job_kinds};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::harness::{App, Setup, also_on_postgres, eventually, simulated_providers};
use crate::support::process::text;
use crate::support::provider_spec::spec;
use crate::support::receiver::{Hook, ReceivedEvent, Reply, RowCounts, SyncCounts};
use crate::support::rows::{all_rows, descriptions};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

impl App {
    async fn fingerprint_count(&self) -> u64 {
        let sql = "SELECT COALESCE(SUM((LENGTH(entries) - 1) / 64), 0) FROM fingerprints";
        self.query(sql).await[0][0].parse().unwrap()
    }

    async fn sync_fails(&self, connection: &Connection) -> ConnectionsError {
        let syncs = self.connections.syncs();
        let synced = syncs.run(connection.user_id, connection.id).await;
        synced.expect_err("the sync fails")
    }

    pub(crate) fn row_calls(&self, provider: &str) -> u64 {
        let calls = self.bank(provider).calls();
        let rows = calls
            .iter()
            .filter(|(path, _)| path.contains("/transactions") || path.contains("/activities"));
        rows.map(|(_, count)| count).sum()
    }
}

#[tokio::test]
async fn first_sync_announces_thirty_days_and_later_ones_changes() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        let report = app.sync(connection).await;
        let received = app.delivered_to(&hook).await;
        let rows = all_rows(&received, "new").into_iter();
        let announced: Vec<&Value> = rows.map(|row| &row["id"]).collect();
        let since = app.clock.now() - 30 * DAY;
        let shown = app.rows_of(connection).by(&person).from(since);
        let shown = shown.all(500).await;
        assert!(!shown.is_empty(), "{provider}");
        let expected: Vec<&Value> = shown.iter().map(|row| &row["id"]).collect();
        assert_eq!(announced, expected, "{provider}: same rows, same order");
        let expected = SyncCounts {
            new: announced.len(),
            updated: 0,
            events: received.len(),
        };
        assert_eq!(SyncCounts::of(&report), expected, "{provider}");
        assert_eq!(all_rows(&received, "updated").len(), 0);
        app.reset_calls();
        added_changed_and_restored_rows_are_announced(&app, connection, &hook).await;
    }
}

#[tokio::test]
async fn first_sync_can_be_silent() {
    let setup = Setup::with(|settings| settings.sync.notify_initial = false);
    let app = App::start(setup).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        let report = app.sync(connection).await;
        assert!(report.new_count > 0 && report.events == 0, "{report:?}");
        assert_eq!(app.delivered_to(&hook).await.len(), 0);
        assert_eq!(app.deliveries_to(&hook).await.len(), 0);
        app.add_recent_row(connection, "AFTER SILENCE").await;
        let report = app.sync(connection).await;
        let counts = SyncCounts::of(&report);
        assert_eq!(counts, SyncCounts::ONE_NEW, "{provider}");
        assert_eq!(app.announced_to(&hook).await, ["AFTER SILENCE"]);
    }
}

async fn added_changed_and_restored_rows_are_announced(
    app: &App,
    connection: &Connection,
    hook: &Hook,
) {
    let provider = connection.provider.as_str();
    let sync_and_deliver = async || {
        app.advance_clock(HOUR);
        let report = app.sync(connection).await;
        let received = app.delivered_to(hook).await;
        assert_eq!(report.events, received.len());
        let counts = RowCounts {
            new: report.new_count,
            updated: report.updated_count,
        };
        assert!(received.iter().all(|event| event.counts() == counts));
        (counts, received)
    };
    let assert_nothing_announced = |(counts, received): (RowCounts, Vec<ReceivedEvent>)| {
        assert_eq!(counts, RowCounts { new: 0, updated: 0 }, "{provider}");
        assert_eq!(received.len(), 0, "{provider}");
    };
    let assert_updated = |(counts, received): (RowCounts, Vec<ReceivedEvent>), text: &str| {
        assert_eq!(counts, RowCounts { new: 0, updated: 1 }, "{provider}");
        assert_eq!(descriptions(&received, "updated"), [text], "{provider}");
    };
    assert_nothing_announced(sync_and_deliver().await);
    assert!(app.row_calls(provider) > 0, "the sync read rows");

    let at = app.clock.now() - HOUR;
    let id = app.add_row(connection, "A MILK BAR", at).await;
    let (counts, received) = sync_and_deliver().await;
    assert_eq!(counts, RowCounts { new: 1, updated: 0 }, "{provider}");
    assert_eq!(descriptions(&received, "new"), ["A MILK BAR"], "{provider}");
    assert_nothing_announced(sync_and_deliver().await);

    // The id of a trade is made from its members, so a changed trade is recognised by the
    // others.
    app.change_row(connection, &id, json!({"description": "ANOTHER MILK BAR"}));
    assert_updated(sync_and_deliver().await, "ANOTHER MILK BAR");
    assert_nothing_announced(sync_and_deliver().await);
    if spec(provider).is_brokerage() {
        return;
    }

    app.remove_row(connection, &id);
    assert_nothing_announced(sync_and_deliver().await);
    let account = app.account_at(connection).await;
    let put_back = |text: &str| {
        let row = spec(provider).row_at(&account, at, text);
        app.put_row_back(connection, row, &id);
    };
    put_back("ANOTHER MILK BAR");
    // The sandbox fills in the same members, so the row is as it was.
    assert_nothing_announced(sync_and_deliver().await);
    app.remove_row(connection, &id);
    assert_nothing_announced(sync_and_deliver().await);
    put_back("THE MILK BAR IS BACK");
    assert_updated(sync_and_deliver().await, "THE MILK BAR IS BACK");
}

#[tokio::test]
async fn equal_trades_are_distinct() {
    let app = App::start(Setup::default()).await;
    let (person, hook) = app.synced_person("snaptrade").await;
    let connection = &person.connections[0];
    let at = app.clock.now() - HOUR;
    let mut ids = Vec::new();
    for (equal, new) in [(2, 2), (1, 1), (0, 0)] {
        for _ in 0..equal {
            ids.push(app.add_row(connection, "EQUAL", at).await);
        }
        assert_eq!(app.sync(connection).await.new_count, new);
        let received = app.delivered_to(&hook).await;
        let rows = all_rows(&received, "new");
        let announced: Vec<&str> = rows.iter().map(|row| text(row, "id")).collect();
        assert_eq!(announced.len(), new);
        let are_equal = announced.windows(2).all(|two| two[0] == two[1]);
        assert!(are_equal, "{announced:?}");
    }
    app.remove_row(connection, &ids[0]);
    app.assert_nothing_new(connection).await;

    // The retry reads the rows again and finds both.
    hook.receiver.reply_next_with([Reply::Status(500)]);
    // On another day, because the removed row could be one of them under another id.
    for _ in 0..2 {
        app.add_row(connection, "EQUAL TOO", at - DAY).await;
    }
    app.sync(connection).await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    assert!(app.advance_to_next_attempt(&hook).await);
    assert_eq!(app.announced_to(&hook).await, ["EQUAL TOO", "EQUAL TOO"]);
}

#[tokio::test]
async fn late_rows_are_found_within_a_week() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    let first = app.clock.now();
    // The range of the next sync goes back from the day of the newest row.
    let into_the_day = SignedDuration::from_secs(first.as_second() % DAY.as_secs());
    let week_before = first - 7 * DAY - into_the_day;
    let too_early = week_before - SignedDuration::from_secs(1);
    app.add_row(connection, "NEWEST", first).await;
    app.complete_initial_sync(connection, &hook).await;
    app.advance_clock(HOUR);
    for (text, at) in [
        ("5 DAYS AGO", first - 5 * DAY),
        ("7 DAYS AGO", week_before),
        ("A SECOND BEFORE", too_early),
        ("9 DAYS AGO", first - 9 * DAY),
        ("AFTER THE FIRST SYNC", first + HOUR / 2),
        ("NOT YET", first + 2 * HOUR),
    ] {
        app.add_row(connection, text, at).await;
    }
    app.sync(connection).await;
    let expected = ["AFTER THE FIRST SYNC", "5 DAYS AGO", "7 DAYS AGO"];
    assert_eq!(app.announced_to(&hook).await, expected);

    // After ten days without a sync, the next one misses none of their rows.
    app.advance_clock(10 * DAY);
    let at = app.clock.now() - 9 * DAY;
    app.add_row(connection, "9 DAYS AGO TOO", at).await;
    app.sync(connection).await;
    assert_eq!(app.announced_to(&hook).await, ["9 DAYS AGO TOO", "NOT YET"]);
}

#[tokio::test]
async fn unreachable_fingerprints_are_deleted() {
    for provider in simulated_providers() {
        let app = App::start(Setup::default()).await;
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        let report = app.complete_initial_sync(connection, &hook).await;
        let mut before = app.fingerprint_count().await;
        assert_eq!(before, u64::try_from(report.new_count).unwrap());
        for _ in 0..8 {
            app.run_jobs_after(3 * DAY).await;
            // The range moves on with the newest row.
            app.add_recent_row(connection, "LATEST").await;
            let report = app.sync(connection).await;
            let counts = (report.new_count, report.updated_count);
            assert_eq!(counts, (1, 0), "{provider}: announced twice");
            assert!(app.fingerprint_count().await <= before + 1);
            before = app.fingerprint_count().await;
        }
        assert!(before <= 8, "{provider}: {before} fingerprints");
        // A gap holds the range, but not forever.
        for days in [110, 110, 0] {
            app.advance_clock(days * DAY);
            let new = app.sync(connection).await.new_count;
            assert_eq!(new, 0, "{provider}: announced twice");
        }
        assert_eq!(app.fingerprint_count().await, 0, "{provider}");
    }
}

#[tokio::test]
async fn failing_provider_is_retried_and_broken_connection_is_not_read() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (person, hook) = app.synced_person(provider).await;
        let (user, connection) = (person.user.id, &person.connections[0]);
        app.add_recent_row(connection, "WHILE IT WAS DOWN").await;
        app.bank(provider).add_fault(Fault::status(503).at("/"));
        for (failed, least) in [(1, 30), (2, 60), (3, 120)] {
            app.sync_fails(connection).await;
            let sync_state = app.sync_state(user, connection.id).await;
            assert_eq!(sync_state.attempts, failed);
            let last_error = sync_state.last_error;
            assert!(last_error.is_some_and(|error| !error.is_empty()));
            let next_at = sync_state.next_at.unwrap();
            let wait = next_at.duration_since(app.clock.now()).as_secs();
            let is_expected = (least..=least * 6 / 5).contains(&wait);
            assert!(is_expected, "{provider}: {wait}");
            app.advance_clock(SignedDuration::from_secs(wait + 1));
        }
        app.clear_faults();
        app.connections.jobs().run_due("sync").await.unwrap();
        let sync_state = app.sync_state(user, connection.id).await;
        let failures = (sync_state.attempts, sync_state.last_error);
        assert_eq!(failures, (0, None), "{provider}");
        // Ten minutes after the import, as without the failures.
        assert_eq!(sync_state.next_at, Some(connection.created_at + HOUR / 6));
        assert_eq!(app.announced_to(&hook).await, ["WHILE IT WAS DOWN"]);

        // A broken connection is not read.
        for (state, status) in [
            (ConsentState::Expired, ConnectionStatus::Invalidated),
            (ConsentState::Revoked, ConnectionStatus::Revoked),
        ] {
            app.advance_clock(HOUR);
            app.set_consent(connection, state).await;
            app.reset_calls();
            let report = app.sync(connection).await;
            assert_eq!(report.status, status, "{provider}");
            assert_eq!((report.new_count, report.events), (0, 0), "{provider}");
            assert_eq!(app.row_calls(provider), 0, "{provider}");
            let stored = app.connection(person.user.id, connection.id).await;
            assert_eq!(stored.status, status);
            let sync_state = app.sync_state(person.user.id, connection.id).await;
            assert_eq!((sync_state.attempts, sync_state.last_error), (0, None));
        }
        app.set_consent(connection, ConsentState::Active).await;
        app.add_recent_row(connection, "MEANWHILE").await;
        let report = app.sync(connection).await;
        let found = (report.status, report.new_count);
        assert_eq!(found, (ConnectionStatus::Active, 1), "{provider}");
        assert_eq!(app.announced_to(&hook).await, ["MEANWHILE"]);
    }
}

#[tokio::test]
async fn command_waits_for_another_instance_and_for_a_long_sync() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let other = app.shared.new_instance().await;
    let (first, second) = tokio::join!(
        app.sync(connection),
        other.syncs().run(app.olivia.user.id, connection.id)
    );
    let mut found = [first.new_count, second.unwrap().new_count];
    found.sort_unstable();
    assert!(found[0] == 0 && found[1] > 0, "{found:?}");
    let fingerprints = app.fingerprint_count().await;
    assert_eq!(fingerprints, u64::try_from(found[1]).unwrap());

    // A long one stores when it got the last rows.
    app.advance_clock(HOUR);
    app.reset_calls();
    let path = "/v1/banking/transactions";
    let slow = Fault::delay_ms(1000).at(path).times(1);
    app.fiskil().add_fault(slow);
    let during_the_call = async {
        eventually(async || app.fiskil().calls().contains_key(path)).await;
        app.advance_clock(SignedDuration::from_mins(5));
    };
    tokio::join!(app.sync(connection), during_the_call);
    let stored = app.connection(app.olivia.user.id, connection.id).await;
    assert_eq!(stored.last_refreshed_at, Some(app.clock.now()));
}

#[tokio::test]
async fn provider_event_requests_a_sync() {
    for enabled in [true, false] {
        let setup = Setup::with(|settings| settings.sync.enabled = enabled);
        let app = App::start(setup).await;
        let (user, connection) = (&app.olivia.user, &app.olivia.connections[0]);
        let hook = app.hook(user).await;
        app.complete_initial_sync(connection, &hook).await;
        let next_at = async || {
            let sync_state = app.sync_state(user.id, connection.id).await;
            sync_state.next_at.unwrap()
        };
        // The backfill window has ended, and the next sync is hours away.
        app.advance_clock(HOUR);
        app.sync(connection).await;
        let planned = next_at().await;
        app.advance_clock(HOUR);
        let url = format!("{}/webhooks/fiskil", app.console_url);
        app.fiskil().set_webhooks(WebhookSettings::to(url)).unwrap();
        let at = app.clock.now() - HOUR / 2;
        app.add_row(connection, "ANNOUNCED BY AN EVENT", at).await;
        app.provider_events_sent("fiskil").await;
        let expected = if enabled { app.clock.now() } else { planned };
        assert_eq!(next_at().await, expected);
        if enabled {
            app.connections.jobs().run_due("sync").await.unwrap();
            let mut announced = app.announced_to(&hook).await;
            // The first sync of the other connection is due, too.
            announced.retain(|text| text == "ANNOUNCED BY AN EVENT");
            assert_eq!(announced.len(), 1);
            assert!(next_at().await >= app.clock.now() + 3 * HOUR);
        }
    }
}

#[tokio::test]
async fn abandoned_sync_is_repeated_and_refreshes_accounts() {
    let app = App::start(Setup::default()).await;
    let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
    let now = app.clock.now();
    let lease = now + SignedDuration::from_secs(60);
    let job = JobKey::new(job_kinds::SYNC, user, connection.id);
    let claimed = app.storage.jobs().claim(&job, now, lease).await;
    assert!(claimed.unwrap().is_some());
    let synced_at = async || app.sync_state(user, connection.id).await.synced_at;
    app.connections.jobs().run_due("sync").await.unwrap();
    assert_eq!(synced_at().await, None);
    app.advance_clock(SignedDuration::from_secs(61));
    app.connections.jobs().run_due("sync").await.unwrap();
    assert_eq!(synced_at().await, Some(app.clock.now()));

    // A sync refreshes accounts.
    app.sync(connection).await;
    app.advance_clock(HOUR);
    let credentials = app.credentials(0);
    let new = json!({"endUserId": credentials["endUserId"], "arrangementId": credentials["arrangementId"],
        "nickname": "Brand new", "display_name": "Brand new"});
    let added = app.fiskil().add_account(&new).unwrap();
    let row = json!({"account_id": added["account_id"], "description": "ITS FIRST ROW",
        "posting_date_time": "2026-11-20T09:00:00Z"});
    app.put_row(connection, row);
    let hook = app.hook(&app.olivia.user).await;
    assert_eq!(app.sync(connection).await.new_count, 1);
    let account = app.account("Brand new").await;
    let received = app.delivered_to(&hook).await;
    assert_eq!(descriptions(&received, "new"), ["ITS FIRST ROW"]);
    let row = &received[0].rows("new")[0];
    assert_eq!(row["account_id"], account.id.as_str());

    // A new name of the account changes no row.
    let (id_there, renamed) = (text(&added, "account_id"), json!({"nickname": "Renamed"}));
    app.fiskil().change_account(id_there, &renamed).unwrap();
    app.advance_clock(HOUR);
    app.assert_nothing_new(connection).await;
    assert_eq!(app.account("Renamed").await.id, account.id);

    // Nobody else's connection is synced, nor one that is removed.
    let syncs = app.connections.syncs();
    let error = syncs.run(app.ben.user.id, connection.id).await;
    assert!(matches!(error, Err(ConnectionsError::NotFound)));
    app.remove(connection.id).await;
    app.reset_calls();
    let error = app.sync_fails(connection).await;
    assert!(matches!(error, ConnectionsError::NotFound));
    assert_eq!(app.fiskil().total_calls(), 0);
}

#[tokio::test]
async fn failed_sync_stores_and_announces_nothing() {
    let app = App::start(Setup::default()).await;
    let person = app.person_at("akahu").await;
    let connection = &person.connections[0];
    let account = app.account_at(connection).await;
    app.bank("akahu").fill(&account, 4_000).unwrap();
    let hook = app.hook(&person.user).await;
    // The first page succeeds, and every later one fails.
    app.bank("akahu")
        .add_fault(Fault::delay_ms(1).at("/v1/transactions").times(1));
    app.bank("akahu")
        .add_fault(Fault::status(503).at("/v1/transactions"));
    app.sync_fails(connection).await;
    assert_eq!(app.fingerprint_count().await, 0);
    app.clear_faults();
    assert_eq!(app.deliveries_to(&hook).await.len(), 0);
    let report = app.sync(connection).await;
    assert!(report.new_count > 300 && report.events == 1, "{report:?}");
    let (new, updated) = (report.new_count, 0);
    let counts = app.delivered_to(&hook).await[0].counts();
    assert_eq!(counts, RowCounts { new, updated });
}

also_on_postgres! { command_waits_for_another_instance_and_for_a_long_sync }
