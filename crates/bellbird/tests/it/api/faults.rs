//! The API when a provider is slow, broken, unreachable or hostile.

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionStatus, Plan};
use bellbird_sandbox::{ConsentState, Fault, FaultKind};
use bellbird_storage::{JobKey, job_kinds};
use jiff::SignedDuration;

use crate::support::client::{Account, Page, Transaction};
use crate::support::harness::{App, Setup, assert_reconnect, eventually};
use crate::support::reads::balances_path;
use crate::support::words::assert_has;

/// A short timeout of calls for a provider that never responds. The deadline of requests is long
/// enough for another attempt on a slow machine.
fn short_timeout() -> Setup {
    Setup::with(|settings| settings.provider_timeout = Duration::from_secs(1))
}

/// Every way in which the sandbox can break a response, so that a second attempt may succeed.
fn faults() -> [Fault; 12] {
    [
        Fault::delay_ms(60_000),
        Fault::new(FaultKind::Reset),
        Fault::status(429),
        Fault::status(429).retry_after(1),
        Fault::status(500),
        Fault::status(502),
        Fault::new(FaultKind::Cut).after_bytes(0),
        Fault::new(FaultKind::Cut).after_bytes(700),
        Fault::new(FaultKind::Malformed),
        Fault::new(FaultKind::ContentType),
        Fault::new(FaultKind::Huge),
        Fault::new(FaultKind::Drip).delayed_ms(50),
    ]
}

#[tokio::test]
async fn every_fault_is_retried_once_then_a_503_then_recovers() {
    let app = App::start(short_timeout()).await;
    let (account, _) = app.busiest().await;
    single_broken_answer_is_retried(&app, &account).await;
    let paths = [
        (
            "/v1/banking/transactions",
            app.transactions(&account).path(),
        ),
        ("/v1/banking/balances", balances_path([&account.id])),
    ];
    let no_second_attempt = Fault::status(503).retry_after(30);
    for fault in faults().into_iter().chain([no_second_attempt]) {
        for (provider_path, path) in &paths {
            app.fiskil().add_fault(fault.clone().at(*provider_path));
            app.reset_calls();
            let answer = app.get(path).await;
            assert_has(&answer.error(503), "temporarily unavailable");
            let retry_after: u64 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!(retry_after >= 1);
            assert!(answer.cache().is_none());
            let attempts = app.fiskil().calls()[*provider_path];
            assert!(attempts <= 3, "{fault:?}: {attempts} attempts");
            app.clear_faults();
            let next = app.get(path).await;
            assert_eq!(next.status, 200, "after {fault:?}: {}", next.text);
            assert_ne!(next.cache(), Some("HIT"), "no broken answer was cached");
            // The cached response expires before the next fault.
            app.advance_own_clock(SignedDuration::from_secs(301));
        }
    }
}

async fn single_broken_answer_is_retried(app: &App, account: &Account) {
    let path = app.transactions(account).path();
    let fine = app.get(&path).await.data();
    for fault in faults() {
        let once = fault.clone().at("/v1/banking/transactions").times(1);
        app.fiskil().add_fault(once);
        assert_eq!(app.get(&path).await.data(), fine, "{fault:?}");
        app.clear_faults();
    }
}

/// Without a short timeout, which could add a call.
#[tokio::test]
async fn token_failure_is_503_and_dead_token_is_renewed() {
    let app = App::start(Setup::default()).await;
    let (account, _) = app.busiest().await;
    let path = app.transactions(&account).path();
    let assert_calls = |tokens: u64, pages: u64| {
        let calls = app.fiskil().calls();
        assert_eq!(calls.get("/v1/token").copied().unwrap_or(0), tokens);
        assert_eq!(app.transaction_calls(), pages);
        app.reset_calls();
    };
    // The sandbox's clock is ahead: the token has expired there, which the service learns from a
    // 401.
    app.fiskil().advance_clock(SignedDuration::from_secs(1_000));
    app.reset_calls();
    assert_eq!(app.get(&path).await.status, 200);
    assert_calls(1, 2);
    // A token is used until it expires.
    assert_eq!(app.get(&path).await.status, 200);
    assert_eq!(app.fiskil().calls().get("/v1/token"), None);

    app.fiskil().advance_clock(SignedDuration::from_secs(1_000));
    app.fiskil().add_fault(Fault::status(500).at("/v1/token"));
    app.get(&path).await.error(503);
    app.clear_faults();
    assert_eq!(app.get(&path).await.status, 200);

    app.fiskil()
        .add_fault(Fault::status(401).at("/v1/banking/transactions"));
    app.reset_calls();
    app.get(&path).await.error(503);
    // One new token, one more attempt.
    assert_calls(1, 2);
    app.clear_faults();
    assert_eq!(app.get(&path).await.status, 200);
}

async fn lost_consent_triggers_a_refresh(app: &App) {
    let (credentials, email) = (app.credentials(3), "other@example.com");
    let other = app
        .add_person(email, Plan::Developer, &[&credentials])
        .await;
    let lost = [
        (ConsentState::Revoked, ConnectionStatus::Revoked),
        (ConsentState::Expired, ConnectionStatus::Invalidated),
    ];
    for (person, (state, expected)) in [&app.ben, &other].into_iter().zip(lost) {
        let connection = &person.connections[0];
        let read = app.all_transactions(connection.id).by(person);
        app.reset_calls();
        assert_eq!(read.send().await.status, 200);
        // A read does not check the consent first.
        assert_eq!(app.fiskil().calls().get("/v1/consent"), None);

        app.set_consent(connection, state).await;
        assert_reconnect(&read.send().await, "invalidated");
        wait_for_status(app, connection, expected).await;
        assert_reconnect(&read.send().await, expected.as_str());
        let listed = app.get_as(&person.key, "/v1/connections").await.data();
        assert_eq!(listed[0]["status"], expected.as_str());
        let audit = app.audit_of(connection.id).await;
        assert_eq!(audit.last().map(|row| row.to), Some(Some(expected)));

        // A read succeeds while the provider responds.
        app.set_consent(connection, ConsentState::Active).await;
        app.advance_clock(SignedDuration::from_mins(1));
        assert_eq!(read.send().await.status, 200);
    }
}

async fn lost_consent_of_a_pending_connection_says_so(app: &App) {
    let (person, now) = (app.person_at("fiskil").await, app.clock.now());
    let (user, connection) = (person.user.id, &person.connections[0]);
    let (from, to) = (ConnectionStatus::Active, ConnectionStatus::PendingMfa);
    let key = JobKey::new(job_kinds::REFRESH, user, connection.id);
    let claim = app.storage.jobs().claim(&key, now, now).await.unwrap();
    let claim = claim.expect("claimed");
    let refreshes = app.storage.refreshes();
    let is_set = refreshes.set_status(&claim, from, to, "refreshed", now, now);
    assert!(is_set.await.unwrap());
    app.set_consent(connection, ConsentState::Revoked).await;
    let read = app.all_transactions(connection.id).by(&person);
    assert_reconnect(&read.send().await, "pending_mfa");
    // Balances have nulls instead.
    let accounts = app.all_accounts(&person).await;
    let balances = app.balances(&person, &accounts[..1]).await;
    assert_eq!(balances[0].current_balance, None);
}

/// Runs the refresh that a read requested, once it has.
async fn wait_for_status(app: &App, connection: &Connection, expected: ConnectionStatus) {
    eventually(async || {
        app.connections.jobs().run_due("refresh").await.unwrap();
        app.connections_of(connection.user_id).await[0].status == expected
    })
    .await;
}

/// A client that does not heed a lost consent costs the provider two calls a minute, whatever it
/// reads.
#[tokio::test]
async fn repeated_reads_of_a_revoked_connection_cost_little() {
    let app = App::start(Setup::default()).await;
    let (user, connection) = (app.ben.user.id, app.ben.connections[0].clone());
    let account = app.accounts_of(&connection).await.remove(0).id;
    app.set_consent(&connection, ConsentState::Revoked).await;
    let read = app.all_transactions(connection.id).by(&app.ben);
    let paths = [
        read.path(),
        balances_path([account]),
        "/v1/export/transactions.csv".to_owned(),
    ];
    read.send().await.error(503);
    wait_for_status(&app, &connection, ConnectionStatus::Revoked).await;
    // With the new status, the first of these asks once more.
    read.send().await.error(503);
    app.reset_calls();
    for _ in 0..10 {
        for path in &paths {
            app.get_as(&app.ben.key, path).await;
        }
        app.connections.jobs().run_due("refresh").await.unwrap();
    }
    assert_eq!(app.fiskil().total_calls(), 0, "{:?}", app.fiskil().calls());
    app.advance_clock(SignedDuration::from_secs(31));
    app.connections.jobs().run_due("refresh").await.unwrap();
    // These reads have requested no refresh.
    assert_eq!(app.fiskil().total_calls(), 0);
    assert_reconnect(&read.send().await, "revoked");
    // What is wrong with a request counts first.
    let of_no_account = read.clone().with("accountId", connection.id);
    of_no_account.send().await.error(404);

    // After a minute the provider is asked again.
    app.advance_clock(SignedDuration::from_mins(1));
    read.send().await.error(503);
    assert!(app.fiskil().total_calls() > 0);
    let status = app.connections_of(user).await[0].status;
    assert_eq!(status, ConnectionStatus::Revoked);
}

/// Even if an empty list has just had the consent looked up.
#[tokio::test]
async fn consent_that_ends_between_windows_ends_no_list() {
    let app = App::start(Setup::default()).await;
    let connection = app.ben.connections[0].clone();
    let read = || app.all_transactions(connection.id).by(&app.ben);
    assert_eq!(read().from("1990-01-01").to("1990-12-31").rows().await, []);
    let window = |offset| read().from("2000-01-01").limit(5).offset(offset);
    assert!(window(0).page().await.pagination.has_more);
    app.set_consent(&connection, ConsentState::Revoked).await;
    window(5).send().await.error(503);
    app.advance_clock(SignedDuration::from_mins(2));
    window(5).send().await.error(503);
}

#[tokio::test]
async fn empty_account_is_no_lost_consent() {
    let app = App::start(Setup::default()).await;
    let connection = app.ben.connections[0].id;
    let read = app.all_transactions(connection).by(&app.ben);
    let read = read.from("1990-01-01").to("1990-12-31");
    for _ in 0..3 {
        assert_eq!(read.rows().await, []);
    }
    // Checked once, and cached for a minute.
    assert_eq!(app.fiskil().calls()["/v1/consent"], 1);
}

#[tokio::test]
async fn lost_consent_is_503() {
    let app = App::start(Setup::default()).await;
    lost_consent_triggers_a_refresh(&app).await;
    lost_consent_of_a_pending_connection_says_so(&app).await;
}

#[tokio::test]
async fn slow_provider_is_cut_off_at_the_deadline() {
    let setup = Setup::with(|settings| settings.reads.deadline = Duration::from_secs(4));
    let app = App::start(Setup {
        rows: 12_000,
        ..setup
    })
    .await;
    let (account, _) = app.busiest().await;
    let read = |offset: usize| app.transactions(&account).from("2000-01-01").offset(offset);
    // So many calls get a response at once, and the next one hangs until the deadline.
    let hang_after = |calls: u64| {
        app.clear_faults();
        let at_once = Fault::delay_ms(0).times(calls);
        for fault in [at_once, Fault::delay_ms(600_000)] {
            app.fiskil().add_fault(fault.at("/v1/banking/transactions"));
        }
    };
    hang_after(3);
    let first = read(0).send().await;
    assert_eq!(first.header("x-service-truncated"), Some("true"));
    let first = first.read::<Page<Transaction>>();
    assert_eq!(first.rows.len(), 200);
    // Counting stopped at the deadline, before the row cap.
    let total = first.pagination.total;
    assert!(total < 5_000, "{total}");

    // Too far down the list for one request, but each continues where the previous one stopped.
    let mut attempts = 0;
    let answer = loop {
        hang_after(4);
        let answer = read(11_000).send().await;
        attempts += 1;
        if answer.status == 200 {
            break answer;
        }
        answer.error(503);
        assert!(attempts < 10, "the page map makes no progress");
    };
    assert_eq!(answer.data().len(), 200);
    assert!(attempts > 1, "the deadline was never reached");
}
