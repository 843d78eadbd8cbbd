//! Who may call: operators, and nobody else.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bellbird_domain::OperatorKey;
use bellbird_storage::in_tx;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::json;

use super::{Admin, error, operator_key};
use crate::support::harness::{App, Setup, eventually};
use crate::support::mcp::Mcp;
use crate::support::port::free_port;

const PATHS: [(&str, &[&str]); 19] = [
    ("users", &["GET", "POST"]),
    ("users/ID", &["GET", "PATCH", "DELETE"]),
    ("users/ID/keys", &["GET", "POST"]),
    ("users/ID/setup-tokens", &["POST", "DELETE"]),
    ("keys/ID", &["DELETE"]),
    ("keys/ID/rotate", &["POST"]),
    ("link-sessions", &["POST"]),
    ("link-sessions/ID", &["GET"]),
    ("connections/ID", &["GET", "DELETE"]),
    ("connections/ID/sync", &["POST"]),
    ("webhook-endpoints", &["GET", "POST"]),
    ("webhook-endpoints/ID", &["GET", "PATCH", "DELETE"]),
    ("webhook-endpoints/ID/rotate-secret", &["POST"]),
    ("webhook-endpoints/ID/ping", &["POST"]),
    ("webhook-endpoints/ID/recover", &["POST"]),
    ("webhook-endpoints/ID/deliveries", &["GET"]),
    ("webhook-endpoints/ID/deliveries/ID", &["GET"]),
    ("webhook-endpoints/ID/deliveries/ID/redeliver", &["POST"]),
    ("audit", &["GET"]),
];

/// `PATHS` as they are requested.
fn all_paths() -> Vec<(String, &'static [&'static str])> {
    let whole = |path: &str| {
        let path = path.replace("ID", "0191e7a0-7c3b-7def-8000-00aabbccddee");
        format!("/admin/v1/{path}")
    };
    PATHS.map(|(path, methods)| (whole(path), methods)).into()
}

#[tokio::test]
async fn only_valid_operator_keys_are_let_in() {
    let admin = Admin::start().await;
    let app = &admin.app;
    let unknown = OperatorKey::from_random([7; 32]);
    let mut bodies = BTreeSet::new();
    let others: [(&str, &[&str]); 3] = [
        ("/admin/v1/nothing", &["GET"]),
        ("/admin", &["GET"]),
        ("/admin/v1/", &["POST"]),
    ];
    let mut paths = all_paths();
    paths.extend(others.map(|(path, methods)| (path.to_owned(), methods)));
    for (path, methods) in paths {
        for method in methods.iter().chain(&["PUT", "OPTIONS"]) {
            let method: Method = method.parse().unwrap();
            for key in [
                "",
                "nonsense",
                unknown.expose(),
                &app.olivia.key,
                &format!("{}x", admin.key),
            ] {
                let answer = app.method_as(method.clone(), key, &path).await;
                error(&answer, 401, "invalid_key");
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                bodies.insert(answer.text);
            }
        }
    }
    assert_eq!(bodies.len(), 1, "a user's key is a key like any wrong one");
    operator_key_is_a_wrong_key_elsewhere(&admin).await;
    paths_have_their_methods(&admin).await;
    operator_keys_are_recorded_until_they_end(&admin).await;
}

async fn operator_keys_are_recorded_until_they_end(admin: &Admin) {
    let (app, path) = (&admin.app, "/admin/v1/audit");
    assert_eq!(admin.get(path).await.status, 200);
    let used = async || app.storage.operator_keys().list().await.unwrap()[0].last_used_at;
    eventually(async || used().await == Some(app.clock.now())).await;
    let key = OperatorKey::from_random([9; 32]);
    let ends_at = app.clock.now() + SignedDuration::from_secs(60);
    in_tx!(
        app.storage,
        operator_keys::insert(&key, "short", Some(ends_at), app.clock.now())
    )
    .await
    .unwrap();
    assert_eq!(app.get_as(key.expose(), path).await.status, 200);
    app.clock.set(ends_at);
    error(&app.get_as(key.expose(), path).await, 401, "invalid_key");
    let id = app.storage.operator_keys().list().await.unwrap()[0].id;
    in_tx!(app.storage, operator_keys::revoke(id, app.clock.now()))
        .await
        .unwrap();
    error(&admin.get(path).await, 401, "invalid_key");
}

async fn operator_key_is_a_wrong_key_elsewhere(admin: &Admin) {
    let app = &admin.app;
    let unknown = bellbird_domain::ApiKey::from_random([7; 32]);
    for path in [
        "/v1/me",
        "/v1/accounts",
        "/v1/nothing",
        "/v1/export/transactions.csv",
        "/simplefin/accounts",
    ] {
        let wrong = app.get_as(unknown.expose(), path).await;
        let operators = app.get_as(&admin.key, path).await;
        assert_eq!(
            (operators.status, &operators.text),
            (wrong.status, &wrong.text),
            "{path}"
        );
        assert!(!operators.status.is_success());
    }
    let basic = app.http.get(format!("{}/simplefin/accounts", app.url));
    let basic = basic.basic_auth("bellbird", Some(&admin.key));
    assert_eq!(app.send(basic).await.status, 403);
    let mcp = Mcp::new(app, &admin.key);
    let tools = mcp.legacy("tools/list", json!({})).await;
    assert_eq!(tools.status, 401);
}

async fn paths_have_their_methods(admin: &Admin) {
    for (path, methods) in all_paths() {
        let answer = admin.call(Method::PUT, &path).await;
        error(&answer, 405, "method_not_allowed");
        let allowed = methods.join(",").replace("GET", "GET,HEAD");
        assert_eq!(answer.header("allow"), Some(&*allowed), "{path}");
    }
    error(&admin.get("/admin/v1/nothing").await, 404, "no_such_path");
    error(&admin.get("/admin").await, 404, "no_such_path");
    let head = admin.call(Method::HEAD, "/admin/v1/users").await;
    assert_eq!((head.status.as_u16(), head.text.as_str()), (200, ""));
}

#[tokio::test]
async fn each_operator_key_has_a_rate_limit() {
    let admin = Admin::start_with(Setup::with(|settings| {
        settings.api_context.operator_per_minute = 2;
    }))
    .await;
    for left in ["1", "0"] {
        let answer = admin.get("/admin/v1/audit").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
        assert_eq!(answer.header("x-ratelimit-remaining"), Some(left));
    }
    let rejected = admin.get("/admin/v1/audit").await;
    error(&rejected, 429, "rate_limited");
    assert_eq!(rejected.header("retry-after"), Some("30"));
    let other = operator_key(&admin.app, "other").await;
    let answer = admin.app.get_as(&other, "/admin/v1/audit").await;
    assert_eq!(answer.status, 200, "another key has its own bucket");
}

#[tokio::test]
async fn admin_is_where_the_setting_says() {
    let off = App::start(Setup::default()).await;
    let key = operator_key(&off, "backend").await;
    let answer = off.get_as(&key, "/admin/v1/users").await;
    assert_eq!(answer.status, 404, "off by default");
    // On a listener of its own.
    let address = SocketAddr::from(([127, 0, 0, 1], free_port()));
    let app = App::start(Setup::with(|settings| {
        settings.admin_listen = Some(address);
    }))
    .await;
    let key = operator_key(&app, "backend").await;
    let answer = app.get_as(&key, "/admin/v1/users").await;
    assert_eq!(answer.status, 404, "not on the listener of the API");
    let status = async |path: &str, key: &str| {
        let request = app.http.get(format!("http://{address}{path}"));
        app.send(request.bearer_auth(key)).await.status
    };
    assert_eq!(status("/admin/v1/users", &key).await, 200);
    for path in ["/v1/accounts", "/docs", "/health"] {
        assert_eq!(status(path, &app.olivia.key).await, 404, "{path}");
    }
}

#[tokio::test]
async fn pages_in_a_browser_cannot_call() {
    const ORIGIN: &str = "https://app.example.com";
    let setup = Setup::with(|settings| {
        settings.api_context.cors_origins = vec![ORIGIN.to_owned()];
    });
    let admin = Admin::start_with(setup).await;
    let app = &admin.app;
    let allowed = async |path: &str, key: &str| {
        let request = app.http.get(format!("{}{path}", app.url));
        let answer = app.send(request.bearer_auth(key).header("origin", ORIGIN));
        let answer = answer.await;
        let origin = answer.header("access-control-allow-origin");
        origin.map(str::to_owned)
    };
    let of_user = allowed("/v1/me", &app.olivia.key).await;
    assert_eq!(of_user.as_deref(), Some(ORIGIN));
    for path in ["/admin/v1/users", "/admin", "/admin/nothing"] {
        assert_eq!(allowed(path, &admin.key).await, None, "{path}");
    }
}
