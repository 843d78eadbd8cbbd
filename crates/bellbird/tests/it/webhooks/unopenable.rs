//! Secrets and credentials that cannot be opened: the attempts fail, and nothing is tried without
//! end.

use bellbird_domain::{DeliveryState, EndpointStatus};
use bellbird_storage::{Sealer, Storage, in_tx};
use bellbird_webhooks::delivery::sign::new_secret;

use super::{BODY_EXPIRED, DAY};
use crate::support::database::execute;
use crate::support::harness::{App, Setup};
use crate::support::receiver::Hook;

impl App {
    /// Replaces the sealed values of a purpose with bytes that nothing opens.
    async fn damage(&self, purpose: &str, subject: &str) {
        let bytes = if self.storage.kind() == "sqlite" {
            "X'0102'"
        } else {
            "'\\x0102'"
        };
        let sql = format!(
            "UPDATE secrets SET sealed = {bytes} WHERE purpose = '{purpose}' AND subject = '{subject}'"
        );
        execute(&self.shared.database, &sql, "").await;
    }

    /// Gives the endpoint of Olivia another secret, sealed with the keys of this storage.
    async fn rotate_secret(&self, hook: &Hook, storage: &Storage) {
        let (endpoint, now) = ((self.olivia.user.id, hook.endpoint.id), self.clock.now());
        let (secrets, secret) = (storage.secrets(), new_secret());
        let rotated = in_tx!(
            storage,
            endpoints::rotate_secret(secrets, endpoint, &secret, now)
        );
        assert!(rotated.await.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_cannot_be_opened_fails_attempts_or_the_endpoint() {
    let app = App::start(Setup::default()).await;
    let (connection, other) = (&app.olivia.connections[0], &app.olivia.connections[1]);
    let hook = app.hook_on(connection).await;
    app.complete_initial_sync(other, &hook).await;
    app.add_event(connection, "CANNOT BE READ AGAIN").await;
    app.advance_clock(BODY_EXPIRED);
    app.damage("credentials", &connection.id.to_string()).await;
    app.add_event(other, "SENT NEVERTHELESS").await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    let deliveries = app.deliveries_to(&hook).await;
    let failed = &deliveries[deliveries.len() - 2];
    assert_eq!((failed.state, failed.attempts), (DeliveryState::Pending, 1));
    assert_eq!(
        failed.last_error.as_deref(),
        Some("rows not read: credentials cannot be opened")
    );
    assert_eq!(app.attempts_of(&hook, failed).await.len(), 1);
    for _ in 0..12 {
        app.advance_clock(DAY);
        app.webhooks.run_due_deliveries().await;
    }
    let deliveries = app.deliveries_to(&hook).await;
    let failed = &deliveries[deliveries.len() - 2];
    assert_eq!((failed.state, failed.attempts), (DeliveryState::Failed, 10));
    assert_eq!(
        app.endpoint_of(&hook).await.failing_since,
        None,
        "not the endpoint's fault"
    );
    app.assert_enabled(&hook).await;

    // A secret under a missing key fails the attempts.
    app.add_event(other, "SIGNED LATER").await;
    let other_key = Sealer::parse("other:BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBA=").unwrap();
    let elsewhere = Storage::open(&app.shared.database, other_key).await;
    app.rotate_secret(&hook, &elsewhere.unwrap()).await;
    assert!(app.delivered_to(&hook).await.is_empty());
    app.assert_enabled(&hook).await;
    let delivery = app.last_delivery(&hook).await;
    let expected = (DeliveryState::Pending, 1);
    assert_eq!((delivery.state, delivery.attempts), expected);
    let expected = Some("not signed: secret cannot be opened");
    assert_eq!(delivery.last_error.as_deref(), expected);

    // With the key, or here with another secret, it is sent.
    app.rotate_secret(&hook, &app.storage).await;
    app.advance_to_next_attempt(&hook).await;
    app.webhooks.run_due_deliveries().await;
    assert_eq!(hook.receiver.drain().len(), 1);

    // A damaged one disables the endpoint.
    let hook = app.hook(&app.olivia.user).await;
    app.add_event(other, "SIGNED").await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    app.add_event(other, "CANNOT BE SIGNED").await;
    app.damage("webhook", &hook.endpoint.id.to_string()).await;
    assert!(app.delivered_to(&hook).await.is_empty());
    let endpoint = app.endpoint_of(&hook).await;
    assert_eq!(endpoint.status, EndpointStatus::Disabled);
    assert_eq!(endpoint.disabled_reason.as_deref(), Some("secret broken"));
    let last_error = app.last_delivery(&hook).await.last_error;
    assert_eq!(last_error.as_deref(), Some("endpoint disabled"));
}
