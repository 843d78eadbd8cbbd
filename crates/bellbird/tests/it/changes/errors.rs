//! Errors of requests for changes: each with its word in the header and in the body.

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault, FaultKind};
use serde_json::{Value, json};

use super::{HOUR, STALE, setup};
use crate::support::follower::{Follower, changes};
use crate::support::harness::{App, Response, simulated_providers};
use crate::support::provider_spec::spec;

/// Asserts that this is an error with this status and word. Returns its details.
#[track_caller]
pub(super) fn assert_problem(answer: &Response, status: u16, code: &str) -> Vec<String> {
    assert_eq!(answer.status, status, "{}", answer.text);
    assert_eq!(
        answer.header("bellbird-error"),
        Some(code),
        "{}",
        answer.text
    );
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], code);
    assert!(
        error["message"]
            .as_str()
            .is_some_and(|message| !message.is_empty())
    );
    let details = error["details"].as_array().cloned().unwrap_or_default();
    details
        .iter()
        .map(|detail| detail.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn ended_consent_is_named() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::new(&app, &person, connection);
        copy.follow(&app).await;
        let unsynced = Follower::new(&app, &person, connection);
        for (state, status) in [
            (ConsentState::Expired, "invalidated"),
            (ConsentState::Revoked, "revoked"),
        ] {
            app.set_consent(connection, state).await;
            app.advance_clock(STALE);
            for follower in [&copy, &unsynced] {
                let answer = follower.ask(&app).await;
                let details = assert_problem(&answer, 503, "reconnect_required");
                let expected = [
                    format!("status: {status}"),
                    format!("connectionId: {}", connection.id),
                ];
                assert_eq!(details, expected, "{provider}");
                assert_eq!(
                    answer.header("retry-after"),
                    None,
                    "{provider}: a retry cannot succeed"
                );
            }
        }
        app.set_consent(connection, ConsentState::Active).await;
        app.add_recent_row(connection, "AFTERWARDS").await;
        // A refused consent is looked at again only now and then.
        app.sync(connection).await;
        app.advance_clock(HOUR);
        assert_eq!(
            changes(&copy.follow(&app).await),
            [("upsert", Some(true), "AFTERWARDS")],
            "{provider}"
        );
        copy.assert_equal(&app, provider).await;
    }
}

#[tokio::test]
async fn unavailable_provider_is_a_503_with_a_time() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::new(&app, &person, connection);
        let expected = [format!("connectionId: {}", connection.id)];
        for fault in [
            Fault::status(503).retry_after(30),
            Fault::new(FaultKind::Reset),
        ] {
            app.bank(provider).add_fault(fault.clone());
            let answer = copy.ask(&app).await;
            let details = assert_problem(&answer, 503, "provider_unavailable");
            assert_eq!(details, expected, "{provider}: {fault:?}");
            let seconds: u64 = answer
                .header("retry-after")
                .expect("a time")
                .parse()
                .unwrap();
            assert!(seconds >= 1, "{provider}: {fault:?}");
            app.clear_faults();
            app.advance_clock(STALE);
        }
        copy.follow(&app).await;
        // The sync succeeds, and the read of the new rows fails.
        app.add_recent_row(connection, "NEWS").await;
        app.advance_clock(STALE);
        app.sync(connection).await;
        app.bank(provider)
            .add_fault(Fault::status(503).at("/").retry_after(30));
        let answer = copy.ask(&app).await;
        assert_eq!(
            assert_problem(&answer, 503, "provider_unavailable"),
            expected,
            "{provider}"
        );
        assert!(answer.header("retry-after").is_some());
        app.clear_faults();
        app.advance_clock(STALE);
        assert_eq!(
            changes(&copy.follow(&app).await),
            [("upsert", Some(true), "NEWS")],
            "{provider}"
        );
    }
}

#[tokio::test]
async fn category_and_plan_are_checked() {
    let app = App::start(setup()).await;
    let broker = app.person_at("snaptrade").await;
    let bank = app.person_at("akahu").await;
    let developer = app
        .add_person("dev@example.com", Plan::Developer, &[])
        .await;
    let get = async |key: &str, path: String| app.get_as(key, &path).await;
    let (at_broker, at_bank) = (broker.connections[0].id, bank.connections[0].id);
    let wrong = get(
        &broker.key,
        format!("/v1/transactions/changes?connectionId={at_broker}"),
    )
    .await;
    assert_problem(&wrong, 400, "invalid_parameters");
    let wrong = get(
        &bank.key,
        format!("/v1/trades/changes?connectionId={at_bank}"),
    )
    .await;
    assert_problem(&wrong, 400, "invalid_parameters");
    let plan = get(
        &developer.key,
        format!("/v1/trades/changes?connectionId={at_broker}"),
    )
    .await;
    assert_problem(&plan, 403, "professional_required");
    let foreign = get(
        &developer.key,
        format!("/v1/transactions/changes?connectionId={at_bank}"),
    )
    .await;
    assert_problem(&foreign, 404, "not_found");
    assert_problem(
        &app.get_without_key("/v1/transactions/changes").await,
        401,
        "invalid_key",
    );
    assert_problem(
        &get(&bank.key, "/v1/transactions/changes".to_owned()).await,
        400,
        "invalid_parameters",
    );
    for bad in [
        "limit=x",
        "limit=0",
        "from=x",
        "from=2026-13-01",
        "accountId=x",
        "offset=1",
        "cursor=a&cursor=b",
    ] {
        let answer = get(
            &bank.key,
            format!("/v1/transactions/changes?connectionId={at_bank}&{bad}"),
        )
        .await;
        let code = answer
            .header("bellbird-error")
            .unwrap_or_default()
            .to_owned();
        // An account that nobody has is not found.
        let expected: &[(u16, &str)] = match bad {
            "accountId=x" => &[(400, "invalid_parameters"), (404, "not_found")],
            _ => &[(400, "invalid_parameters")],
        };
        assert!(
            expected.contains(&(answer.status.as_u16(), &code)),
            "{bad}: {}",
            answer.text
        );
    }
    let clamped = get(
        &bank.key,
        format!("/v1/transactions/changes?connectionId={at_bank}&limit=100000"),
    )
    .await;
    assert_eq!(clamped.status, 200);
    let removed = app.person_at("fiskil").await;
    let copy = Follower::new(&app, &removed, &removed.connections[0]);
    app.remove(removed.connections[0].id).await;
    assert_problem(&copy.ask(&app).await, 404, "not_found");
}

/// A row that cannot be read is left out, and no other row counts as gone meanwhile.
#[tokio::test]
async fn unreadable_row_removes_nothing() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::new(&app, &person, connection);
    let id = app.add_recent_row(connection, "BECOMES UNREADABLE").await;
    copy.follow(&app).await;
    let keys = copy.keys();
    app.change_row(connection, &id, json!({"amount": "not a number"}));
    for _ in 0..4 {
        app.advance_clock(13 * HOUR);
        assert_eq!(copy.follow(&app).await, Vec::<Value>::new());
    }
    assert_eq!(copy.keys(), keys);
    let set = (spec("fiskil").set_amount)(123);
    app.change_row(connection, &id, set.members);
    app.advance_clock(STALE);
    assert_eq!(
        changes(&copy.follow(&app).await),
        [("upsert", Some(false), "BECOMES UNREADABLE")]
    );
    copy.assert_equal(&app, "readable").await;
}
