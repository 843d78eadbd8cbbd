//! Webhook endpoints and deliveries by API.

use bellbird_domain::EventType;
use jiff::SignedDuration;
use reqwest::Method;
use secrecy::SecretString;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, data, error, id};
use crate::support::receiver::{Hook, Receiver, Reply};

const ENDPOINTS: &str = "/admin/v1/webhook-endpoints";

impl Admin {
    /// An endpoint that was created by API, with its path.
    async fn hook(&self, user: &str, body: &Value) -> (Hook, String) {
        let receiver = Receiver::start().await;
        let mut body = body.clone();
        (body["userId"], body["url"]) = (json!(user), json!(receiver.url));
        let created = data(&self.post(ENDPOINTS, &body).await, 201);
        let secret = SecretString::from(created["secret"].as_str().unwrap());
        let endpoint = self
            .app
            .storage
            .endpoints()
            .find_any(id(&created).parse().unwrap())
            .await
            .unwrap()
            .unwrap();
        (
            Hook::new(receiver, endpoint, secret),
            format!("{ENDPOINTS}/{}", id(&created)),
        )
    }
}

#[tokio::test]
async fn endpoint_lives_by_api() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let user = app.olivia.user.id.to_string();
    let (hook, path) = admin.hook(&user, &json!({})).await;
    let shown = async || data(&admin.get(&path).await, 200);
    let before = shown().await;
    assert_eq!(
        before["events"],
        json!(["transactions.synced", "trades.synced"])
    );
    assert_eq!(
        (&before["apiVersion"], &before["status"]),
        (&json!("2026-11-01"), &json!("enabled"))
    );
    assert_eq!(
        (&before["userId"], &before["disabledReason"]),
        (&json!(user), &Value::Null)
    );
    assert!(before.get("secret").is_none(), "shown once");

    // A ping, and the events of a sync, signed with the secret that was shown.
    let ping = data(&admin.post(&format!("{path}/ping"), &json!({})).await, 200);
    assert_eq!(
        (&ping["delivered"], &ping["error"]),
        (&json!(true), &Value::Null)
    );
    assert_eq!(hook.drain()[0].id, ping["eventId"].as_str().unwrap());
    app.sync(&app.olivia.connections[0]).await;
    app.webhooks.run_due_deliveries().await;
    let events = hook.drain();
    assert!(!events.is_empty());
    assert_ne!(shown().await["lastDeliveredAt"], Value::Null);

    let event = format!("{path}/deliveries/{}", events[0].id);
    let delivery = data(&admin.get(&event).await, 200);
    assert_eq!(
        (&delivery["state"], &delivery["attemptLog"][0]["status"]),
        (&json!("delivered"), &json!(204))
    );
    let documented = &bellbird_api::admin::document().value()["components"]["schemas"];
    for (row, schema) in [
        (&delivery, "DeliveryDetails"),
        (&delivery["attemptLog"][0], "DeliveryAttempt"),
    ] {
        for name in row.as_object().unwrap().keys() {
            assert!(documented[schema]["properties"][name].is_object(), "{name}");
        }
    }
    let again = data(
        &admin.post(&format!("{event}/redeliver"), &json!({})).await,
        202,
    );
    assert_eq!(
        (&again["state"], &again["eventId"]),
        (&json!("pending"), &json!(events[0].id))
    );
    assert_eq!(data(&admin.get(&event).await, 200)["state"], "pending");
    assert_eq!(app.delivered_to(&hook).await[0].id, events[0].id);

    // The old secret signs for a day.
    let rotated = data(
        &admin
            .post(&format!("{path}/rotate-secret"), &json!({}))
            .await,
        201,
    );
    let until = app.clock.now() + SignedDuration::from_hours(24);
    assert_eq!(rotated["oldSecretExpiresAt"], until.to_string());
    assert_ne!(rotated["secret"], json!(null));
    let body = json!({"events": ["connection.updated"], "apiVersion": "2026-12-01"});
    let (other, other_path) = admin.hook(&user, &body).await;
    assert_eq!(other.endpoint.event_types, [EventType::ConnectionUpdated]);

    let events = ["trades.synced", "trades.synced"];
    let body = json!({"url": other.receiver.url, "events": events, "apiVersion": "2026-12-01", "enabled": false});
    let changed = data(&admin.patch(&path, &body).await, 200);
    assert_eq!(changed["apiVersion"], "2026-12-01");
    assert_eq!(
        (&changed["url"], &changed["events"]),
        (&json!(other.receiver.url), &json!(["trades.synced"]))
    );
    assert_eq!(
        (&changed["status"], &changed["disabledReason"]),
        (&json!("disabled"), &json!("by operator"))
    );
    let message = error(
        &admin.post(&format!("{event}/redeliver"), &json!({})).await,
        409,
        "conflict",
    );
    assert!(message.contains("enable it first"), "{message}");
    let since = json!({"since": "2026-01-01T00:00:00Z"});
    error(
        &admin.post(&format!("{path}/recover"), &since).await,
        409,
        "conflict",
    );
    let enabled = data(&admin.patch(&path, &json!({"enabled": true})).await, 200);
    assert_eq!(
        (&enabled["status"], &enabled["disabledReason"]),
        (&json!("enabled"), &Value::Null)
    );
    assert_eq!(data(&admin.patch(&path, &json!({})).await, 200), enabled);

    let listed = admin
        .get(&format!("{ENDPOINTS}?userId={user}"))
        .await
        .data();
    assert_eq!(
        listed.iter().map(id).collect::<Vec<_>>(),
        [id(&before), other.endpoint.id.to_string()]
    );
    assert_eq!(
        admin
            .get(&format!("{ENDPOINTS}?userId={}", app.ben.user.id))
            .await
            .data()
            .len(),
        0
    );
    let first = admin.get(&format!("{ENDPOINTS}?limit=1")).await;
    let next = format!(
        "{ENDPOINTS}?limit=1&cursor={}",
        first.json()["nextCursor"].as_str().unwrap()
    );
    let second = admin.get(&next).await;
    assert_eq!(
        (id(&first.data()[0]), id(&second.data()[0])),
        (id(&listed[0]), id(&listed[1]))
    );
    assert_eq!(second.json()["nextCursor"], Value::Null);

    assert_eq!(admin.delete(&other_path).await.status, 204);
    error(&admin.delete(&other_path).await, 404, "not_found");
    let rows = admin.get(&format!("/admin/v1/audit?userId={user}")).await;
    let actions: Vec<_> = rows
        .data()
        .iter()
        .map(|row| row["action"].as_str().unwrap().to_owned())
        .collect();
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
    assert_eq!(actions, expected);
    assert!(!rows.text.contains("whsec_") && !rows.text.contains(&hook.receiver.url));
}

#[tokio::test]
async fn failed_deliveries_are_listed_and_recovered() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let (hook, path) = admin
        .hook(&app.olivia.user.id.to_string(), &json!({}))
        .await;
    app.sync(&app.olivia.connections[0]).await;
    app.sync(&app.olivia.connections[1]).await;
    data(&admin.patch(&path, &json!({"enabled": false})).await, 200);
    data(&admin.patch(&path, &json!({"enabled": true})).await, 200);
    hook.receiver.reply_with(Reply::Status(500));
    let ping = data(&admin.post(&format!("{path}/ping"), &json!({})).await, 200);
    assert_eq!(
        (&ping["delivered"], &ping["status"]),
        (&json!(false), &json!(500))
    );
    hook.receiver.reply_with(Reply::Status(200));
    hook.drain();

    let whole = admin
        .get(&format!("{path}/deliveries?limit=200"))
        .await
        .data();
    let failed = admin
        .get(&format!("{path}/deliveries?state=failed"))
        .await
        .data();
    assert!(
        whole.len() > 2 && failed == whole,
        "{} of {}",
        failed.len(),
        whole.len()
    );
    let (mut read, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = admin
            .get(&format!("{path}/deliveries?limit=2{cursor}"))
            .await;
        read.extend(page.data());
        let Some(next) = page.json()["nextCursor"].as_str().map(str::to_owned) else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(read, whole);
    assert_eq!(
        admin
            .get(&format!("{path}/deliveries?state=pending"))
            .await
            .data()
            .len(),
        0
    );

    let a_ping = format!(
        "{path}/deliveries/{}/redeliver",
        ping["eventId"].as_str().unwrap()
    );
    assert!(
        error(&admin.post(&a_ping, &json!({})).await, 409, "conflict").contains("send another")
    );
    let body = json!({"since": "2020-01-01T00:00:00Z"});
    let recover = async || {
        admin
            .send(Method::POST, &format!("{path}/recover"), &body, Some("a"))
            .await
    };
    assert_eq!(
        data(&recover().await, 202)["recovered"],
        whole.len() - 1,
        "all but the ping"
    );
    let waiting = admin
        .get(&format!("{path}/deliveries?state=waiting"))
        .await
        .data();
    if let Some(waiting) = waiting.first() {
        let path = format!(
            "{path}/deliveries/{}/redeliver",
            waiting["eventId"].as_str().unwrap()
        );
        assert!(
            error(&admin.post(&path, &json!({})).await, 409, "conflict").contains("earlier event")
        );
    }
    while !app.delivered_to(&hook).await.is_empty() {}
    assert_eq!(
        admin
            .get(&format!("{path}/deliveries?state=delivered"))
            .await
            .data()
            .len(),
        whole.len() - 1
    );
    assert_eq!(
        data(&recover().await, 202)["recovered"],
        whole.len() - 1,
        "the response to the first request"
    );
    let again = data(&admin.post(&format!("{path}/recover"), &body).await, 202);
    assert_eq!(again["recovered"], 0);
}

#[tokio::test]
async fn repeated_requests_change_an_endpoint_once() {
    let admin = Admin::start().await;
    let user = admin.app.ben.user.id.to_string();
    let receiver = Receiver::start().await;
    let body = json!({"userId": user, "url": receiver.url});
    let post = async |path: &str, body: &Value, key: &str| {
        admin.send(Method::POST, path, body, Some(key)).await
    };
    let first = post(ENDPOINTS, &body, "create").await;
    let created = data(&first, 201);
    assert_eq!(
        post(ENDPOINTS, &body, "create").await.text,
        first.text,
        "with the same secret"
    );
    error(
        &post(ENDPOINTS, &json!({"userId": user}), "create").await,
        400,
        "invalid_parameters",
    );
    let other = json!({"userId": user, "url": receiver.url, "events": ["trades.synced"]});
    error(
        &post(ENDPOINTS, &other, "create").await,
        409,
        "idempotency_conflict",
    );
    assert_eq!(admin.get(ENDPOINTS).await.data().len(), 1);

    let path = format!("{ENDPOINTS}/{}", id(&created));
    for action in ["rotate-secret", "ping"] {
        let first = post(&format!("{path}/{action}"), &json!({}), action).await;
        let again = post(&format!("{path}/{action}"), &json!({}), action).await;
        assert_eq!((first.status, &first.text), (again.status, &again.text));
        error(
            &post(
                &format!("{path}/recover"),
                &json!({"since": "2026-01-01T00:00:00Z"}),
                action,
            )
            .await,
            409,
            "idempotency_conflict",
        );
    }
    assert_eq!(receiver.drain().len(), 1, "one ping");
    // Also after the endpoint is removed.
    assert_eq!(admin.delete(&path).await.status, 204);
    assert_eq!(
        post(&format!("{path}/ping"), &json!({}), "ping")
            .await
            .status,
        200
    );
    assert_eq!(post(ENDPOINTS, &body, "create").await.text, first.text);
    let expected = ["remove", "ping", "rotate_secret", "create"]
        .map(|verb| format!("webhook_endpoint.{verb}"));
    assert_eq!(admin.actions(&user).await, expected);
}

#[tokio::test]
async fn wrong_endpoints_are_named() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let (user, url) = (app.ben.user.id.to_string(), "http://127.0.0.1:1025/");
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
        let message = error(
            &admin.post(ENDPOINTS, &body).await,
            400,
            "invalid_parameters",
        );
        assert!(
            message
                .replace("given url", "given, url")
                .contains(expected),
            "{message}"
        );
    }
    let unknown = Uuid::now_v7();
    let body = json!({"userId": unknown, "url": url});
    assert_eq!(
        error(&admin.post(ENDPOINTS, &body).await, 404, "not_found"),
        "User not found "
    );
    let body = json!({"userId": user, "url": url});
    let endpoint = id(&data(&admin.post(ENDPOINTS, &body).await, 201));
    for _ in 1..20 {
        data(&admin.post(ENDPOINTS, &body).await, 201);
    }
    assert!(
        error(&admin.post(ENDPOINTS, &body).await, 409, "conflict")
            .contains("20 endpoints already")
    );
    let ping = data(
        &admin
            .post(&format!("{ENDPOINTS}/{endpoint}/ping"), &json!({}))
            .await,
        200,
    );
    assert_eq!(
        (&ping["delivered"], &ping["status"]),
        (&json!(false), &Value::Null)
    );

    let since = json!({"since": "2026-01-01T00:00:00Z"});
    for (method, path, body) in [
        (Method::GET, "", json!({})),
        (Method::PATCH, "", json!({})),
        (Method::DELETE, "", json!({})),
        (Method::POST, "/rotate-secret", json!({})),
        (Method::POST, "/ping", json!({})),
        (Method::POST, "/recover", since),
        (Method::GET, "/deliveries", json!({})),
        (Method::GET, &format!("/deliveries/{unknown}"), json!({})),
        (
            Method::POST,
            &format!("/deliveries/{unknown}/redeliver"),
            json!({}),
        ),
    ] {
        for id in [unknown.to_string(), "x".to_owned()] {
            let answer = admin
                .send(
                    method.clone(),
                    &format!("{ENDPOINTS}/{id}{path}"),
                    &body,
                    None,
                )
                .await;
            assert_eq!(
                error(&answer, 404, "not_found"),
                "Webhook endpoint not found ",
                "{method} {path}"
            );
        }
    }
    for event in [unknown.to_string(), "x".to_owned()] {
        let path = format!("{ENDPOINTS}/{endpoint}/deliveries/{event}");
        assert_eq!(
            error(&admin.get(&path).await, 404, "not_found"),
            "Event not found "
        );
        let path = format!("{path}/redeliver");
        assert_eq!(
            error(&admin.post(&path, &json!({})).await, 404, "not_found"),
            "Event not found "
        );
    }
    let path = format!("{ENDPOINTS}/{endpoint}");
    error(
        &admin.patch(&path, &json!({"enabled": "yes"})).await,
        400,
        "invalid_parameters",
    );
    error(
        &admin.patch(&path, &json!({"url": "ftp://x"})).await,
        400,
        "invalid_parameters",
    );
    error(
        &admin.post(&format!("{path}/recover"), &json!({})).await,
        400,
        "invalid_parameters",
    );
    error(
        &admin.get(&format!("{path}/deliveries?state=done")).await,
        400,
        "invalid_parameters",
    );
}

#[tokio::test]
async fn one_endpoint_gets_the_events_of_all() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let (olivia, ben) = (app.olivia.user.id.to_string(), app.ben.user.id.to_string());
    data(
        &admin
            .patch(
                &format!("/admin/v1/users/{olivia}"),
                &json!({"reference": "customer-1"}),
            )
            .await,
        200,
    );
    let receiver = Receiver::start().await;
    for wrong in [
        json!({"url": receiver.url}),
        json!({"url": receiver.url, "userId": olivia, "allUsers": true}),
        json!({"url": receiver.url, "allUsers": false}),
    ] {
        error(
            &admin.post(ENDPOINTS, &wrong).await,
            400,
            "invalid_parameters",
        );
    }
    let nobody = json!({"url": receiver.url, "userId": Uuid::nil()});
    error(&admin.post(ENDPOINTS, &nobody).await, 404, "not_found");
    let created = data(
        &admin
            .post(ENDPOINTS, &json!({"url": receiver.url, "allUsers": true}))
            .await,
        201,
    );
    assert_eq!(created["userId"], Value::Null);
    let secret = SecretString::from(created["secret"].as_str().unwrap());
    let endpoint = app
        .storage
        .endpoints()
        .find_any(id(&created).parse().unwrap())
        .await
        .unwrap()
        .unwrap();
    let (hook, path) = (
        Hook::new(receiver, endpoint, secret),
        format!("{ENDPOINTS}/{}", id(&created)),
    );
    let ping = data(&admin.post(&format!("{path}/ping"), &json!({})).await, 200);
    assert_eq!(hook.drain()[0].id, ping["eventId"].as_str().unwrap());

    for person in [&app.olivia, &app.ben] {
        for connection in &person.connections {
            app.sync(connection).await;
        }
    }
    let received = app.delivered_to(&hook).await;
    let of = |user: &str| {
        received
            .iter()
            .filter(|event| event.body["metadata"]["user_id"] == user)
            .count()
    };
    assert!(of(&olivia) > 0 && of(&ben) > 0 && of(&olivia) + of(&ben) == received.len());
    let references = received
        .iter()
        .map(|event| &event.body["metadata"]["user_reference"]);
    assert_eq!(
        references
            .filter(|reference| **reference == "customer-1")
            .count(),
        of(&olivia)
    );

    // Of all users or of one, by pages.
    let deliveries = format!("{path}/deliveries");
    let all = admin.get(&format!("{deliveries}?limit=200")).await.data();
    assert_eq!(all.len(), received.len() + 1, "with the ping");
    let (mut read, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = admin.get(&format!("{deliveries}?limit=1{cursor}")).await;
        read.extend(page.data());
        let Some(next) = page.json()["nextCursor"].as_str().map(str::to_owned) else {
            break;
        };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(read, all);
    let of_ben = admin
        .get(&format!("{deliveries}?userId={ben}"))
        .await
        .data();
    assert_eq!(
        (of_ben.len(), &of_ben[0]["userId"]),
        (of(&ben), &json!(ben))
    );

    let event = format!("{deliveries}/{}", of_ben[0]["eventId"].as_str().unwrap());
    error(&admin.get(&event).await, 400, "invalid_parameters");
    assert_eq!(
        data(&admin.get(&format!("{event}?userId={ben}")).await, 200)["state"],
        "delivered"
    );
    error(
        &admin.get(&format!("{event}?userId={olivia}")).await,
        404,
        "not_found",
    );
    error(
        &admin.post(&format!("{event}/redeliver"), &json!({})).await,
        400,
        "invalid_parameters",
    );
    error(
        &admin
            .post(&format!("{event}/redeliver"), &json!({"userId": olivia}))
            .await,
        404,
        "not_found",
    );
    data(
        &admin
            .post(&format!("{event}/redeliver"), &json!({"userId": ben}))
            .await,
        202,
    );
    assert_eq!(app.delivered_to(&hook).await.len(), 1);

    assert_eq!(
        data(&admin.patch(&path, &json!({"enabled": false})).await, 200)["status"],
        "disabled"
    );
    let since = |user: Option<&str>| match user {
        Some(user) => json!({"since": "2026-01-01T00:00:00Z", "userId": user}),
        None => json!({"since": "2026-01-01T00:00:00Z"}),
    };
    error(
        &admin.post(&format!("{path}/recover"), &since(None)).await,
        409,
        "conflict",
    );
    error(
        &admin
            .post(&format!("{path}/recover"), &since(Some(&ben)))
            .await,
        409,
        "conflict",
    );
    data(&admin.patch(&path, &json!({"enabled": true})).await, 200);
    let recovered = data(
        &admin.post(&format!("{path}/recover"), &since(None)).await,
        202,
    );
    assert_eq!(recovered["recovered"], 0, "nothing was pending");

    assert_eq!(admin.delete(&path).await.status, 204);
    assert!(app.storage.endpoints().list_all().await.unwrap().is_empty());
    app.clean_up().await;
    assert_eq!(app.rows_in("webhook_queues").await, 0);
    let rows = admin.get("/admin/v1/audit?limit=200").await.data();
    let of_all: Vec<_> = rows
        .iter()
        .filter(|row| row["userId"].is_null())
        .map(|row| &row["action"])
        .collect();
    let actions = [
        "webhook_endpoint.remove",
        "delivery.recover",
        "webhook_endpoint.update",
    ];
    assert_eq!(
        of_all[..3],
        actions.map(Value::from).iter().collect::<Vec<_>>()
    );
}

#[tokio::test]
async fn failures_of_all_users_are_recovered_once() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let receiver = Receiver::start().await;
    let created = data(
        &admin
            .post(ENDPOINTS, &json!({"url": receiver.url, "allUsers": true}))
            .await,
        201,
    );
    let path = format!("{ENDPOINTS}/{}", id(&created));
    receiver.reply_with(Reply::Status(500));
    for person in [&app.olivia, &app.ben] {
        app.sync(&person.connections[0]).await;
    }
    app.webhooks.run_due_deliveries().await;
    data(&admin.patch(&path, &json!({"enabled": false})).await, 200);
    // Each pending delivery fails when its next attempt is due.
    app.advance_clock(SignedDuration::from_secs(10));
    app.webhooks.run_due_deliveries().await;
    data(&admin.patch(&path, &json!({"enabled": true})).await, 200);
    let failed = admin
        .get(&format!("{path}/deliveries?state=failed&limit=200"))
        .await
        .data();
    assert!(failed.len() >= 2, "{}", failed.len());
    receiver.reply_with(Reply::Status(204));
    receiver.drain();

    // Gone, so disabled for everyone; and a user who is unknown, and one without an event so
    // far.
    receiver.reply_with(Reply::Status(410));
    app.sync(&app.olivia.connections[1]).await;
    app.webhooks.run_due_deliveries().await;
    receiver.reply_with(Reply::Status(204));
    receiver.drain();
    let (recover, since) = (
        format!("{path}/recover"),
        json!({"since": "2026-01-01T00:00:00Z"}),
    );
    let of = |user: &str| json!({"since": "2026-01-01T00:00:00Z", "userId": user});
    let olivia = app.olivia.user.id.to_string();
    assert!(
        error(&admin.post(&recover, &since).await, 409, "conflict").contains("enable it first")
    );
    error(&admin.post(&recover, &of(&olivia)).await, 409, "conflict");
    let event = admin
        .get(&format!("{path}/deliveries?userId={olivia}"))
        .await
        .data()[0]["eventId"]
        .clone();
    let redeliver = format!("{path}/deliveries/{}/redeliver", event.as_str().unwrap());
    error(
        &admin.post(&redeliver, &json!({"userId": olivia})).await,
        409,
        "conflict",
    );
    error(
        &admin.post(&recover, &of(&Uuid::now_v7().to_string())).await,
        404,
        "not_found",
    );
    let quiet = id(&data(
        &admin
            .post("/admin/v1/users", &json!({"email": "quiet@example.com"}))
            .await,
        201,
    ));
    error(&admin.post(&recover, &of(&quiet)).await, 409, "conflict");
    data(&admin.patch(&path, &json!({"enabled": true})).await, 200);
    assert_eq!(
        data(&admin.post(&recover, &of(&quiet)).await, 202)["recovered"],
        0
    );
    let failed = admin
        .get(&format!("{path}/deliveries?state=failed&limit=200"))
        .await
        .data();
    let first = admin
        .send(Method::POST, &recover, &since, Some("recover-1"))
        .await;
    assert_eq!(data(&first, 202)["recovered"], failed.len());
    app.webhooks.run_due_deliveries().await;
    assert_eq!(receiver.drain().len(), failed.len());
    let again = admin
        .send(Method::POST, &recover, &since, Some("recover-1"))
        .await;
    assert_eq!(again.text, first.text, "the same response");
    app.webhooks.run_due_deliveries().await;
    assert!(receiver.drain().is_empty());
}
