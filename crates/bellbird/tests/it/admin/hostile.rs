//! Ten thousand generated paths, queries, headers and bodies: none of them is a 500.

use axum::body::Body;
use axum::http::Request;
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use uuid::Uuid;

use super::Admin;
use crate::support::random::{Random, seed};

const REQUESTS: usize = 10_000;

/// Mostly those of one body, so that some requests succeed.
const MEMBERS: [&[&str]; 4] = [
    &["email", "reference", "plan", "timezone", "\u{0}é"],
    &["name", "expiresAt", "graceSeconds"],
    &["userId", "provider", "connectionId", "returnUrl", "state"],
    &["userId", "url", "events", "apiVersion", "enabled", "since"],
];

fn value(random: &mut Random) -> Value {
    match random.below(21) {
        0 => json!(null),
        1 => json!(true),
        2 => json!(random.next()),
        3 => json!(i64::MIN),
        4 => json!(1e300),
        5 => json!(""),
        6 => json!("\u{0}"),
        7 => json!("\u{202e}\u{feff}"),
        8 => json!("é".repeat(random.below(400))),
        9 => json!(["a", 1]),
        10 => json!({"a": {"b": []}}),
        11 => json!("saver"),
        12 => json!("Pacific/Auckland"),
        13 => json!("9999-12-30T22:00:00.999999999Z"),
        14 => json!("-009999-01-02T01:59:59Z"),
        15 => json!(random.below(100_000)),
        16 => json!("http://127.0.0.1:1025/"),
        17 => json!(["trades.synced"]),
        18 => json!("0191e7a0-7c3b-7def-8000-00aabbccddee"),
        _ => json!(format!("u{}@example.com", random.below(40))),
    }
}

fn body(random: &mut Random) -> Vec<u8> {
    match random.below(16) {
        // Often, because it is all that many changes need.
        0 | 12..=15 => Vec::new(),
        1 => (0..random.below(300))
            .map(|_| u8::try_from(random.below(256)).unwrap())
            .collect(),
        2 => "[".repeat(random.below(3_000)).into_bytes(),
        3 => value(random).to_string().into_bytes(),
        4 => vec![b' '; 16_000 + random.below(1_000)],
        _ => {
            let mut members = serde_json::Map::new();
            for name in MEMBERS[random.below(MEMBERS.len())] {
                if random.one_in(if ["email", "userId", "url"].contains(name) {
                    2
                } else {
                    7
                }) {
                    members.insert((*name).to_owned(), value(random));
                }
            }
            Value::Object(members).to_string().into_bytes()
        }
    }
}

fn path(random: &mut Random, ids: &[String]) -> String {
    let mut id = || match random.below(8) {
        0 => random.odd_text().to_owned(),
        1 => Uuid::from_u64_pair(random.next(), random.next()).to_string(),
        _ => ids[random.below(ids.len())].clone(),
    };
    let (one, other) = (id(), id());
    let path = match random.below(34) {
        0 | 1 | 22 | 23 => "users".to_owned(),
        2 | 28 | 29 => format!("users/{one}"),
        3 | 4 | 24..=26 => format!("users/{one}/keys"),
        5 | 30 | 31 => format!("users/{one}/setup-tokens"),
        6 => format!("keys/{one}"),
        7 => format!("keys/{one}/rotate"),
        8 => "connections".to_owned(),
        9 => format!("connections/{one}"),
        10 | 32 | 33 => format!("connections/{one}/sync"),
        11 => "audit".to_owned(),
        12 => "link-sessions".to_owned(),
        13 => format!("link-sessions/{one}"),
        14 => "webhook-endpoints".to_owned(),
        15 => format!("webhook-endpoints/{one}"),
        16 => format!("webhook-endpoints/{one}/rotate-secret"),
        17 => format!("webhook-endpoints/{one}/ping"),
        18 => format!("webhook-endpoints/{one}/recover"),
        19 => format!("webhook-endpoints/{one}/deliveries"),
        20 => format!("webhook-endpoints/{one}/deliveries/{other}"),
        21 => format!("webhook-endpoints/{one}/deliveries/{other}/redeliver"),
        _ => format!("{one}/{other}"),
    };
    let mut query = Vec::new();
    for name in [
        "limit",
        "cursor",
        "email",
        "reference",
        "userId",
        "state",
        "x",
    ] {
        if random.one_in(12) {
            query.push(format!("{name}={}", random.odd_text()));
        }
    }
    let query = if query.is_empty() {
        String::new()
    } else {
        format!("?{}", query.join("&"))
    };
    format!("/admin/v1/{path}{query}")
}

fn request(random: &mut Random, key: &str, ids: &[String]) -> Request<Body> {
    let method = [
        "GET", "GET", "POST", "POST", "POST", "PATCH", "DELETE", "PUT", "HEAD",
    ][random.below(9)];
    let mut request = Request::builder().method(method).uri(path(random, ids));
    request = request.header("authorization", format!("Bearer {key}"));
    if !random.one_in(20) {
        request = request.header("content-type", "application/json");
    }
    if random.one_in(3) {
        let key = [
            format!("{}", random.below(200)),
            String::new(),
            "x".repeat(300),
        ];
        request = request.header(
            "idempotency-key",
            &key[if random.one_in(10) {
                random.below(3)
            } else {
                0
            }],
        );
    }
    request.body(Body::from(body(random))).unwrap()
}

#[tokio::test]
async fn no_request_is_an_internal_error() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let mut ids: Vec<String> = Vec::new();
    for person in [&app.olivia, &app.ben] {
        ids.push(person.user.id.to_string());
        ids.extend(
            app.keys_of(person.user.id)
                .await
                .iter()
                .map(|key| key.id.to_string()),
        );
        let hook = app.hook(&person.user).await;
        app.sync(&person.connections[0]).await;
        app.webhooks.run_due_deliveries().await;
        ids.push(hook.endpoint.id.to_string());
        ids.extend(
            app.deliveries_to(&hook)
                .await
                .iter()
                .take(2)
                .map(|delivery| delivery.event_id.to_string()),
        );
        ids.extend(
            person
                .connections
                .iter()
                .map(|connection| connection.id.to_string()),
        );
    }
    let mut random = Random::new(seed());
    let requests: Vec<_> = (0..REQUESTS)
        .map(|_| request(&mut random, &admin.key, &ids))
        .collect();
    // Without sockets, which would take most of the time.
    let router = app.router();
    let statuses = stream::iter(requests).map(async |request| {
        let named = format!("{} {}", request.method(), request.uri());
        let answer = router.clone().oneshot(request).await.unwrap();
        let status = answer.status().as_u16();
        assert!(status < 500, "{status}: {named}");
        assert_eq!(
            answer.headers().contains_key("bellbird-error"),
            status >= 400,
            "{status}: {named}"
        );
        status
    });
    let statuses: Vec<u16> = statuses.buffer_unordered(8).collect().await;
    for status in [200, 201, 204, 400, 404, 405, 409] {
        let count = statuses.iter().filter(|other| **other == status).count();
        // In most seeds, more than ten of the rarest.
        assert!(count > 0, "{status}: {count} times");
    }
}
