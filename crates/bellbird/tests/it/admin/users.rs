//! Users: create, list, find, change, remove.

use std::slice;

use bellbird_domain::EventType;
use bellbird_management::Refusal;
use bellbird_management::sign_in::create_asked_link;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, data, error, id};
use crate::support::fields::assert_fields;
use crate::support::process::text;
use crate::support::receiver::{Receiver, Reply};
use crate::support::words::assert_has;

const USERS: &str = "/admin/v1/users";

#[tokio::test]
async fn users_live_by_api() {
    let admin = Admin::start().await;
    lists_have_pages(&admin).await;
    wrong_values_are_named(&admin).await;
    query_says_what_it_selects(&admin).await;
    body_is_json_of_bounded_size(&admin).await;
    let body = json!({
        "email": " Anna@Example.com ", "reference": "customer-17", "timezone": "australia/perth",
    });
    let created = admin.create(USERS, &body).await;
    let user = id(&created);
    let whole = json!({
        "id": user, "email": "Anna@Example.com", "reference": "customer-17",
        "plan": "professional", "timezone": "Australia/Perth", "consoleSignIn": false,
        "createdAt": created["createdAt"],
    });
    assert_eq!(created, whole);
    let path = format!("{USERS}/{user}");
    assert_eq!(admin.read(&path).await, created);

    // E-mail address and reference are unique.
    let other = json!({"email": "ben@b.example"});
    let other = admin.create(USERS, &other).await;
    let other = format!("{USERS}/{}", id(&other));
    for (again, words) in [
        (json!({"email": "anna@example.COM"}), "e-mail address"),
        (
            json!({"email": "carl@b.example", "reference": "customer-17"}),
            "reference",
        ),
    ] {
        let message = admin.post(USERS, &again).await.conflict();
        assert_has(&message, words);
    }
    for again in [
        json!({"reference": "customer-17"}),
        json!({"email": "anna@example.com"}),
    ] {
        admin.patch(&other, &again).await.conflict();
    }

    for (query, is_found) in [
        ("email=ANNA%40example.com", true),
        ("reference=customer-17", true),
        ("email=nobody%40example.com", false),
        ("reference=customer", false),
        ("email=%00", false),
        ("reference=%00", false),
        ("email=anna%40example.com&reference=other", false),
    ] {
        let found = admin.list(&format!("{USERS}?{query}")).await;
        let expected = if is_found {
            slice::from_ref(&created)
        } else {
            &[]
        };
        assert_eq!(found, expected, "{query}");
    }

    // What is absent stays.
    let mut expected = whole;
    for body in [
        json!({"plan": "saver", "timezone": null}),
        json!({"reference": null}),
        json!({}),
    ] {
        let changed = admin.change(&path, &body).await;
        let fields = body.as_object().unwrap().clone();
        expected.as_object_mut().unwrap().extend(fields);
        assert_eq!(changed, expected);
    }
    for (body, words) in [
        (
            json!({"isOperator": true}),
            "isOperator: unknown; known are",
        ),
        (json!({"email": null}), "email: Must be text"),
        (json!({"plan": null}), "plan: Must be text"),
    ] {
        let message = admin.patch(&path, &body).await.invalid();
        assert_has(&message, words);
    }

    admin.remove(&path).await;
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(admin.call(method, &path).await.missing(), "User not found ");
    }
    let plan = json!({"plan": "saver"});
    admin.patch(&path, &plan).await.missing();
    let expected = [
        "user.remove",
        "user.update",
        "user.update",
        "user.update",
        "user.create",
    ];
    assert_eq!(admin.actions(&user).await, expected);
    console_sign_in_is_what_the_app_says(&admin).await;
    connected_user_is_not_removed(&admin).await;
}

/// Whoever has the address reads everything, so an app has to say that it verified it, also a new
/// one.
async fn console_sign_in_is_what_the_app_says(admin: &Admin) {
    let app = &admin.app;
    let body = json!({"email": "anna@example.com"});
    let created = admin.create(USERS, &body).await;
    assert_eq!(created["consoleSignIn"], false);
    let user = id(&created).parse().unwrap();
    let now = app.clock.now();
    let refused = create_asked_link(&app.storage, user, None, &app.console_url, now).await;
    assert!(matches!(refused, Err(Refusal::MayNotSignIn)), "{refused:?}");

    let path = format!("{USERS}/{}", id(&created));
    let may = json!({"consoleSignIn": true});
    assert_eq!(admin.change(&path, &may).await["consoleSignIn"], true);
    app.sign_in_link(user).await;
    let verified = json!({"email": "ann@example.com", "consoleSignIn": true});
    for (body, may_sign_in) in [
        (json!({"plan": "saver", "email": "Anna@example.com"}), true),
        (json!({"email": "anne@example.com"}), false),
        (verified, true),
    ] {
        let changed = admin.change(&path, &body).await;
        assert_eq!(changed["consoleSignIn"], may_sign_in, "{body}");
    }
    let body = json!({"email": "b@example.com", "consoleSignIn": true});
    let other = admin.create(USERS, &body).await;
    assert_eq!(other["consoleSignIn"], true);
}

async fn lists_have_pages(admin: &Admin) {
    for number in 0..5 {
        let body = json!({"email": format!("u{number}@example.com")});
        admin.create(USERS, &body).await;
    }
    for (list, total) in [(USERS, 7), ("/admin/v1/audit", 5)] {
        let whole = admin.list(&format!("{list}?limit=200")).await;
        assert_eq!(whole.len(), total, "{list}");
        assert_eq!(admin.list_by(2, list).await, whole, "{list}");
    }
}

async fn connected_user_is_not_removed(admin: &Admin) {
    let ben = &admin.app.ben;
    let path = format!("{USERS}/{}", ben.user.id);
    let message = admin.delete(&path).await.conflict();
    assert_has(&message, "?connections=remove");
    for connection in &ben.connections {
        let connection = format!("/admin/v1/connections/{}", connection.id);
        let removed = data(&admin.delete(&connection).await, 202);
        assert_eq!(removed["status"], "deleting");
    }
    admin.delete(&path).await.conflict();
    admin.app.run_due_jobs().await;
    admin.remove(&path).await;
    assert_eq!(admin.app.get_as(&ben.key, "/v1/me").await.status, 401);
}

#[tokio::test]
async fn events_outlive_a_user_who_is_removed_with_connections() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let receiver = Receiver::start().await;
    let endpoint = json!({"url": receiver.url, "allUsers": true});
    let endpoint = admin.create("/admin/v1/webhook-endpoints", &endpoint).await;
    let defaults = json!({"events": EventType::SUBSCRIBABLE, "apiVersion": "2026-12-01"});
    assert_fields(&endpoint, &defaults);
    let (person, user) = (&app.olivia, app.olivia.user.id.to_string());
    let path = format!("{USERS}/{user}");
    let reference = json!({"reference": "customer-17"});
    admin.change(&path, &reference).await;
    admin.delete(&path).await.conflict();
    let all = admin.delete(&format!("{path}?connections=all")).await;
    all.invalid();

    // The receiver is down, and the user is gone before it is back.
    receiver.reply_with(Reply::Status(503));
    let with_connections = format!("{path}?connections=remove");
    let removed = data(&admin.delete(&with_connections).await, 202);
    assert_eq!(removed["id"], user);
    let status = app.get_as(&person.key, "/v1/me").await.status;
    assert_eq!(status, 401, "at once");
    for (made, body) in [
        (format!("{path}/keys"), json!({"name": "app"})),
        (format!("{path}/setup-tokens"), json!({})),
        (
            "/admin/v1/link-sessions".to_owned(),
            json!({"userId": user}),
        ),
        (
            "/admin/v1/webhook-endpoints".to_owned(),
            json!({"url": receiver.url, "userId": user}),
        ),
    ] {
        let message = admin.post(&made, &body).await.conflict();
        assert_has(&message, "is being removed");
    }
    data(&admin.delete(&with_connections).await, 202);
    app.run_due_jobs().await;
    admin.delete(&with_connections).await.missing();
    admin.get(&path).await.missing();
    let actions = ["user.remove", "user.remove", "user.update"];
    assert_eq!(admin.actions(&user).await, actions);
    app.webhooks.run_due_deliveries().await;
    assert!(!receiver.drain().is_empty());

    receiver.reply_with(Reply::Status(204));
    app.advance_clock(SignedDuration::from_secs(10));
    app.webhooks.run_due_deliveries().await;
    let events = receiver.drain();
    let of_type = |name: &str| {
        let of_type = events.iter().filter(|event| event.body["type"] == name);
        of_type.collect::<Vec<_>>()
    };
    let connections = of_type("connection.removed");
    assert_eq!(connections.len(), person.connections.len());
    let [removed] = of_type("user.removed")[..] else {
        panic!("{} events", events.len())
    };
    let object = json!({"id": user, "object": "user", "reference": "customer-17"});
    assert_eq!(
        removed.body["data"],
        json!({"new": [], "updated": [object], "removed": []})
    );
    let of_user = json!({"user_id": user, "user_reference": "customer-17"});
    for event in &events {
        assert_fields(&event.body["metadata"], &of_user);
    }
    app.clean_up().await;
    for table in [
        "webhook_queues",
        "webhook_events",
        "webhook_deliveries",
        "webhook_attempts",
    ] {
        assert_eq!(app.rows_in(table).await, 0, "{table}");
    }
}

async fn wrong_values_are_named(admin: &Admin) {
    let body = json!({"email": "no address", "plan": "gold", "timezone": "Mars/Olympus", "reference": "", "name": 1});
    let message = admin.post(USERS, &body).await.invalid();
    for part in [
        "email: Must be an e-mail address such as me@example.com",
        "plan: Must be saver, developer or professional",
        "timezone: Must be an IANA timezone",
        "reference: Must be 1 to 200 characters on one line",
        "name: unknown; known are email, reference, plan, timezone, consoleSignIn",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let message = admin.post(USERS, &json!({"reference": 5})).await.invalid();
    for part in ["email: Must be given", "reference: Must be text"] {
        assert!(message.contains(part), "{part} in {message}");
    }
    for query in [
        "emial=x",
        "limit=0",
        "limit=x",
        "cursor=x",
        "email=a&email=b",
    ] {
        admin.get(&format!("{USERS}?{query}")).await.invalid();
    }
    for user in [&*Uuid::now_v7().to_string(), "x", "%00"] {
        admin.get(&format!("{USERS}/{user}")).await.missing();
    }
}

async fn query_says_what_it_selects(admin: &Admin) {
    let users = admin.get(&format!("{USERS}?limit=1")).await.json();
    let cursor = text(&users, "nextCursor");
    let next = format!("{USERS}?limit=1&cursor={cursor}");
    assert_eq!(admin.get(&next).await.status, 200);
    let unknown = Uuid::now_v7();
    let of_other_list = format!("cursor={cursor}");
    for list in [
        "/admin/v1/connections",
        "/admin/v1/audit",
        "/admin/v1/webhook-endpoints",
    ] {
        for (query, expected) in [
            ("userId=nonsense", "userId: Must be an id such as"),
            ("userId=", "userId: Must be an id such as"),
            (
                &of_other_list,
                "cursor: Must be the nextCursor of the page before in this list",
            ),
        ] {
            let message = admin.get(&format!("{list}?{query}")).await.invalid();
            assert_has(&message, expected);
        }
        let of_nobody = admin.list(&format!("{list}?userId={unknown}")).await;
        assert_eq!(of_nobody, [] as [Value; 0]);
    }
}

async fn body_is_json_of_bounded_size(admin: &Admin) {
    const JSON: &str = "application/json; charset=utf-8";
    let whole = b"{\"email\": \"a@example.com\"}".to_vec();
    let twice = b"{\"email\": \"a@example.com\", \"email\": \"b@example.com\"}".to_vec();
    let no_object = "The body must be a JSON object";
    for (content_type, body, expected) in [
        ("text/plain", whole, "Content-Type: application/json"),
        (
            "application/x-www-form-urlencoded",
            b"email=a".to_vec(),
            "Content-Type",
        ),
        (
            JSON,
            vec![b' '; 16 * 1024 + 1],
            "The body is too large: the limit is 16 KiB",
        ),
        (JSON, twice, "email: Must be given once"),
        (
            JSON,
            b"{".to_vec(),
            "The body must be a JSON object line 1, column",
        ),
        (JSON, b"[]".to_vec(), no_object),
        (JSON, vec![b'['; 10_000], no_object),
        (JSON, vec![0xff, 0xfe], no_object),
        (JSON, Vec::new(), "email: Must be given"),
    ] {
        let request = admin.app.http.post(format!("{}{USERS}", admin.app.url));
        let request = request
            .bearer_auth(&admin.key)
            .header("content-type", content_type);
        let answer = admin.app.send(request.body(body)).await;
        let message = match answer.status.as_u16() {
            413 => error(&answer, 413, "body_too_large"),
            _ => answer.invalid(),
        };
        assert_has(&message, expected);
    }
}
