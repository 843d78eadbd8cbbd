//! A sync crashes at one of its steps, and another one follows. Together they report every row
//! once.

use bellbird_connections::Connections;
use bellbird_domain::Connection;
use jiff::SignedDuration;

use super::kill_factor;
use crate::support::crash::{CrashPoint, PAST_EVERY_LEASE, RunOutcome};
use crate::support::harness::{App, Setup, also_on_postgres, simulated_providers};
use crate::support::receiver::{Hook, ReceivedEvent, RowCounts};
use crate::support::rows::descriptions;

/// How many parts the time of a sync is cut into. The service crashes at the end of each.
const PARTS: u32 = 8;

/// Adds a row, changes the previous one, crashes the sync of both and runs another sync.
async fn crash_sync(
    app: &App,
    connection: &Connection,
    hook: &Hook,
    rows: &mut Vec<String>,
    crash_point: CrashPoint,
) -> RunOutcome {
    let text = format!("ROW {}", rows.len());
    app.advance_clock(SignedDuration::from_mins(1));
    let row = app.add_row(connection, &text, app.clock.now()).await;
    let previous = rows.last().cloned();
    if let Some(previous) = &previous {
        app.set_amount(connection, previous, 100_000 + rows.len() as u64);
    }
    rows.push(row);
    app.advance_clock(SignedDuration::from_mins(1));

    let (user, id) = (connection.user_id, connection.id);
    let sync = async move |connections: Connections| {
        let _ = connections.syncs().run(user, id).await;
    };
    let outcome = app
        .run_until_crash(&connection.provider, crash_point, sync)
        .await;
    app.advance_clock(PAST_EVERY_LEASE);
    app.sync(connection).await;

    let received = app.delivered_to(hook).await;
    assert_eq!(
        descriptions(&received, "new"),
        [text],
        "{}",
        connection.provider
    );
    // One sync reports both in one event: the crashed sync has left no part of its work.
    let counts: Vec<_> = received.iter().map(ReceivedEvent::counts).collect();
    let (new, updated) = (1, usize::from(previous.is_some()));
    assert_eq!(
        counts,
        [RowCounts { new, updated }],
        "{}",
        connection.provider
    );
    assert_eq!(app.delivered_to(hook).await.len(), 0);
    outcome
}

#[tokio::test]
async fn crashed_sync_announces_its_rows_once() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (person, hook) = app.synced_person(provider).await;
        let connection = &person.connections[0];
        let mut rows = Vec::new();
        let baseline = crash_sync(&app, connection, &hook, &mut rows, CrashPoint::Never).await;
        assert!(baseline.finished && baseline.calls > 1, "{provider}");
        for after in 0..baseline.calls {
            let crash_point = CrashPoint::at_call(after);
            let crashed = crash_sync(&app, connection, &hook, &mut rows, crash_point).await;
            assert!(!crashed.finished, "{provider}: call {after}");
        }
        for crash_point in baseline.parts(PARTS * kill_factor()) {
            crash_sync(&app, connection, &hook, &mut rows, crash_point).await;
        }
    }
}

also_on_postgres! { crashed_sync_announces_its_rows_once }
