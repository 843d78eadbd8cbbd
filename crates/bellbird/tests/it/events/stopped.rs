//! What becomes of events when what they tell of, or whom they tell, goes away.

use bellbird_connections::Removal;
use jiff::SignedDuration;

use super::{DAY, FRESH_NO_MORE};
use crate::harness::{App, Database, Setup, on_both_databases};
use crate::link_kills::database::query;
use crate::receiver::Reply;

/// How long events are kept.
const KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);

impl App {
    async fn rows_in(&self, table: &str) -> u64 {
        let counted = query(&self.shared.database, &format!("SELECT COUNT(*) FROM {table}")).await;
        counted[0][0].parse().unwrap()
    }
}

on_both_databases! {
    async fn with_the_connection_its_events_go(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook(&app.olivia.user).await;
        hook.receiver.answers(Reply::Status(500));
        app.sync(connection).await;
        assert_eq!(app.delivered_to(&hook).await.len(), 1);
        assert_eq!(app.connections.remove(connection.id).await.unwrap(), Removal::Done);
        for table in ["row_marks", "webhook_events", "webhook_deliveries", "webhook_attempts"] {
            assert_eq!(app.rows_in(table).await, 0, "{table}");
        }
        hook.receiver.answers(Reply::Status(200));
        app.pass(DAY).await;
        assert!(app.delivered_to(&hook).await.is_empty());
        app.assert_enabled(&hook).await;
    }
}

on_both_databases! {
    async fn of_a_connection_that_is_being_removed_nothing_is_sent(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook(&app.olivia.user).await;
        app.sync(connection).await;
        app.pass(FRESH_NO_MORE).await;
        // The consent cannot be withdrawn now: the connection is hidden only.
        app.fault(serde_json::json!({"match": "/v1/consent", "kind": "status", "status": 503})).await;
        let _ = app.connections.remove(connection.id).await;
        assert!(app.storage.find_connection(app.olivia.user.id, connection.id).await.unwrap().is_none());
        for _ in 0..3 {
            assert!(app.delivered_to(&hook).await.is_empty());
            app.pass_to_next_attempt(&hook).await;
        }
        assert_eq!(app.endpoint_of(&hook).await.failing_since, None);
    }
}

on_both_databases! {
    async fn after_ninety_days_events_are_forgotten(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook(&app.olivia.user).await;
        app.sync(connection).await;
        assert_eq!(app.delivered_to(&hook).await.len(), 1);
        let event = app.deliveries_to(&hook).await[0].event_id;
        app.pass(KEPT - DAY).await;
        app.webhooks.tidy().await.unwrap();
        assert_eq!(app.rows_in("webhook_events").await, 1);
        app.pass(2 * DAY).await;
        app.webhooks.tidy().await.unwrap();
        for table in ["webhook_events", "webhook_deliveries", "webhook_attempts"] {
            assert_eq!(app.rows_in(table).await, 0, "{table}");
        }
        let (user, now) = (app.olivia.user.id, app.clock.now());
        assert!(!app.storage.redeliver(user, hook.endpoint.id, event, now).await.unwrap());
    }
}

on_both_databases! {
    async fn an_endpoint_that_is_removed_is_sent_nothing(app: App) {
        let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
        let (gone, stays) = (app.hook(&app.olivia.user).await, app.hook(&app.olivia.user).await);
        gone.receiver.answers(Reply::Status(500));
        app.sync(connection).await;
        app.webhooks.deliver_due().await;
        assert_eq!((gone.take().len(), stays.take().len()), (1, 1));
        assert!(app.storage.delete_endpoint(user, gone.endpoint.id).await.unwrap());
        app.pass(DAY).await;
        assert!(app.delivered_to(&gone).await.is_empty() && stays.take().is_empty());
        assert_eq!(app.rows_in("webhook_deliveries").await, 1);
    }
}

on_both_databases! {
    async fn a_consent_that_ends_meanwhile_leaves_no_event_empty(app: App) {
        for provider in crate::harness::pretended() {
            let person = app.person_at(provider).await;
            let connection = &person.connections[0];
            let hook = app.hook(&person.user).await;
            hook.receiver.answers_next([Reply::Status(500)]);
            app.sync(connection).await;
            let first = app.delivered_to(&hook).await.remove(0);
            app.set_consent(connection, "revoked").await;
            app.pass_to_next_attempt(&hook).await;
            let taken = app.delivered_to(&hook).await;
            assert!(taken.is_empty(), "{provider}: {:?}", taken[0].counts());
            app.set_consent(connection, "active").await;
            app.connections.check(person.user.id, connection.id).await.unwrap();
            app.pass_to_next_attempt(&hook).await;
            assert_eq!(app.delivered_to(&hook).await[0].body, first.body, "{provider}");
        }
    }
}
