//! Syncs: what is told as new and as changed, from which time on, and what is remembered of it.

use std::collections::BTreeSet;

use bellbird_connections::{ConnectionsError, SyncSettings};
use bellbird_domain::{Connection, ConnectionStatus, Plan};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use crate::harness::{App, Database, Person, Setup, eventually, on_both_databases, pretended};
use crate::link_kills::database::query;
use crate::receiver::Taken;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
const BOTH: [Database; 2] = [Database::Sqlite, Database::Postgres];

impl App {
    /// Somebody with one connection at a provider.
    pub(crate) async fn person_at(&self, provider: &str) -> Person {
        let email = format!("{provider}@example.com");
        // The others of Fiskil are Olivia's and Ben's, or odd.
        let at = if provider == "fiskil" { 4 } else { 0 };
        let person = self.add_person(&email, Plan::Professional, &[&self.grants_of(provider)[at]]).await;
        self.forget_calls().await;
        person
    }

    /// What the REST API says of the connection from that time on.
    async fn shown_since(&self, person: &Person, connection: &Connection, from: Timestamp) -> Vec<Value> {
        let list = if connection.provider == "snaptrade" { "trades" } else { "transactions" };
        let mut rows = Vec::new();
        loop {
            let path = format!(
                "/v1/{list}?connectionId={}&from={}&limit=500&offset={}",
                connection.id,
                from.strftime("%Y-%m-%dT%H:%M:%SZ"),
                rows.len()
            );
            let answer = self.get_as(&person.key, &path).await;
            rows.extend(answer.data());
            if answer.json()["pagination"]["hasMore"] == false {
                return rows;
            }
        }
    }

    async fn marks(&self) -> u64 {
        let counted = query(&self.shared.database, "SELECT COUNT(*) FROM row_marks").await;
        counted[0][0].parse().unwrap()
    }

    async fn row_calls(&self, provider: &str) -> u64 {
        let calls = self.calls_of(provider).await;
        let rows = calls.iter().filter(|(path, _)| path.contains("/transactions") || path.contains("/activities"));
        rows.map(|(_, count)| count).sum()
    }
}

pub(crate) fn all_rows<'t>(taken: &'t [Taken], list: &str) -> Vec<&'t Value> {
    taken.iter().flat_map(|one| one.rows(list)).collect()
}

fn texts(taken: &[Taken], list: &str) -> Vec<String> {
    all_rows(taken, list).iter().map(|row| row["description"].as_str().unwrap_or_default().to_owned()).collect()
}

on_both_databases! {
    async fn the_first_sync_tells_of_thirty_days(app: App) {
        for provider in pretended() {
            let person = app.person_at(provider).await;
            let hook = app.hook(&person.user).await;
            let report = app.sync(&person.connections[0]).await;
            let taken = app.delivered_to(&hook).await;
            let told: Vec<&Value> = all_rows(&taken, "new").into_iter().map(|row| &row["id"]).collect();
            let since = app.clock.now() - 30 * DAY;
            let shown = app.shown_since(&person, &person.connections[0], since).await;
            assert!(!shown.is_empty(), "{provider}");
            assert_eq!(told, shown.iter().map(|row| &row["id"]).collect::<Vec<_>>(), "{provider}: rows and order");
            assert_eq!((report.new_count, report.updated_count, report.events), (told.len(), 0, taken.len()));
            assert_eq!(all_rows(&taken, "updated").len(), 0);
        }
    }
}

#[tokio::test]
async fn the_first_sync_can_be_silent() {
    for database in BOTH {
        let syncing = SyncSettings { enabled: false, announce_first: false, ..SyncSettings::default() };
        let app = App::start(Setup { database, syncing, ..Setup::default() }).await;
        for provider in pretended() {
            let person = app.person_at(provider).await;
            let connection = &person.connections[0];
            let hook = app.hook(&person.user).await;
            let report = app.sync(connection).await;
            assert!(report.new_count > 0 && report.events == 0, "{report:?}");
            assert!(app.delivered_to(&hook).await.is_empty() && app.deliveries_to(&hook).await.is_empty());
            app.add_row(connection, "AFTER SILENCE", app.clock.now() - HOUR).await;
            let report = app.sync(connection).await;
            assert_eq!((report.new_count, report.updated_count, report.events), (1, 0, 1), "{provider}");
            assert_eq!(texts(&app.delivered_to(&hook).await, "new"), ["AFTER SILENCE"]);
        }
    }
}

on_both_databases! {
    async fn rows_come_and_change_and_go_and_come_back(app: App) {
        for provider in pretended() {
            let person = app.person_at(provider).await;
            let connection = &person.connections[0];
            let hook = app.hook(&person.user).await;
            app.begin(connection, &hook).await;
            let synced = async || {
                app.pass(HOUR).await;
                let report = app.sync(connection).await;
                let taken = app.delivered_to(&hook).await;
                assert_eq!(report.events, taken.len());
                assert!(taken.iter().all(|one| one.counts() == (report.new_count, report.updated_count)));
                (report.new_count, report.updated_count, taken)
            };
            let nothing = |(new, updated, taken): (usize, usize, Vec<Taken>)| {
                assert_eq!((new, updated, taken.len()), (0, 0, 0), "{provider}");
            };
            nothing(synced().await);
            assert!(app.row_calls(provider).await > 0, "it was asked for");

            let at = app.clock.now() - HOUR;
            let id = app.add_row(connection, "A MILK BAR", at).await;
            let (new, updated, taken) = synced().await;
            assert_eq!((new, updated, texts(&taken, "new")), (1, 0, vec!["A MILK BAR".to_owned()]), "{provider}");
            nothing(synced().await);

            // What a trade says is its id: one that changed is another one.
            let is_trade = provider == "snaptrade";
            app.change_row(connection, &id, json!({"description": "ANOTHER MILK BAR"})).await;
            let (new, updated, taken) = synced().await;
            let (list, counts) = if is_trade { ("new", (1, 0)) } else { ("updated", (0, 1)) };
            assert_eq!(((new, updated), texts(&taken, list)), (counts, vec!["ANOTHER MILK BAR".to_owned()]));
            nothing(synced().await);
            if is_trade {
                continue;
            }

            app.remove_row(connection, &id).await;
            nothing(synced().await);
            let account = app.account_at(connection).await;
            let again = |text: &str| match provider {
                "fiskil" => json!({"account_id": account, "fiskil_id": id, "amount": "-12.34", "description": text,
                    "posting_date_time": at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()}),
                _ => json!({"_account": account, "_id": id, "amount": -12.34, "description": text,
                    "date": at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string()}),
            };
            app.put_row(connection, again("ANOTHER MILK BAR")).await;
            // What the sandbox fills in is the same: the row is as it was.
            nothing(synced().await);
            app.remove_row(connection, &id).await;
            nothing(synced().await);
            app.put_row(connection, again("THE MILK BAR IS BACK")).await;
            let (new, updated, taken) = synced().await;
            assert_eq!((new, updated, texts(&taken, "updated")), (0, 1, vec!["THE MILK BAR IS BACK".to_owned()]));
        }
    }
}

on_both_databases! {
    async fn equal_trades_are_two(app: App) {
        let person = app.person_at("snaptrade").await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        app.begin(connection, &hook).await;
        let at = app.clock.now() - HOUR;
        let mut ids = Vec::new();
        for (equal, new) in [(2, 2), (1, 1), (0, 0)] {
            for _ in 0..equal {
                ids.push(app.add_row(connection, "EQUAL", at).await);
            }
            assert_eq!(app.sync(connection).await.new_count, new);
            let taken = app.delivered_to(&hook).await;
            let told: Vec<&str> = all_rows(&taken, "new").iter().map(|row| row["id"].as_str().unwrap()).collect();
            assert_eq!(told.len(), new);
            assert!(told.windows(2).all(|two| two[0] == two[1]), "{told:?}");
        }
        app.remove_row(connection, &ids[0]).await;
        let report = app.sync(connection).await;
        assert_eq!((report.new_count, report.updated_count, report.events), (0, 0, 0));

        // Read again, both are there.
        hook.receiver.answers_next([crate::receiver::Reply::Status(500)]);
        for _ in 0..2 {
            app.add_row(connection, "EQUAL TOO", at).await;
        }
        app.sync(connection).await;
        assert_eq!(app.delivered_to(&hook).await.len(), 1);
        assert!(app.pass_to_next_attempt(&hook).await);
        assert_eq!(texts(&app.delivered_to(&hook).await, "new"), ["EQUAL TOO", "EQUAL TOO"]);
    }
}

on_both_databases! {
    async fn late_rows_are_found_within_a_week(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook(&app.olivia.user).await;
        let first = app.clock.now();
        app.begin(connection, &hook).await;
        app.pass(HOUR).await;
        for (text, at) in [
            ("5 DAYS AGO", first - 5 * DAY),
            ("7 DAYS AGO", first - 7 * DAY),
            ("A SECOND BEFORE", first - 7 * DAY - SignedDuration::from_secs(1)),
            ("9 DAYS AGO", first - 9 * DAY),
            ("AFTER THE FIRST SYNC", first + HOUR / 2),
            ("NOT YET", first + 2 * HOUR),
        ] {
            app.add_row(connection, text, at).await;
        }
        app.sync(connection).await;
        let told = texts(&app.delivered_to(&hook).await, "new");
        assert_eq!(told, ["AFTER THE FIRST SYNC", "5 DAYS AGO", "7 DAYS AGO"]);

        // After ten days without a sync, nothing of them is missed.
        app.pass(10 * DAY).await;
        let now = app.clock.now();
        app.add_row(connection, "9 DAYS AGO TOO", now - 9 * DAY).await;
        app.sync(connection).await;
        assert_eq!(texts(&app.delivered_to(&hook).await, "new"), ["9 DAYS AGO TOO", "NOT YET"]);
    }
}

#[tokio::test]
async fn marks_of_rows_out_of_reach_are_forgotten() {
    for (database, provider) in BOTH.into_iter().flat_map(|database| pretended().map(move |name| (database, name))) {
        let app = App::start(Setup { database, ..Setup::default() }).await;
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        let report = app.begin(connection, &hook).await;
        let mut before = app.marks().await;
        assert_eq!(before, u64::try_from(report.new_count).unwrap());
        for _ in 0..8 {
            app.pass(3 * DAY).await;
            app.work().await;
            let report = app.sync(connection).await;
            assert_eq!((report.new_count, report.updated_count), (0, 0), "{provider}: told twice");
            assert!(app.marks().await <= before);
            before = app.marks().await;
        }
        assert_eq!(before, 0, "{provider}");
    }
}

on_both_databases! {
    async fn a_connection_that_does_not_work_is_not_read(app: App) {
        for provider in pretended() {
            let person = app.person_at(provider).await;
            let connection = &person.connections[0];
            let hook = app.hook(&person.user).await;
            app.begin(connection, &hook).await;
            for (state, status) in
                [("expired", ConnectionStatus::Invalidated), ("revoked", ConnectionStatus::Revoked)]
            {
                app.pass(HOUR).await;
                app.set_consent(connection, state).await;
                app.forget_calls().await;
                let report = app.sync(connection).await;
                assert_eq!((report.status, report.new_count, report.events), (status, 0, 0), "{provider}");
                assert_eq!(app.row_calls(provider).await, 0, "{provider}");
                let stored = app.storage.find_connection(person.user.id, connection.id).await.unwrap().unwrap();
                assert_eq!(stored.status, status);
                let stands = app.storage.find_sync(person.user.id, connection.id).await.unwrap().unwrap();
                assert_eq!((stands.attempts, stands.problem), (0, None));
            }
            app.set_consent(connection, "active").await;
            app.add_row(connection, "MEANWHILE", app.clock.now() - HOUR).await;
            let report = app.sync(connection).await;
            assert_eq!((report.status, report.new_count), (ConnectionStatus::Active, 1), "{provider}: {report:?}");
            assert_eq!(texts(&app.delivered_to(&hook).await, "new"), ["MEANWHILE"]);
        }
    }
}

on_both_databases! {
    async fn a_provider_that_is_down_is_asked_later_and_later(app: App) {
        for provider in pretended() {
            let person = app.person_at(provider).await;
            let (user, connection) = (person.user.id, &person.connections[0]);
            let hook = app.hook(&person.user).await;
            app.begin(connection, &hook).await;
            app.add_row(connection, "WHILE IT WAS DOWN", app.clock.now() - HOUR).await;
            app.fault_at(provider, json!({"match": "/", "kind": "status", "status": 503})).await;
            for (failed, least) in [(1, 30), (2, 60), (3, 120)] {
                assert!(app.connections.sync(user, connection.id).await.is_err());
                let stands = app.storage.find_sync(user, connection.id).await.unwrap().unwrap();
                assert_eq!(stands.attempts, failed);
                assert!(stands.problem.is_some_and(|problem| !problem.is_empty()));
                let wait = stands.next_at.unwrap().duration_since(app.clock.now()).as_secs();
                assert!((least..=least * 6 / 5).contains(&wait), "{provider}: {wait}");
                app.pass(SignedDuration::from_secs(wait + 1)).await;
            }
            app.clear_faults().await;
            app.connections.sync_due().await.unwrap();
            let stands = app.storage.find_sync(user, connection.id).await.unwrap().unwrap();
            assert_eq!((stands.attempts, stands.problem), (0, None), "{provider}");
            // Ten minutes after it was adopted, as it would have been.
            assert_eq!(stands.next_at, Some(connection.created_at + HOUR / 6));
            assert_eq!(texts(&app.delivered_to(&hook).await, "new"), ["WHILE IT WAS DOWN"]);
        }
    }
}

#[tokio::test]
async fn two_copies_sync_a_connection_once() {
    for database in BOTH {
        let mut counted = Vec::new();
        for copies in [1, 2] {
            let app = App::start(Setup { database, ..Setup::default() }).await;
            let hook = app.hook(&app.olivia.user).await;
            app.pass(HOUR).await;
            app.work().await;
            app.forget_calls().await;
            // Slow enough for the other one to come in between.
            app.fault(json!({"match": "/v1/banking/transactions", "kind": "delay", "delayMs": 100})).await;
            let other = app.shared.copy().await;
            let ours = async || app.connections.sync_due().await.unwrap();
            let theirs = async || {
                if copies == 2 {
                    other.sync_due().await.unwrap();
                }
            };
            tokio::join!(ours(), theirs());
            counted.push(app.calls().await);
            let taken = app.delivered_to(&hook).await;
            let runs: BTreeSet<&str> =
                taken.iter().map(|one| one.body["metadata"]["sync_run_id"].as_str().unwrap()).collect();
            let ids: BTreeSet<&str> = all_rows(&taken, "new").iter().map(|row| row["id"].as_str().unwrap()).collect();
            assert_eq!((runs.len(), ids.len()), (2, all_rows(&taken, "new").len()), "{copies}");
        }
        let of_rows = |at: usize| counted[at]["/v1/banking/transactions"];
        assert_eq!(of_rows(0), of_rows(1));
    }
}

on_both_databases! {
    async fn by_command_one_copy_waits_for_the_other(app: App) {
        let connection = &app.olivia.connections[0];
        let other = app.shared.copy().await;
        let (ours, theirs) =
            tokio::join!(app.sync(connection), other.sync(app.olivia.user.id, connection.id));
        let theirs = theirs.unwrap();
        assert!(ours.new_count > 0 || theirs.new_count > 0);
        assert!(ours.new_count == 0 || theirs.new_count == 0, "{ours:?} {theirs:?}");
        assert_eq!(app.marks().await, u64::try_from(ours.new_count + theirs.new_count).unwrap());
    }
}

#[tokio::test]
async fn an_event_of_the_provider_asks_for_a_sync() {
    for (database, enabled) in [(Database::Sqlite, true), (Database::Postgres, true), (Database::Sqlite, false)] {
        let syncing = SyncSettings { enabled, ..SyncSettings::default() };
        let app = App::start(Setup { database, syncing, ..Setup::default() }).await;
        let (user, connection) = (&app.olivia.user, &app.olivia.connections[0]);
        let hook = app.hook(user).await;
        app.begin(connection, &hook).await;
        let next_at = async || app.storage.find_sync(user.id, connection.id).await.unwrap().unwrap().next_at.unwrap();
        // Its accounts have settled, and the next one is hours away.
        app.pass(HOUR).await;
        app.sync(connection).await;
        let planned = next_at().await;
        app.pass(HOUR).await;
        let url = format!("{}/webhooks/fiskil", app.console_url);
        app.control(Method::POST, "/webhooks", json!({ "url": url })).await;
        app.add_row(connection, "TOLD OF AT ONCE", app.clock.now() - HOUR / 2).await;
        eventually(async || {
            let seen = app.control(Method::GET, "/webhooks", json!({})).await;
            let all = seen["deliveries"].as_array().unwrap();
            !all.is_empty() && all.iter().all(|one| one["state"] == "sent")
        })
        .await;
        assert_eq!(next_at().await, if enabled { app.clock.now() } else { planned });
        if enabled {
            app.connections.sync_due().await.unwrap();
            let mut told = texts(&app.delivered_to(&hook).await, "new");
            // The other connection's first sync is due as well.
            told.retain(|text| text == "TOLD OF AT ONCE");
            assert_eq!(told.len(), 1);
            assert!(next_at().await > app.clock.now() + 5 * HOUR);
        }
    }
}

on_both_databases! {
    async fn a_sync_brings_accounts_up_to_date(app: App) {
        let connection = &app.olivia.connections[0];
        app.sync(connection).await;
        app.pass(HOUR).await;
        let grant = app.grant(0);
        let new = json!({"endUserId": grant["endUserId"], "arrangementId": grant["arrangementId"],
            "nickname": "Brand new", "display_name": "Brand new"});
        let added = app.control(Method::POST, "/accounts", new).await;
        let row = json!({"account_id": added["account_id"], "description": "ITS FIRST ROW",
            "posting_date_time": "2026-11-20T09:00:00Z"});
        app.put_row(connection, row).await;
        let hook = app.hook(&app.olivia.user).await;
        assert_eq!(app.sync(connection).await.new_count, 1);
        let account = app.account("Brand new").await;
        let taken = app.delivered_to(&hook).await;
        assert_eq!(texts(&taken, "new"), ["ITS FIRST ROW"]);
        assert_eq!(taken[0].rows("new")[0]["account_id"], account["id"]);

        // Another name makes no row another one.
        let path = format!("/accounts/{}", added["account_id"].as_str().unwrap());
        app.control(Method::PATCH, &path, json!({"nickname": "Renamed"})).await;
        app.pass(HOUR).await;
        let report = app.sync(connection).await;
        assert_eq!((report.new_count, report.updated_count, report.events), (0, 0, 0));
        assert_eq!(app.account("Renamed").await["id"], account["id"]);
    }
}

on_both_databases! {
    async fn what_is_somebody_elses_or_gone_is_not_synced(app: App) {
        let connection = &app.olivia.connections[0];
        let error = app.connections.sync(app.ben.user.id, connection.id).await;
        assert!(matches!(error, Err(ConnectionsError::NotFound)));
        app.connections.remove(connection.id).await.unwrap();
        app.forget_calls().await;
        let error = app.connections.sync(app.olivia.user.id, connection.id).await;
        assert!(matches!(error, Err(ConnectionsError::NotFound)));
        assert_eq!(app.calls_in_all("fiskil").await, 0);
    }
}

on_both_databases! {
    async fn a_sync_that_nobody_ends_is_made_again(app: App) {
        let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
        let now = app.clock.now();
        let lease = now + SignedDuration::from_secs(60);
        assert!(app.storage.claim_sync(user, connection.id, now, lease).await.unwrap().is_some());
        let synced_at = async || app.storage.find_sync(user, connection.id).await.unwrap().unwrap().synced_at;
        app.connections.sync_due().await.unwrap();
        assert_eq!(synced_at().await, None);
        app.pass(SignedDuration::from_secs(61)).await;
        app.connections.sync_due().await.unwrap();
        assert_eq!(synced_at().await, Some(app.clock.now()));
    }
}

on_both_databases! {
    async fn a_sync_that_breaks_off_tells_and_remembers_nothing(app: App) {
        let person = app.person_at("akahu").await;
        let connection = &person.connections[0];
        let account = app.account_at(connection).await;
        let fill = json!({"accountId": account, "rows": 4_000});
        app.control_of("akahu", Method::POST, "/fill", fill).await;
        let hook = app.hook(&person.user).await;
        // The first page comes, and no other.
        app.fault_at("akahu", json!({"match": "/v1/transactions", "kind": "delay", "delayMs": 1, "times": 1})).await;
        app.fault_at("akahu", json!({"match": "/v1/transactions", "kind": "status", "status": 503})).await;
        let failed = app.connections.sync(person.user.id, connection.id).await;
        let marks = app.marks().await;
        app.clear_faults().await;
        assert!(failed.is_err(), "{failed:?}");
        assert_eq!((marks, app.deliveries_to(&hook).await.len()), (0, 0));
        let report = app.sync(connection).await;
        assert!(report.new_count > 300 && report.events == 1, "{report:?}");
        assert_eq!(app.delivered_to(&hook).await[0].counts(), (report.new_count, 0));
    }
}
