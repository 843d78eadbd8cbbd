//! Rows that come late after a gap: a repaired connection, or a provider without news from the
//! bank.

use bellbird_domain::Connection;
use bellbird_sandbox::ConsentState;
use jiff::SignedDuration;

use crate::support::harness::{App, simulated_providers};
use crate::support::provider_spec::spec;
use crate::support::receiver::Hook;

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);

#[tokio::test]
async fn rows_after_a_repair_and_after_a_silence_are_announced() {
    for provider in simulated_providers() {
        let (app, person, hook) = App::synced_at(provider).await;
        let connection = &person.connections[0];
        app.advance_clock(2 * HOUR);
        app.sync(connection).await;
        app.set_consent(connection, ConsentState::Expired).await;
        app.sync(connection).await;
        app.advance_clock(20 * DAY);
        app.set_consent(connection, ConsentState::Active).await;
        app.import_again(connection).await;
        app.assert_nothing_new(connection).await;

        // The bank's newest rows come first, and those of the gap within the day.
        app.add_recent_row(connection, "TODAY").await;
        app.sync(connection).await;
        assert_eq!(app.announced_to(&hook).await, ["TODAY"], "{provider}");
        app.advance_clock(6 * HOUR);
        app.add_row(connection, "IN THE GAP", app.clock.now() - 12 * DAY)
            .await;
        app.add_row(connection, "AT ITS START", app.clock.now() - 20 * DAY)
            .await;
        app.sync(connection).await;
        assert_eq!(
            app.announced_to(&hook).await,
            ["IN THE GAP", "AT ITS START"],
            "{provider}"
        );
        app.advance_clock(2 * DAY);
        app.assert_nothing_new(connection).await;
        rows_after_a_silence_are_announced(&app, connection, &hook).await;
    }
}

async fn rows_after_a_silence_are_announced(app: &App, connection: &Connection, hook: &Hook) {
    let provider = connection.provider.as_str();
    for days in [9, 30] {
        let silent_since = app.clock.now();
        for _ in 0..days {
            app.advance_clock(DAY);
            app.assert_nothing_new(connection).await;
        }
        app.add_recent_row(connection, "LATEST").await;
        app.add_row(connection, "FIRST", silent_since + HOUR).await;
        app.sync(connection).await;
        assert_eq!(
            app.announced_to(hook).await,
            ["LATEST", "FIRST"],
            "{provider}: {days} days"
        );
        // Not all rows come at the same time.
        app.advance_clock(20 * HOUR);
        app.add_row(connection, "SECOND", silent_since + 2 * HOUR)
            .await;
        app.sync(connection).await;
        assert_eq!(
            app.announced_to(hook).await,
            ["SECOND"],
            "{provider}: {days} days"
        );
        app.assert_nothing_new(connection).await;
    }

    // The range of a sync depends on the newest row. Its day is stored, not its time.
    let newest_row_at = async || {
        let state = app.sync_state(connection.user_id, connection.id).await;
        state.newest_row_at.unwrap()
    };
    let at = app.clock.now() - HOUR;
    app.add_row(connection, "NEWEST", at).await;
    assert_eq!(app.sync(connection).await.new_count, 1, "{provider}");
    let day = newest_row_at().await;
    assert!(day <= at && at.duration_since(day) < DAY, "{provider}");
    assert_eq!(day.as_second() % DAY.as_secs(), 0, "{provider}: {day}");
    if spec(provider).is_brokerage() {
        // A trade of the future says nothing of the days before it.
        app.advance_clock(3 * DAY);
        app.add_row(connection, "LATER", app.clock.now() + 5 * DAY)
            .await;
        assert_eq!(app.sync(connection).await.new_count, 1);
        assert_eq!(newest_row_at().await, day);
    }
}
