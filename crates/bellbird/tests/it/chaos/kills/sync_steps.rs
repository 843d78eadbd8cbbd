//! A sync crashes at one of its steps, and another one follows. Together they report every row
//! once.

use bellbird_connections::Connections;
use bellbird_domain::Connection;
use jiff::SignedDuration;
use serde_json::Value;

use super::kill_factor;
use crate::support::crash::{CrashPoint, PAST_EVERY_LEASE, RunOutcome};
use crate::support::harness::{App, Setup, also_on_postgres, simulated_providers};
use crate::support::provider_spec::{SetAmount, spec};
use crate::support::receiver::{Hook, ReceivedEvent};

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
        let SetAmount { members, .. } =
            (spec(&connection.provider).set_amount)(100_000 + rows.len() as u64);
        app.change_row(connection, previous, members);
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
    let texts: Vec<&Value> = received
        .iter()
        .flat_map(|event| event.rows("new"))
        .map(|row| &row["description"])
        .collect();
    assert_eq!(texts, [&text], "{}", connection.provider);
    let updated: usize = received.iter().map(|event| event.counts().updated).sum();
    assert_eq!(
        updated,
        usize::from(previous.is_some()),
        "{}",
        connection.provider
    );
    // One sync reports both in one event: the crashed sync has left no part of its work.
    assert_eq!(
        received.len(),
        1,
        "{:?}",
        received
            .iter()
            .map(ReceivedEvent::counts)
            .collect::<Vec<_>>()
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
        assert!(
            baseline.finished && baseline.calls > 1,
            "{} calls",
            baseline.calls
        );
        for after in 0..baseline.calls {
            let crash_point = CrashPoint::AtCall {
                after,
                applied: false,
            };
            assert!(
                !crash_sync(&app, connection, &hook, &mut rows, crash_point)
                    .await
                    .finished,
                "{provider}: call {after}"
            );
        }
        let parts = PARTS * kill_factor();
        for part in 0..=parts {
            let polls = u64::from(baseline.polls) * u64::from(part) / u64::from(parts);
            crash_sync(
                &app,
                connection,
                &hook,
                &mut rows,
                CrashPoint::AfterPolls(u32::try_from(polls).unwrap()),
            )
            .await;
        }
    }
}

also_on_postgres! { crashed_sync_announces_its_rows_once }
