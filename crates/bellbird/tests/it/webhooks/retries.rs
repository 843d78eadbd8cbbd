//! When deliveries are retried or given up: the schedule, `Retry-After`, and endpoints that are
//! gone or fail.

use std::time::Duration;

use bellbird_domain::{Connection, DeliveryState, EndpointStatus};
use jiff::SignedDuration;

use super::{DAY, HOUR, with_chunks_of};
use crate::support::harness::{App, Setup};
use crate::support::receiver::{Hook, Receiver, Reply, chunks};

/// The delays in seconds before the second to the tenth attempt (docs/contract.md#webhook-retries).
const WAITS: [i64; 9] = [5, 60, 300, 1_800, 3_600, 7_200, 18_000, 28_800, 39_600];

impl App {
    /// Adds a row and syncs it, which makes one event. The event is not sent yet.
    pub(super) async fn add_event(&self, connection: &Connection, text: &str) {
        self.add_recent_row(connection, text).await;
        assert_eq!(self.sync(connection).await.new_count, 1);
    }

    /// An endpoint that has received all rows of the connection so far.
    pub(super) async fn hook_on(&self, connection: &Connection) -> Hook {
        let hook = self.hook(&self.olivia.user).await;
        self.complete_initial_sync(connection, &hook).await;
        hook
    }
}

#[tokio::test]
async fn attempts_follow_the_schedule_and_retry_after() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook_on(connection).await;
    hook.receiver.reply_with(Reply::Status(500));
    app.add_event(connection, "NEVER ACCEPTED").await;
    let mut waits = Vec::new();
    loop {
        assert_eq!(app.delivered_to(&hook).await.len(), 1);
        // Nothing is sent before the next attempt is due.
        assert!(app.delivered_to(&hook).await.is_empty());
        let delivery = app.last_delivery(&hook).await;
        let last = (delivery.last_status, delivery.last_error.as_deref());
        assert_eq!(last, (Some(500), Some("rejected")));
        let Some(next) = delivery.next_attempt_at else {
            break;
        };
        waits.push(next.duration_since(app.clock.now()).as_secs());
        assert!(app.advance_to_next_attempt(&hook).await);
    }
    for (wait, least) in waits.iter().zip(WAITS) {
        assert!((least..=least * 6 / 5).contains(wait), "{waits:?}");
    }
    assert_eq!(waits.len(), WAITS.len());
    let delivery = app.last_delivery(&hook).await;
    assert_eq!(
        (delivery.state, delivery.attempts),
        (DeliveryState::Failed, 10)
    );
    assert!(delivery.ended_at.is_some());
    let attempts = app.attempts_of(&hook, &delivery).await;
    let numbers = attempts.iter().map(|attempt| attempt.attempt);
    assert!(numbers.eq(1..=10), "{attempts:?}");
    assert!(attempts.iter().all(|attempt| attempt.status == Some(500)));
    app.assert_enabled(&hook).await;

    app.delete_hook(&hook).await;
    let hook = app.hook(&app.olivia.user).await;
    let at = (app.clock.now() + 2 * HOUR)
        .strftime("%a, %d %b %Y %H:%M:%S GMT")
        .to_string();
    let waits = [
        ("3600".to_owned(), 3_600),
        (at, 3_600),
        ("1".to_owned(), 300),
        ("9999999".to_owned(), 86_400),
    ];
    app.add_event(connection, "LATER").await;
    for (retry_after, least) in waits {
        hook.receiver
            .reply_with(Reply::WithHeader(429, "retry-after", retry_after.clone()));
        assert_eq!(app.delivered_to(&hook).await.len(), 1, "{retry_after}");
        let next = app.last_delivery(&hook).await.next_attempt_at.unwrap();
        let wait = next.duration_since(app.clock.now()).as_secs();
        // The second value is a date, and the first wait of an hour and up to a fifth of it has
        // passed by then.
        let is_expected = (least * 3 / 4..=least * 6 / 5).contains(&wait);
        assert!(is_expected, "{retry_after}: {wait}");
        app.advance_to_next_attempt(&hook).await;
    }

    let elsewhere = Receiver::start().await;
    for status in [301, 302, 303, 307, 308] {
        hook.receiver
            .reply_with(Reply::WithHeader(status, "location", elsewhere.url.clone()));
        assert_eq!(app.delivered_to(&hook).await.len(), 1);
        let delivery = app.last_delivery(&hook).await;
        let last = (delivery.last_status, delivery.last_error.as_deref());
        assert_eq!(last, (Some(status), Some("redirect")));
        app.advance_to_next_attempt(&hook).await;
    }
    assert!(elsewhere.drain().is_empty());
}

#[tokio::test]
async fn status_410_disables_the_endpoint() {
    let app = with_chunks_of(5).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    app.sync(connection).await;
    app.sync(&app.olivia.connections[1]).await;
    hook.receiver
        .reply_next_with([Reply::Status(204), Reply::Status(204), Reply::Status(410)]);
    app.webhooks.run_due_deliveries().await;
    let sent = hook.drain().len();
    let endpoint = app.endpoint_of(&hook).await;
    assert_eq!(endpoint.status, EndpointStatus::Disabled);
    assert_eq!(endpoint.disabled_reason.as_deref(), Some("gone"));
    let deliveries = app.deliveries_to(&hook).await;
    let open = |state| matches!(state, DeliveryState::Pending | DeliveryState::Waiting);
    assert!(deliveries.iter().all(|delivery| !open(delivery.state)));
    let with_error = |words: &str| {
        let errors = deliveries
            .iter()
            .map(|delivery| delivery.last_error.as_deref());
        errors.filter(|error| *error == Some(words)).count()
    };
    assert_eq!(with_error("rejected"), 1);
    let statuses = deliveries.iter().map(|delivery| delivery.last_status);
    assert_eq!(statuses.filter(|status| *status == Some(410)).count(), 1);
    assert!(with_error("endpoint disabled") + sent >= deliveries.len());

    // Later events are stored, but not sent.
    app.advance_clock(DAY);
    app.add_event(connection, "WHILE DISABLED").await;
    assert!(app.delivered_to(&hook).await.is_empty());
    let last = app.last_delivery(&hook).await;
    assert_eq!((last.state, last.attempts), (DeliveryState::Failed, 0));
    assert_eq!(last.last_error.as_deref(), Some("endpoint disabled"));
}

#[tokio::test]
async fn five_days_of_failures_disable_and_old_events_return() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook_on(connection).await;
    hook.receiver.reply_with(Reply::Status(503));
    let mut days = 0;
    let fail_for = async |days_max: u32, hook: &Hook, from: u32| {
        for day in 0..days_max {
            app.add_event(connection, &format!("DAY {from} {day}"))
                .await;
            app.webhooks.run_due_deliveries().await;
            if app.endpoint_of(hook).await.status == EndpointStatus::Disabled {
                return day;
            }
            app.advance_clock(DAY);
            app.run_due_jobs().await;
        }
        days_max
    };
    assert_eq!(fail_for(4, &hook, days).await, 4);
    days += 4;
    assert!(app.endpoint_of(&hook).await.failing_since.is_some());
    // One success resets the time since when the endpoint fails.
    hook.receiver.reply_next_with([Reply::Status(200)]);
    app.webhooks.run_due_deliveries().await;
    hook.receiver.reply_with(Reply::Status(200));
    app.add_event(connection, "A SUCCESS").await;
    app.webhooks.run_due_deliveries().await;
    assert_eq!(app.endpoint_of(&hook).await.failing_since, None);
    hook.receiver.reply_with(Reply::Status(503));
    assert_eq!(fail_for(9, &hook, days).await, 5);
    let endpoint = app.endpoint_of(&hook).await;
    assert_eq!(endpoint.disabled_reason.as_deref(), Some("failing"));
    assert!(!app.states_at(&hook).await.contains(&DeliveryState::Pending));

    // An old event at another endpoint.
    let connection = &app.olivia.connections[1];
    let hook = app.hook(&app.olivia.user).await;
    app.sync(connection).await;
    let first = app.delivered_to(&hook).await.remove(0);
    for _ in 0..8 {
        app.advance_clock(7 * DAY);
        app.run_due_jobs().await;
        app.sync(connection).await;
    }
    assert!(app.delivered_to(&hook).await.is_empty());
    let event = app.deliveries_to(&hook).await[0].event_id;
    hook.receiver.reply_next_with([Reply::Status(500)]);
    app.redeliver(&hook, event).await.unwrap();
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    let delivery = app.deliveries_to(&hook).await.remove(0);
    assert_eq!(delivery.state, DeliveryState::Pending);
    assert_eq!(delivery.attempts, 1, "attempts count from the redelivery");
    app.advance_to_next_attempt(&hook).await;
    let redelivered = app.delivered_to(&hook).await.remove(0);
    assert_eq!(redelivered.id, first.id);
    assert_eq!(redelivered.body, first.body);
    assert!(redelivered.timestamp > first.timestamp && redelivered.signature != first.signature);
    let delivery = app.deliveries_to(&hook).await.remove(0);
    assert_eq!(delivery.state, DeliveryState::Delivered);
    assert_eq!(app.attempts_of(&hook, &delivery).await.len(), 3);
}

#[tokio::test]
async fn silent_endpoint_blocks_no_other() {
    let setup = Setup::with(|settings| {
        (settings.webhooks.timeout, settings.webhooks.chunk_rows) = (Duration::from_secs(5), 10);
    });
    let app = App::start(setup).await;
    let connection = &app.olivia.connections[0];
    let (silent, other) = (
        app.hook(&app.olivia.user).await,
        app.hook(&app.olivia.user).await,
    );
    silent.receiver.reply_with(Reply::Never);
    let report = app.sync(connection).await;
    assert_eq!(app.delivered_to(&other).await.len(), report.events);
    app.assert_all_delivered(&other).await;
    let first = app.deliveries_to(&silent).await.remove(0);
    assert_eq!(
        (first.state, first.last_status),
        (DeliveryState::Pending, None)
    );
    assert_eq!(first.last_error.as_deref(), Some("no response in time"));
    assert!(app.endpoint_of(&silent).await.failing_since.is_some());
    assert_eq!(app.endpoint_of(&other).await.failing_since, None);
    assert_eq!(silent.drain().len(), 1, "later chunks wait for the first");

    // When the endpoint responds again, it receives everything in order.
    silent.receiver.reply_with(Reply::Status(200));
    app.advance_clock(SignedDuration::from_secs(7));
    let sent = chunks(&app.delivered_to(&silent).await);
    assert_eq!(sent, (1..=report.events as u64).collect::<Vec<_>>());
    assert_eq!(app.endpoint_of(&silent).await.failing_since, None);
}
