//! Failing and slow providers, plans, limits and ownership.

use std::time::Duration;

use bellbird_domain::Plan;
use bellbird_sandbox::{ConsentState, Fault};
use jiff::SignedDuration;

use super::{AccountSet, account_set, ask, ask_as, assert_plain, set_of};
use crate::support::harness::{App, Person, Response, Setup};
use crate::support::words::{assert_has, assert_lacks, assert_starts};

/// A user of a bank at each of two providers, Fiskil first.
async fn person_of_both(app: &App) -> Person {
    let fiskil = &app.credentials_of("fiskil")[4];
    let akahu = &app.credentials_of("akahu")[0];
    app.add_person("both@example.com", Plan::Professional, &[fiskil, akahu])
        .await
}

#[tokio::test]
async fn each_user_gets_what_is_theirs() {
    let app = App::start(Setup::default()).await;
    plan_without_access_has_to_pay(&app).await;
    window_that_ends_before_it_starts_is_noted(&app).await;
    accounts_of_other_users_are_unknown(&app).await;
    broker_shows_holdings_to_professionals_only(&app).await;
    let both = person_of_both(&app).await;
    accounts_of_two_providers_are_in_the_order_of_v1(&app, &both).await;
    removed_connection_is_gone_at_once(&app, &both).await;
    // Longer than what a provider has said of a consent is cached.
    app.advance_own_clock(SignedDuration::from_mins(2));
    consent_of_all_requested_accounts_is_no_set(&app).await;
}

async fn plan_without_access_has_to_pay(app: &App) {
    let saver = app.add_person("saver@example.com", Plan::Saver, &[]).await;
    let answer = ask_as(app, &saver.key, "").await;
    assert_plain(&answer, 402);
    assert_eq!(answer.header("bellbird-error"), Some("plan_required"));
    let empty = app
        .add_person("empty@example.com", Plan::Developer, &[])
        .await;
    assert_eq!(set_of(app, &empty, "").await, AccountSet::default());
}

#[tokio::test]
async fn requests_have_a_bucket_of_their_own() {
    let setup = Setup::with(|settings| {
        settings.interop.simplefin_per_minute = 2;
        settings.api_context.live_per_minute = 1;
    });
    let app = App::start(setup).await;
    for _ in 0..2 {
        let answer = ask(&app, "?balances-only=1").await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("2"));
    }
    assert_plain(&ask(&app, "").await, 429);
    let read = app.all_transactions(app.olivia.connections[0].id);
    assert_eq!(read.send().await.status, 200);

    // Actual takes no error for JSON.
    assert_plain(&ask_as(&app, &app.ben.key, "?version=3").await, 400);
    assert_plain(&ask_as(&app, &app.ben.key, "?start-date=today").await, 400);
    let limited = ask_as(&app, &app.ben.key, "").await;
    assert_plain(&limited, 429);
    assert_eq!(limited.header("retry-after"), Some("30"));
    assert_plain(&ask_as(&app, "wrong", "").await, 403);
}

#[tokio::test]
async fn nothing_to_show_is_an_error_and_not_an_empty_set() {
    let setup = Setup::with(|settings| {
        settings.reads.deadline = Duration::from_secs(10);
        settings.provider_timeout = Duration::from_secs(1);
    });
    let app = App::start(setup).await;
    for path in ["/v1/banking/balances", "/v1/banking/transactions"] {
        for fault in [Fault::status(500), Fault::delay_ms(60_000)] {
            app.fiskil().add_fault(fault.at(path));
            let answer = ask(&app, "").await;
            assert_plain(&answer, 503);
            let retry_after: u32 = answer.header("retry-after").unwrap().parse().unwrap();
            assert!(retry_after >= 1);
            app.clear_faults();
        }
    }
    assert!(!account_set(&app, "").await.accounts.is_empty());
}

/// Actual takes a set without the account as an account that is gone, and advises to unlink it.
async fn consent_of_all_requested_accounts_is_no_set(app: &App) {
    let connection = &app.olivia.connections[0];
    let account = &app.accounts_of(connection).await[0].id;
    for state in [ConsentState::Expired, ConsentState::Revoked] {
        app.set_consent(connection, state).await;
        let answer = ask(app, &format!("?account={account}&pending=1")).await;
        assert_plain(&answer, 503);
        assert_has(&answer.text, "the user must reconnect it");
        // Among others it is said in the set.
        let set = account_set(app, "").await;
        assert!(!set.accounts.is_empty(), "the other connection is shown");
        let said = format!(
            "Connection to {} may need attention",
            connection.institution_name
        );
        let mut errors = set.errlist.iter();
        assert!(errors.any(|error| error.msg.starts_with(&said)), "{set:?}");
    }
    app.set_consent(&app.ben.connections[0], ConsentState::Expired)
        .await;
    assert_plain(&ask_as(app, &app.ben.key, "").await, 503);
}

async fn window_that_ends_before_it_starts_is_noted(app: &App) {
    for query in [
        "?start-date=1795132800000",
        "?start-date=1795132800&end-date=1795046400",
    ] {
        let set = account_set(app, query).await;
        assert!(!set.accounts.is_empty());
        let noted = "start-date is after end-date, or not in seconds";
        assert_starts(&set.errlist[0].msg, noted);
    }
}

/// One provider hangs until the deadline. The accounts of the other are there, and the slow ones
/// are named.
#[tokio::test]
async fn slow_provider_delays_no_other() {
    let app = App::start(Setup::with(|settings| {
        // Enough for the other provider on a slow machine.
        settings.reads.deadline = Duration::from_secs(5);
    }))
    .await;
    let person = person_of_both(&app).await;
    let [at_fiskil, at_akahu] = [0, 1].map(|at| &person.connections[at]);
    let fast = app.accounts_of(at_fiskil).await.len();
    let slow = app.accounts_of(at_akahu).await.len();
    assert!(fast > 0 && slow > 0);
    // All calls, then those for rows only.
    for path in ["/", "/v1/accounts/"] {
        app.bank("akahu")
            .add_fault(Fault::delay_ms(60_000).at(path));
        let set = set_of(&app, &person, "").await;
        assert_eq!(set.accounts.len(), fast, "{path}");
        for account in &set.accounts {
            assert_eq!(account.conn_id, at_fiskil.id.to_string());
        }
        assert!(!set.rows().is_empty());
        assert_eq!(set.errlist.len(), slow, "{path}: {:?}", set.errlist);
        for error in set.errlist {
            assert_eq!(error.code, "act.failed");
            assert_eq!(error.conn_id, Some(at_akahu.id.to_string()));
        }
        app.clear_faults();
    }
}

/// Also if the first accounts come from the slower provider.
async fn accounts_of_two_providers_are_in_the_order_of_v1(app: &App, person: &Person) {
    let shown = app.all_accounts(person).await.into_iter();
    let ids: Vec<String> = shown.map(|account| account.id).collect();
    for slow in ["fiskil", "akahu"] {
        app.bank(slow).add_fault(Fault::delay_ms(300).at("/"));
        assert_eq!(set_of(app, person, "").await.ids(), ids, "{slow}");
        app.clear_faults();
    }
}

async fn accounts_of_other_users_are_unknown(app: &App) {
    let foreign = &app.accounts_of(&app.ben.connections[0]).await[0].id;
    let own = &app.accounts_of(&app.olivia.connections[0]).await[0].id;
    let unknown = "0191e7a0-7c3b-7def-8000-00aabbccddee";
    // Ben reads his own first.
    assert_eq!(set_of(app, &app.ben, "").await.errlist, []);
    app.reset_calls();
    let visible = |answer: &Response| (answer.status, answer.text.clone());
    for query in [
        "?account=ID",
        "?account=ID&balances-only=1",
        "?account=ID&start-date=0",
    ] {
        let of_foreign = ask(app, &query.replace("ID", foreign)).await;
        for other in [unknown, "no-id"] {
            let of_other = ask(app, &query.replace("ID", other)).await;
            assert_eq!(visible(&of_other), visible(&of_foreign), "{other}");
        }
        let set: AccountSet = of_foreign.read();
        assert_eq!(set.accounts, []);
        assert_eq!(set.errlist[0].code, "gen.api");
    }
    assert!(app.fiskil().calls().is_empty(), "no provider is called");
    let both = ask(app, &format!("?account={own}&account={foreign}")).await;
    assert_lacks(&both.text, foreign);
    let both: AccountSet = both.read();
    assert_eq!((both.accounts.len(), both.errlist.len()), (1, 1));
}

async fn removed_connection_is_gone_at_once(app: &App, person: &Person) {
    let connection = &person.connections[0];
    let account = &app.accounts_of(connection).await[0].id;
    let of_account = format!("?account={account}");
    assert_eq!(set_of(app, person, &of_account).await.ids(), [account]);
    app.remove(connection.id).await;
    let whole = ask_as(app, &person.key, "").await;
    assert_eq!(whole.status, 200);
    assert_lacks(&whole.text, &connection.id.to_string());
    assert_eq!(set_of(app, person, &of_account).await.accounts, []);
}

async fn broker_shows_holdings_to_professionals_only(app: &App) {
    let person = app.person_at("snaptrade").await;
    // One account, as Actual asks for it, takes no calls for its others.
    let accounts = app.accounts_of(&person.connections[0]).await;
    assert!(accounts.len() > 1);
    set_of(app, &person, &format!("?account={}", accounts[0].id)).await;
    let calls = app.bank("snaptrade").calls();
    let of_positions = calls.iter().filter(|(call, _)| call.contains("positions"));
    let positions: u64 = of_positions.map(|(_, count)| count).sum();
    assert_eq!(positions, 1, "{calls:?}");

    let holdings = |set: &AccountSet| {
        let accounts = set.accounts.iter();
        accounts
            .map(|account| account.holdings.len())
            .sum::<usize>()
    };
    assert!(holdings(&set_of(app, &person, "").await) > 0);
    let balances_only = set_of(app, &person, "?balances-only=1").await;
    assert_eq!(holdings(&balances_only), 0);
    app.set_plan(person.user.id, Plan::Developer).await;
    app.reset_calls();
    let set = set_of(app, &person, "").await;
    assert_eq!(holdings(&set), 0);
    for account in &set.accounts {
        assert_has(&account.balance, ".");
    }
}
