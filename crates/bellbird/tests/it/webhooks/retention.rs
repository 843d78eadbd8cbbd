//! Which events are deleted or skipped when their connection or endpoint is removed, or when they
//! are old.

use bellbird_connections::Removal;
use bellbird_sandbox::{ConsentState, Fault};
use bellbird_webhooks::delivery::cleanup::delete_outdated;
use jiff::SignedDuration;

use super::{BODY_EXPIRED, DAY};
use crate::support::harness::{App, Setup, simulated_providers};
use crate::support::receiver::Reply;

/// How long events are stored.
const KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
const DELIVERED_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

impl App {
    pub(crate) async fn rows_in(&self, table: &str) -> u64 {
        let counted = self.query(&format!("SELECT COUNT(*) FROM {table}")).await;
        counted[0][0].parse().unwrap()
    }
}

#[tokio::test]
async fn removed_connection_and_lost_consent_send_nothing() {
    let app = App::start(Setup::default()).await;
    let [gone, hidden] = [0, 1].map(|at| &app.olivia.connections[at]);
    let hook = app.hook(&app.olivia.user).await;
    hook.receiver.reply_with(Reply::Status(500));
    app.sync(gone).await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    assert_eq!(app.remove(gone.id).await, Removal::Done);
    for table in [
        "fingerprints",
        "webhook_events",
        "webhook_deliveries",
        "webhook_attempts",
    ] {
        assert_eq!(app.rows_in(table).await, 0, "{table}");
    }
    hook.receiver.reply_with(Reply::Status(200));
    app.advance_clock(DAY);
    assert!(app.delivered_to(&hook).await.is_empty());
    app.assert_enabled(&hook).await;

    let removed = app.hook(&app.olivia.user).await;
    removed.receiver.reply_with(Reply::Status(500));
    app.sync(hidden).await;
    app.webhooks.run_due_deliveries().await;
    assert_eq!(removed.drain().len(), 1);
    assert_eq!(hook.drain().len(), 1);
    app.delete_hook(&removed).await;
    app.advance_clock(DAY);
    assert!(app.delivered_to(&removed).await.is_empty() && hook.drain().is_empty());
    assert_eq!(app.rows_in("webhook_deliveries").await, 1);

    app.add_event(hidden, "NOT SENT BEFORE THE REMOVAL").await;
    app.advance_clock(BODY_EXPIRED);
    // The consent cannot be withdrawn now, so the connection is only hidden.
    app.fiskil().add_fault(Fault::status(503).at("/v1/consent"));
    let _ = app.connections.removals().remove(hidden.id).await;
    assert!(!app.has_connection(app.olivia.user.id, hidden.id).await);
    for _ in 0..3 {
        assert!(app.delivered_to(&hook).await.is_empty());
        app.advance_to_next_attempt(&hook).await;
    }
    assert_eq!(app.endpoint_of(&hook).await.failing_since, None);

    // A lost consent sends no empty event.
    app.clear_faults();
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.hook(&person.user).await;
        hook.receiver.reply_next_with([Reply::Status(500)]);
        app.sync(connection).await;
        let first = app.delivered_to(&hook).await.remove(0);
        app.set_consent(connection, ConsentState::Revoked).await;
        app.advance_to_next_attempt(&hook).await;
        let received = app.delivered_to(&hook).await;
        assert!(
            received.is_empty(),
            "{provider}: {:?}",
            received[0].counts()
        );
        app.set_consent(connection, ConsentState::Active).await;
        app.refresh(person.user.id, connection.id).await;
        app.advance_to_next_attempt(&hook).await;
        assert_eq!(
            app.delivered_to(&hook).await[0].body,
            first.body,
            "{provider}"
        );
    }
}

#[tokio::test]
async fn delivered_events_are_kept_for_a_month_and_others_for_three() {
    let app = App::start(Setup::default()).await;
    let missed = app.hook(&app.ben.user).await;
    app.disable_hook(&missed, "by command").await;
    app.sync(&app.ben.connections[0]).await;
    let kept = app.rows_in("webhook_events").await;
    assert!(kept > 0);
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    app.sync(connection).await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    let event = app.deliveries_to(&hook).await[0].event_id;
    let mut past = SignedDuration::ZERO;
    for (at, expected) in [
        (DELIVERED_KEPT - DAY, kept + 1),
        (DELIVERED_KEPT + DAY, kept),
        (KEPT - DAY, kept),
        (KEPT + DAY, 0),
    ] {
        app.advance_clock(at - past);
        past = at;
        let deleted = delete_outdated(&app.storage, app.clock.now()).await;
        deleted.unwrap();
        assert_eq!(app.rows_in("webhook_events").await, expected, "{at}");
    }
    for table in ["webhook_deliveries", "webhook_attempts"] {
        assert_eq!(app.rows_in(table).await, 0, "{table}");
    }
    app.redeliver(&hook, event).await.unwrap_err();
}
