//! Errors of requests for changes: each with its word in the header and in the body.

use std::collections::BTreeMap;

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault, FaultKind};
use serde_json::json;

use super::{HOUR, STALE, setup};
use crate::support::follower::{Follower, added, changed};
use crate::support::harness::{App, Person, Response, simulated_providers};
use crate::support::process::text;

/// Asserts that this is an error with this status and word. Returns its details.
#[track_caller]
pub(super) fn assert_problem(answer: &Response, status: u16, code: &str) -> Vec<String> {
    assert_eq!(answer.status, status, "{}", answer.text);
    let in_header = answer.header("bellbird-error");
    assert_eq!(in_header, Some(code), "{}", answer.text);
    let error = answer.json()["error"].clone();
    assert_eq!(error["code"], code);
    assert_ne!(text(&error, "message"), "");
    let details = error.get("details").cloned().unwrap_or(json!([]));
    serde_json::from_value(details).unwrap()
}

#[tokio::test]
async fn errors_name_what_is_wrong_and_rows_stay() {
    let app = App::start(setup()).await;
    let mut people = BTreeMap::new();
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        unavailable_provider_is_a_503_with_a_time(&app, &person).await;
        ended_consent_is_named(&app, &person).await;
        people.insert(provider, person);
    }
    unreadable_row_removes_nothing(&app, &people["fiskil"]).await;
    category_and_plan_are_checked(&app, &people).await;
}

async fn ended_consent_is_named(app: &App, person: &Person) {
    let connection = &person.connections[0];
    let provider = connection.provider.as_str();
    let mut copy = Follower::copied(app, person, connection).await;
    let unsynced = Follower::new(app, person, connection);
    for (state, status) in [
        (ConsentState::Expired, "invalidated"),
        (ConsentState::Revoked, "revoked"),
    ] {
        app.set_consent(connection, state).await;
        app.advance_clock(STALE);
        for follower in [&copy, &unsynced] {
            let answer = follower.ask(app).await;
            let details = assert_problem(&answer, 503, "reconnect_required");
            let expected = [
                format!("status: {status}"),
                format!("connectionId: {}", connection.id),
            ];
            assert_eq!(details, expected, "{provider}");
            // A retry cannot succeed.
            assert_eq!(answer.header("retry-after"), None, "{provider}");
        }
    }
    app.set_consent(connection, ConsentState::Active).await;
    app.add_recent_row(connection, "AFTERWARDS").await;
    // A refused consent is looked at again only now and then.
    app.sync(connection).await;
    app.advance_clock(HOUR);
    copy.assert_finds(app, &[added("AFTERWARDS")], provider)
        .await;
    copy.assert_equal(app, provider).await;
}

async fn unavailable_provider_is_a_503_with_a_time(app: &App, person: &Person) {
    let connection = &person.connections[0];
    let provider = connection.provider.as_str();
    let mut copy = Follower::new(app, person, connection);
    let expected = [format!("connectionId: {}", connection.id)];
    for fault in [
        Fault::status(503).retry_after(30),
        Fault::new(FaultKind::Reset),
    ] {
        app.bank(provider).add_fault(fault.clone());
        let answer = copy.ask(app).await;
        let details = assert_problem(&answer, 503, "provider_unavailable");
        assert_eq!(details, expected, "{provider}: {fault:?}");
        let retry_after = answer.header("retry-after").expect("a time");
        let seconds: u64 = retry_after.parse().unwrap();
        assert!(seconds >= 1, "{provider}: {fault:?}");
        app.clear_faults();
        app.advance_clock(STALE);
    }
    copy.follow(app).await;
    // The sync succeeds, and the read of the new rows fails.
    app.add_recent_row(connection, "NEWS").await;
    app.advance_clock(STALE);
    app.sync(connection).await;
    app.bank(provider)
        .add_fault(Fault::status(503).at("/").retry_after(30));
    let answer = copy.ask(app).await;
    let details = assert_problem(&answer, 503, "provider_unavailable");
    assert_eq!(details, expected, "{provider}");
    assert!(answer.header("retry-after").is_some());
    app.clear_faults();
    app.advance_clock(STALE);
    copy.assert_finds(app, &[added("NEWS")], provider).await;
}

async fn category_and_plan_are_checked(app: &App, people: &BTreeMap<&str, Person>) {
    let [bank, broker, removed] = ["akahu", "snaptrade", "fiskil"].map(|name| &people[name]);
    let developer = app
        .add_person("dev@example.com", Plan::Developer, &[])
        .await;
    let [at_broker, at_bank] =
        [broker, bank].map(|person| format!("changes?connectionId={}", person.connections[0].id));
    let invalid = (400, "invalid_parameters");
    let (no_plan, unknown) = ((403, "professional_required"), (404, "not_found"));
    for (person, path, (status, code)) in [
        (broker, format!("transactions/{at_broker}"), invalid),
        (bank, format!("trades/{at_bank}"), invalid),
        (&developer, format!("trades/{at_broker}"), no_plan),
        (&developer, format!("transactions/{at_bank}"), unknown),
        (bank, "transactions/changes".to_owned(), invalid),
    ] {
        let answer = app.get_as(&person.key, &format!("/v1/{path}")).await;
        assert_problem(&answer, status, code);
    }
    let without_key = app.get_without_key("/v1/transactions/changes").await;
    assert_problem(&without_key, 401, "invalid_key");
    let get = async |more: &str| {
        let path = format!("/v1/transactions/{at_bank}&{more}");
        app.get_as(&bank.key, &path).await
    };
    for bad in [
        "limit=x",
        "limit=0",
        "from=x",
        "from=2026-13-01",
        "accountId=x",
        "offset=1",
        "cursor=a&cursor=b",
    ] {
        let answer = get(bad).await;
        let code = answer.header("bellbird-error").unwrap_or_default();
        // An account that nobody has is not found.
        let expected: &[(u16, &str)] = match bad {
            "accountId=x" => &[(400, "invalid_parameters"), (404, "not_found")],
            _ => &[(400, "invalid_parameters")],
        };
        let is_expected = expected.contains(&(answer.status.as_u16(), code));
        assert!(is_expected, "{bad}: {}", answer.text);
    }
    assert_eq!(get("limit=100000").await.status, 200);
    let copy = Follower::new(app, removed, &removed.connections[0]);
    app.remove(removed.connections[0].id).await;
    assert_problem(&copy.ask(app).await, 404, "not_found");
}

/// A row that cannot be read is left out, and no other row counts as gone meanwhile.
async fn unreadable_row_removes_nothing(app: &App, person: &Person) {
    let connection = &person.connections[0];
    let mut copy = Follower::new(app, person, connection);
    let id = app.add_recent_row(connection, "BECOMES UNREADABLE").await;
    copy.follow(app).await;
    let keys = copy.keys();
    app.change_row(connection, &id, json!({"amount": "not a number"}));
    for _ in 0..4 {
        app.advance_clock(13 * HOUR);
        copy.assert_finds(app, &[], "no news").await;
    }
    assert_eq!(copy.keys(), keys);
    app.set_amount(connection, &id, 123);
    app.advance_clock(STALE);
    let expected = [changed("BECOMES UNREADABLE")];
    copy.assert_finds(app, &expected, "readable").await;
    copy.assert_equal(app, "readable").await;
}
