//! Provider events: each is verified, accepted once, and only requests a refresh. The simulated
//! providers sign and send them.

use bellbird_domain::{Connection, ConnectionStatus, EventType};
use bellbird_sandbox::{ConsentState, Fault, Sign, WebhookSettings};
use jiff::SignedDuration;
use serde_json::{Value, json};

use crate::support::harness::{App, Person, Setup, eventually, simulated_providers};
use crate::support::provider_spec::spec;

impl App {
    /// A new user with a linked connection. From now on the provider sends events to the service.
    pub(crate) async fn subscribed(&self, provider: &str) -> (Person, Connection) {
        let email = format!("{provider}@example.com");
        let person = self
            .add_person(&email, bellbird_domain::Plan::Professional, &[])
            .await;
        let (mut linked, _) = self.link_at(person.user.id, provider).await;
        // The first refresh after a link subscribes to events, if that is needed. After the last
        // one, no job is due.
        for minutes in [1, 1, 3, 11] {
            self.advance_clock(SignedDuration::from_mins(minutes));
            self.run_due_jobs().await;
        }
        self.start_background_jobs();
        self.bank(provider).forget_deliveries();
        let url = format!("{}/webhooks/{provider}", self.console_url);
        self.bank(provider)
            .set_webhooks(WebhookSettings::to(url))
            .unwrap();
        self.reset_calls();
        (person, linked.remove(0))
    }

    /// Waits until the service has responded to every delivery. Returns the last status of each.
    pub(crate) async fn delivered(&self, provider: &str) -> Vec<Value> {
        eventually(async || {
            let deliveries = self.bank(provider).deliveries();
            !deliveries.is_empty()
                && deliveries
                    .iter()
                    .all(|delivery| delivery["state"] != "waiting")
        })
        .await;
        self.bank(provider)
            .deliveries()
            .iter()
            .map(|delivery| {
                delivery["statuses"]
                    .as_array()
                    .unwrap()
                    .last()
                    .unwrap()
                    .clone()
            })
            .collect()
    }

    /// What decides whether a cached response is valid.
    async fn revision(&self, person: &Person) -> i64 {
        let key = bellbird_domain::ApiKey::parse(&person.key).unwrap();
        self.storage
            .keys()
            .find_caller(&key, self.clock.now())
            .await
            .unwrap()
            .unwrap()
            .caller
            .revision
    }

    async fn status_of(&self, connection: &Connection) -> Option<ConnectionStatus> {
        let found = self
            .storage
            .connections()
            .find(connection.user_id, connection.id)
            .await
            .unwrap();
        found.map(|connection| connection.status)
    }

    /// Waits for a status while the clock advances, because events cause at most one refresh in ten
    /// seconds.
    async fn wait_for_status(&self, connection: &Connection, status: ConnectionStatus) {
        eventually(async || {
            self.advance_clock(SignedDuration::from_secs(1));
            self.run_due_jobs().await;
            self.status_of(connection).await == Some(status)
        })
        .await;
    }
}

#[tokio::test]
async fn one_event_updates_the_status() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (person, connection) = app.subscribed(provider).await;
        let hook = app
            .hook_for(&person.user, &[EventType::ConnectionUpdated])
            .await;
        for (state, status) in [
            (ConsentState::Expired, ConnectionStatus::Invalidated),
            (ConsentState::Active, ConnectionStatus::Active),
            (ConsentState::Revoked, ConnectionStatus::Revoked),
        ] {
            app.set_consent(&connection, state).await;
            app.wait_for_status(&connection, status).await;
            let shown = app.get_as(&person.key, "/v1/connections").await.data();
            assert_eq!(shown[0]["status"], status.as_str(), "{provider}");
            eventually(async || hook.receiver.has_requests()).await;
            let reported: Vec<Value> = hook
                .drain()
                .iter()
                .map(|event| event.rows("updated")[0]["status"].clone())
                .collect();
            assert_eq!(reported, [status.as_str()], "{provider}");
        }
        let statuses = app.delivered(provider).await;
        assert!(
            statuses.iter().all(|status| *status == 200),
            "{provider}: {statuses:?}"
        );
    }
}

#[tokio::test]
async fn end_of_the_consent_is_known_and_followed() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (person, connection) = app.subscribed(provider).await;
        let shown = async || {
            app.get_as(&person.key, "/v1/connections").await.data()[0]["consentExpiresAt"].clone()
        };
        let first = shown().await;
        assert_eq!(
            first.is_string(),
            provider == "fiskil",
            "{provider}: {first}"
        );
        if first.is_null() {
            continue;
        }
        let new = "2027-02-03T04:05:06Z";
        let (id, until) = (app.consent_at(&connection).await, new.parse().unwrap());
        app.fiskil()
            .set_consent_until(&id, ConsentState::Active, Some(until))
            .unwrap();
        eventually(async || {
            app.advance_clock(SignedDuration::from_secs(1));
            app.run_due_jobs().await;
            shown().await == new
        })
        .await;
        let stored = app.connection(connection.user_id, connection.id).await;
        assert_eq!(stored.consent_expires_at, Some(new.parse().unwrap()));
        let revision = app.revision(&person).await;
        app.refresh(connection.user_id, connection.id).await;
        assert_eq!(app.revision(&person).await, revision, "nothing has changed");
        app.set_consent(&connection, ConsentState::Expired).await;
        app.wait_for_status(&connection, ConnectionStatus::Invalidated)
            .await;
        let ended = shown()
            .await
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .unwrap();
        assert!(ended < app.clock.now(), "{ended}");
    }
}

#[tokio::test]
async fn wrong_signature_is_rejected() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (_, connection) = app.subscribed(provider).await;
        let wrong = WebhookSettings {
            sign: Some(Sign::Wrong),
            ..WebhookSettings::default()
        };
        app.bank(provider).set_webhooks(wrong).unwrap();
        app.set_consent(&connection, ConsentState::Expired).await;
        let statuses = app.delivered(provider).await;
        // Akahu's key is cached only after a valid signature. Fetches are rate-limited, so
        // later events get 503.
        let rejected = |status: &Value| *status == 401 || (provider == "akahu" && *status == 503);
        assert!(
            statuses.iter().all(rejected) && statuses[0] == 401,
            "{provider}: {statuses:?}"
        );
        app.run_due_jobs().await;
        assert_eq!(
            app.status_of(&connection).await,
            Some(ConnectionStatus::Active),
            "{provider}: no refresh"
        );
    }
}

#[tokio::test]
async fn repeated_event_is_harmless() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (_, connection) = app.subscribed(provider).await;
        let repeated = WebhookSettings {
            copies: Some(3),
            ..WebhookSettings::default()
        };
        app.bank(provider).set_webhooks(repeated).unwrap();
        app.set_consent(&connection, ConsentState::Expired).await;
        let statuses = app.delivered(provider).await;
        assert!(
            statuses.iter().all(|status| *status == 200),
            "{provider}: {statuses:?}"
        );
        app.wait_for_status(&connection, ConnectionStatus::Invalidated)
            .await;
        let audit = app.audit_of(connection.id).await;
        assert_eq!(audit.len(), 2, "{provider}: {audit:?}");

        // The same bytes, one hour later.
        app.advance_clock(SignedDuration::from_hours(1));
        app.run_due_jobs().await;
        app.reset_calls();
        let first = app.bank(provider).deliveries()[0]["id"].as_u64().unwrap();
        app.bank(provider).resend(first).unwrap();
        let status = app.delivered(provider).await.pop().unwrap();
        match provider {
            "snaptrade" => assert_eq!(
                (status, app.bank(provider).total_calls()),
                (json!(401), 0),
                "too old"
            ),
            "fiskil" => assert_eq!(
                (status, app.bank(provider).total_calls()),
                (json!(200), 0),
                "accepted before"
            ),
            // Akahu's events have no id, so a repeated one causes one more refresh.
            _ => assert_eq!(status, 200),
        }
    }
}

#[tokio::test]
async fn unknown_event_is_accepted_and_ignored() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        app.subscribed(provider).await;
        let event = if provider == "akahu" {
            "WEATHER:RAIN"
        } else {
            "weather.changed"
        };
        app.bank(provider).send_event(event, &json!({})).unwrap();
        assert_eq!(app.delivered(provider).await, [json!(200)], "{provider}");
    }
}

#[tokio::test]
async fn refresh_requested_by_event_is_retried() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (_, connection) = app.subscribed(provider).await;
        // The provider sends an event, but its API fails.
        let route = spec(provider).consent_route;
        app.bank(provider).add_fault(Fault::status(503).at(route));
        app.set_consent(&connection, ConsentState::Expired).await;
        app.delivered(provider).await;
        app.run_due_jobs().await;
        app.bank(provider).clear_faults();
        assert_eq!(
            app.status_of(&connection).await,
            Some(ConnectionStatus::Active),
            "{provider}"
        );
        app.advance_clock(SignedDuration::from_mins(2));
        app.run_due_jobs().await;
        assert_eq!(
            app.status_of(&connection).await,
            Some(ConnectionStatus::Invalidated),
            "{provider}"
        );
    }
}

#[tokio::test]
async fn malformed_events_are_rejected() {
    let app = App::start(Default::default()).await;
    let post = async |path: &str, body: Vec<u8>| {
        let answer = app
            .http
            .post(format!("{}{path}", app.console_url))
            .body(body)
            .send()
            .await
            .unwrap();
        let (status, body) = (
            answer.status().as_u16(),
            answer.json::<Value>().await.unwrap(),
        );
        assert!(
            status == 200 || body["error"]["message"].is_string(),
            "{body}"
        );
        status
    };
    assert_eq!(post("/webhooks/unknown", b"{}".to_vec()).await, 404);
    for provider in simulated_providers() {
        let path = format!("/webhooks/{provider}");
        assert_eq!(post(&path, b"{}".to_vec()).await, 401);
        assert_eq!(post(&path, Vec::new()).await, 401);
        assert_eq!(post(&path, vec![b' '; 256 * 1024 + 1]).await, 413);
        let answer = app
            .http
            .get(format!("{}{path}", app.console_url))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), 405);
        assert_eq!(answer.headers()["allow"], "POST");
    }
}

#[tokio::test]
async fn event_about_a_known_account_affects_only_its_connection() {
    let app = App::start(Setup::with(|settings| settings.sync.enabled = true)).await;
    let credentials = app.credentials_of("akahu");
    let person = app
        .add_person(
            "two.banks@example.com",
            bellbird_domain::Plan::Professional,
            &[],
        )
        .await;
    let mut connections = Vec::new();
    for credentials in credentials.iter().take(2) {
        let credentials = secrecy::SecretString::from(credentials.to_string());
        connections.extend(
            app.connections
                .imports()
                .import(person.user.id, "akahu", &credentials)
                .await
                .unwrap()
                .connections,
        );
    }
    assert!(connections.len() > 1, "{connections:?}");
    let url = format!("{}/webhooks/akahu", app.console_url);
    app.bank("akahu")
        .set_webhooks(WebhookSettings::to(&url))
        .unwrap();
    let next_sync_at = async |connection: &Connection| {
        let sync = app.sync_state(connection.user_id, connection.id).await;
        sync.next_at.unwrap()
    };
    let accounts = app.stored_accounts(person.user.id, connections[0].id).await;
    for (item, all_are_affected) in [
        (accounts[0].provider_account_id.as_str(), false),
        ("acc_unknown", true),
    ] {
        app.advance_clock(SignedDuration::from_hours(1));
        app.connections.jobs().run_due("sync").await.unwrap();
        app.bank("akahu").forget_deliveries();
        app.bank("akahu")
            .set_webhooks(WebhookSettings::to(&url))
            .unwrap();
        let event = json!({
            "state": format!("{}:TRANSACTION", person.user.id),
            "item_id": item,
        });
        app.advance_clock(SignedDuration::from_hours(1));
        app.bank("akahu")
            .send_event("TRANSACTION:DEFAULT_UPDATE", &event)
            .unwrap();
        assert_eq!(app.delivered("akahu").await, [json!(200)]);
        let now = app.clock.now();
        for (index, connection) in connections.iter().enumerate() {
            let is_affected = all_are_affected || index == 0;
            assert_eq!(
                next_sync_at(connection).await <= now,
                is_affected,
                "{item}: {index}"
            );
        }
    }
}
