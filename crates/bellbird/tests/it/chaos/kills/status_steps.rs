//! A refresh that finds another status crashes at one of its steps, and another one follows.
//! Together they report the change once.

use bellbird_connections::Connections;
use bellbird_domain::{Connection, EventType};
use bellbird_sandbox::ConsentState;
use jiff::SignedDuration;

use super::kill_factor;
use crate::support::crash::{CrashPoint, PAST_EVERY_LEASE, RunOutcome};
use crate::support::harness::{App, Setup, also_on_postgres, simulated_providers};
use crate::support::process::text;
use crate::support::receiver::Hook;
use crate::support::rows::all_rows;

/// How many parts the time of a refresh is cut into. The service crashes at the end of each.
const PARTS: u32 = 16;

/// Revokes or restores the consent, crashes the refresh that notices it, and runs another one.
async fn crash_refresh(
    app: &App,
    connection: &Connection,
    hook: &Hook,
    crash_point: CrashPoint,
) -> RunOutcome {
    let (user, id) = (connection.user_id, connection.id);
    let before = app.connection(user, id).await.status;
    let (state, after) = if before.as_str() == "active" {
        (ConsentState::Revoked, "revoked")
    } else {
        (ConsentState::Active, "active")
    };
    app.set_consent(connection, state).await;
    let refresh = async move |connections: Connections| {
        let _ = connections.refreshes().run(user, id).await;
    };
    let outcome = app
        .run_until_crash(&connection.provider, crash_point, refresh)
        .await;
    app.advance_clock(PAST_EVERY_LEASE);
    let provider = &connection.provider;
    let status = app.refresh(user, id).await;
    assert_eq!(status.as_str(), after, "{provider}");

    let received = app.delivered_to(hook).await;
    let shown = all_rows(&received, "updated").into_iter();
    let changes: Vec<_> = shown
        .map(|row| [text(row, "previous_status"), text(row, "status")])
        .collect();
    assert_eq!(changes, [[before.as_str(), after]], "{provider}");
    let audit = app.audit_of(id).await;
    let last = audit.last().unwrap();
    assert_eq!((last.from, last.to), (Some(before), Some(status)));
    app.advance_clock(SignedDuration::from_mins(1));
    outcome
}

#[tokio::test]
async fn crashed_refresh_announces_its_change_once() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app
            .hook_for(&person.user, &[EventType::ConnectionUpdated])
            .await;
        let baseline = crash_refresh(&app, connection, &hook, CrashPoint::Never).await;
        assert!(baseline.finished && baseline.calls > 0, "{provider}");
        for after in 0..baseline.calls {
            let crash_point = CrashPoint::at_call(after);
            let crashed = crash_refresh(&app, connection, &hook, crash_point).await;
            assert!(!crashed.finished, "{provider}: {after}");
        }
        for crash_point in baseline.parts(PARTS * kill_factor()) {
            crash_refresh(&app, connection, &hook, crash_point).await;
        }
        // One event for each audit row but that of the new connection.
        let events = app.deliveries_to(&hook).await.len();
        let changes = app.audit_of(connection.id).await.len() - 1;
        assert_eq!(events, changes, "{provider}");
    }
}

also_on_postgres! { crashed_refresh_announces_its_change_once }
