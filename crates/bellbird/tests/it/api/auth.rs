//! Keys, plans, rate limits, and the order of these checks.

use bellbird_storage::in_tx;
use std::collections::BTreeSet;

use bellbird_domain::{ApiKey, Plan};
use bellbird_sandbox::Fault;
use jiff::SignedDuration;
use reqwest::Method;
use serde_json::json;

use crate::support::harness::{App, Database, Setup, also_on_postgres, eventually};
use crate::support::words::assert_has;

#[tokio::test]
async fn v1_without_valid_key_is_always_401() {
    let app = App::start(Setup::default()).await;
    let unknown = ApiKey::from_random([7; 32]);
    let bodies: BTreeSet<String> = {
        let mut bodies = BTreeSet::new();
        for path in [
            "/v1",
            "/v1/",
            "/v1/connections",
            "/v1/nothing",
            "/v1/transactions?limit=x",
            "/v1/balances",
            "/v1/accounts/../x",
        ] {
            for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
                let request = |key: &str| {
                    app.http
                        .request(method.clone(), format!("{}{path}", app.url))
                        .header("authorization", key)
                };
                for key in [
                    "",
                    "Bearer",
                    "Bearer ",
                    "Bearer nonsense",
                    "Basic abc",
                    &format!("Bearer {}", unknown.expose()),
                    &format!("Bearer {} ", &app.olivia.key[..40]),
                ] {
                    let answer = app.send(request(key)).await;
                    answer.error(401);
                    assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                    assert!(answer.header("x-ratelimit-limit").is_none());
                    bodies.insert(answer.text);
                }
            }
        }
        bodies
    };
    assert_eq!(bodies.len(), 1);
}

#[tokio::test]
async fn scheme_ignores_case_and_header_is_single() {
    let app = App::start(Setup::default()).await;
    let request = || app.http.get(format!("{}/v1/categories", app.url));
    let key = &app.olivia.key;
    assert_eq!(
        app.send(request().header("authorization", format!("bearer {key}")))
            .await
            .status,
        200
    );
    assert_eq!(
        app.send(request().header("authorization", format!("BEARER  {key}")))
            .await
            .status,
        200
    );
    app.send(request().bearer_auth(key).bearer_auth(key))
        .await
        .error(401);
}

#[tokio::test]
async fn plan_and_key_changes_apply_immediately() {
    let app = App::start(Setup::default()).await;
    let path = "/v1/accounts";
    assert_eq!(app.get(path).await.status, 200);
    let id = app.olivia.user.id;
    app.set_plan(id, Plan::Saver).await;
    let answer = app.get(path).await;
    assert_has(&answer.error(403), "Developer or Professional plan");
    let me = app.get("/v1/me").await;
    assert_eq!(
        (me.status.as_u16(), &me.json()["data"]["plan"]),
        (200, &json!("saver"))
    );
    assert!(answer.json()["error"].get("code").is_none());
    app.set_plan(id, Plan::Developer).await;
    assert_eq!(app.get(path).await.status, 200);

    let key = &app.keys_of(id).await[0];
    let (new, now) = (bellbird_storage::new_key(), app.clock.now());
    in_tx!(
        app.storage,
        keys::rotate(key, &new, now + SignedDuration::from_secs(10), now)
    )
    .await
    .unwrap();
    assert_eq!(app.get(path).await.status, 200);
    app.advance_own_clock(SignedDuration::from_secs(10));
    app.get(path).await.error(401);

    let key = &app.keys_of(app.ben.user.id).await[0];
    assert_eq!(app.get_as(&app.ben.key, path).await.status, 200);
    in_tx!(app.storage, keys::revoke(key.id, app.clock.now()))
        .await
        .unwrap();
    app.get_as(&app.ben.key, path).await.error(401);
}

#[tokio::test]
async fn unknown_path_is_404_and_method_is_405() {
    let app = App::start(Setup::default()).await;
    for path in [
        "/",
        "/nothing",
        "/v2/accounts",
        "/health/",
        "/v1",
        "/v1/",
        "/v1/accounts/",
        "/v1/Accounts",
        "/v1/holding",
    ] {
        app.get(path).await.error(404);
    }
    for path in [
        "/health",
        "/v1/accounts",
        "/v1/transactions",
        "/v1/holdings",
        "/v1/trades",
        "/openapi.json",
        "/docs",
    ] {
        for method in [
            Method::POST,
            Method::PUT,
            Method::PATCH,
            Method::DELETE,
            Method::OPTIONS,
        ] {
            let answer = app.method_as(method, &app.olivia.key, path).await;
            answer.error(405);
            assert_eq!(answer.header("allow"), Some("GET,HEAD"));
        }
    }
}

fn limited() -> Setup {
    let mut setup = Setup::default();
    (
        setup.settings.api_context.metadata_per_minute,
        setup.settings.api_context.balances_per_minute,
        setup.settings.api_context.live_per_minute,
    ) = (5, 3, 2);
    setup
}

#[tokio::test]
async fn rate_limit_bucket_empties_and_refills() {
    let app = App::start(limited()).await;
    for left in (0..5).rev() {
        let answer = app.get("/v1/categories").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("5"));
        assert_eq!(
            answer.header("x-ratelimit-remaining"),
            Some(left.to_string().as_str())
        );
        assert_eq!(
            answer.header("x-ratelimit-reset"),
            Some(if left > 0 { "0" } else { "12" })
        );
    }
    let rejected = app.get("/v1/connections").await;
    assert_has(&rejected.error(429), "Too many requests");
    assert_eq!(rejected.header("retry-after"), Some("12"));
    assert_eq!(rejected.header("x-ratelimit-remaining"), Some("0"));
    assert_eq!(
        app.get_as(&app.ben.key, "/v1/categories").await.status,
        200,
        "another key has its own bucket"
    );
    assert_ne!(
        app.get("/v1/balances?accountIds=x").await.status,
        429,
        "another class has its own bucket"
    );

    app.advance_own_clock(SignedDuration::from_millis(11_999));
    app.get("/v1/categories").await.error(429);
    app.advance_own_clock(SignedDuration::from_millis(1));
    assert_eq!(
        app.get("/v1/categories").await.status,
        200,
        "a rejected call costs nothing"
    );
}

#[tokio::test]
async fn errors_count_and_unknown_paths_count_as_metadata() {
    let app = App::start(limited()).await;
    for _ in 0..2 {
        app.get("/v1/transactions").await.error(400);
    }
    app.get("/v1/transactions").await.error(429);
    for _ in 0..4 {
        app.get("/v1/nothing").await.error(404);
    }
    app.method_as(Method::POST, &app.olivia.key, "/v1/transactions")
        .await
        .error(405);
    app.get("/v1/accounts").await.error(429);
    app.get("/v1/nothing").await.error(404);
}

#[tokio::test]
async fn checks_run_limit_then_plan_then_parameters() {
    let app = App::start(limited()).await;
    let id = app.olivia.user.id;
    app.set_plan(id, Plan::Saver).await;
    app.get("/v1/transactions?limit=x").await.error(403);
    app.get("/v1/transactions?limit=x").await.error(403);
    app.get("/v1/transactions?limit=x").await.error(429);
}

#[tokio::test]
async fn concurrent_live_requests_are_bounded() {
    let mut setup = Setup::default();
    setup.settings.api_context.live_in_flight = 4;
    setup.settings.api_context.live_per_minute = 30;
    let app = App::start(setup).await;
    let connection = app.olivia.connections[0].id;
    app.fiskil()
        .add_fault(Fault::delay_ms(700).at("/v1/banking/transactions"));
    // Different pages: equal requests would share one call.
    let paths: Vec<String> = (1..=6)
        .map(|limit| format!("/v1/transactions?connectionId={connection}&limit={limit}"))
        .collect();
    let mut answers = Vec::new();
    let running: Vec<_> = paths.iter().map(|path| app.get(path)).collect();
    for answer in futures_util::future::join_all(running).await {
        answers.push((
            answer.status.as_u16(),
            answer.header("retry-after").map(str::to_owned),
        ));
        if answer.status == 429 {
            let message = answer.error(429);
            assert_eq!(
                message,
                "Too many requests of this key at once: try again when one of them has ended"
            );
        }
    }
    answers.sort();
    assert_eq!(
        answers.iter().filter(|(status, _)| *status == 200).count(),
        4
    );
    assert_eq!(
        answers[4..],
        [(429, Some("1".to_owned())), (429, Some("1".to_owned()))]
    );
    app.clear_faults();
    let after = app.get(&paths[0]).await;
    assert_eq!(after.status, 200, "permits are released");
    assert_eq!(
        after.header("x-ratelimit-remaining"),
        Some("25"),
        "the two rejected calls cost nothing"
    );
}

/// A made-up key with a valid checksum. Each number makes another one.
fn made_up_key(number: u32) -> String {
    let digits: Vec<u8> = (0..32).map(|at| (number >> at) as u8 % 2 + 40).collect();
    ApiKey::from_random(digits.try_into().unwrap())
        .expose()
        .to_owned()
}

#[tokio::test]
async fn wrong_keys_do_not_make_a_valid_one_fail() {
    let app = App::start(Setup::default()).await;
    let path = "/v1/accounts";
    let revoked = app.keys_of(app.ben.user.id).await[0].id;
    in_tx!(app.storage, keys::revoke(revoked, app.clock.now()))
        .await
        .unwrap();
    let misspelled = format!("{}x", &app.olivia.key[..app.olivia.key.len() - 1]);
    for number in 0..70 {
        for wrong in [&app.ben.key, &misspelled, "nonsense", &made_up_key(number)] {
            app.get_as(wrong, path).await.error(401);
        }
        app.get_without_key(path).await.error(401);
    }
    assert_eq!(
        app.get(path).await.status,
        200,
        "this instance has not seen the key before"
    );
}

#[tokio::test]
async fn revoked_key_is_looked_up_as_any_unknown_one() {
    let app = App::start(Setup::default()).await;
    let path = "/v1/accounts";
    assert_eq!(app.get(path).await.status, 200);
    let key = &app.keys_of(app.olivia.user.id).await[0];
    in_tx!(app.storage, keys::revoke(key.id, app.clock.now()))
        .await
        .unwrap();
    app.get(path).await.error(401);
    app.get(path).await.error(401);
}

mod postgres {
    use super::*;

    #[tokio::test]
    async fn lookups_of_made_up_keys_leave_connections_free() {
        let app = App::start(Setup {
            database: Database::Postgres,
            ..Setup::default()
        })
        .await;
        let (mut locker, connection) =
            tokio_postgres::connect(&app.shared.database, tokio_postgres::NoTls)
                .await
                .unwrap();
        tokio::spawn(connection);
        let locked = locker.transaction().await.unwrap();
        locked
            .batch_execute("LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE")
            .await
            .unwrap();
        let keys: Vec<String> = (0..40).map(made_up_key).collect();
        let unauthenticated =
            futures_util::future::join_all(keys.iter().map(|key| app.get_as(key, "/v1/accounts")));
        let watch = async {
            let waiting = "SELECT count(*) FROM pg_stat_activity \
                WHERE datname = current_database() AND wait_event_type = 'Lock'";
            let count = async || {
                // Within a transaction, the view shows its first result again.
                locked
                    .batch_execute("SELECT pg_stat_clear_snapshot()")
                    .await
                    .unwrap();
                locked
                    .query_one(waiting, &[])
                    .await
                    .unwrap()
                    .get::<_, i64>(0)
            };
            eventually(async || count().await >= 2).await;
            let mut most = 0;
            for _ in 0..200 {
                most = most.max(count().await);
            }
            assert!(
                (2..=4).contains(&most),
                "{most}: the other connections of the pool are free"
            );
            locked.rollback().await.unwrap();
        };
        let (answers, ()) = tokio::join!(unauthenticated, watch);
        assert!(answers.iter().all(|answer| answer.status == 401));
    }
}

#[tokio::test]
async fn oversized_heads_get_the_error_object() {
    let app = App::start(Setup::default()).await;
    let long = app
        .get(&format!("/v1/accounts?x={}", "a".repeat(17_000)))
        .await;
    long.error(414);
    let fits = app
        .get(&format!("/v1/accounts?x={}", "a".repeat(16_000)))
        .await;
    fits.error(400);
    let request = |bytes: usize| {
        app.http
            .get(format!("{}/v1/accounts", app.url))
            .bearer_auth(&app.olivia.key)
            .header("x-filler", "a".repeat(bytes))
    };
    assert_eq!(app.send(request(60_000)).await.status, 200);
    app.send(request(70_000)).await.error(431);
}

#[tokio::test]
async fn cors_is_off_unless_configured() {
    let request = |app: &App| {
        app.http
            .get(format!("{}/v1/accounts", app.url))
            .bearer_auth(&app.olivia.key)
            .header("origin", "https://app.example")
    };
    let preflight = |app: &App| {
        app.http
            .request(Method::OPTIONS, format!("{}/v1/accounts", app.url))
            .header("origin", "https://app.example")
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "authorization")
    };
    let app = App::start(Setup::default()).await;
    assert!(
        app.send(request(&app))
            .await
            .header("access-control-allow-origin")
            .is_none()
    );
    app.send(preflight(&app)).await.error(401);

    let mut setup = Setup::default();
    setup.settings.api_context.cors_origins = vec!["https://app.example".to_owned()];
    let app = App::start(setup).await;
    assert_eq!(
        app.send(request(&app))
            .await
            .header("access-control-allow-origin"),
        Some("https://app.example")
    );
    let allowed = app.send(preflight(&app)).await;
    assert_eq!(allowed.status, 200);
    assert!(allowed.header("x-request-id").is_some());
    let rejected = app
        .send(
            app.http
                .get(format!("{}/v1/accounts", app.url))
                .header("origin", "https://app.example"),
        )
        .await;
    rejected.error(401);
    assert_eq!(
        rejected.header("access-control-allow-origin"),
        Some("https://app.example"),
        "a page can read the error"
    );
}

also_on_postgres! { v1_without_valid_key_is_always_401 plan_and_key_changes_apply_immediately }
