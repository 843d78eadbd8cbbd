//! Webhook endpoints and deliveries by API.

use bellbird_domain::EventType;
use jiff::SignedDuration;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, data, error, id};
use crate::support::fields::assert_fields;
use crate::support::harness::Response;
use crate::support::process::text;
use crate::support::receiver::{Hook, Receiver, Reply};
use crate::support::words::{assert_has, assert_lacks};

const ENDPOINTS: &str = "/admin/v1/webhook-endpoints";

/// A receiver that was registered by API.
struct Endpoint<'a> {
    admin: &'a Admin,
    /// The response that has shown the secret.
    created: Value,
    path: String,
    hook: Hook,
}

impl Admin {
    /// A new endpoint. `body` lacks only the URL.
    async fn endpoint(&self, mut body: Value) -> Endpoint<'_> {
        let receiver = Receiver::start().await;
        body["url"] = json!(receiver.url);
        let created = self.create(ENDPOINTS, &body).await;
        let secret = SecretString::from(text(&created, "secret"));
        let found = self.app.storage.endpoints();
        let found = found.find_any(id(&created).parse().unwrap()).await;
        Endpoint {
            admin: self,
            path: format!("{ENDPOINTS}/{}", id(&created)),
            hook: Hook::new(receiver, found.unwrap().unwrap(), secret),
            created,
        }
    }

    async fn endpoint_of(&self, user: &str) -> Endpoint<'_> {
        self.endpoint(json!({"userId": user})).await
    }
}

impl Endpoint<'_> {
    async fn show(&self) -> Value {
        self.admin.read(&self.path).await
    }

    async fn change(&self, body: Value) -> Value {
        self.admin.change(&self.path, &body).await
    }

    async fn post(&self, action: &str, body: Value) -> Response {
        let path = format!("{}/{action}", self.path);
        self.admin.post(&path, &body).await
    }

    async fn ping(&self) -> Value {
        data(&self.post("ping", json!({})).await, 200)
    }

    /// The deliveries that a query selects.
    async fn deliveries(&self, query: &str) -> Vec<Value> {
        let path = format!("{}/deliveries?{query}", self.path);
        self.admin.list(&path).await
    }

    async fn delivery(&self, event: &str) -> Response {
        let path = format!("{}/deliveries/{event}", self.path);
        self.admin.get(&path).await
    }

    async fn redeliver(&self, event: &str, body: Value) -> Response {
        let action = format!("deliveries/{event}/redeliver");
        self.post(&action, body).await
    }

    /// Repeats what failed this year, of one user or of all.
    async fn recover(&self, user: Option<&str>) -> Response {
        let mut body = json!({"since": "2026-01-01T00:00:00Z"});
        if let Some(user) = user {
            body["userId"] = json!(user);
        }
        self.post("recover", body).await
    }
}

#[tokio::test]
async fn endpoint_lives_by_api() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let user = app.olivia.user.id.to_string();
    let endpoint = admin.endpoint_of(&user).await;
    let before = endpoint.show().await;
    let shown = json!({
        "userId": user, "events": ["transactions.synced", "trades.synced"],
        "apiVersion": "2026-11-01", "status": "enabled", "disabledReason": null,
    });
    assert_fields(&before, &shown);
    assert!(before.get("secret").is_none(), "shown once");

    // A ping, and the events of a sync, signed with the secret that was shown.
    let ping = endpoint.ping().await;
    assert_fields(&ping, &json!({"delivered": true, "error": null}));
    assert_eq!(endpoint.hook.drain()[0].id, text(&ping, "eventId"));
    app.sync(&app.olivia.connections[0]).await;
    let events = app.delivered_to(&endpoint.hook).await;
    assert!(!events.is_empty());
    assert_ne!(endpoint.show().await["lastDeliveredAt"], Value::Null);

    let event = &events[0].id;
    let shown = async || data(&endpoint.delivery(event).await, 200);
    let delivery = shown().await;
    assert_eq!(delivery["state"], "delivered");
    let attempt = &delivery["attemptLog"][0];
    assert_eq!(attempt["status"], 204);
    let documented = &bellbird_api::admin::document().value()["components"]["schemas"];
    for (row, schema) in [(&delivery, "DeliveryDetails"), (attempt, "DeliveryAttempt")] {
        for name in row.as_object().unwrap().keys() {
            assert!(documented[schema]["properties"][name].is_object(), "{name}");
        }
    }
    let again = data(&endpoint.redeliver(event, json!({})).await, 202);
    assert_fields(&again, &json!({"state": "pending", "eventId": event}));
    assert_eq!(shown().await["state"], "pending");
    assert_eq!(app.delivered_to(&endpoint.hook).await[0].id, *event);

    // The old secret signs for a day.
    let rotated = data(&endpoint.post("rotate-secret", json!({})).await, 201);
    let until = app.clock.now() + SignedDuration::from_hours(24);
    assert_eq!(rotated["oldSecretExpiresAt"], until.to_string());
    assert_ne!(rotated["secret"], json!(null));

    let types = json!(["connection.updated"]);
    let body = json!({"userId": user, "events": types, "apiVersion": "2026-12-01"});
    let other = admin.endpoint(body).await;
    let stored = &other.hook.endpoint;
    assert_eq!(stored.event_types, [EventType::ConnectionUpdated]);

    let url = &other.hook.receiver.url;
    let types = ["trades.synced", "trades.synced"];
    let changed =
        json!({"url": url, "events": types, "apiVersion": "2026-12-01", "enabled": false});
    let shown = json!({
        "url": url, "events": ["trades.synced"], "apiVersion": "2026-12-01",
        "status": "disabled", "disabledReason": "by operator",
    });
    assert_fields(&endpoint.change(changed).await, &shown);
    let message = endpoint.redeliver(event, json!({})).await.conflict();
    assert_has(&message, "enable it first");
    endpoint.recover(None).await.conflict();
    let enabled = endpoint.change(json!({"enabled": true})).await;
    let shown = json!({"status": "enabled", "disabledReason": null});
    assert_fields(&enabled, &shown);
    assert_eq!(endpoint.change(json!({})).await, enabled);

    let listed = admin.list(&format!("{ENDPOINTS}?userId={user}")).await;
    let ids: Vec<String> = listed.iter().map(id).collect();
    assert_eq!(ids, [id(&before), stored.id.to_string()]);
    let of_ben = format!("{ENDPOINTS}?userId={}", app.ben.user.id);
    assert_eq!(admin.list(&of_ben).await, [] as [Value; 0]);
    assert_eq!(admin.list_by(1, ENDPOINTS).await, listed);

    admin.remove(&other.path).await;
    admin.delete(&other.path).await.missing();
    let expected = [
        "webhook_endpoint.remove",
        "webhook_endpoint.update",
        "webhook_endpoint.update",
        "webhook_endpoint.update",
        "webhook_endpoint.create",
        "webhook_endpoint.rotate_secret",
        "delivery.redeliver",
        "webhook_endpoint.ping",
        "webhook_endpoint.create",
    ];
    assert_eq!(admin.actions(&user).await, expected);
    let audit = admin.get(&format!("/admin/v1/audit?userId={user}")).await;
    assert_lacks(&audit.text, "whsec_");
    assert!(!audit.text.contains(&endpoint.hook.receiver.url));
}

#[tokio::test]
async fn failed_deliveries_are_listed_and_recovered() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let endpoint = admin.endpoint_of(&app.olivia.user.id.to_string()).await;
    let Endpoint { path, hook, .. } = &endpoint;
    for connection in &app.olivia.connections[..2] {
        app.sync(connection).await;
    }
    endpoint.change(json!({"enabled": false})).await;
    endpoint.change(json!({"enabled": true})).await;
    hook.receiver.reply_with(Reply::Status(500));
    let ping = endpoint.ping().await;
    assert_fields(&ping, &json!({"delivered": false, "status": 500}));
    hook.receiver.reply_with(Reply::Status(200));
    hook.drain();

    let whole = endpoint.deliveries("limit=200").await;
    assert!(whole.len() > 2, "{}", whole.len());
    assert_eq!(endpoint.deliveries("state=failed").await, whole);
    assert_eq!(admin.list_by(2, &format!("{path}/deliveries")).await, whole);
    let pending = endpoint.deliveries("state=pending").await;
    assert_eq!(pending, [] as [Value; 0]);

    let a_ping = text(&ping, "eventId");
    let message = endpoint.redeliver(a_ping, json!({})).await.conflict();
    assert_has(&message, "send another");
    let recover = format!("{path}/recover");
    let since = json!({"since": "2020-01-01T00:00:00Z"});
    let recovered = async |key: Option<&str>| {
        let answer = admin.send(Method::POST, &recover, &since, key).await;
        data(&answer, 202)["recovered"].clone()
    };
    let all_but_the_ping = whole.len() - 1;
    assert_eq!(recovered(Some("a")).await, all_but_the_ping);
    let waiting = endpoint.deliveries("state=waiting").await;
    if let Some(waiting) = waiting.first() {
        let event = text(waiting, "eventId");
        let message = endpoint.redeliver(event, json!({})).await.conflict();
        assert_has(&message, "earlier event");
    }
    while !app.delivered_to(hook).await.is_empty() {}
    let delivered = endpoint.deliveries("state=delivered").await;
    assert_eq!(delivered.len(), all_but_the_ping);
    assert_eq!(
        recovered(Some("a")).await,
        all_but_the_ping,
        "the response to the first request"
    );
    assert_eq!(recovered(None).await, 0);
}

#[tokio::test]
async fn repeated_requests_change_an_endpoint_once() {
    let admin = Admin::start().await;
    let user = admin.app.ben.user.id.to_string();
    let receiver = Receiver::start().await;
    let body = json!({"userId": user, "url": receiver.url});
    let create = async |body: &Value| admin.post_once("create", ENDPOINTS, body).await;
    let first = create(&body).await;
    let created = data(&first, 201);
    assert_eq!(create(&body).await.text, first.text, "the same secret");
    create(&json!({"userId": user})).await.invalid();
    let other = json!({"userId": user, "url": receiver.url, "events": ["trades.synced"]});
    error(&create(&other).await, 409, "idempotency_conflict");
    assert_eq!(admin.list(ENDPOINTS).await.len(), 1);

    let path = format!("{ENDPOINTS}/{}", id(&created));
    let (nothing, since) = (json!({}), json!({"since": "2026-01-01T00:00:00Z"}));
    for action in ["rotate-secret", "ping"] {
        let to_act = format!("{path}/{action}");
        let first = admin.post_once(action, &to_act, &nothing).await;
        let again = admin.post_once(action, &to_act, &nothing).await;
        assert_eq!((first.status, &first.text), (again.status, &again.text));
        let recover = format!("{path}/recover");
        let other = admin.post_once(action, &recover, &since).await;
        error(&other, 409, "idempotency_conflict");
    }
    assert_eq!(receiver.drain().len(), 1, "one ping");
    // Also after the endpoint is removed.
    admin.remove(&path).await;
    let to_ping = format!("{path}/ping");
    data(&admin.post_once("ping", &to_ping, &nothing).await, 200);
    assert_eq!(create(&body).await.text, first.text);
    let expected = ["remove", "ping", "rotate_secret", "create"]
        .map(|verb| format!("webhook_endpoint.{verb}"));
    assert_eq!(admin.actions(&user).await, expected);
    wrong_endpoints_are_named(&admin).await;
}

async fn wrong_endpoints_are_named(admin: &Admin) {
    let (user, url) = (admin.app.ben.user.id.to_string(), "http://127.0.0.1:1025/");
    for (body, expected) in [
        (json!({}), "url: Must be given"),
        (
            json!({"url": url}),
            "userId: Must be the id of a user, or absent and `allUsers` true",
        ),
        (
            json!({"userId": user, "url": "http://hooks.example.com/"}),
            "url: the URL does not start with https://",
        ),
        (
            json!({"userId": user, "url": "https://10.0.0.1/"}),
            "url: the host is an IP address",
        ),
        (
            json!({"userId": user, "url": url, "events": []}),
            "events: Must be a list of transactions.synced",
        ),
        (
            json!({"userId": user, "url": url, "events": ["endpoint.ping"]}),
            "events: Must be a list of",
        ),
        (
            json!({"userId": user, "url": url, "events": "trades.synced"}),
            "events: Must be a list of",
        ),
        (
            json!({"userId": user, "url": url, "events": ["trades.synced", "trades.sunk"]}),
            "connection.removed, user.removed, and entry 2 is none of these",
        ),
        (
            json!({"userId": user, "url": url, "events": ["trades.synced", "user.removed"]}),
            "events: `user.removed` goes to endpoints with `allUsers` only",
        ),
        (
            json!({"userId": user, "url": url, "apiVersion": "1"}),
            "apiVersion: Must be 2026-11-01 or 2026-12-01",
        ),
        (
            json!({"userId": user, "url": url, "enabled": true}),
            "enabled: unknown; known are userId",
        ),
    ] {
        let message = admin.post(ENDPOINTS, &body).await.invalid();
        let message = message.replace("given url", "given, url");
        assert_has(&message, expected);
    }
    let unknown = Uuid::now_v7();
    let of_nobody = json!({"userId": unknown, "url": url});
    let message = admin.post(ENDPOINTS, &of_nobody).await.missing();
    assert_eq!(message, "User not found ");

    // A user has 20 at most.
    let body = json!({"userId": user, "url": url});
    let endpoint = admin.create(ENDPOINTS, &body).await;
    let path = format!("{ENDPOINTS}/{}", id(&endpoint));
    for _ in 1..20 {
        admin.create(ENDPOINTS, &body).await;
    }
    let message = admin.post(ENDPOINTS, &body).await.conflict();
    assert_has(&message, "20 endpoints already");
    let (nothing, since) = (json!({}), json!({"since": "2026-01-01T00:00:00Z"}));
    let ping = data(&admin.post(&format!("{path}/ping"), &nothing).await, 200);
    assert_fields(&ping, &json!({"delivered": false, "status": null}));

    let event = format!("/deliveries/{unknown}");
    let redeliver = format!("{event}/redeliver");
    for (method, action, body) in [
        (Method::GET, "", &nothing),
        (Method::PATCH, "", &nothing),
        (Method::DELETE, "", &nothing),
        (Method::POST, "/rotate-secret", &nothing),
        (Method::POST, "/ping", &nothing),
        (Method::POST, "/recover", &since),
        (Method::GET, "/deliveries", &nothing),
        (Method::GET, &event, &nothing),
        (Method::POST, &redeliver, &nothing),
    ] {
        for id in [unknown.to_string(), "x".to_owned()] {
            let path = format!("{ENDPOINTS}/{id}{action}");
            let answer = admin.send(method.clone(), &path, body, None).await;
            let message = answer.missing();
            assert_eq!(message, "Webhook endpoint not found ", "{method} {path}");
        }
    }
    for event in [unknown.to_string(), "x".to_owned()] {
        let event = format!("{path}/deliveries/{event}");
        let redelivered = admin.post(&format!("{event}/redeliver"), &nothing).await;
        for answer in [admin.get(&event).await, redelivered] {
            assert_eq!(answer.missing(), "Event not found ");
        }
    }
    for body in [json!({"enabled": "yes"}), json!({"url": "ftp://x"})] {
        admin.patch(&path, &body).await.invalid();
    }
    let no_time = admin.post(&format!("{path}/recover"), &nothing).await;
    no_time.invalid();
    let no_state = admin.get(&format!("{path}/deliveries?state=done")).await;
    no_state.invalid();
}

#[tokio::test]
async fn one_endpoint_gets_the_events_of_all() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let (olivia, ben) = (app.olivia.user.id.to_string(), app.ben.user.id.to_string());
    let reference = json!({"reference": "customer-1"});
    let path = format!("/admin/v1/users/{olivia}");
    admin.change(&path, &reference).await;
    let url = "http://127.0.0.1:1025/";
    for wrong in [
        json!({"url": url}),
        json!({"url": url, "userId": olivia, "allUsers": true}),
        json!({"url": url, "allUsers": false}),
    ] {
        admin.post(ENDPOINTS, &wrong).await.invalid();
    }
    let nobody = json!({"url": url, "userId": Uuid::nil()});
    admin.post(ENDPOINTS, &nobody).await.missing();
    let endpoint = admin.endpoint(json!({"allUsers": true})).await;
    let Endpoint { path, hook, .. } = &endpoint;
    assert_eq!(endpoint.created["userId"], Value::Null);
    let ping = endpoint.ping().await;
    assert_eq!(hook.drain()[0].id, text(&ping, "eventId"));

    for person in [&app.olivia, &app.ben] {
        for connection in &person.connections {
            app.sync(connection).await;
        }
    }
    let received = app.delivered_to(hook).await;
    let count = |name: &str, value: &str| {
        let metadata = received.iter().map(|event| &event.body["metadata"]);
        metadata.filter(|metadata| metadata[name] == value).count()
    };
    let (of_olivia, of_ben) = (count("user_id", &olivia), count("user_id", &ben));
    assert!(of_olivia > 0 && of_ben > 0);
    assert_eq!(of_olivia + of_ben, received.len());
    assert_eq!(count("user_reference", "customer-1"), of_olivia);

    // Of all users or of one, by pages.
    let all = endpoint.deliveries("limit=200").await;
    assert_eq!(all.len(), received.len() + 1, "with the ping");
    assert_eq!(admin.list_by(1, &format!("{path}/deliveries")).await, all);
    let to_ben = endpoint.deliveries(&format!("userId={ben}")).await;
    assert_eq!((to_ben.len(), &to_ben[0]["userId"]), (of_ben, &json!(ben)));

    let event = text(&to_ben[0], "eventId");
    let of_user = async |user: &str| endpoint.delivery(&format!("{event}?userId={user}")).await;
    endpoint.delivery(event).await.invalid();
    assert_eq!(data(&of_user(&ben).await, 200)["state"], "delivered");
    of_user(&olivia).await.missing();
    let redeliver = async |body: Value| endpoint.redeliver(event, body).await;
    redeliver(json!({})).await.invalid();
    redeliver(json!({"userId": olivia})).await.missing();
    data(&redeliver(json!({"userId": ben})).await, 202);
    assert_eq!(app.delivered_to(hook).await.len(), 1);

    let disabled = endpoint.change(json!({"enabled": false})).await;
    assert_eq!(disabled["status"], "disabled");
    endpoint.recover(None).await.conflict();
    endpoint.recover(Some(&ben)).await.conflict();
    endpoint.change(json!({"enabled": true})).await;
    let recovered = data(&endpoint.recover(None).await, 202);
    assert_eq!(recovered["recovered"], 0, "nothing was pending");

    admin.remove(path).await;
    assert!(app.storage.endpoints().list_all().await.unwrap().is_empty());
    app.clean_up().await;
    assert_eq!(app.rows_in("webhook_queues").await, 0);
    let rows = admin.list("/admin/v1/audit?limit=200").await;
    let of_all = rows.iter().filter(|row| row["userId"].is_null());
    let actions: Vec<&str> = of_all.take(3).map(|row| text(row, "action")).collect();
    let expected = [
        "webhook_endpoint.remove",
        "delivery.recover",
        "webhook_endpoint.update",
    ];
    assert_eq!(actions, expected);
}

#[tokio::test]
async fn failures_of_all_users_are_recovered_once() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let endpoint = admin.endpoint(json!({"allUsers": true})).await;
    let receiver = &endpoint.hook.receiver;
    receiver.reply_with(Reply::Status(500));
    for person in [&app.olivia, &app.ben] {
        app.sync(&person.connections[0]).await;
    }
    app.webhooks.run_due_deliveries().await;
    endpoint.change(json!({"enabled": false})).await;
    // Each pending delivery fails when its next attempt is due.
    app.advance_clock(SignedDuration::from_secs(10));
    app.webhooks.run_due_deliveries().await;
    endpoint.change(json!({"enabled": true})).await;
    let failed = endpoint.deliveries("state=failed&limit=200").await;
    assert!(failed.len() >= 2, "{}", failed.len());

    // Gone, so disabled for everyone; and a user who is unknown, and one without an event so
    // far.
    receiver.reply_with(Reply::Status(410));
    app.sync(&app.olivia.connections[1]).await;
    app.webhooks.run_due_deliveries().await;
    receiver.reply_with(Reply::Status(204));
    receiver.drain();
    let olivia = app.olivia.user.id.to_string();
    let message = endpoint.recover(None).await.conflict();
    assert_has(&message, "enable it first");
    endpoint.recover(Some(&olivia)).await.conflict();
    let to_olivia = endpoint.deliveries(&format!("userId={olivia}")).await;
    let event = text(&to_olivia[0], "eventId");
    let redelivered = endpoint.redeliver(event, json!({"userId": olivia})).await;
    redelivered.conflict();
    let unknown = Uuid::now_v7().to_string();
    endpoint.recover(Some(&unknown)).await.missing();
    let quiet = json!({"email": "quiet@example.com"});
    let quiet = id(&admin.create("/admin/v1/users", &quiet).await);
    endpoint.recover(Some(&quiet)).await.conflict();
    endpoint.change(json!({"enabled": true})).await;
    let of_quiet = data(&endpoint.recover(Some(&quiet)).await, 202);
    assert_eq!(of_quiet["recovered"], 0);

    let failed = endpoint.deliveries("state=failed&limit=200").await;
    let recover = format!("{}/recover", endpoint.path);
    let since = json!({"since": "2026-01-01T00:00:00Z"});
    let recover = async || admin.post_once("recover-1", &recover, &since).await;
    let first = recover().await;
    assert_eq!(data(&first, 202)["recovered"], failed.len());
    app.webhooks.run_due_deliveries().await;
    assert_eq!(receiver.drain().len(), failed.len());
    assert_eq!(recover().await.text, first.text, "the same response");
    app.webhooks.run_due_deliveries().await;
    assert!(receiver.drain().is_empty());
}
