//! The API when a provider is slow, broken, unreachable or hostile.

use std::time::{Duration, Instant};

use bellbird_domain::ConnectionStatus;
use bellbird_sandbox::{ConsentState, Fault, FaultKind};
use bellbird_storage::{JobKey, job_kinds};
use jiff::SignedDuration;
use serde_json::Value;

use crate::support::harness::{App, Setup, assert_reconnect, eventually};
use crate::support::words::assert_has;

/// Short timeouts for providers that never respond.
fn short_timeouts() -> Setup {
    Setup::with(|settings| {
        settings.reads.deadline = Duration::from_secs(3);
        settings.provider_timeout = Duration::from_millis(700);
    })
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
async fn every_fault_is_a_bounded_503_then_recovers() {
    let app = App::start(short_timeouts()).await;
    let (account, _) = app.busiest().await;
    let paths = [
        (
            "/v1/banking/transactions",
            app.transactions(&account).path(),
        ),
        (
            "/v1/banking/balances",
            format!("/v1/balances?accountIds={}", account.id),
        ),
    ];
    let no_second_attempt = Fault::status(503).retry_after(30);
    for fault in faults().into_iter().chain([no_second_attempt]) {
        for (provider_path, path) in &paths {
            app.fiskil().add_fault(fault.clone().at(*provider_path));
            app.reset_calls();
            let started = Instant::now();
            let answer = app.get(path).await;
            let took = started.elapsed();
            assert_has(&answer.error(503), "temporarily unavailable");
            assert!(
                answer.header("retry-after").is_some_and(|seconds| seconds
                    .parse::<u64>()
                    .is_ok_and(|seconds| seconds >= 1))
            );
            assert!(answer.header("x-cache").is_none());
            assert!(took < Duration::from_secs(4), "{fault:?} took {took:?}");
            assert!(
                app.fiskil().calls()[*provider_path] <= 3,
                "{fault:?}: at most three attempts"
            );
            app.clear_faults();
            let next = app.get(path).await;
            assert_eq!(next.status, 200, "after {fault:?}: {}", next.text);
            assert_ne!(
                next.header("x-cache"),
                Some("HIT"),
                "no broken answer was cached"
            );
            // The cached response expires before the next fault.
            app.clock
                .set(app.clock.now() + SignedDuration::from_secs(301));
        }
    }
}

#[tokio::test]
async fn single_broken_answer_is_retried() {
    let app = App::start(short_timeouts()).await;
    let (account, _) = app.busiest().await;
    let path = app.transactions(&account).path();
    let fine = app.get(&path).await.data();
    for fault in faults() {
        let once = fault.clone().at("/v1/banking/transactions").times(1);
        app.fiskil().add_fault(once);
        assert_eq!(app.get(&path).await.data(), fine, "{fault:?}");
        app.clear_faults();
    }
}

#[tokio::test]
async fn token_failure_is_503_and_dead_token_is_renewed() {
    let app = App::start(short_timeouts()).await;
    let (account, _) = app.busiest().await;
    let path = app.transactions(&account).path();
    // The sandbox's clock is ahead: the token has expired there, which the service learns from a
    // 401.
    app.fiskil().advance_clock(SignedDuration::from_secs(1_000));
    app.reset_calls();
    assert_eq!(app.get(&path).await.status, 200);
    let calls = app.fiskil().calls();
    assert_eq!(
        (calls["/v1/token"], calls["/v1/banking/transactions"]),
        (1, 2)
    );
    app.reset_calls();
    assert_eq!(app.get(&path).await.status, 200);
    assert!(
        !app.fiskil().calls().contains_key("/v1/token"),
        "a token is used until it expires"
    );

    app.fiskil().advance_clock(SignedDuration::from_secs(1_000));
    app.fiskil().add_fault(Fault::status(500).at("/v1/token"));
    app.get(&path).await.error(503);
    app.clear_faults();
    assert_eq!(app.get(&path).await.status, 200);

    app.fiskil()
        .add_fault(Fault::status(401).at("/v1/banking/transactions"));
    app.reset_calls();
    app.get(&path).await.error(503);
    let calls = app.fiskil().calls();
    assert_eq!(
        (calls["/v1/token"], calls["/v1/banking/transactions"]),
        (1, 2),
        "one new token, one more attempt"
    );
}

#[tokio::test]
async fn lost_consent_is_503_and_triggers_a_refresh() {
    for (state, expected) in [
        (ConsentState::Revoked, ConnectionStatus::Revoked),
        (ConsentState::Expired, ConnectionStatus::Invalidated),
    ] {
        let app = App::start(short_timeouts()).await;
        let consent = app.credentials(2)["arrangementId"]
            .as_str()
            .unwrap()
            .to_owned();
        let connection = app.ben.connections[0].id;
        let path = format!("/v1/transactions?connectionId={connection}");
        assert_eq!(app.get_as(&app.ben.key, &path).await.status, 200);
        assert!(
            !app.fiskil().calls().contains_key("/v1/consent"),
            "a read does not check the consent first"
        );
        app.fiskil().set_consent(&consent, state).unwrap();

        let answer = app.get_as(&app.ben.key, &path).await;
        assert_reconnect(&answer, "invalidated");

        let stored = wait_for_status(&app, expected).await;
        assert_eq!(stored, expected);
        assert_reconnect(&app.get_as(&app.ben.key, &path).await, expected.as_str());
        let listed = app.get_as(&app.ben.key, "/v1/connections").await.data();
        assert_eq!(listed[0]["status"], expected.as_str());
        let audit = app.audit_of(connection).await;
        assert_eq!(audit.last().map(|row| row.to), Some(Some(expected)));

        app.fiskil()
            .set_consent(&consent, ConsentState::Active)
            .unwrap();
        app.advance_clock(SignedDuration::from_mins(1));
        assert_eq!(
            app.get_as(&app.ben.key, &path).await.status,
            200,
            "a read succeeds while the provider responds"
        );
    }
}

#[tokio::test]
async fn lost_consent_of_a_pending_connection_says_so() {
    let app = App::start(short_timeouts()).await;
    let (user, connection, now) = (app.ben.user.id, &app.ben.connections[0], app.clock.now());
    let (from, to) = (ConnectionStatus::Active, ConnectionStatus::PendingMfa);
    let key = JobKey::new(job_kinds::REFRESH, user, connection.id);
    let claim = app
        .storage
        .jobs()
        .claim(&key, now, now)
        .await
        .unwrap()
        .expect("claimed");
    assert!(
        app.storage
            .refreshes()
            .set_status(&claim, from, to, "refreshed", now, now)
            .await
            .unwrap()
    );
    app.set_consent(connection, ConsentState::Revoked).await;
    let path = format!("/v1/transactions?connectionId={}", connection.id);
    assert_reconnect(&app.get_as(&app.ben.key, &path).await, "pending_mfa");
    // Balances have nulls instead.
    let account = &app.accounts_of(connection).await[0].id;
    let balances = app
        .get_as(&app.ben.key, &format!("/v1/balances?accountIds={account}"))
        .await
        .data();
    assert_eq!(balances[0]["currentBalance"], Value::Null);
}

/// Runs the refresh that a read requested, once it has, and returns the status.
async fn wait_for_status(app: &App, expected: ConnectionStatus) -> ConnectionStatus {
    eventually(async || {
        app.connections.jobs().run_due("refresh").await.unwrap();
        app.connections_of(app.ben.user.id).await[0].status == expected
    })
    .await;
    expected
}

/// A client that does not heed a lost consent costs the provider two calls a minute, whatever it
/// reads.
#[tokio::test]
async fn repeated_reads_of_a_revoked_connection_cost_little() {
    let app = App::start(short_timeouts()).await;
    let (user, connection) = (app.ben.user.id, app.ben.connections[0].clone());
    let account = app.accounts_of(&connection).await.remove(0).id;
    app.set_consent(&connection, ConsentState::Revoked).await;
    let paths = [
        format!("/v1/transactions?connectionId={}", connection.id),
        format!("/v1/balances?accountIds={account}"),
        "/v1/export/transactions.csv".to_owned(),
    ];
    app.get_as(&app.ben.key, &paths[0]).await.error(503);
    wait_for_status(&app, ConnectionStatus::Revoked).await;
    // With the new status, the first of these asks once more.
    app.get_as(&app.ben.key, &paths[0]).await.error(503);
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
    assert_eq!(
        app.fiskil().total_calls(),
        0,
        "these reads have requested no refresh"
    );
    assert_reconnect(&app.get_as(&app.ben.key, &paths[0]).await, "revoked");

    app.advance_clock(SignedDuration::from_mins(1));
    app.get_as(&app.ben.key, &paths[0]).await.error(503);
    assert!(
        app.fiskil().total_calls() > 0,
        "after a minute the provider is asked again"
    );
    assert_eq!(
        app.connections_of(user).await[0].status,
        ConnectionStatus::Revoked
    );
}

#[tokio::test]
async fn empty_account_is_not_lost_consent() {
    let app = App::start(short_timeouts()).await;
    let connection = app.ben.connections[0].id;
    let path = format!("/v1/transactions?connectionId={connection}&from=1990-01-01&to=1990-12-31");
    for _ in 0..3 {
        assert!(app.get_as(&app.ben.key, &path).await.data().is_empty());
    }
    assert_eq!(
        app.fiskil().calls()["/v1/consent"],
        1,
        "checked once, and cached for a minute"
    );
}

#[tokio::test]
async fn slow_provider_is_cut_off_at_the_deadline() {
    let setup = Setup::with(|settings| {
        settings.reads.deadline = Duration::from_secs(2);
        settings.provider_timeout = Duration::from_secs(2);
    });
    let app = App::start(Setup {
        rows: 12_000,
        ..setup
    })
    .await;
    let (account, _) = app.busiest().await;
    let read = |offset: usize| app.transactions(&account).from("2000-01-01").offset(offset);
    app.fiskil()
        .add_fault(Fault::delay_ms(450).at("/v1/banking/transactions"));
    let started = Instant::now();
    let first = read(0).send().await;
    assert_eq!(first.data().len(), 200);
    assert_eq!(
        first.header("x-service-truncated"),
        Some("true"),
        "counting stopped at the deadline"
    );
    assert!(started.elapsed() < Duration::from_secs(3));

    // Too far down the list for one request, but each continues where the previous one stopped.
    let mut attempts = 0;
    let answer = loop {
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
