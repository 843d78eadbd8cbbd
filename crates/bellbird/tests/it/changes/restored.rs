//! Cursors of a history that is gone: after a restored backup, and when rows were forgotten.

use bellbird_domain::Plan;
use secrecy::SecretString;

use super::errors::assert_problem;
use super::{DAY, STALE, setup};
use crate::support::database::execute;
use crate::support::follower::{Follower, added};
use crate::support::harness::{App, Person, simulated_providers};
use crate::support::process::text;

/// The tables that know what syncs have seen.
const TABLES: [&str; 2] = ["fingerprints", "syncs"];

impl App {
    async fn back_up(&self) {
        let copies =
            TABLES.map(|table| format!("CREATE TABLE old_{table} AS SELECT * FROM {table};"));
        self.execute_all(&copies).await;
    }

    async fn restore(&self) {
        let restored = TABLES.map(|table| {
            format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM old_{table}; DROP TABLE old_{table};")
        });
        self.execute_all(&restored).await;
    }

    async fn execute_all(&self, statements: &[String]) {
        let sql = format!("BEGIN; {} COMMIT", statements.concat());
        execute(&self.shared.database, &sql, "").await;
    }
}

#[tokio::test]
async fn cursor_of_a_lost_history_is_expired() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        // Before the next sync, and after it, with and without further changes.
        for (syncs, changes_more) in [(false, false), (true, false), (true, true)] {
            let email = format!("{provider}.{syncs}.{changes_more}@example.com");
            let credentials = app.spare_credentials(provider);
            let person = app
                .add_person(&email, Plan::Professional, &[&credentials])
                .await;
            let connection = &person.connections[0];
            let mut copy = Follower::copied(&app, &person, connection).await;
            let mut old = copy.clone();
            app.back_up().await;
            let lost = app.add_recent_row(connection, "LOST").await;
            app.advance_clock(STALE);
            assert_eq!(copy.follow(&app).await.len(), 1);
            app.restore().await;
            app.remove_row(connection, &lost);
            if changes_more {
                app.add_recent_row(connection, "AFTER THE RESTORE").await;
            }
            if syncs {
                app.advance_clock(STALE);
            }
            assert_problem(&copy.ask(&app).await, 410, "cursor_expired");
            // It begins again, and keeps neither too much nor too little.
            app.advance_clock(STALE);
            copy.follow(&app).await;
            copy.assert_equal(&app, &format!("{provider}: {syncs} {changes_more}"))
                .await;
            let missed = [added("AFTER THE RESTORE")];
            let missed = if changes_more { &missed[..] } else { &[] };
            let when = format!("{provider}: the cursor of the backup is good");
            old.assert_finds(&app, missed, &when).await;
            old.assert_equal(&app, provider).await;
            let removals = app.connections.removals();
            removals.remove_locally(connection.id).await.unwrap();
        }
    }
}

#[tokio::test]
async fn cursor_of_another_history_or_from_between_pages_is_not_accepted() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::new(&app, &person, connection).with("&limit=1");
    copy.follow(&app).await;
    app.back_up().await;
    for _ in 0..3 {
        app.add_recent_row(connection, "LOST").await;
    }
    app.advance_clock(STALE);
    assert!(copy.next_page(&app).await.0);
    app.restore().await;
    assert_problem(&copy.ask(&app).await, 410, "cursor_expired");
    app.advance_clock(STALE);
    copy.follow(&app).await;
    copy.assert_equal(&app, "again").await;
    cursor_of_another_history_is_not_accepted(&app, &person).await;
}

#[tokio::test]
async fn cursor_before_forgotten_rows_is_expired() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut away = Follower::copied(&app, &person, connection).await;
        let mut there = away.clone();
        app.add_recent_row(connection, "MISSED").await;
        app.advance_clock(STALE);
        assert_eq!(there.follow(&app).await.len(), 1);
        // The range moves on with the newest row, and the missed one is forgotten.
        for _ in 0..8 {
            app.advance_clock(3 * DAY);
            app.run_due_jobs().await;
            app.add_recent_row(connection, "LATEST").await;
            there.assert_finds(&app, &[added("LATEST")], provider).await;
        }
        assert_problem(&away.ask(&app).await, 410, "cursor_expired");
        away.follow(&app).await;
        for copy in [&away, &there] {
            copy.assert_equal(&app, provider).await;
        }
    }
}

/// Change versions are seconds, and several syncs in one second have ones ahead of the clock.
async fn cursor_of_another_history_is_not_accepted(app: &App, person: &Person) {
    let connection = &person.connections[0];
    let mut copy = Follower::copied(app, person, connection).await;
    app.back_up().await;
    let sync_three_times = async |text: &str| {
        for _ in 0..3 {
            app.add_recent_row(connection, text).await;
            assert_eq!(app.sync(connection).await.new_count, 1);
        }
    };
    sync_three_times("LOST TOO").await;
    assert_eq!(copy.follow(app).await.len(), 3);
    app.restore().await;
    let restored = "UPDATE database_origin SET restore_id = restore_id + 1";
    execute(&app.shared.database, restored, "").await;
    for row in copy.rows.values() {
        if row["description"] == "LOST TOO" {
            app.remove_row(connection, text(row, "id"));
        }
    }
    sync_three_times("AFTER THE RESTORE").await;
    assert_problem(&copy.ask(app).await, 410, "cursor_expired");
    copy.follow(app).await;
    copy.assert_equal(app, "again").await;

    // A connection that is removed and linked again is another one, for its cursors too.
    let (removals, imports) = (app.connections.removals(), app.connections.imports());
    removals.remove_locally(connection.id).await.unwrap();
    let credentials = SecretString::from(app.spare_credentials("fiskil").to_string());
    let imported = imports.import(person.user.id, "fiskil", &credentials).await;
    let mut again = Follower::new(app, person, &imported.unwrap().connections[0]);
    again.cursor = copy.cursor;
    assert_problem(&again.ask(app).await, 400, "invalid_cursor");
}
