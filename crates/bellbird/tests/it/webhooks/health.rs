//! Endpoints that fail get fewer attempts at once, and permits of their own after a minute.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use jiff::SignedDuration;

use super::BODY_EXPIRED;
use crate::support::harness::{App, Setup};
use crate::support::receiver::{Hook, Reply};

impl App {
    /// Whether the endpoint is claimed with those that have been failing for a minute. Releases it.
    async fn is_claimed_as_failing(&self, hook: &Hook) -> bool {
        let (now, mut found) = (self.clock.now(), None);
        for failing in [false, true] {
            let lease = now.plus(Duration::from_secs(60));
            let deliveries = self.storage.deliveries();
            let claims = deliveries.claim_endpoints(now, lease, 9, failing).await;
            for claim in claims.unwrap() {
                if claim.endpoint_id == hook.endpoint.id {
                    found = Some(failing);
                }
                let released = deliveries.release_endpoint(&claim, now).await;
                assert!(released.unwrap());
            }
        }
        found.expect("the endpoint is due")
    }
}

#[tokio::test]
async fn failing_endpoint_gets_fewer_attempts_until_a_success() {
    let setup = Setup::with(|settings| settings.webhooks.timeout = Duration::from_secs(1));
    let app = App::start(setup).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook_on(connection).await;
    hook.receiver.reply_with(Reply::Status(500));
    app.add_event(connection, "ONE FAILURE").await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    app.advance_to_next_attempt(&hook).await;
    assert!(!app.is_claimed_as_failing(&hook).await, "one failure");
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    app.advance_to_next_attempt(&hook).await;
    let is_failing = app.is_claimed_as_failing(&hook).await;
    assert!(!is_failing, "two failures within seconds");
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    app.advance_to_next_attempt(&hook).await;
    let is_failing = app.is_claimed_as_failing(&hook).await;
    assert!(is_failing, "a minute of failures");
    // One success, and the next event finds it among the healthy ones.
    hook.receiver.reply_with(Reply::Status(204));
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    app.add_event(connection, "AFTER A SUCCESS").await;
    assert!(!app.is_claimed_as_failing(&hook).await);

    // One that failed gets one event at a time.
    app.delete_hook(&hook).await;
    let hook = app.hook(&app.olivia.user).await;
    hook.receiver.reply_with(Reply::Never);
    app.add_event(connection, "FIRST").await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    for number in 0..3 {
        app.add_event(connection, &format!("LATER {number}")).await;
    }
    // The first is due again, and its rows are read again. The others are sent from memory.
    app.advance_clock(SignedDuration::from_secs(7));
    assert_eq!(app.delivered_to(&hook).await.len(), 4);
    assert_eq!(hook.receiver.in_flight_max(), 1, "recently failed");
    app.advance_clock(BODY_EXPIRED);
    assert_eq!(app.delivered_to(&hook).await.len(), 4);
    app.advance_clock(BODY_EXPIRED);
    assert!(!app.delivered_to(&hook).await.is_empty());
    assert_eq!(hook.receiver.in_flight_max(), 1, "failing for a minute");

    // A success ends that.
    app.advance_clock(SignedDuration::from_hours(1));
    hook.receiver.reply_next_with([Reply::Status(204)]);
    assert_eq!(app.delivered_to(&hook).await.len(), 4);
    assert_eq!(hook.receiver.in_flight_max(), 3);
}
