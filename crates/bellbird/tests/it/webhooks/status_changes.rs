//! The events about connections, for the endpoints that ask for them.

use bellbird_connections::Removal;
use bellbird_domain::ConnectionStatus::{Active, Invalidated, PendingMfa, Revoked};
use bellbird_domain::{Connection, ConnectionStatus, DeliveryState, EventType, User};
use bellbird_sandbox::{ConsentState, Fault};
use bellbird_storage::{JobKey, job_kinds};
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::{Value, json};

use super::events::assert_envelope;
use super::{DAY, HOUR};
use crate::support::database::execute;
use crate::support::deployment::{Deployment, control};
use crate::support::harness::{App, Database, Setup, eventually, simulated_providers};
use crate::support::process::{ANY_PORTS, RunningCommand, Workdir, findings, text};
use crate::support::receiver::{ChunkPosition, Hook, ReceivedEvent, Receiver, Reply, RowCounts};

const SUBSCRIBED: &[EventType] = &[EventType::ConnectionUpdated];

impl App {
    /// An endpoint that gets nothing but `connection.updated`.
    async fn status_hook(&self, user: &User) -> Hook {
        self.hook_for(user, SUBSCRIBED).await
    }

    /// Changes a status as a refresh does, also to those that no provider reports.
    async fn change_status(
        &self,
        connection: &Connection,
        from: ConnectionStatus,
        to: ConnectionStatus,
    ) {
        let (user, now) = (connection.user_id, self.clock.now());
        let key = JobKey::new(job_kinds::REFRESH, user, connection.id);
        let (jobs, refreshes) = (self.storage.jobs(), self.storage.refreshes());
        let claimed = jobs.claim(&key, now, now + HOUR).await.unwrap();
        let claim = claimed.expect("claimed");
        let changed = refreshes.set_status(&claim, from, to, "refreshed", now, now);
        assert!(changed.await.unwrap());
        assert!(jobs.finish(&claim, None).await.unwrap());
    }
}

/// The connection that an event shows.
fn shown(event: &ReceivedEvent) -> &Value {
    assert_eq!(event.counts(), RowCounts { new: 0, updated: 1 });
    &event.rows("updated")[0]
}

/// The status before and after each event, in the order of the ids: events are sent concurrently.
fn statuses(events: &[ReceivedEvent]) -> Vec<[&str; 2]> {
    let mut events: Vec<&ReceivedEvent> = events.iter().collect();
    events.sort_by_key(|event| &event.id);
    let shown = events.into_iter().map(shown);
    shown
        .map(|row| [text(row, "previous_status"), text(row, "status")])
        .collect()
}

#[tokio::test]
async fn each_change_is_reported_once() {
    let app = App::start(Setup::default()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let hook = app.status_hook(&person.user).await;
        let default_hook = app.hook(&person.user).await;
        let stranger = app.status_hook(&app.ben.user).await;
        app.complete_initial_sync(connection, &default_hook).await;
        assert!(hook.drain().is_empty(), "{provider}: a new connection");
        for (state, before, after) in [
            (ConsentState::Expired, Active, Invalidated),
            (ConsentState::Revoked, Invalidated, Revoked),
            (ConsentState::Active, Revoked, Active),
        ] {
            app.advance_clock(HOUR);
            app.set_consent(connection, state).await;
            assert_eq!(app.sync(connection).await.status, after, "{provider}");
            let received = app.delivered_to(&hook).await;
            assert_eq!(received.len(), 1, "{provider}: {state:?}");
            let (event, now) = (&received[0], app.clock.now().as_second());
            assert_envelope(event, "connection.updated", Some(connection.id), now);
            assert_eq!(event.chunk_position(), ChunkPosition { chunk: 1, total: 1 });
            assert_eq!(event.body["metadata"]["sync_run_id"], event.id);
            let listed = app.get_as(&person.key, "/v1/connections").await.data();
            let expected = json!({
                "id": connection.id, "object": "connection", "provider": provider,
                "category": connection.category, "institution_id": connection.institution_id,
                "institution_name": connection.institution_name, "status": after, "previous_status": before,
                "last_refreshed_at": listed[0]["lastRefreshedAt"],
                "consent_expires_at": listed[0]["consentExpiresAt"],
            });
            assert_eq!(*shown(event), expected, "{provider}");
            assert!(expected["last_refreshed_at"].is_string());
            app.sync(connection).await;
            let again = app.delivered_to(&hook).await;
            assert!(again.is_empty(), "{provider}: {state:?} again");
        }
        // A renewal is reported, too. The second import changes nothing.
        app.set_consent(connection, ConsentState::Revoked).await;
        app.sync(connection).await;
        app.set_consent(connection, ConsentState::Active).await;
        for _ in 0..2 {
            app.import_again(connection).await;
        }
        let expected = [["active", "revoked"], ["revoked", "active"]];
        assert_eq!(statuses(&app.delivered_to(&hook).await), expected);
        let others = [default_hook.drain(), stranger.drain()].concat();
        assert!(others.is_empty(), "{provider}: did not ask for it");
    }
}

#[tokio::test]
async fn later_attempts_and_recoveries_send_each_change() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.status_hook(&app.olivia.user).await;
    app.change_status(connection, Active, PendingMfa).await;
    hook.receiver.reply_with(Reply::Status(500));
    let first = app.delivered_to(&hook).await;
    assert_eq!(statuses(&first), [["active", "pending_mfa"]]);
    let first = &first[0];

    // The connection changes, and its provider does not respond.
    app.sync(connection).await;
    app.fiskil().add_fault(Fault::status(503).at("/"));
    app.reset_calls();
    let mut again = Vec::new();
    while again.len() < 3 && app.advance_to_next_attempt(&hook).await {
        let received = app.delivered_to(&hook).await.into_iter();
        again.extend(received.filter(|event| event.id == first.id));
    }
    for event in &again {
        assert_eq!(event.raw, first.raw);
        assert_ne!(event.signature, first.signature);
    }
    assert!(again.is_sorted_by(|one, next| one.timestamp < next.timestamp));
    let calls = app.fiskil().total_calls();
    assert_eq!((again.len(), calls), (3, 0), "from the database");

    hook.receiver.reply_with(Reply::Status(204));
    while app.advance_to_next_attempt(&hook).await {
        app.delivered_to(&hook).await;
    }
    assert_eq!(app.states_at(&hook).await, [DeliveryState::Delivered; 2]);
    let event = app.deliveries_to(&hook).await[0].event_id;
    app.redeliver(&hook, event).await.unwrap();
    let redelivered = app.delivered_to(&hook).await;
    let [again] = &redelivered[..] else {
        panic!("{redelivered:?}")
    };
    assert_eq!((&again.id, &again.raw), (&first.id, &first.raw));

    // Missed changes are recovered, unless their connection is removed.
    app.clear_faults();
    app.delete_hook(&hook).await;
    let [connection, removed] = [0, 1].map(|at| &app.olivia.connections[at]);
    let hook = app.status_hook(&app.olivia.user).await;
    app.change_status(removed, Active, Revoked).await;
    assert_eq!(app.remove(removed.id).await, Removal::Done);
    assert!(app.delivered_to(&hook).await.is_empty());
    assert!(app.deliveries_to(&hook).await.is_empty());

    let before = app.clock.now();
    app.disable_hook(&hook, "by command").await;
    app.change_status(connection, Active, Invalidated).await;
    app.advance_clock(DAY);
    app.change_status(connection, Invalidated, Revoked).await;
    assert!(app.delivered_to(&hook).await.is_empty());
    app.enable_hook(&hook).await;
    assert_eq!(app.recover(&hook, before).await, Some(2));
    let received = app.delivered_to(&hook).await;
    let expected = [["active", "invalidated"], ["invalidated", "revoked"]];
    assert_eq!(statuses(&received), expected);

    // A read that fails reports the lost consent.
    let connection = &app.ben.connections[0];
    let hook = app.status_hook(&app.ben.user).await;
    app.start_background_jobs();
    app.set_consent(connection, ConsentState::Revoked).await;
    let read = app.rows_of(connection).by(&app.ben).send().await;
    read.error(503);
    eventually(async || hook.receiver.has_requests()).await;
    assert_eq!(statuses(&hook.drain()), [["active", "revoked"]]);
}

#[tokio::test]
async fn new_ending_and_removed_connections_are_reported() {
    let app = App::start(Setup::default()).await;
    let types = [
        EventType::ConnectionCreated,
        EventType::ConnectionExpiring,
        EventType::ConnectionRemoved,
    ];
    let hook = app.hook_for_all(&types).await;
    let mut expected_of = Vec::new();
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let created = app.delivered_to(&hook).await.remove(0);
        let (id, now) = (Some(connection.id), app.clock.now().as_second());
        assert_envelope(&created, "connection.created", id, now);
        assert_eq!(created.counts(), RowCounts { new: 1, updated: 0 });
        assert_eq!(created.body["metadata"]["user_id"], json!(person.user.id));
        let listed = app.get_as(&person.key, "/v1/connections").await.data();
        let shown = &created.rows("new")[0];
        let expected = [
            &listed[0]["id"],
            &Value::Null,
            &listed[0]["consentExpiresAt"],
        ];
        let actual = ["id", "previous_status", "consent_expires_at"].map(|name| &shown[name]);
        assert_eq!(actual, expected, "{provider}");
        if provider == "fiskil" {
            let end: Timestamp = text(&listed[0], "consentExpiresAt").parse().unwrap();
            expected_of.push((connection.clone(), end));
        }
        if provider == "akahu" {
            assert_eq!(app.remove(connection.id).await, Removal::Done);
            let removed = app.delivered_to(&hook).await.remove(0);
            assert_envelope(&removed, "connection.removed", id, now);
            assert_eq!(removed.counts(), RowCounts { new: 0, updated: 0 });
            assert_eq!(app.connections_of(person.user.id).await, []);
        }
    }
    let (connection, end) = expected_of.remove(0);
    for days in [14, 3] {
        app.clock.set(end - days * DAY);
        app.clean_up().await;
        let mut received = app.delivered_to(&hook).await;
        received.retain(|event| event.body["metadata"]["connection_id"] == json!(connection.id));
        assert_eq!(received.len(), 1, "{days} days before");
        let (id, now) = (Some(connection.id), app.clock.now().as_second());
        assert_envelope(&received[0], "connection.expiring", id, now);
        assert_eq!(shown(&received[0])["consent_expires_at"], json!(end));
        assert_eq!(shown(&received[0])["previous_status"], Value::Null);
    }
}

/// A deployment with one connection at Fiskil, and the id of that connection.
async fn deployment_with_connection() -> (Workdir, RunningCommand, String, Value) {
    let Deployment {
        mut workdir,
        sandbox,
        ..
    } = Deployment::start_on(Database::Sqlite, 50, &[]).await;
    workdir.set("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true");
    workdir.set(
        "BELLBIRD_WEBHOOKS__ATTEMPT_DELAYS_SECONDS",
        "0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1",
    );
    workdir.set("BELLBIRD_SYNC__ENABLED", "false");
    workdir.json("user add --email me@example.com");
    let credentials = sandbox.json()["credentials"][0].clone();
    let id = workdir.import("me@example.com", &credentials);
    (workdir, sandbox, id, credentials)
}

async fn change_consent(sandbox: &RunningCommand, credentials: &Value, change: Value) {
    let path = format!("consents/{}", text(credentials, "arrangementId"));
    control(&sandbox.json(), "fiskil", Method::POST, &path, change).await;
}

/// Revokes the consent at the provider, and lets a command notice it.
async fn revoke(
    workdir: &Workdir,
    sandbox: &RunningCommand,
    connection: &str,
    credentials: &Value,
) {
    change_consent(sandbox, credentials, json!({"state": "revoked"})).await;
    let synced = workdir.run(&format!("connection sync {connection}"));
    assert_eq!(synced.status.code(), Some(1), "nothing was read");
}

#[tokio::test]
async fn lost_consent_is_named_by_the_doctor_and_sent_after_a_kill() {
    let (workdir, sandbox, connection, credentials) = deployment_with_connection().await;
    doctor_names_connections_to_reconnect(&workdir, &sandbox, &connection, &credentials).await;
    change_consent(&sandbox, &credentials, json!({"state": "active"})).await;
    workdir.json(&format!("connection sync {connection}"));
    let receiver = Receiver::start().await;
    receiver.reply_with(Reply::Status(500));
    let add =
        "webhook add --user me@example.com --events transactions.synced,connection.updated --url";
    let added = workdir.json(&format!("{add} {}", receiver.url));
    assert_eq!(
        added["events"],
        json!(["transactions.synced", "connection.updated"])
    );
    assert!(workdir.text("webhook list").contains("connection.updated"));
    let service = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));
    revoke(&workdir, &sandbox, &connection, &credentials).await;
    eventually(async || receiver.has_requests()).await;
    assert_eq!(service.stop("-KILL").0, None);
    let first = receiver.drain();
    assert_eq!(statuses(&first[..1]), [["active", "revoked"]]);
    let first = &first[0];

    receiver.reply_with(Reply::Status(204));
    // The lease of the endpoint ends later than a test should wait.
    let path = workdir.folder.path().join("deployment.db");
    let database = format!("sqlite:{}", path.display());
    execute(
        &database,
        "UPDATE webhook_queues SET lease_until = NULL",
        "",
    )
    .await;
    let service = RunningCommand::start(&workdir, &format!("serve --json {ANY_PORTS}"));
    eventually(async || receiver.has_requests()).await;
    let again = receiver.drain().remove(0);
    // The signature differs if the second of its timestamp does.
    assert_eq!((&again.id, &again.raw), (&first.id, &first.raw));
    assert_eq!(service.stop("-TERM").0, Some(0));
}

async fn doctor_names_connections_to_reconnect(
    workdir: &Workdir,
    sandbox: &RunningCommand,
    connection: &str,
    credentials: &Value,
) {
    let assert_found = |expected: &[&str]| {
        let output = workdir.run(&format!("doctor --json {ANY_PORTS}"));
        assert_eq!(findings(&output, "connections"), expected);
        // A lost consent is no fault of the deployment.
        assert_eq!(output.status.code(), Some(0));
    };
    assert_found(&["ok 1 active"]);

    let end = Timestamp::now() + 10 * DAY;
    let change = json!({"state": "active", "expiresAt": end});
    change_consent(sandbox, credentials, change).await;
    workdir.json(&format!("connection sync {connection}"));
    let (list, show) = ("connection list", format!("connection show {connection}"));
    let shown = workdir.json(list)[0]["consentExpiresAt"].clone();
    assert_eq!(workdir.json(&show)["consentExpiresAt"], shown);
    let shown = shown.as_str().unwrap();
    let difference = end.duration_since(shown.parse().unwrap());
    assert!(difference.abs() < SignedDuration::from_secs(1), "{shown}");
    for command in [list, &show] {
        let printed = workdir.text(command);
        let has_end = printed.to_lowercase().contains("consent ends") && printed.contains(shown);
        assert!(has_end, "{printed}");
    }
    let link = format!("connection link --reconnect {connection}");
    let note = format!(
        "note the consent of me@example.com for Ironbark Example Bank ends at {shown}; to renew \
         it, send the user the link of `bellbird {link}`"
    );
    assert_found(&["ok 1 active", &note]);

    revoke(workdir, sandbox, connection, credentials).await;
    let history = workdir.json(&show)["history"].clone();
    let since: Timestamp = text(history.as_array().unwrap().last().unwrap(), "at")
        .parse()
        .unwrap();
    let note = format!(
        "note Ironbark Example Bank of me@example.com is revoked since {since:.0}; to reconnect \
         it, send the user the link of `bellbird {link}`"
    );
    assert_found(&[&note, "ok 0 active"]);
    let url = workdir.json(&link);
    let is_link = text(&url, "url").contains("/link/");
    assert!(is_link, "the command works: {url}");
}
