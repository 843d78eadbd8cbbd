//! Failing and slow providers, plans, limits and ownership.

use bellbird_storage::in_tx;
use std::time::Duration;

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault};

use super::{account_set, ask, ask_as, assert_plain, list, set_of, text};
use crate::support::harness::{App, Response, Setup};
use crate::support::words::{assert_has, assert_starts};

#[tokio::test]
async fn plan_without_access_has_to_pay() {
    let app = App::start(Setup::default()).await;
    let saver = app.add_person("saver@example.com", Plan::Saver, &[]).await;
    let answer = ask_as(&app, &saver.key, "").await;
    assert_plain(&answer, 402);
    assert_eq!(answer.header("bellbird-error"), Some("plan_required"));
    let empty = app
        .add_person("empty@example.com", Plan::Developer, &[])
        .await;
    let set = set_of(&app, &empty, "").await;
    assert!(
        ["accounts", "connections", "errors", "errlist"]
            .iter()
            .all(|name| list(&set, name).is_empty())
    );
}

#[tokio::test]
async fn requests_have_a_bucket_of_their_own() {
    let mut setup = Setup::default();
    (
        setup.settings.interop.simplefin_per_minute,
        setup.settings.api_context.live_per_minute,
    ) = (2, 1);
    let app = App::start(setup).await;
    for _ in 0..2 {
        let answer = ask(&app, "?balances-only=1").await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("x-ratelimit-limit")),
            (200, Some("2"))
        );
    }
    assert_plain(&ask(&app, "").await, 429);
    assert_eq!(
        app.get(&format!(
            "/v1/transactions?connectionId={}",
            app.olivia.connections[0].id
        ))
        .await
        .status,
        200
    );
}

#[tokio::test]
async fn nothing_to_show_is_an_error_and_not_an_empty_set() {
    let setup = Setup::with(|settings| {
        settings.reads.deadline = Duration::from_secs(4);
        settings.provider_timeout = Duration::from_millis(700);
    });
    let app = App::start(setup).await;
    for path in ["/v1/banking/balances", "/v1/banking/transactions"] {
        for fault in [Fault::status(500), Fault::delay_ms(60_000)] {
            app.fiskil().add_fault(fault.at(path));
            let answer = ask(&app, "").await;
            assert_plain(&answer, 503);
            assert!(
                answer
                    .header("retry-after")
                    .is_some_and(|seconds| seconds.parse::<u32>().is_ok_and(|s| s >= 1))
            );
            app.clear_faults();
        }
    }
    assert!(!list(&account_set(&app, "").await, "accounts").is_empty());
}

#[tokio::test]
async fn consent_that_is_gone_is_said_in_the_set() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    app.set_consent(connection, ConsentState::Expired).await;
    let set = account_set(&app, "").await;
    assert!(
        !list(&set, "accounts").is_empty(),
        "the other connection is shown"
    );
    let said = format!(
        "Connection to {} may need attention",
        connection.institution_name
    );
    assert!(
        list(&set, "errlist")
            .iter()
            .any(|entry| text(entry, "msg").starts_with(&said)),
        "{set}"
    );
}

/// Actual takes a set without the account as an account that is gone, and advises to unlink it.
#[tokio::test]
async fn consent_of_all_requested_accounts_is_no_set() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let account = app.accounts_of(connection).await[0].id.clone();
    for state in [ConsentState::Expired, ConsentState::Revoked] {
        app.set_consent(connection, state).await;
        let answer = ask(&app, &format!("?account={account}&pending=1")).await;
        assert_plain(&answer, 503);
        assert_has(&answer.text, "the user must reconnect it");
    }
    app.set_consent(&app.ben.connections[0], ConsentState::Expired)
        .await;
    assert_plain(&ask_as(&app, &app.ben.key, "").await, 503);
}

#[tokio::test]
async fn window_that_ends_before_it_starts_is_noted() {
    let app = App::start(Setup::default()).await;
    for query in [
        "?start-date=1795132800000",
        "?start-date=1795132800&end-date=1795046400",
    ] {
        let set = account_set(&app, query).await;
        assert!(!list(&set, "accounts").is_empty());
        let first = text(&list(&set, "errlist")[0], "msg");
        assert_starts(first, "start-date is after end-date, or not in seconds");
    }
}

/// One provider hangs until the deadline. The accounts of the other are there, and the slow ones
/// are named.
#[tokio::test]
async fn slow_provider_delays_no_other() {
    let app = App::start(Setup::with(|settings| {
        settings.reads.deadline = Duration::from_secs(2);
    }))
    .await;
    let (fiskil, akahu) = (
        app.credentials_of("fiskil")[4].clone(),
        app.credentials_of("akahu")[0].clone(),
    );
    let person = app
        .add_person("both@example.com", Plan::Professional, &[&fiskil, &akahu])
        .await;
    let [at_fiskil, at_akahu] = [&person.connections[0], &person.connections[1]];
    let (fast, slow) = (
        app.accounts_of(at_fiskil).await.len(),
        app.accounts_of(at_akahu).await.len(),
    );
    assert!(fast > 0 && slow > 0);
    // All calls, then those for rows only.
    for path in ["/", "/v1/accounts/"] {
        app.bank("akahu")
            .add_fault(Fault::delay_ms(60_000).at(path));
        let set = set_of(&app, &person, "").await;
        assert_eq!(list(&set, "accounts").len(), fast, "{path}");
        assert!(
            list(&set, "accounts")
                .iter()
                .all(|account| account["conn_id"] == at_fiskil.id.to_string())
        );
        assert!(
            list(&set, "accounts")
                .iter()
                .any(|account| !list(account, "transactions").is_empty())
        );
        let failed = list(&set, "errlist");
        assert_eq!(failed.len(), slow, "{path}: {failed:?}");
        assert!(
            failed.iter().all(|entry| entry["code"] == "act.failed"
                && entry["conn_id"] == at_akahu.id.to_string())
        );
        app.clear_faults();
    }
}

/// Also if the first accounts come from the slower provider.
#[tokio::test]
async fn accounts_of_two_providers_are_in_the_order_of_v1() {
    let app = App::start(Setup::default()).await;
    let (fiskil, akahu) = (
        app.credentials_of("fiskil")[4].clone(),
        app.credentials_of("akahu")[0].clone(),
    );
    let person = app
        .add_person("both@example.com", Plan::Professional, &[&fiskil, &akahu])
        .await;
    let shown = app
        .get_as(&person.key, "/v1/accounts?limit=200")
        .await
        .data();
    let ids: Vec<&str> = shown.iter().map(|account| text(account, "id")).collect();
    for slow in ["fiskil", "akahu"] {
        app.bank(slow).add_fault(Fault::delay_ms(300).at("/"));
        let set = set_of(&app, &person, "").await;
        assert_eq!(
            list(&set, "accounts")
                .iter()
                .map(|account| text(account, "id"))
                .collect::<Vec<_>>(),
            ids,
            "{slow}"
        );
        app.clear_faults();
    }
}

#[tokio::test]
async fn accounts_of_other_users_are_unknown() {
    let app = App::start(Setup::default()).await;
    let foreign = app.accounts_of(&app.ben.connections[0]).await[0].id.clone();
    let own = app.accounts_of(&app.olivia.connections[0]).await[0]
        .id
        .clone();
    let unknown = "0191e7a0-7c3b-7def-8000-00aabbccddee";
    // Ben reads his own first.
    assert_eq!(list(&set_of(&app, &app.ben, "").await, "errlist").len(), 0);
    app.reset_calls();
    let visible = |answer: &Response| (answer.status, answer.text.clone());
    for query in [
        "?account=ID",
        "?account=ID&balances-only=1",
        "?account=ID&start-date=0",
    ] {
        let foreign = ask(&app, &query.replace("ID", &foreign)).await;
        assert_eq!(
            visible(&foreign),
            visible(&ask(&app, &query.replace("ID", unknown)).await)
        );
        assert_eq!(
            visible(&foreign),
            visible(&ask(&app, &query.replace("ID", "no-id")).await)
        );
        assert!(list(&foreign.json(), "accounts").is_empty());
        assert_eq!(foreign.json()["errlist"][0]["code"], "gen.api");
    }
    assert!(app.fiskil().calls().is_empty(), "no provider is called");
    let both = account_set(&app, &format!("?account={own}&account={foreign}")).await;
    assert_eq!(
        (list(&both, "accounts").len(), list(&both, "errlist").len()),
        (1, 1)
    );
    assert!(!both.to_string().contains(&foreign));
}

#[tokio::test]
async fn removed_connection_is_gone_at_once() {
    let app = App::start(Setup::default()).await;
    let connection = app.olivia.connections[0].clone();
    let account = app.accounts_of(&connection).await[0].id.clone();
    assert_eq!(
        list(
            &account_set(&app, &format!("?account={account}")).await,
            "accounts"
        )
        .len(),
        1
    );
    app.remove(connection.id).await;
    let set = account_set(&app, "").await;
    assert!(!set.to_string().contains(&connection.id.to_string()));
    assert!(
        list(
            &account_set(&app, &format!("?account={account}")).await,
            "accounts"
        )
        .is_empty()
    );
}

/// Actual asks for one account at a time.
#[tokio::test]
async fn one_account_of_a_broker_takes_no_calls_for_its_others() {
    let app = App::start(Setup::default()).await;
    let broker = app.person_at("snaptrade").await;
    let accounts = app.accounts_of(&broker.connections[0]).await;
    assert!(accounts.len() > 1);
    set_of(&app, &broker, &format!("?account={}", accounts[0].id)).await;
    let calls = app.bank("snaptrade").calls();
    let positions: u64 = calls
        .iter()
        .filter(|(call, _)| call.contains("positions"))
        .map(|(_, count)| count)
        .sum();
    assert_eq!(positions, 1, "{calls:?}");
}

#[tokio::test]
async fn broker_shows_holdings_to_professionals_only() {
    let app = App::start(Setup::default()).await;
    let person = app.person_at("snaptrade").await;
    let holdings = |set: &serde_json::Value| {
        list(set, "accounts")
            .iter()
            .map(|account| list(account, "holdings").len())
            .sum::<usize>()
    };
    assert!(holdings(&set_of(&app, &person, "").await) > 0);
    assert_eq!(
        holdings(&set_of(&app, &person, "?balances-only=1").await),
        0
    );
    let change = bellbird_storage::UserChange {
        plan: Some(Plan::Developer),
        ..Default::default()
    };
    in_tx!(app.storage, user::update(person.user.id, &change))
        .await
        .unwrap();
    app.reset_calls();
    let set = set_of(&app, &person, "").await;
    assert_eq!(holdings(&set), 0);
    assert!(
        list(&set, "accounts")
            .iter()
            .all(|account| text(account, "balance").contains('.'))
    );
}
