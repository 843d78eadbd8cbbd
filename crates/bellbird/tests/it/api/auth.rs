//! Keys, plans, rate limits, and the order of these checks.

use bellbird_storage::in_tx;
use std::cell::Cell;
use std::collections::BTreeSet;

use bellbird_domain::{ApiKey, Plan};
use bellbird_sandbox::Fault;
use jiff::SignedDuration;
use reqwest::Method;

use crate::support::client::misspelled;
use crate::support::harness::{App, Database, Setup, also_on_postgres, eventually};
use crate::support::words::assert_has;

#[tokio::test]
async fn key_and_path_are_checked_and_changes_apply_immediately() {
    let app = App::start(Setup::default()).await;
    let unknown = ApiKey::from_random([7; 32]);
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
        let url = format!("{}{path}", app.url);
        for method in [Method::GET, Method::POST, Method::DELETE, Method::OPTIONS] {
            for key in [
                "",
                "Bearer",
                "Bearer ",
                "Bearer nonsense",
                "Basic abc",
                &format!("Bearer {}", unknown.expose()),
                &format!("Bearer {} ", &app.olivia.key[..40]),
            ] {
                let request = app.http.request(method.clone(), &url);
                let answer = app.send(request.header("authorization", key)).await;
                answer.error(401);
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"));
                assert!(answer.header("x-ratelimit-limit").is_none());
                bodies.insert(answer.text);
            }
        }
    }
    assert_eq!(bodies.len(), 1);
    wrong_keys_do_not_make_a_valid_one_fail(&app).await;
    oversized_heads_get_the_error_object(&app).await;
    unknown_path_is_404_and_method_is_405(&app).await;
    plan_and_key_changes_apply_immediately(&app).await;
}

async fn plan_and_key_changes_apply_immediately(app: &App) {
    let path = "/v1/accounts";
    assert_eq!(app.get(path).await.status, 200);
    let id = app.olivia.user.id;
    app.set_plan(id, Plan::Saver).await;
    let answer = app.get(path).await;
    assert_has(&answer.error(403), "Developer or Professional plan");
    let me = app.get("/v1/me").await;
    assert_eq!(me.status, 200);
    assert_eq!(me.json()["data"]["plan"], "saver");
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
    app.revoke_key(key.id).await;
    // The second time as any unknown key.
    for _ in 0..2 {
        app.get_as(&app.ben.key, path).await.error(401);
    }
}

async fn unknown_path_is_404_and_method_is_405(app: &App) {
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

#[tokio::test]
async fn requests_are_limited_by_key_and_class() {
    let setup = Setup::with(|settings| {
        settings.api_context.metadata_per_minute = 5;
        settings.api_context.balances_per_minute = 3;
        settings.api_context.live_per_minute = 2;
    });
    let app = App::start(setup).await;
    for left in (0..5).rev() {
        let answer = app.get("/v1/categories").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("5"));
        let remaining = answer.header("x-ratelimit-remaining");
        assert_eq!(remaining, Some(&*left.to_string()));
        let reset = if left > 0 { "0" } else { "12" };
        assert_eq!(answer.header("x-ratelimit-reset"), Some(reset));
    }
    let rejected = app.get("/v1/connections").await;
    assert_has(&rejected.error(429), "Too many requests");
    assert_eq!(rejected.header("retry-after"), Some("12"));
    assert_eq!(rejected.header("x-ratelimit-remaining"), Some("0"));
    // Another key and another class have their own buckets.
    let of_ben = app.get_as(&app.ben.key, "/v1/categories").await;
    assert_eq!(of_ben.status, 200);
    let balances = app.get("/v1/balances?accountIds=x").await;
    assert_ne!(balances.status, 429);

    app.advance_own_clock(SignedDuration::from_millis(11_999));
    app.get("/v1/categories").await.error(429);
    // A rejected call costs nothing.
    app.advance_own_clock(SignedDuration::from_millis(1));
    assert_eq!(app.get("/v1/categories").await.status, 200);

    // Errors count, and unknown paths count as metadata. The limit is checked before the plan, and
    // that before the parameters.
    let (live, wrong) = ("/v1/transactions", "/v1/transactions?limit=x");
    let (nothing, accounts) = ("/v1/nothing", "/v1/accounts");
    for (plan, requests) in [
        (
            Plan::Developer,
            &[
                (Method::GET, live, 400),
                (Method::GET, live, 400),
                (Method::GET, live, 429),
                (Method::GET, nothing, 404),
                (Method::GET, nothing, 404),
                (Method::GET, nothing, 404),
                (Method::GET, nothing, 404),
                (Method::POST, live, 405),
                (Method::GET, accounts, 429),
                (Method::GET, nothing, 404),
            ][..],
        ),
        (
            Plan::Saver,
            &[
                (Method::GET, wrong, 403),
                (Method::GET, wrong, 403),
                (Method::GET, wrong, 429),
            ][..],
        ),
    ] {
        let person = app
            .add_person(&format!("{plan}@example.com"), plan, &[])
            .await;
        for (method, path, status) in requests {
            let answer = app.method_as(method.clone(), &person.key, path).await;
            assert_eq!(answer.status, *status, "{plan}: {method} {path}");
            answer.error(*status);
        }
    }
}

#[tokio::test]
async fn concurrent_live_requests_are_bounded() {
    let app = App::start(Setup::with(|settings| {
        settings.api_context.live_in_flight = 4;
        settings.api_context.live_per_minute = 30;
    }))
    .await;
    app.fiskil()
        .add_fault(Fault::delay_ms(600_000).at("/v1/banking/transactions"));
    // Different pages: equal requests would share one call.
    let read = app.all_transactions(app.olivia.connections[0].id);
    let pages: Vec<_> = (1..=6).map(|limit| read.clone().limit(limit)).collect();
    let refused = Cell::new(0);
    let running = pages.iter().map(async |page| {
        let answer = page.send().await;
        refused.set(refused.get() + u32::from(answer.status == 429));
        answer
    });
    // Four are at the provider until the others have been refused.
    let release = async {
        eventually(async || refused.get() == 2 && app.transaction_calls() == 4).await;
        app.fiskil().release_calls();
    };
    let (answers, ()) = tokio::join!(futures_util::future::join_all(running), release);
    let (served, rejected): (Vec<_>, Vec<_>) =
        answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((served.len(), rejected.len()), (4, 2));
    for answer in rejected {
        assert_eq!(
            answer.error(429),
            "Too many requests of this key at once: try again when one of them has ended"
        );
        assert_eq!(answer.header("retry-after"), Some("1"));
    }
    // Permits are released, and the two rejected calls cost nothing.
    let after = pages[0].send().await;
    assert_eq!(after.status, 200);
    assert_eq!(after.header("x-ratelimit-remaining"), Some("25"));
}

/// A made-up key with a valid checksum. Each number makes another one.
fn made_up_key(number: u32) -> String {
    let digits: Vec<u8> = (0..32).map(|at| (number >> at) as u8 % 2 + 40).collect();
    ApiKey::from_random(digits.try_into().unwrap())
        .expose()
        .to_owned()
}

async fn wrong_keys_do_not_make_a_valid_one_fail(app: &App) {
    let path = "/v1/accounts";
    let email = "revoked@example.com";
    let revoked = app.add_person(email, Plan::Developer, &[]).await;
    app.revoke_key(app.keys_of(revoked.user.id).await[0].id)
        .await;
    let misspelled = misspelled(&app.olivia.key);
    for number in 0..70 {
        for wrong in [&revoked.key, &misspelled, "nonsense", &made_up_key(number)] {
            app.get_as(wrong, path).await.error(401);
        }
        app.get_without_key(path).await.error(401);
    }
    let answer = app.get(path).await;
    assert_eq!(answer.status, 200, "a key that is new to the instance");

    // The scheme ignores case, and the header is single.
    let request = || app.http.get(format!("{}/v1/categories", app.url));
    let key = &app.olivia.key;
    for line in [format!("bearer {key}"), format!("BEARER  {key}")] {
        let answer = app.send(request().header("authorization", line)).await;
        assert_eq!(answer.status, 200);
    }
    let twice = request().bearer_auth(key).bearer_auth(key);
    app.send(twice).await.error(401);
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
            // Few, because a lookup waits four seconds for the lock at most.
            for _ in 0..50 {
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

async fn oversized_heads_get_the_error_object(app: &App) {
    for (length, status) in [(17_000, 414), (16_000, 400)] {
        let path = format!("/v1/accounts?x={}", "a".repeat(length));
        app.get(&path).await.error(status);
    }
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
    const ORIGIN: &str = "https://app.example";
    const ALLOWED: &str = "access-control-allow-origin";
    let request = |app: &App, method: Method| {
        let request = app.http.request(method, format!("{}/v1/accounts", app.url));
        request.header("origin", ORIGIN)
    };
    let preflight = |app: &App| {
        request(app, Method::OPTIONS)
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "authorization")
    };
    let read = async |app: &App, key: &str| {
        let request = request(app, Method::GET);
        app.send(request.bearer_auth(key)).await
    };
    let app = App::start(Setup::default()).await;
    assert_eq!(read(&app, &app.olivia.key).await.header(ALLOWED), None);
    app.send(preflight(&app)).await.error(401);

    let app = App::start(Setup::with(|settings| {
        settings.api_context.cors_origins = vec![ORIGIN.to_owned()];
    }))
    .await;
    let answer = read(&app, &app.olivia.key).await;
    assert_eq!(answer.header(ALLOWED), Some(ORIGIN));
    let allowed = app.send(preflight(&app)).await;
    assert_eq!(allowed.status, 200);
    assert!(allowed.header("x-request-id").is_some());
    // A page can read the error.
    let rejected = read(&app, "bb_wrong").await;
    rejected.error(401);
    assert_eq!(rejected.header(ALLOWED), Some(ORIGIN));
}

also_on_postgres! { key_and_path_are_checked_and_changes_apply_immediately }
