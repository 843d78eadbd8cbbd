//! Users: create, list, find, change, remove.

use bellbird_domain::EventType;
use bellbird_management::Refusal;
use bellbird_management::sign_in::create_asked_link;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Admin, data, error, id};
use crate::support::process::names;
use crate::support::receiver::{Receiver, Reply};

const USERS: &str = "/admin/v1/users";

#[tokio::test]
async fn user_lives_by_api() {
    let admin = Admin::start().await;
    let body = json!({"email": " Anna@Example.com ", "reference": "customer-17", "timezone": "australia/perth"});
    let created = data(&admin.post(USERS, &body).await, 201);
    let user = id(&created);
    assert_eq!(created["email"], "Anna@Example.com");
    assert_eq!(
        (&created["plan"], &created["timezone"]),
        (&json!("professional"), &json!("Australia/Perth"))
    );
    assert_eq!(
        names(&created),
        [
            "consoleSignIn",
            "createdAt",
            "email",
            "id",
            "plan",
            "reference",
            "timezone"
        ]
    );
    let path = format!("{USERS}/{user}");
    assert_eq!(data(&admin.get(&path).await, 200), created);

    // E-mail address and reference are unique.
    let again = json!({"email": "anna@example.COM"});
    assert!(error(&admin.post(USERS, &again).await, 409, "conflict").contains("e-mail address"));
    let again = json!({"email": "ben@b.example", "reference": "customer-17"});
    assert!(error(&admin.post(USERS, &again).await, 409, "conflict").contains("reference"));
    let other = data(
        &admin.post(USERS, &json!({"email": "ben@b.example"})).await,
        201,
    );
    let other_path = format!("{USERS}/{}", id(&other));
    error(
        &admin
            .patch(&other_path, &json!({"reference": "customer-17"}))
            .await,
        409,
        "conflict",
    );
    error(
        &admin
            .patch(&other_path, &json!({"email": "anna@example.com"}))
            .await,
        409,
        "conflict",
    );

    let find = async |query: &str| admin.get(&format!("{USERS}?{query}")).await.data();
    assert_eq!(
        find("email=ANNA%40example.com").await,
        std::slice::from_ref(&created)
    );
    assert_eq!(
        find("reference=customer-17").await,
        std::slice::from_ref(&created)
    );
    for query in [
        "email=nobody%40example.com",
        "reference=customer",
        "email=%00",
        "reference=%00",
        "email=anna%40example.com&reference=other",
    ] {
        assert_eq!(find(query).await, [] as [Value; 0], "{query}");
    }

    let changed = data(
        &admin
            .patch(&path, &json!({"plan": "saver", "timezone": null}))
            .await,
        200,
    );
    assert_eq!(
        (&changed["plan"], &changed["timezone"]),
        (&json!("saver"), &Value::Null)
    );
    assert_eq!(changed["reference"], "customer-17", "what is absent stays");
    let rejected = error(
        &admin.patch(&path, &json!({"isOperator": true})).await,
        400,
        "invalid_parameters",
    );
    assert!(
        rejected.contains("isOperator: unknown; known are"),
        "{rejected}"
    );
    let cleared = data(&admin.patch(&path, &json!({"reference": null})).await, 200);
    assert_eq!(cleared["reference"], Value::Null);
    assert_eq!(data(&admin.patch(&path, &json!({})).await, 200), cleared);
    for null in ["email", "plan"] {
        let rejected = error(
            &admin.patch(&path, &json!({null: null})).await,
            400,
            "invalid_parameters",
        );
        assert!(
            rejected.contains(&format!("{null}: Must be text")),
            "{rejected}"
        );
    }

    assert_eq!(admin.delete(&path).await.status, 204);
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(
            error(&admin.call(method, &path).await, 404, "not_found"),
            "User not found "
        );
    }
    error(
        &admin.patch(&path, &json!({"plan": "saver"})).await,
        404,
        "not_found",
    );
    let expected = [
        "user.remove",
        "user.update",
        "user.update",
        "user.update",
        "user.create",
    ];
    assert_eq!(admin.actions(&user).await, expected);
}

/// Whoever has the address reads everything, so an app has to say that it verified it, also a new
/// one.
#[tokio::test]
async fn console_sign_in_is_what_the_app_says() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let created = data(
        &admin
            .post(USERS, &json!({"email": "anna@example.com"}))
            .await,
        201,
    );
    assert_eq!(created["consoleSignIn"], false);
    let path = format!("{USERS}/{}", id(&created));
    let set =
        async |body: Value| data(&admin.patch(&path, &body).await, 200)["consoleSignIn"].clone();
    let user = id(&created).parse().unwrap();
    let now = app.clock.now();
    let refused = create_asked_link(&app.storage, user, None, &app.console_url, now).await;
    assert!(matches!(refused, Err(Refusal::MayNotSignIn)), "{refused:?}");
    assert_eq!(set(json!({"consoleSignIn": true})).await, true);
    app.sign_in_link(user).await;
    assert_eq!(
        set(json!({"plan": "saver", "email": "Anna@example.com"})).await,
        true,
        "the same address"
    );
    assert_eq!(set(json!({"email": "anne@example.com"})).await, false);
    assert_eq!(
        set(json!({"email": "ann@example.com", "consoleSignIn": true})).await,
        true
    );
    let other = data(
        &admin
            .post(
                USERS,
                &json!({"email": "b@example.com", "consoleSignIn": true}),
            )
            .await,
        201,
    );
    assert_eq!(other["consoleSignIn"], true);
}

#[tokio::test]
async fn lists_have_pages() {
    let admin = Admin::start().await;
    for number in 0..5 {
        data(
            &admin
                .post(USERS, &json!({"email": format!("u{number}@example.com")}))
                .await,
            201,
        );
    }
    for (list, total) in [(USERS, 7), ("/admin/v1/audit", 5)] {
        let whole: Vec<String> = admin
            .get(&format!("{list}?limit=200"))
            .await
            .data()
            .iter()
            .map(id)
            .collect();
        assert_eq!(whole.len(), total, "{list}");
        let (mut read, mut cursor) = (Vec::new(), String::new());
        loop {
            let page = admin.get(&format!("{list}?limit=2{cursor}")).await;
            read.extend(page.data().iter().map(id));
            let Some(next) = page.json()["nextCursor"].as_str().map(str::to_owned) else {
                break;
            };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(read, whole, "{list}");
    }
}

#[tokio::test]
async fn connected_user_is_not_removed() {
    let admin = Admin::start().await;
    let path = format!("{USERS}/{}", admin.app.ben.user.id);
    let message = error(&admin.delete(&path).await, 409, "conflict");
    assert!(message.contains("?connections=remove"), "{message}");
    for connection in &admin.app.ben.connections {
        let answer = admin
            .delete(&format!("/admin/v1/connections/{}", connection.id))
            .await;
        assert_eq!(data(&answer, 202)["status"], "deleting");
    }
    error(&admin.delete(&path).await, 409, "conflict");
    admin.app.run_due_jobs().await;
    assert_eq!(admin.delete(&path).await.status, 204);
    assert_eq!(
        admin.app.get_as(&admin.app.ben.key, "/v1/me").await.status,
        401
    );
}

#[tokio::test]
async fn events_outlive_a_user_who_is_removed_with_connections() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let receiver = Receiver::start().await;
    let endpoint = json!({"url": receiver.url, "allUsers": true});
    let endpoint = data(
        &admin.post("/admin/v1/webhook-endpoints", &endpoint).await,
        201,
    );
    assert_eq!(endpoint["events"], json!(EventType::SUBSCRIBABLE));
    assert_eq!(endpoint["apiVersion"], "2026-12-01");
    let (person, user) = (&app.olivia, app.olivia.user.id.to_string());
    let path = format!("{USERS}/{user}");
    data(
        &admin
            .patch(&path, &json!({"reference": "customer-17"}))
            .await,
        200,
    );
    error(&admin.delete(&path).await, 409, "conflict");
    error(
        &admin.delete(&format!("{path}?connections=all")).await,
        400,
        "invalid_parameters",
    );

    // The receiver is down, and the user is gone before it is back.
    receiver.reply_with(Reply::Status(503));
    let with_connections = format!("{path}?connections=remove");
    assert_eq!(id(&data(&admin.delete(&with_connections).await, 202)), user);
    assert_eq!(
        app.get_as(&person.key, "/v1/me").await.status,
        401,
        "at once"
    );
    assert_eq!(
        admin.delete(&with_connections).await.status,
        202,
        "repeated"
    );
    app.run_due_jobs().await;
    error(&admin.delete(&with_connections).await, 404, "not_found");
    error(&admin.get(&path).await, 404, "not_found");
    assert_eq!(admin.actions(&user).await, ["user.remove", "user.update"]);
    app.webhooks.run_due_deliveries().await;
    assert!(!receiver.drain().is_empty());

    receiver.reply_with(Reply::Status(204));
    app.advance_clock(SignedDuration::from_secs(10));
    app.webhooks.run_due_deliveries().await;
    let events = receiver.drain();
    let of_type = |name: &str| {
        events
            .iter()
            .filter(|event| event.body["type"] == name)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        of_type("connection.removed").len(),
        person.connections.len()
    );
    let [removed] = of_type("user.removed")[..] else {
        panic!("{} events", events.len())
    };
    let object = json!({"id": user, "object": "user", "reference": "customer-17"});
    assert_eq!(
        removed.body["data"],
        json!({"new": [], "updated": [object], "removed": []})
    );
    for event in &events {
        let metadata = &event.body["metadata"];
        assert_eq!(
            (&metadata["user_id"], &metadata["user_reference"]),
            (&json!(user), &json!("customer-17"))
        );
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

#[tokio::test]
async fn wrong_values_are_named() {
    let admin = Admin::start().await;
    let body = json!({"email": "no address", "plan": "gold", "timezone": "Mars/Olympus", "reference": "", "name": 1});
    let message = error(&admin.post(USERS, &body).await, 400, "invalid_parameters");
    for part in [
        "email: Must be an e-mail address such as me@example.com",
        "plan: Must be saver, developer or professional",
        "timezone: Must be an IANA timezone",
        "reference: Must be 1 to 200 characters on one line",
        "name: unknown; known are email, reference, plan, timezone, consoleSignIn",
    ] {
        assert!(message.contains(part), "{part} in {message}");
    }
    let message = error(
        &admin.post(USERS, &json!({"reference": 5})).await,
        400,
        "invalid_parameters",
    );
    assert!(
        message.contains("email: Must be given") && message.contains("reference: Must be text"),
        "{message}"
    );
    for query in [
        "emial=x",
        "limit=0",
        "limit=x",
        "cursor=x",
        "email=a&email=b",
    ] {
        error(
            &admin.get(&format!("{USERS}?{query}")).await,
            400,
            "invalid_parameters",
        );
    }
    let unknown = Uuid::now_v7();
    for path in [
        format!("{USERS}/{unknown}"),
        format!("{USERS}/x"),
        format!("{USERS}/%00"),
    ] {
        error(&admin.get(&path).await, 404, "not_found");
    }
}

#[tokio::test]
async fn query_says_what_it_selects() {
    let admin = Admin::start().await;
    let ids = [
        "/admin/v1/connections",
        "/admin/v1/audit",
        "/admin/v1/webhook-endpoints",
    ];
    for (list, value) in ids.iter().flat_map(|list| [(list, "nonsense"), (list, "")]) {
        let message = error(
            &admin.get(&format!("{list}?userId={value}")).await,
            400,
            "invalid_parameters",
        );
        assert!(
            message.contains("userId: Must be an id such as"),
            "{message}"
        );
    }
    for list in ids {
        assert_eq!(
            admin
                .get(&format!("{list}?userId={}", Uuid::now_v7()))
                .await
                .data(),
            [] as [Value; 0]
        );
    }
    let first = admin.get(&format!("{USERS}?limit=1")).await.json();
    let cursor = first["nextCursor"].as_str().unwrap();
    assert_eq!(
        admin
            .get(&format!("{USERS}?limit=1&cursor={cursor}"))
            .await
            .status,
        200
    );
    for list in ids {
        let message = error(
            &admin.get(&format!("{list}?cursor={cursor}")).await,
            400,
            "invalid_parameters",
        );
        assert!(
            message.contains("cursor: Must be the nextCursor of the page before in this list"),
            "{message}"
        );
    }
}

#[tokio::test]
async fn body_is_json_of_bounded_size() {
    let admin = Admin::start().await;
    let send = async |content_type: &str, body: Vec<u8>| {
        let request = admin
            .app
            .http
            .post(format!("{}{USERS}", admin.app.url))
            .bearer_auth(&admin.key);
        let answer = admin
            .app
            .send(request.header("content-type", content_type).body(body))
            .await;
        let (status, code) = if answer.status == 413 {
            (413, "body_too_large")
        } else {
            (400, "invalid_parameters")
        };
        error(&answer, status, code)
    };
    let json = b"{\"email\": \"a@example.com\"}".to_vec();
    assert!(
        send("text/plain", json.clone())
            .await
            .contains("Content-Type: application/json")
    );
    assert!(
        send("application/x-www-form-urlencoded", b"email=a".to_vec())
            .await
            .contains("Content-Type")
    );
    let json_type = "application/json; charset=utf-8";
    assert!(
        send(json_type, vec![b' '; 16 * 1024 + 1])
            .await
            .contains("The body is too large: the limit is 16 KiB")
    );
    let twice = b"{\"email\": \"a@example.com\", \"email\": \"b@example.com\"}".to_vec();
    assert!(
        send(json_type, twice)
            .await
            .contains("email: Must be given once")
    );
    assert!(
        send(json_type, b"{".to_vec())
            .await
            .contains("The body must be a JSON object line 1, column")
    );
    assert!(
        send(json_type, b"[]".to_vec())
            .await
            .contains("The body must be a JSON object")
    );
    assert!(
        send(json_type, vec![b'['; 10_000])
            .await
            .contains("The body must be a JSON object")
    );
    assert!(
        send(json_type, vec![0xff, 0xfe])
            .await
            .contains("The body must be a JSON object")
    );
    assert!(
        send(json_type, Vec::new())
            .await
            .contains("email: Must be given")
    );
}
