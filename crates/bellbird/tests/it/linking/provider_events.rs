//! Provider events: each is verified, accepted once, and only requests a refresh. The simulated
//! providers sign and send them.

use bellbird_domain::{ApiKey, Connection, ConnectionStatus, EventType, Plan};
use bellbird_sandbox::{ConsentState, Fault, Sign, WebhookSettings};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::support::harness::{App, Person, Setup, eventually, simulated_providers};
use crate::support::process::text;
use crate::support::provider_spec::spec;
use crate::support::rows::all_rows;

impl App {
    /// A new user with a linked connection. From now on the provider sends events to the service.
    pub(crate) async fn subscribed(&self, provider: &str) -> (Person, Connection) {
        let email = format!("{provider}@example.com");
        let person = self.add_person(&email, Plan::Professional, &[]).await;
        let (mut linked, _) = self.link_at(person.user.id, provider).await;
        // The first refresh after a link subscribes to events, if that is needed. After the last
        // one, no job is due.
        for minutes in [1, 1, 3, 11] {
            self.advance_clock(SignedDuration::from_mins(minutes));
            self.run_due_jobs().await;
        }
        self.start_background_jobs();
        self.bank(provider).forget_deliveries();
        self.subscribe_to(provider);
        self.reset_calls();
        (person, linked.remove(0))
    }

    /// Waits until the service has responded to every delivery. Returns the last status of each.
    pub(crate) async fn delivered(&self, provider: &str) -> Vec<Value> {
        let deliveries = || self.bank(provider).deliveries();
        eventually(async || {
            let all = deliveries();
            let is_complete = all.iter().all(|delivery| delivery["state"] != "waiting");
            !all.is_empty() && is_complete
        })
        .await;
        let last = |delivery: &Value| delivery["statuses"].as_array().unwrap().last().cloned();
        deliveries()
            .iter()
            .map(|delivery| last(delivery).unwrap())
            .collect()
    }

    async fn assert_accepted(&self, provider: &str) {
        let statuses = self.delivered(provider).await;
        let are_accepted = statuses.iter().all(|status| *status == 200);
        assert!(are_accepted, "{provider}: {statuses:?}");
    }

    /// What decides whether a cached response is valid.
    async fn revision(&self, person: &Person) -> i64 {
        let key = ApiKey::parse(&person.key).unwrap();
        let found = self
            .storage
            .keys()
            .find_caller(&key, self.clock.now())
            .await;
        found.unwrap().unwrap().caller.revision
    }

    async fn status_of(&self, connection: &Connection) -> Option<ConnectionStatus> {
        let (user, id) = (connection.user_id, connection.id);
        let found = self.storage.connections().find(user, id).await.unwrap();
        found.map(|connection| connection.status)
    }

    /// Waits for a status while the clock advances, because events cause at most one refresh in ten
    /// seconds.
    async fn wait_for_status(&self, connection: &Connection, status: ConnectionStatus) {
        eventually(async || {
            self.run_jobs_a_second_later(&connection.provider).await;
            self.status_of(connection).await == Some(status)
        })
        .await;
    }

    /// Leaves the clock as it is while an event is on its way, which would become too old.
    async fn run_jobs_a_second_later(&self, provider: &str) {
        let deliveries = self.bank(provider).deliveries();
        let is_under_way = |delivery: &Value| delivery["state"] == "waiting";
        if !deliveries.iter().any(is_under_way) {
            self.advance_clock(SignedDuration::from_secs(1));
        }
        self.run_due_jobs().await;
    }
}

#[tokio::test]
async fn one_event_updates_the_status() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (person, connection) = app.subscribed(provider).await;
        // One that is unknown is accepted and ignored.
        let unknown = if provider == "akahu" {
            "WEATHER:RAIN"
        } else {
            "weather.changed"
        };
        app.bank(provider).send_event(unknown, &json!({})).unwrap();
        assert_eq!(app.delivered(provider).await, [json!(200)], "{provider}");
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
            let events = hook.drain();
            let rows = all_rows(&events, "updated").into_iter();
            let reported: Vec<&str> = rows.map(|row| text(row, "status")).collect();
            assert_eq!(reported, [status.as_str()], "{provider}");
        }
        app.assert_accepted(provider).await;
    }
}

#[tokio::test]
async fn consent_end_is_followed_and_bad_events_are_rejected() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (person, connection) = app.subscribed(provider).await;
        let shown = async || {
            app.get_as(&person.key, "/v1/connections").await.data()[0]["consentExpiresAt"].clone()
        };
        let first = shown().await;
        let has_end = provider == "fiskil";
        assert_eq!(first.is_string(), has_end, "{provider}: {first}");
        if first.is_null() {
            continue;
        }
        let new = "2027-02-03T04:05:06Z";
        let (id, until) = (app.consent_at(&connection).await, new.parse().unwrap());
        let (fiskil, active) = (app.fiskil(), ConsentState::Active);
        fiskil.set_consent_until(&id, active, Some(until)).unwrap();
        eventually(async || {
            app.run_jobs_a_second_later(provider).await;
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
        let ended = shown().await;
        let ended: Timestamp = ended.as_str().unwrap().parse().unwrap();
        assert!(ended < app.clock.now(), "{ended}");
    }

    let url = |path: &str| format!("{}{path}", app.console_url);
    let post = async |path: &str, body: Vec<u8>| {
        let answer = app.send(app.http.post(url(path)).body(body)).await;
        let body = answer.json();
        let is_expected = answer.status == 200 || body["error"]["message"].is_string();
        assert!(is_expected, "{body}");
        answer.status.as_u16()
    };
    assert_eq!(post("/webhooks/unknown", b"{}".to_vec()).await, 404);
    for provider in simulated_providers() {
        let path = format!("/webhooks/{provider}");
        assert_eq!(post(&path, b"{}".to_vec()).await, 401);
        assert_eq!(post(&path, Vec::new()).await, 401);
        assert_eq!(post(&path, vec![b' '; 256 * 1024 + 1]).await, 413);
        let answer = app.send(app.http.get(url(&path))).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("allow")),
            (405, Some("POST"))
        );
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
        let are_rejected = statuses.iter().all(rejected) && statuses[0] == 401;
        assert!(are_rejected, "{provider}: {statuses:?}");
        // When a refresh for it would be due.
        app.run_jobs_after(SignedDuration::from_mins(1)).await;
        let status = app.status_of(&connection).await;
        assert_eq!(
            status,
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
        app.assert_accepted(provider).await;
        app.wait_for_status(&connection, ConnectionStatus::Invalidated)
            .await;
        let audit = app.audit_of(connection.id).await;
        assert_eq!(audit.len(), 2, "{provider}: {audit:?}");

        // The same bytes, one hour later.
        app.run_jobs_after(SignedDuration::from_hours(1)).await;
        app.reset_calls();
        let first = app.bank(provider).deliveries()[0]["id"].as_u64().unwrap();
        app.bank(provider).resend(first).unwrap();
        let status = app.delivered(provider).await.pop().unwrap();
        let calls = app.bank(provider).total_calls();
        match provider {
            "snaptrade" => assert_eq!((status, calls), (json!(401), 0), "too old"),
            "fiskil" => assert_eq!((status, calls), (json!(200), 0), "accepted before"),
            // Akahu's events have no id, so a repeated one causes one more refresh.
            _ => assert_eq!(status, 200),
        }
    }
}

#[tokio::test]
async fn refresh_requested_by_event_is_retried() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let (_, connection) = app.subscribed(provider).await;
        // Else the refresh would wait, because the last one began at this instant.
        app.advance_clock(SignedDuration::from_mins(1));
        // The provider sends an event, but its API fails.
        let route = spec(provider).consent_route;
        app.bank(provider).add_fault(Fault::status(503).at(route));
        app.set_consent(&connection, ConsentState::Expired).await;
        app.delivered(provider).await;
        app.run_due_jobs().await;
        // The background may have claimed the refresh, and run it still.
        let id = connection.id.to_string();
        eventually(async || {
            let failing = app.storage.jobs().list_failing(9).await.unwrap();
            failing.iter().any(|job| job.subject == id)
        })
        .await;
        app.bank(provider).clear_faults();
        let status = app.status_of(&connection).await;
        assert_eq!(status, Some(ConnectionStatus::Active), "{provider}");
        app.run_jobs_after(SignedDuration::from_mins(2)).await;
        let expected = Some(ConnectionStatus::Invalidated);
        eventually(async || app.status_of(&connection).await == expected).await;
    }
}

#[tokio::test]
async fn event_about_a_known_account_affects_only_its_connection() {
    let app = App::start(Setup::with(|settings| settings.sync.enabled = true)).await;
    let credentials = app.credentials_of("akahu");
    let two: Vec<&Value> = credentials.iter().take(2).collect();
    let (email, plan) = ("two.banks@example.com", Plan::Professional);
    let person = app.add_person(email, plan, &two).await;
    let connections = &person.connections;
    assert!(connections.len() > 1, "{connections:?}");
    app.subscribe_to("akahu");
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
        app.subscribe_to("akahu");
        let event = json!({
            "state": format!("{}:TRANSACTION", person.user.id),
            "item_id": item,
        });
        app.advance_clock(SignedDuration::from_hours(1));
        let akahu = app.bank("akahu");
        akahu
            .send_event("TRANSACTION:DEFAULT_UPDATE", &event)
            .unwrap();
        assert_eq!(app.delivered("akahu").await, [json!(200)]);
        let now = app.clock.now();
        for (index, connection) in connections.iter().enumerate() {
            let (is_due, is_affected) = (
                next_sync_at(connection).await <= now,
                all_are_affected || index == 0,
            );
            assert_eq!(is_due, is_affected, "{item}: {index}");
        }
    }
}
