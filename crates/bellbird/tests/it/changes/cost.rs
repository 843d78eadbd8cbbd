//! What requests for changes cost: provider calls, and which rate limit they count towards.

use bellbird_connections::ProviderSyncs;
use bellbird_domain::Plan;
use bellbird_sandbox::Fault;
use bellbird_storage::{JobKey, job_kinds};

use super::{HOUR, STALE, setup};
use crate::support::follower::{Follower, added};
use crate::support::harness::{
    App, Person, Response, also_on_postgres, eventually, simulated_providers,
};

/// More than a page of each provider.
const MANY: u32 = 1_500;

fn remaining(answer: &Response) -> u32 {
    let remaining = answer.header("x-ratelimit-remaining");
    remaining.expect("a limit").parse().unwrap()
}

fn limit(answer: &Response) -> u32 {
    let limit = answer.header("x-ratelimit-limit");
    limit.expect("a limit").parse().unwrap()
}

impl App {
    /// A person whose first connection has many rows, of the last 300 days.
    async fn person_with_many_rows(&self, provider: &str) -> Person {
        if provider == "fiskil" {
            let (user, key) = (self.olivia.user.clone(), self.olivia.key.clone());
            let connections = self.olivia.connections.clone();
            return Person {
                user,
                key,
                connections,
            };
        }
        let email = format!("many.{provider}@example.com");
        let credentials = self.spare_credentials(provider);
        let person = self
            .add_person(&email, Plan::Professional, &[&credentials])
            .await;
        let account = self.account_at(&person.connections[0]).await;
        self.bank(provider).fill(&account, MANY).unwrap();
        person
    }
}

#[tokio::test]
async fn poll_without_news_calls_no_provider() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::copied(&app, &person, connection).await;
        app.reset_calls();
        for _ in 0..5 {
            copy.assert_finds(&app, &[], "no news").await;
            app.advance_own_clock(STALE / 10);
        }
        assert_eq!(app.bank(provider).total_calls(), 0, "{provider}");
        // A sync of the background job serves as well.
        app.advance_clock(HOUR);
        app.sync(connection).await;
        app.reset_calls();
        copy.assert_finds(&app, &[], "no news").await;
        let calls = app.bank(provider).total_calls();
        assert_eq!(calls, 0, "{provider}: after a sync");
    }
}

#[tokio::test]
async fn poll_without_news_counts_as_metadata() {
    let mut setup = setup();
    let limits = &mut setup.settings.api_context;
    (limits.metadata_per_minute, limits.live_per_minute) = (40, 10);
    let app = App::start(setup).await;
    for provider in ["fiskil", "snaptrade"] {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::new(&app, &person, connection);
        let live_left = async || {
            let read = app.rows_of(connection).by(&person).limit(1);
            remaining(&read.send().await)
        };
        // Each of these is a live request, too.
        assert_eq!(live_left().await, 9, "{provider}");
        let first = copy.ask(&app).await;
        copy.apply(200, &first.json());
        // The first copy syncs and reads, and is one request.
        assert_eq!(live_left().await, 7, "{provider}");
        let before = remaining(&copy.ask(&app).await);
        for polls in 1..=5 {
            let answer = copy.ask(&app).await;
            assert!(answer.data().is_empty(), "{provider}");
            assert_eq!(remaining(&answer), before - polls, "{provider}");
            assert_eq!(limit(&answer), limit(&first), "{provider}");
        }
        // Polls are no live requests, and do not have their limit.
        assert_eq!(live_left().await, 6, "{provider}");
        assert_ne!(limit(&first), 10, "{provider}");
    }
}

#[tokio::test]
async fn without_live_requests_left_polls_go_on() {
    let mut setup = setup();
    let limits = &mut setup.settings.api_context;
    (limits.metadata_per_minute, limits.live_per_minute) = (60, 1);
    let app = App::start(setup).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::copied(&app, &person, connection).await;
    for _ in 0..3 {
        copy.assert_finds(&app, &[], "no news").await;
    }
    // With news, it is a live request.
    app.add_recent_row(connection, "NEWS").await;
    app.sync(connection).await;
    let answer = copy.ask(&app).await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert_eq!(answer.json()["error"]["code"], "rate_limited");
    // The limit is that of the live requests.
    assert_eq!((limit(&answer), remaining(&answer)), (1, 0));
    let wait = answer.header("retry-after");
    assert!(wait.is_some());
    assert_eq!(answer.header("x-ratelimit-reset"), wait);
    app.advance_clock(STALE);
    copy.assert_finds(&app, &[added("NEWS")], "news").await;
}

#[tokio::test]
async fn one_new_row_costs_one_window() {
    let mut setup = setup();
    setup.rows = MANY;
    let app = App::start(setup).await;
    for provider in simulated_providers() {
        let person = app.person_with_many_rows(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::copied(&app, &person, connection).await;
        app.add_recent_row(connection, "ONE AMONG MANY").await;
        app.advance_clock(STALE);
        app.reset_calls();
        app.sync(connection).await;
        let sync = app.row_calls(provider);
        app.reset_calls();
        let window = app.rows_of(connection).by(&person).limit(500);
        assert_eq!(window.send().await.status, 200);
        let window = app.row_calls(provider);
        app.reset_calls();
        copy.assert_finds(&app, &[added("ONE AMONG MANY")], provider)
            .await;
        let calls = app.bank(provider).calls();
        let news = app.row_calls(provider);
        let is_cheap = news >= 1 && news <= window;
        assert!(is_cheap, "{provider}: {calls:?}, but {window} for a window");
        assert!(
            sync <= window,
            "{provider}: {sync}, but {window} for a window"
        );
    }
}

/// Requests at the same time share the sync.
#[tokio::test]
async fn requests_at_once_and_at_two_instances_sync_once() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::copied(&app, &person, connection).await;
    app.advance_clock(STALE);
    app.reset_calls();
    let asked = futures_util::future::join_all((0..6).map(|_| copy.ask(&app))).await;
    assert!(asked.iter().all(|answer| answer.data().is_empty()));
    let together = app.transaction_calls();
    app.advance_clock(STALE);
    app.reset_calls();
    copy.follow(&app).await;
    assert_eq!(together, app.transaction_calls(), "one sync");

    // A request does not repeat the sync of another instance, of which only the database knows.
    let instance = app.shared.new_instance().await;
    app.advance_clock(STALE);
    let slow = Fault::delay_ms(1_000).at("/v1/banking/transactions");
    app.fiskil().add_fault(slow.times(1));
    app.reset_calls();
    let syncs = instance.syncs();
    let asked = async {
        eventually(async || app.transaction_calls() > 0).await;
        copy.ask(&app).await
    };
    let (synced, answer) = tokio::join!(syncs.run(person.user.id, connection.id), asked);
    synced.expect("synced");
    assert_eq!(answer.status, 200, "{}", answer.text);
    let together = app.transaction_calls();
    app.advance_clock(STALE);
    app.reset_calls();
    copy.follow(&app).await;
    assert_eq!(together, app.transaction_calls(), "one sync");
}

/// A request that waits for another instance leaves the places to those that can sync.
#[tokio::test]
async fn waiting_request_holds_up_no_other() {
    let mut setup = setup();
    let one = ProviderSyncs {
        at_once: 1,
        ..ProviderSyncs::default()
    };
    setup.settings.syncs_by_provider.insert("fiskil", one);
    let app = App::start(setup).await;
    let [first, second] = &*app.olivia.connections else {
        panic!("two connections");
    };
    let waits = Follower::copied(&app, &app.olivia, first).await;
    let goes_on = Follower::copied(&app, &app.olivia, second).await;
    app.advance_clock(STALE);
    let (job, now) = (
        JobKey::new(job_kinds::SYNC, first.user_id, first.id),
        app.clock.now(),
    );
    let claim = app.storage.jobs().claim(&job, now, now + HOUR).await;
    let claim = claim.unwrap().expect("no sync runs");
    let other = async {
        let answer = goes_on.ask(&app).await;
        let finished = app.storage.jobs().finish(&claim, None).await;
        assert!(finished.unwrap());
        answer
    };
    let (waited, other) = tokio::join!(waits.ask(&app), other);
    assert_eq!(other.status, 200, "{}", other.text);
    assert_eq!(waited.status, 200, "{}", waited.text);
}

#[tokio::test]
async fn background_syncs_and_endpoints_change_nothing() {
    let mut setup = setup();
    setup.settings.sync.enabled = true;
    let app = App::start(setup).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::copied(&app, &person, connection).await;
    let hook = app.hook(&person.user).await;
    app.add_recent_row(connection, "FOUND BY THE JOB").await;
    app.advance_clock(25 * HOUR);
    app.connections.jobs().run_due("sync").await.unwrap();
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    let expected = [added("FOUND BY THE JOB")];
    copy.assert_finds(&app, &expected, "with jobs").await;
    copy.assert_equal(&app, "with jobs").await;
}

also_on_postgres! { requests_at_once_and_at_two_instances_sync_once }
