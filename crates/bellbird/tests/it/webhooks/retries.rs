//! When an event is tried again, and when no more: the schedule, `Retry-After`, endpoints that are gone or only fail.

use std::time::Duration;

use bellbird_domain::{Connection, DeliveryState, EndpointStatus};
use bellbird_webhooks::Settings as WebhookSettings;
use jiff::SignedDuration;

use super::{DAY, HOUR, with_chunks_of};
use crate::support::harness::{App, Database, Setup, on_both_databases};
use crate::support::receiver::{Hook, Receiver, Reply};

/// The waits of docs/contract.md#webhook-retries, before each attempt but the first.
const WAITS: [i64; 9] = [5, 60, 300, 1_800, 3_600, 7_200, 18_000, 28_800, 39_600];

impl App {
    /// One event for the endpoint, of one row, not yet sent.
    async fn event(&self, connection: &Connection, text: &str) {
        self.add_row(connection, text, self.clock.now() - HOUR).await;
        assert_eq!(self.sync(connection).await.new_count, 1);
    }

    /// An endpoint that knows the connection's rows so far.
    pub(super) async fn hook_on(&self, connection: &Connection) -> Hook {
        let hook = self.hook(&self.olivia.user).await;
        self.complete_initial_sync(connection, &hook).await;
        hook
    }
}

on_both_databases! {
    async fn ten_attempts_by_schedule(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook_on(connection).await;
        let known = app.deliveries_to(&hook).await.len();
        hook.receiver.answers(Reply::Status(500));
        app.event(connection, "NEVER TAKEN").await;
        let mut waits = Vec::new();
        loop {
            assert_eq!(app.delivered_to(&hook).await.len(), 1);
            // Until then, nothing is sent.
            assert!(app.delivered_to(&hook).await.is_empty());
            let delivery = app.deliveries_to(&hook).await.remove(known);
            assert_eq!((delivery.last_status, delivery.last_error.as_deref()), (Some(500), Some("rejected")));
            let Some(next) = delivery.next_attempt_at else { break };
            waits.push(next.duration_since(app.clock.now()).as_secs());
            assert!(app.advance_to_next_attempt(&hook).await);
        }
        for (wait, least) in waits.iter().zip(WAITS) {
            assert!((least..=least * 6 / 5).contains(wait), "{waits:?}");
        }
        assert_eq!(waits.len(), WAITS.len());
        let delivery = app.deliveries_to(&hook).await.remove(known);
        assert_eq!((delivery.state, delivery.attempts), (DeliveryState::Failed, 10));
        assert!(delivery.ended_at.is_some());
        let attempts = app.attempts_of(&hook, &delivery).await;
        assert_eq!(attempts.iter().map(|made| made.attempt).collect::<Vec<_>>(), (1..=10).collect::<Vec<_>>());
        assert!(attempts.iter().all(|made| made.status == Some(500)));
        app.assert_enabled(&hook).await;
    }
}

on_both_databases! {
    async fn retry_after_is_honoured(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook_on(connection).await;
        let known = app.deliveries_to(&hook).await.len();
        let at = (app.clock.now() + 2 * HOUR).strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let waits = [("3600".to_owned(), 3_600), (at, 3_600), ("1".to_owned(), 300), ("9999999".to_owned(), 86_400)];
        app.event(connection, "LATER").await;
        for (asked, least) in waits {
            hook.receiver.answers(Reply::With(429, "retry-after", asked.clone()));
            assert_eq!(app.delivered_to(&hook).await.len(), 1, "{asked}");
            let next = app.deliveries_to(&hook).await[known].next_attempt_at.unwrap();
            let wait = next.duration_since(app.clock.now()).as_secs();
            // The hour of the first has passed, and up to a fifth of it.
            assert!((least * 3 / 4..=least * 6 / 5).contains(&wait), "{asked}: {wait}");
            app.advance_to_next_attempt(&hook).await;
        }
    }
}

#[tokio::test]
async fn status_410_disables_the_endpoint() {
    for database in super::BOTH {
        let app = with_chunks_of(5, database).await;
        let connection = &app.olivia.connections[0];
        let hook = app.hook(&app.olivia.user).await;
        app.sync(connection).await;
        app.sync(&app.olivia.connections[1]).await;
        hook.receiver.answers_next([Reply::Status(204), Reply::Status(204), Reply::Status(410)]);
        app.webhooks.run_due_deliveries().await;
        let sent = hook.drain().len();
        let endpoint = app.endpoint_of(&hook).await;
        assert_eq!((endpoint.status, endpoint.disabled_reason.as_deref()), (EndpointStatus::Disabled, Some("gone")));
        let deliveries = app.deliveries_to(&hook).await;
        let open = |state| matches!(state, DeliveryState::Pending | DeliveryState::Waiting);
        assert!(deliveries.iter().all(|delivery| !open(delivery.state)));
        let with_error =
            |words: &str| deliveries.iter().filter(|delivery| delivery.last_error.as_deref() == Some(words)).count();
        assert_eq!(
            (with_error("rejected"), deliveries.iter().filter(|one| one.last_status == Some(410)).count()),
            (1, 1)
        );
        assert!(with_error("endpoint disabled") + sent >= deliveries.len());

        // What comes now is kept for later, and nothing is sent.
        app.advance_clock(DAY).await;
        app.event(connection, "NOBODY IS THERE").await;
        assert!(app.delivered_to(&hook).await.is_empty());
        let last = app.deliveries_to(&hook).await.pop().unwrap();
        assert_eq!((last.state, last.attempts), (DeliveryState::Failed, 0));
        assert_eq!(last.last_error.as_deref(), Some("endpoint disabled"));
    }
}

on_both_databases! {
    async fn five_days_of_failures_disable_the_endpoint(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook_on(connection).await;
        hook.receiver.answers(Reply::Status(503));
        let mut days = 0;
        let fail_for = async |most: u32, hook: &Hook, from: u32| {
            for day in 0..most {
                app.event(connection, &format!("DAY {from} {day}")).await;
                app.webhooks.run_due_deliveries().await;
                if app.endpoint_of(hook).await.status == EndpointStatus::Disabled {
                    return day;
                }
                app.advance_clock(DAY).await;
                app.run_due_jobs().await;
            }
            most
        };
        assert_eq!(fail_for(4, &hook, days).await, 4);
        days += 4;
        assert!(app.endpoint_of(&hook).await.failing_since.is_some());
        // One success, and everything is forgiven.
        hook.receiver.answers_next([Reply::Status(200)]);
        app.webhooks.run_due_deliveries().await;
        hook.receiver.answers(Reply::Status(200));
        app.event(connection, "A SUCCESS").await;
        app.webhooks.run_due_deliveries().await;
        assert_eq!(app.endpoint_of(&hook).await.failing_since, None);
        hook.receiver.answers(Reply::Status(503));
        assert_eq!(fail_for(9, &hook, days).await, 5);
        let endpoint = app.endpoint_of(&hook).await;
        assert_eq!(endpoint.disabled_reason.as_deref(), Some("failing"));
        assert!(!app.states_at(&hook).await.contains(&DeliveryState::Pending));
    }
}

#[tokio::test]
async fn missed_events_are_recovered_in_order() {
    for database in super::BOTH {
        let app = with_chunks_of(5, database).await;
        let connection = &app.olivia.connections[0];
        let hook = app.hook(&app.olivia.user).await;
        let (user, id) = (app.olivia.user.id, hook.endpoint.id);
        let before = app.clock.now();
        app.storage.disable_endpoint(user, id, "by command", before).await.unwrap();
        let report = app.sync(connection).await;
        assert!(report.events > 2);
        assert!(app.delivered_to(&hook).await.is_empty());
        assert!(!app.storage.redeliver(user, id, app.deliveries_to(&hook).await[0].event_id, before).await.unwrap());

        app.advance_clock(3 * DAY).await;
        let now = app.clock.now();
        assert_eq!(app.storage.recover(user, id, before, now).await.unwrap(), 0, "it is disabled");
        assert!(app.storage.enable_endpoint(user, id).await.unwrap());
        assert!(app.delivered_to(&hook).await.is_empty(), "nothing comes by itself");
        assert_eq!(app.storage.recover(user, id, now, now).await.unwrap(), 0, "since then, nothing failed");
        let events = u64::try_from(report.events).unwrap();
        assert_eq!(app.storage.recover(user, id, before, now).await.unwrap(), events);
        let received = app.delivered_to(&hook).await;
        let chunks: Vec<u64> = received.iter().map(|one| one.chunk_position().0).collect();
        assert_eq!(chunks, (1..=events).collect::<Vec<_>>());
        assert_eq!(received.iter().map(|one| one.counts().0).sum::<usize>(), report.new_count, "rows read again");
        assert!(app.states_at(&hook).await.iter().all(|state| *state == DeliveryState::Delivered));
    }
}

#[tokio::test]
async fn given_up_chunk_releases_the_next() {
    for database in super::BOTH {
        let app = with_chunks_of(5, database).await;
        let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
        let hook = app.hook(&app.olivia.user).await;
        let (before, report) = (app.clock.now(), app.sync(connection).await);
        hook.receiver.answers_next([204].into_iter().chain([500; 10]).map(Reply::Status));
        let mut chunks = Vec::new();
        for _ in 0..10 {
            chunks.extend(app.delivered_to(&hook).await.iter().map(|one| one.chunk_position().0));
            app.advance_to_next_attempt(&hook).await;
        }
        chunks.extend(app.delivered_to(&hook).await.iter().map(|one| one.chunk_position().0));
        let total = u64::try_from(report.events).unwrap();
        assert_eq!(chunks, [1].into_iter().chain([2; 10]).chain(3..=total).collect::<Vec<_>>());
        assert_eq!(
            app.states_at(&hook).await[..3],
            [DeliveryState::Delivered, DeliveryState::Failed, DeliveryState::Delivered]
        );

        assert_eq!(app.storage.recover(user, hook.endpoint.id, before, app.clock.now()).await.unwrap(), 1);
        let received = app.delivered_to(&hook).await;
        assert_eq!(received.iter().map(|one| one.chunk_position().0).collect::<Vec<_>>(), [2]);
    }
}

on_both_databases! {
    async fn old_event_can_be_redelivered(app: App) {
        let (user, connection) = (app.olivia.user.id, &app.olivia.connections[0]);
        let hook = app.hook(&app.olivia.user).await;
        app.sync(connection).await;
        let first = app.delivered_to(&hook).await.remove(0);
        for _ in 0..8 {
            app.advance_clock(7 * DAY).await;
            app.run_due_jobs().await;
            app.sync(connection).await;
        }
        assert!(app.delivered_to(&hook).await.is_empty());
        let event = app.deliveries_to(&hook).await[0].event_id;
        hook.receiver.answers_next([Reply::Status(500)]);
        assert!(app.storage.redeliver(user, hook.endpoint.id, event, app.clock.now()).await.unwrap());
        assert_eq!(app.delivered_to(&hook).await.len(), 1);
        let delivery = app.deliveries_to(&hook).await.remove(0);
        assert_eq!((delivery.state, delivery.attempts), (DeliveryState::Pending, 1), "all attempts again");
        app.advance_to_next_attempt(&hook).await;
        let again = app.delivered_to(&hook).await.remove(0);
        assert_eq!((&again.id, &again.body), (&first.id, &first.body));
        assert!(again.timestamp > first.timestamp && again.signature != first.signature);
        let delivery = app.deliveries_to(&hook).await.remove(0);
        assert_eq!((delivery.state, app.attempts_of(&hook, &delivery).await.len()), (DeliveryState::Delivered, 3));
    }
}

on_both_databases! {
    async fn redirects_are_not_followed(app: App) {
        let connection = &app.olivia.connections[0];
        let hook = app.hook_on(connection).await;
        let elsewhere = Receiver::start().await;
        app.event(connection, "NOT THERE").await;
        for status in [301, 302, 303, 307, 308] {
            hook.receiver.answers(Reply::With(status, "location", elsewhere.url.clone()));
            assert_eq!(app.delivered_to(&hook).await.len(), 1);
            let delivery = app.deliveries_to(&hook).await.pop().unwrap();
            assert_eq!((delivery.last_status, delivery.last_error.as_deref()), (Some(status), Some("redirect")));
            app.advance_to_next_attempt(&hook).await;
        }
        assert!(elsewhere.drain().is_empty());
    }
}

#[tokio::test]
async fn silent_endpoint_blocks_no_other() {
    for database in super::BOTH {
        let defaults = Setup::default().webhooks;
        let webhooks = WebhookSettings { timeout: Duration::from_millis(300), ..defaults };
        let app = App::start(Setup { database, chunk_rows: 10, webhooks, ..Setup::default() }).await;
        let connection = &app.olivia.connections[0];
        let (dead, alive) = (app.hook(&app.olivia.user).await, app.hook(&app.olivia.user).await);
        dead.receiver.answers(Reply::Never);
        let report = app.sync(connection).await;
        assert_eq!(app.delivered_to(&alive).await.len(), report.events);
        assert!(app.states_at(&alive).await.iter().all(|state| *state == DeliveryState::Delivered));
        let first = app.deliveries_to(&dead).await.remove(0);
        assert_eq!((first.state, first.last_status), (DeliveryState::Pending, None));
        assert_eq!(first.last_error.as_deref(), Some("no response in time"));
        assert!(app.endpoint_of(&dead).await.failing_since.is_some());
        assert_eq!(app.endpoint_of(&alive).await.failing_since, None);
        assert_eq!(dead.drain().len(), 1, "the others wait for it");

        // It comes back to life, and gets everything in order.
        dead.receiver.answers(Reply::Status(200));
        app.advance_clock(SignedDuration::from_secs(7)).await;
        let received = app.delivered_to(&dead).await;
        assert_eq!(
            received.iter().map(|one| one.chunk_position().0).collect::<Vec<_>>(),
            (1..=report.events as u64).collect::<Vec<_>>()
        );
        assert_eq!(app.endpoint_of(&dead).await.failing_since, None);
    }
}
