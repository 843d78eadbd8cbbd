//! `/v1/balances`: sets of accounts, the cache, shared calls and failures.

use std::time::Duration;

use bellbird_domain::Connection;
use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;
use serde_json::json;

use crate::support::harness::{App, Setup, eventually};
use crate::support::reads::{Balance, balances_path as path};
use crate::support::words::assert_has;

/// Where the provider has the balances.
const BALANCES: &str = "/v1/banking/balances";
const CACHE_TIME: SignedDuration = SignedDuration::from_mins(5);

async fn ids(app: &App) -> Vec<String> {
    let accounts = app.all_accounts(&app.olivia).await.into_iter();
    accounts.map(|account| account.id).collect()
}

async fn ids_of(app: &App, connection: &Connection) -> Vec<String> {
    let accounts = app.accounts_of(connection).await.into_iter();
    accounts.map(|account| account.id).collect()
}

/// `exact.rs` compares their digits.
#[tokio::test]
async fn balances_are_cached_shared_and_checked() {
    let app = App::start(Setup::default()).await;
    let ids = ids(&app).await;
    let answer = app.get(&path(&ids)).await;
    assert_eq!(answer.cache(), Some("MISS"));
    let balances: Vec<Balance> = answer.rows();
    assert_eq!(balances.len(), ids.len());
    let mut is_any_negative = false;
    for balance in balances {
        assert!(ids.contains(&balance.account_id));
        assert_eq!(balance.currency.as_deref(), Some("AUD"));
        is_any_negative |= balance.current_balance.unwrap().starts_with('-');
    }
    assert!(is_any_negative);
    // Those of both connections.
    assert_eq!(app.fiskil().calls()[BALANCES], 1);

    let (account, at_provider) = app.accounts_by(&app.olivia).await.remove(0);
    let half = json!({"current_balance": "100", "available_balance": null});
    app.fiskil().set_balance(&at_provider, &half).unwrap();
    app.advance_own_clock(CACHE_TIME);
    let answer = app.get(&path([&account.id])).await;
    let balance = answer.rows::<Balance>().remove(0);
    assert_eq!(balance.current_balance.as_deref(), Some("100"));
    assert_eq!(balance.available_balance, None);
    // An absent value is not a failure.
    assert_eq!(answer.cache(), Some("MISS"));
    cache_key_ignores_account_order(&app).await;
    invalid_parameters_are_rejected(&app).await;
    failing_balances_are_nulls_or_503_and_uncached(&app).await;
    concurrent_equal_requests_share_one_call(&app).await;
    request_after_a_change_joins_no_earlier_read(&app).await;
}

async fn cache_key_ignores_account_order(app: &App) {
    let ids = ids(app).await;
    let first = app.get(&path(&ids[..3])).await;
    assert_eq!((first.cache(), first.header("age")), (Some("MISS"), None));
    app.advance_own_clock(SignedDuration::from_millis(41_900));
    let mut reordered = ids[..3].to_vec();
    reordered.reverse();
    reordered[0] = reordered[0].to_uppercase();
    reordered.push(format!(" {} ", ids[0]));
    let second = app.get(&path(&reordered).replace(' ', "%20")).await;
    let from_cache = (Some("HIT"), Some("41"));
    assert_eq!((second.cache(), second.header("age")), from_cache);
    assert_eq!(second.text, first.text);
    let others = app.get(&path(&ids[..2])).await;
    assert_eq!(others.cache(), Some("MISS"));
    // The cache time is five minutes.
    app.advance_own_clock(SignedDuration::from_millis(258_100));
    let later = app.get(&path(&ids[..3])).await;
    assert_eq!(later.cache(), Some("MISS"));
}

#[tokio::test]
async fn zero_cache_time_disables_the_cache() {
    let setup = Setup::with(|settings| settings.caches.balances_cache = Duration::ZERO);
    let app = App::start(setup).await;
    let path = path(&ids(&app).await[..1]);
    for _ in 0..2 {
        assert_eq!(app.get(&path).await.cache(), Some("BYPASS"));
    }
}

async fn concurrent_equal_requests_share_one_call(app: &App) {
    app.advance_own_clock(CACHE_TIME);
    app.reset_calls();
    let path = path(ids_of(app, &app.olivia.connections[0]).await);
    app.fiskil().add_fault(Fault::delay_ms(300).at(BALANCES));
    let answers = futures_util::future::join_all((0..10).map(|_| app.get(&path))).await;
    for answer in &answers {
        assert_eq!(answer.status, 200);
        assert_eq!(answer.text, answers[0].text);
    }
    assert_eq!(app.fiskil().calls()[BALANCES], 1);
    app.clear_faults();
}

async fn request_after_a_change_joins_no_earlier_read(app: &App) {
    app.advance_own_clock(CACHE_TIME);
    let path = path(&ids(app).await[..1]);
    app.reset_calls();
    app.fiskil().add_fault(Fault::delay_ms(1_500).at(BALANCES));
    let calls = || app.fiskil().calls().get(BALANCES).copied().unwrap_or(0);
    let later = async {
        eventually(async || calls() > 0).await;
        app.set_timezone(app.olivia.user.id, "America/New_York")
            .await;
        app.get(&path).await
    };
    let (before, after) = tokio::join!(app.get(&path), later);
    for answer in [before, after] {
        assert_eq!(answer.status, 200);
    }
    assert_eq!(calls(), 2);
}

async fn invalid_parameters_are_rejected(app: &App) {
    let known = &ids(app).await[0];
    for query in ["", "?accountIds=", "?accountIds=%20,%20,,", "?other=1"] {
        let message = app.get(&format!("/v1/balances{query}")).await.error(400);
        assert_has(&message, "accountIds");
    }
    let twice = format!("{}&accountIds={known}", path([known]));
    app.get(&twice).await.error(400);
    let many: Vec<String> = (0..101)
        .map(|at| format!("00000000-0000-7000-8000-{at:012}"))
        .collect();
    app.get(&path(&many)).await.error(400);
    app.get(&path(&many[..100])).await.error(404);
    let repeated = app.get(&path([known; 300])).await;
    assert_eq!(repeated.data().len(), 1);
}

#[tokio::test]
async fn a_failing_connection_is_confined_to_its_accounts() {
    let app = App::start(Setup::default()).await;
    let connections = &app.olivia.connections;
    app.set_consent(&connections[0], ConsentState::Revoked)
        .await;
    let broken = ids_of(&app, &connections[0]).await;
    let fine = ids_of(&app, &connections[1]).await;
    let path = path(broken.iter().chain(&fine));
    let answer = app.get(&path).await;
    assert_eq!(answer.cache(), Some("BYPASS"));
    let mut failed: Vec<Balance> = answer.rows();
    failed.retain(|balance| balance.currency.is_none());
    assert!(!failed.is_empty() && failed.len() < broken.len() + fine.len());
    for balance in failed {
        let values = [balance.current_balance, balance.available_balance];
        assert_eq!(values, [None, None]);
    }
    // A partial answer is not cached.
    assert_eq!(app.get(&path).await.cache(), Some("BYPASS"));
}

async fn failing_balances_are_nulls_or_503_and_uncached(app: &App) {
    app.advance_own_clock(CACHE_TIME);
    let ids = ids(app).await;
    // An error that no retry helps.
    app.fiskil().add_fault(Fault::status(400).at(BALANCES));
    let answer = app.get(&path(&ids[..1])).await;
    let failed = Balance {
        account_id: ids[0].clone(),
        current_balance: None,
        available_balance: None,
        currency: None,
        error: Some("provider_unavailable".to_owned()),
    };
    assert_eq!(answer.rows::<Balance>(), [failed]);
    assert_eq!(answer.cache(), Some("BYPASS"));
    app.clear_faults();

    let all = path(&ids);
    app.fiskil()
        .add_fault(Fault::status(429).at(BALANCES).retry_after(7));
    let answer = app.get(&all).await;
    assert_has(&answer.error(503), "temporarily unavailable");
    assert_eq!(answer.header("retry-after"), Some("7"));
    app.clear_faults();
    assert_eq!(app.get(&all).await.cache(), Some("MISS"));
}
