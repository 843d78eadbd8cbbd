//! Consents at the simulated providers: their state, their options, and the events about them.

use bellbird_domain::{Connection, ConnectionStatus};
use bellbird_sandbox::{ConsentState, WebhookSettings};
use secrecy::ExposeSecret as _;
use serde_json::Value;

use crate::support::harness::{App, eventually};
use crate::support::provider_spec::spec;

impl App {
    pub(crate) async fn set_consent(&self, connection: &Connection, state: ConsentState) {
        let id = self.consent_at(connection).await;
        let bank = self.bank(&connection.provider);
        bank.set_consent(&id, state).unwrap();
    }

    /// Sets the state of a connection's consent, which a refresh then notices.
    pub(crate) async fn change_consent(
        &self,
        connection: &Connection,
        state: ConsentState,
    ) -> ConnectionStatus {
        self.set_consent(connection, state).await;
        self.refresh(connection.user_id, connection.id).await
    }

    /// What names the consent of a connection at the provider.
    pub(crate) async fn consent_at(&self, connection: &Connection) -> String {
        let credentials = self.stored_credentials(connection).await;
        let credentials: Value = serde_json::from_str(credentials.expose_secret()).unwrap();
        let spec = spec(&connection.provider);
        spec.connection_in(&credentials).to_owned()
    }

    pub(crate) fn set_options(&self, provider: &str, options: &Value) {
        self.bank(provider).set_options(options).unwrap();
    }

    /// From now on, the provider sends its events to the service.
    pub(crate) fn subscribe_to(&self, provider: &str) {
        let url = format!("{}/webhooks/{provider}", self.console_url);
        let bank = self.bank(provider);
        bank.set_webhooks(WebhookSettings::to(url)).unwrap();
    }

    /// Waits until the service has accepted every event of a provider. Fails if it rejected one,
    /// because another attempt would be by the clock that only tests move.
    pub(crate) async fn provider_events_sent(&self, provider: &str) {
        eventually(async || {
            let deliveries = self.bank(provider).deliveries();
            let has_state =
                |state: &'static str| move |delivery: &Value| delivery["state"] == state;
            let is_rejected = deliveries.iter().any(has_state("retry"));
            assert!(!is_rejected, "{deliveries:?}");
            !deliveries.is_empty() && deliveries.iter().all(has_state("sent"))
        })
        .await;
    }
}
