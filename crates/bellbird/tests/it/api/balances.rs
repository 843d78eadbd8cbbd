//! `/v1/balances`: sets of accounts, the cache, shared calls and failures.

use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;
use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::support::harness::{App, Setup, eventually};
use crate::support::words::assert_has;

async fn ids(app: &App) -> Vec<String> {
    let accounts = app.get("/v1/accounts?limit=200").await.data();
    accounts
        .iter()
        .map(|account| account["id"].as_str().unwrap().to_owned())
        .collect()
}

fn path(ids: &[String]) -> String {
    format!("/v1/balances?accountIds={}", ids.join(","))
}

#[tokio::test]
async fn balances_keep_the_providers_digits() {
    let app = App::start(Setup::default()).await;
    let ids = ids(&app).await;
    let answer = app.get(&path(&ids)).await;
    let balances = answer.data();
    assert_eq!(answer.header("x-cache"), Some("MISS"));
    assert_eq!(balances.len(), ids.len());
    for balance in &balances {
        assert!(ids.contains(&balance["accountId"].as_str().unwrap().to_owned()));
        assert_eq!(balance["currency"], "AUD");
        let current = balance["currentBalance"].as_str().unwrap();
        assert!(
            current
                .trim_start_matches('-')
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'.')
        );
    }
    assert!(
        balances
            .iter()
            .any(|balance| balance["currentBalance"].as_str().unwrap().starts_with('-'))
    );
    assert_eq!(
        app.fiskil().calls()["/v1/banking/balances"],
        1,
        "one call covers both connections of an end user"
    );
}

#[tokio::test]
async fn unusual_digits_are_kept() {
    let app = App::start(Setup::default()).await;
    let id = &ids(&app).await[0];
    let account = app
        .storage
        .accounts()
        .find(app.olivia.user.id, &[id.parse().unwrap()])
        .await
        .unwrap()
        .remove(0);
    for (sent, shown) in [
        (
            "-12345678901234567890.1234567890123456789",
            "-12345678901234567890.1234567890123456789",
        ),
        ("+5.50", "5.50"),
        ("-0.00", "0.00"),
        ("100", "100"),
    ] {
        let patch = json!({"current_balance": sent, "available_balance": null});
        let id_there = &account.provider_account_id;
        app.fiskil().set_balance(id_there, &patch).unwrap();
        app.clock
            .set(app.clock.now() + SignedDuration::from_secs(300));
        let answer = app.get(&path(std::slice::from_ref(id))).await;
        assert_eq!(answer.data()[0]["currentBalance"], shown);
        assert_eq!(answer.data()[0]["availableBalance"], Value::Null);
        assert_eq!(
            answer.header("x-cache"),
            Some("MISS"),
            "an absent value is not a failure"
        );
    }
}

#[tokio::test]
async fn cache_key_ignores_account_order() {
    let app = App::start(Setup::default()).await;
    let ids = ids(&app).await;
    let first = app.get(&path(&ids[..3])).await;
    assert_eq!(
        (first.header("x-cache"), first.header("age")),
        (Some("MISS"), None)
    );
    app.clock
        .set(app.clock.now() + SignedDuration::from_millis(41_900));
    let mut reordered = ids[..3].to_vec();
    reordered.reverse();
    reordered[0] = reordered[0].to_uppercase();
    reordered.push(format!(" {} ", ids[0]));
    let second = app.get(&path(&reordered).replace(' ', "%20")).await;
    assert_eq!(
        (second.header("x-cache"), second.header("age")),
        (Some("HIT"), Some("41"))
    );
    assert_eq!(second.text, first.text);
    assert_eq!(
        app.get(&path(&ids[..2])).await.header("x-cache"),
        Some("MISS")
    );
    app.clock
        .set(app.clock.now() + SignedDuration::from_millis(258_100));
    assert_eq!(
        app.get(&path(&ids[..3])).await.header("x-cache"),
        Some("MISS"),
        "the cache time of five minutes has passed"
    );
}

#[tokio::test]
async fn zero_cache_time_disables_the_cache() {
    let mut setup = Setup::default();
    setup.settings.caches.balances_cache = std::time::Duration::ZERO;
    let app = App::start(setup).await;
    let ids = ids(&app).await;
    for _ in 0..2 {
        assert_eq!(
            app.get(&path(&ids[..1])).await.header("x-cache"),
            Some("BYPASS")
        );
    }
}

#[tokio::test]
async fn concurrent_equal_requests_share_one_call() {
    let app = App::start(Setup::default()).await;
    let connection = app.olivia.connections[0].id;
    let accounts = app.stored_accounts(app.olivia.user.id, connection).await;
    let ids: Vec<String> = accounts
        .iter()
        .map(|account| account.id.to_string())
        .collect();
    app.fiskil()
        .add_fault(Fault::delay_ms(300).at("/v1/banking/balances"));
    let path = path(&ids);
    let answers = futures_util::future::join_all((0..10).map(|_| app.get(&path))).await;
    assert!(
        answers
            .iter()
            .all(|answer| answer.status == 200 && answer.text == answers[0].text)
    );
    assert_eq!(app.fiskil().calls()["/v1/banking/balances"], 1);
}

#[tokio::test]
async fn request_after_a_change_joins_no_earlier_read() {
    let app = App::start(Setup::default()).await;
    let path = path(&ids(&app).await[..1]);
    app.reset_calls();
    app.fiskil()
        .add_fault(Fault::delay_ms(1_500).at("/v1/banking/balances"));
    let calls = || {
        app.fiskil()
            .calls()
            .get("/v1/banking/balances")
            .copied()
            .unwrap_or(0)
    };
    let later = async {
        eventually(async || calls() > 0).await;
        app.set_timezone(app.olivia.user.id, "America/New_York")
            .await;
        app.get(&path).await
    };
    let (before, after) = tokio::join!(app.get(&path), later);
    assert_eq!(
        (before.status, after.status),
        (StatusCode::OK, StatusCode::OK)
    );
    assert_eq!(calls(), 2);
}

#[tokio::test]
async fn invalid_parameters_are_rejected() {
    let app = App::start(Setup::default()).await;
    let known = ids(&app).await;
    for query in ["", "?accountIds=", "?accountIds=%20,%20,,", "?other=1"] {
        assert_has(
            &app.get(&format!("/v1/balances{query}")).await.error(400),
            "accountIds",
        );
    }
    app.get(&format!(
        "/v1/balances?accountIds={0}&accountIds={0}",
        known[0]
    ))
    .await
    .error(400);
    let many: Vec<String> = (0..101)
        .map(|at| format!("00000000-0000-7000-8000-{at:012}"))
        .collect();
    app.get(&path(&many)).await.error(400);
    app.get(&path(&many[..100])).await.error(404);
    let repeated = vec![known[0].clone(); 300];
    assert_eq!(app.get(&path(&repeated)).await.data().len(), 1);
}

#[tokio::test]
async fn a_failing_connection_is_confined_to_its_accounts() {
    let app = App::start(Setup::with(|settings| {
        settings.provider_timeout = std::time::Duration::from_secs(2);
    }))
    .await;
    let [first, second] = [app.olivia.connections[0].id, app.olivia.connections[1].id];
    let of = |connection| {
        app.storage
            .accounts()
            .list_of_connection(app.olivia.user.id, connection)
    };
    let broken: Vec<String> = of(first)
        .await
        .unwrap()
        .iter()
        .map(|account| account.id.to_string())
        .collect();
    let fine: Vec<String> = of(second)
        .await
        .unwrap()
        .iter()
        .map(|account| account.id.to_string())
        .collect();
    let consent = app.credentials(0)["arrangementId"]
        .as_str()
        .unwrap()
        .to_owned();
    app.fiskil()
        .set_consent(&consent, ConsentState::Revoked)
        .unwrap();
    // These credentials may belong to either of the two connections.
    let all = [broken.clone(), fine.clone()].concat();
    let answer = app.get(&path(&all)).await;
    assert_eq!(answer.header("x-cache"), Some("BYPASS"));
    let failed: Vec<Value> = answer
        .data()
        .into_iter()
        .filter(|balance| balance["currency"].is_null())
        .collect();
    assert!(!failed.is_empty() && failed.len() < all.len());
    for balance in &failed {
        assert_eq!(
            (&balance["currentBalance"], &balance["availableBalance"]),
            (&Value::Null, &Value::Null)
        );
    }
    let again = app.get(&path(&all)).await;
    assert_eq!(
        again.header("x-cache"),
        Some("BYPASS"),
        "a partial answer is not cached"
    );
}

#[tokio::test]
async fn all_accounts_failing_is_503_and_uncached() {
    let app = App::start(Setup::default()).await;
    let ids = ids(&app).await;
    app.fiskil()
        .add_fault(Fault::status(429).at("/v1/banking/balances").retry_after(7));
    let answer = app.get(&path(&ids)).await;
    assert_has(&answer.error(503), "temporarily unavailable");
    assert_eq!(answer.header("retry-after"), Some("7"));
    app.clear_faults();
    assert_eq!(app.get(&path(&ids)).await.header("x-cache"), Some("MISS"));
}

#[tokio::test]
async fn permanent_provider_error_gives_null_balances() {
    let app = App::start(Setup::default()).await;
    let ids = ids(&app).await;
    app.fiskil()
        .add_fault(Fault::status(400).at("/v1/banking/balances"));
    let answer = app.get(&path(&ids[..1])).await;
    assert_eq!(answer.data()[0]["currentBalance"], Value::Null);
    assert_eq!(answer.data()[0]["error"], "provider_unavailable");
    assert_eq!(answer.header("x-cache"), Some("BYPASS"));
}
