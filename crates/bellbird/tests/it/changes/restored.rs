//! Cursors of a history that is gone: after a restored backup, and when rows were forgotten.

use super::errors::assert_problem;
use super::{DAY, HOUR, STALE, setup};
use crate::support::database::execute;
use crate::support::follower::{Follower, changes};
use crate::support::harness::{App, simulated_providers};

/// The tables that know what syncs have seen.
const TABLES: [&str; 2] = ["fingerprints", "syncs"];

impl App {
    async fn back_up(&self) {
        let copies =
            TABLES.map(|table| format!("CREATE TABLE old_{table} AS SELECT * FROM {table};"));
        execute(
            &self.shared.database,
            &format!("BEGIN; {} COMMIT", copies.concat()),
            "",
        )
        .await;
    }

    async fn restore(&self) {
        let restored = TABLES.map(|table| {
            format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM old_{table}; DROP TABLE old_{table};")
        });
        execute(
            &self.shared.database,
            &format!("BEGIN; {} COMMIT", restored.concat()),
            "",
        )
        .await;
    }
}

#[tokio::test]
async fn cursor_of_a_lost_history_is_expired() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        // Before the next sync, and after it, with and without further changes.
        for (syncs, changes_more) in [(false, false), (true, false), (true, true)] {
            let email = format!("{provider}.{syncs}.{changes_more}@example.com");
            let all = app.credentials_of(provider);
            let credentials = &all[crate::support::provider_spec::spec(provider).spare_credentials];
            let person = app
                .add_person(&email, bellbird_domain::Plan::Professional, &[credentials])
                .await;
            let connection = &person.connections[0];
            let mut copy = Follower::new(&app, &person, connection);
            copy.follow(&app).await;
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
            let missed = old.follow(&app).await;
            let expected: &[_] = if changes_more {
                &[("upsert", Some(true), "AFTER THE RESTORE")]
            } else {
                &[]
            };
            assert_eq!(
                changes(&missed),
                expected,
                "{provider}: the cursor of the backup is good"
            );
            old.assert_equal(&app, provider).await;
            app.connections
                .removals()
                .remove_locally(connection.id)
                .await
                .unwrap();
        }
    }
}

#[tokio::test]
async fn cursor_from_between_pages_is_expired() {
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
}

#[tokio::test]
async fn cursor_before_forgotten_rows_is_expired() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut away = Follower::new(&app, &person, connection);
        away.follow(&app).await;
        let mut there = away.clone();
        app.add_recent_row(connection, "MISSED").await;
        app.advance_clock(STALE);
        assert_eq!(there.follow(&app).await.len(), 1);
        // The range moves on with the newest row, and the missed one is forgotten.
        for _ in 0..8 {
            app.advance_clock(3 * DAY);
            app.run_due_jobs().await;
            app.add_recent_row(connection, "LATEST").await;
            assert_eq!(
                changes(&there.follow(&app).await),
                [("upsert", Some(true), "LATEST")],
                "{provider}"
            );
        }
        assert_problem(&away.ask(&app).await, 410, "cursor_expired");
        away.follow(&app).await;
        for copy in [&away, &there] {
            copy.assert_equal(&app, provider).await;
        }
    }
}

/// Change versions are seconds, and several syncs in one second have ones ahead of the clock.
#[tokio::test]
async fn cursor_with_a_mark_of_two_histories_is_expired() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::new(&app, &person, connection);
    copy.follow(&app).await;
    app.back_up().await;
    let sync_three_times = async |text: &str| {
        for _ in 0..3 {
            app.add_recent_row(connection, text).await;
            assert_eq!(app.sync(connection).await.new_count, 1);
        }
    };
    sync_three_times("LOST").await;
    assert_eq!(copy.follow(&app).await.len(), 3);
    app.restore().await;
    execute(
        &app.shared.database,
        "UPDATE database_origin SET restore_id = restore_id + 1",
        "",
    )
    .await;
    for id in copy
        .rows
        .values()
        .filter(|row| row["description"] == "LOST")
        .map(|row| row["id"].as_str().unwrap())
    {
        app.remove_row(connection, id);
    }
    sync_three_times("AFTER THE RESTORE").await;
    assert_problem(&copy.ask(&app).await, 410, "cursor_expired");
    copy.follow(&app).await;
    copy.assert_equal(&app, "again").await;
}

/// A connection that is removed and linked again is another one, for its cursors too.
#[tokio::test]
async fn cursor_of_a_removed_connection_is_not_accepted() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let mut copy = Follower::new(&app, &person, &person.connections[0]);
    copy.follow(&app).await;
    app.connections
        .removals()
        .remove_locally(person.connections[0].id)
        .await
        .unwrap();
    let credentials = &app.credentials_of("fiskil")
        [crate::support::provider_spec::spec("fiskil").spare_credentials];
    let credentials = secrecy::SecretString::from(credentials.to_string());
    let imported = app
        .connections
        .imports()
        .import(person.user.id, "fiskil", &credentials)
        .await
        .unwrap();
    let mut again = Follower::new(&app, &person, &imported.connections[0]);
    again.cursor = copy.cursor.clone();
    assert_problem(&again.ask(&app).await, 400, "invalid_cursor");
}
