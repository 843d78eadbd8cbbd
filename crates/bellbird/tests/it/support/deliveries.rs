//! Deliveries to the endpoints of tests, and changes of these endpoints, as commands make them.

use bellbird_domain::{DeliveryState, EndpointId, EndpointStatus, EventId, UserId};
use bellbird_storage::{AttemptRecord, DeliveryRecord, Endpoint, StorageError, in_tx};
use jiff::{SignedDuration, Timestamp};

use crate::support::harness::App;
use crate::support::receiver::{Hook, ReceivedEvent};

impl Hook {
    /// The owner of the endpoint, and its id.
    fn place(&self) -> (UserId, EndpointId) {
        (self.endpoint.user_id, self.endpoint.id)
    }
}

impl App {
    /// Runs due deliveries and takes what the endpoint received.
    pub(crate) async fn delivered_to(&self, hook: &Hook) -> Vec<ReceivedEvent> {
        self.webhooks.run_due_deliveries().await;
        hook.drain()
    }

    /// All deliveries to the endpoint, oldest first.
    pub(crate) async fn deliveries_to(&self, hook: &Hook) -> Vec<DeliveryRecord> {
        let (user, id) = hook.place();
        let deliveries = self.storage.deliveries();
        let mut all = deliveries.list(user, id, None, 10_000).await.unwrap();
        all.reverse();
        all
    }

    pub(crate) async fn last_delivery(&self, hook: &Hook) -> DeliveryRecord {
        let mut all = self.deliveries_to(hook).await;
        all.pop().expect("a delivery")
    }

    pub(crate) async fn states_at(&self, hook: &Hook) -> Vec<DeliveryState> {
        let deliveries = self.deliveries_to(hook).await.into_iter();
        deliveries.map(|delivery| delivery.state).collect()
    }

    pub(crate) async fn assert_all_delivered(&self, hook: &Hook) {
        let states = self.states_at(hook).await;
        let is_delivered = |state: &DeliveryState| *state == DeliveryState::Delivered;
        assert!(states.iter().all(is_delivered), "{states:?}");
    }

    pub(crate) async fn attempts_of(
        &self,
        hook: &Hook,
        delivery: &DeliveryRecord,
    ) -> Vec<AttemptRecord> {
        let (user, id) = hook.place();
        let deliveries = self.storage.deliveries();
        let attempts = deliveries.list_attempts(user, id, delivery.event_id);
        attempts.await.unwrap()
    }

    /// The endpoint as it is stored now.
    pub(crate) async fn endpoint_of(&self, hook: &Hook) -> Endpoint {
        let endpoints = self.storage.endpoints();
        let found = endpoints.find_any(hook.endpoint.id).await;
        found.unwrap().expect("the endpoint is there")
    }

    pub(crate) async fn assert_enabled(&self, hook: &Hook) {
        assert_eq!(self.endpoint_of(hook).await.status, EndpointStatus::Enabled);
    }

    /// Disables the endpoint. Returns how many deliveries this has failed.
    pub(crate) async fn disable_hook(&self, hook: &Hook, reason: &str) -> u64 {
        let (place, now) = (hook.place(), self.clock.now());
        let failed = in_tx!(self.storage, endpoints::disable(place, reason, now)).await;
        failed.unwrap().expect("the endpoint is there")
    }

    pub(crate) async fn enable_hook(&self, hook: &Hook) {
        let (place, now) = (hook.place(), self.clock.now());
        let enabled = in_tx!(self.storage, endpoints::enable(place, now)).await;
        assert!(enabled.unwrap());
    }

    pub(crate) async fn delete_hook(&self, hook: &Hook) {
        let deleted = in_tx!(self.storage, endpoints::delete(hook.place())).await;
        assert!(deleted.unwrap());
    }

    /// Makes failed deliveries of events since that time due. `None`: the endpoint is disabled.
    pub(crate) async fn recover(&self, hook: &Hook, since: Timestamp) -> Option<u64> {
        let (place, now) = (hook.place(), self.clock.now());
        let recovered = in_tx!(self.storage, redeliveries::recover(place, since, now)).await;
        recovered.unwrap()
    }

    pub(crate) async fn redeliver(&self, hook: &Hook, event: EventId) -> Result<(), StorageError> {
        let (place, now) = (hook.place(), self.clock.now());
        in_tx!(self.storage, redeliveries::redeliver(place, event, now)).await
    }

    /// Advances the clock until the next attempt for the endpoint is due. Returns false when there
    /// is none.
    pub(crate) async fn advance_to_next_attempt(&self, hook: &Hook) -> bool {
        let deliveries = self.deliveries_to(hook).await.into_iter();
        let times = deliveries.filter_map(|delivery| delivery.next_attempt_at);
        let Some(next) = times.min() else {
            return false;
        };
        let wait = next.duration_since(self.clock.now()).as_secs().max(0);
        self.advance_clock(SignedDuration::from_secs(wait + 1));
        true
    }
}
