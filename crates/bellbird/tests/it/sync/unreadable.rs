//! One row that cannot be read: the sync reads the others, and reports the row once it can be read.

use bellbird_domain::Connection;
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::harness::{App, Setup, simulated_providers};
use crate::support::process::Workdir;
use crate::support::provider_spec::spec;
use crate::support::receiver::{Hook, Reply, SyncCounts};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// A member whose value cannot be read, and its readable value. A change of an amount is a change
/// of a trade's id.
fn amount(connection: &Connection, is_readable: bool) -> Value {
    let spec = spec(&connection.provider);
    let value = if is_readable {
        (spec.row)("", "")[spec.amount].clone()
    } else {
        json!("twelve")
    };
    json!({ spec.amount: value })
}

#[tokio::test]
async fn unreadable_row_is_announced_once_it_can_be_read() {
    for provider in simulated_providers() {
        let (app, person, hook) = App::synced_at(provider).await;
        let connection = &person.connections[0];
        let at = app.clock.now() - HOUR;
        let row = app.add_row(connection, "UNREADABLE", at).await;
        app.change_row(connection, &row, amount(connection, false));
        app.add_row(connection, "READABLE", at - HOUR).await;
        assert_eq!(app.sync(connection).await.new_count, 1, "{provider}");
        // The event of the other row is also delivered again.
        hook.receiver.reply_next_with([Reply::Status(500)]);
        assert_eq!(app.announced_to(&hook).await, ["READABLE"], "{provider}");
        assert!(app.advance_to_next_attempt(&hook).await);
        assert_eq!(app.announced_to(&hook).await, ["READABLE"], "{provider}");

        let sync_state = app.sync_state(person.user.id, connection.id).await;
        let unreadable = sync_state.unreadable.unwrap();
        assert_eq!(
            (unreadable.count, unreadable.reason.as_str()),
            (1, "invalid_amount"),
            "{provider}"
        );
        let is_its_day = unreadable.since <= at && at.duration_since(unreadable.since) < DAY;
        assert!(is_its_day, "{provider}: the day of the row");

        // Reads still reject the page.
        let read = app.rows_of(connection).by(&person).send().await;
        assert_eq!(read.status, 503);

        // Much later than the usual overlap, with other rows meanwhile.
        for _ in 0..10 {
            app.advance_clock(3 * DAY);
            app.add_recent_row(connection, "MEANWHILE").await;
            assert_eq!(app.sync(connection).await.new_count, 1, "{provider}");
            assert_eq!(app.announced_to(&hook).await, ["MEANWHILE"], "{provider}");
        }
        app.change_row(connection, &row, amount(connection, true));
        let counts = SyncCounts::of(&app.sync(connection).await);
        assert_eq!(counts, SyncCounts::ONE_NEW, "{provider}");
        assert_eq!(app.announced_to(&hook).await, ["UNREADABLE"], "{provider}");
        let sync_state = app.sync_state(person.user.id, connection.id).await;
        assert_eq!(sync_state.unreadable, None, "{provider}");
        for _ in 0..3 {
            app.advance_clock(3 * DAY);
            app.assert_nothing_new(connection).await;
        }

        // A known row that becomes unreadable is not announced again.
        let row = app.add_recent_row(connection, "KNOWN").await;
        app.sync(connection).await;
        assert_eq!(app.announced_to(&hook).await, ["KNOWN"], "{provider}");
        app.change_row(connection, &row, amount(connection, false));
        for _ in 0..10 {
            app.advance_clock(3 * DAY);
            app.sync(connection).await;
        }
        app.change_row(connection, &row, amount(connection, true));
        app.assert_nothing_new(connection).await;
        row_of_another_form_is_announced_once_it_can_be_read(&app, connection, &hook).await;
    }
}

/// A member of another type makes the whole page unparsable.
async fn row_of_another_form_is_announced_once_it_can_be_read(
    app: &App,
    connection: &Connection,
    hook: &Hook,
) {
    let provider = connection.provider.as_str();
    let row = app.add_recent_row(connection, "UNREADABLE").await;
    let other_form = json!({"description": {"text": "UNREADABLE"}});
    app.change_row(connection, &row, other_form);
    app.add_recent_row(connection, "READABLE").await;
    for (days, new) in [(0, vec!["READABLE"]), (20, vec![])] {
        app.advance_clock(days * DAY);
        app.sync(connection).await;
        assert_eq!(app.announced_to(hook).await, new, "{provider}");
        let sync_state = app.sync_state(connection.user_id, connection.id).await;
        let reason = sync_state.unreadable.unwrap().reason;
        assert_eq!(reason, "invalid_form", "{provider}");
    }
    app.change_row(connection, &row, json!({"description": "UNREADABLE"}));
    app.sync(connection).await;
    assert_eq!(app.announced_to(hook).await, ["UNREADABLE"], "{provider}");
    app.assert_nothing_new(connection).await;
}

/// A page has the rows of all consents of an end user.
#[tokio::test]
async fn row_of_another_form_degrades_its_own_connection_only() {
    let app = App::start(Setup::default()).await;
    let [own, other] = [0, 1].map(|number| &app.olivia.connections[number]);
    let at = app.clock.now() - HOUR;
    let row = app.add_row(own, "UNREADABLE", at).await;
    app.change_row(own, &row, json!({"description": {"text": "UNREADABLE"}}));
    let unreadable = async |connection: &Connection| {
        app.sync(connection).await;
        app.sync_state(connection.user_id, connection.id)
            .await
            .unreadable
    };
    assert_eq!(unreadable(other).await, None);
    let rows = unreadable(own).await.unwrap();
    assert_eq!(rows.count, 1);
    assert!(
        rows.since <= at && at.duration_since(rows.since) < DAY,
        "the day of the row: {}",
        rows.since
    );
}

#[tokio::test]
async fn unreadable_rows_are_shown_to_the_operator() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let at = "2026-11-19T03:00:00Z".parse().unwrap();
    let row = app.add_row(connection, "UNREADABLE", at).await;
    app.change_row(connection, &row, amount(connection, false));
    app.sync(connection).await;

    let mut workdir = Workdir::new();
    workdir.set("BELLBIRD_DATABASE__URL", &app.shared.database);
    let shown = workdir.json(&format!("connection show {}", connection.id));
    let expected = json!({"count": 1, "reason": "invalid_amount", "since": "2026-11-19T00:00:00Z"});
    assert_eq!(shown["sync"]["unreadable"], expected);
    let sentence = "1 row (invalid_amount), the oldest of 2026-11-19";
    let text = workdir.text(&format!("connection show {}", connection.id));
    assert!(text.contains(sentence), "{text}");
    // Other checks fail: this folder has no master key.
    let named = format!("connection {} at fiskil", connection.id);
    let expected = format!("note {named}: could not read {sentence}");
    assert_eq!(workdir.doctor("rows"), [expected]);
}
