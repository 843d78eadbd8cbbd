//! Endpoints that fail get fewer attempts at once, until a success.

use std::time::Duration;

use jiff::SignedDuration;

use super::BODY_EXPIRED;
use crate::support::harness::{App, Setup};
use crate::support::receiver::Reply;

#[tokio::test]
async fn failing_endpoint_gets_fewer_attempts_until_a_success() {
    let setup = Setup::with(|settings| settings.webhooks.timeout = Duration::from_secs(1));
    let app = App::start(setup).await;
    let connection = &app.olivia.connections[0];
    let before = app.hook_on(connection).await;
    app.delete_hook(&before).await;

    // One that failed gets one event at a time.
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
