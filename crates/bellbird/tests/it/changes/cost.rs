//! What requests for changes cost: provider calls, and which rate limit they count towards.

use bellbird_domain::Connection;
use serde_json::Value;

use super::{HOUR, STALE, setup};
use crate::support::follower::{Follower, changes};
use crate::support::harness::{App, Person, Response, also_on_postgres, simulated_providers};
use crate::support::provider_spec::spec;

/// More than a page of each provider.
const MANY: u32 = 1_500;

fn remaining(answer: &Response) -> u32 {
    answer
        .header("x-ratelimit-remaining")
        .expect("a limit")
        .parse()
        .unwrap()
}

fn limit(answer: &Response) -> u32 {
    answer
        .header("x-ratelimit-limit")
        .expect("a limit")
        .parse()
        .unwrap()
}

impl App {
    /// Gives the account with rows that many of them, with times of the last 300 days.
    async fn fill(&self, connection: &Connection) {
        let account = self.account_at(connection).await;
        if connection.provider != "fiskil" {
            let bank = self.bank(&connection.provider);
            bank.fill(&account, MANY).unwrap();
        }
    }

    /// A person with a connection that has many rows.
    async fn with_many_rows(&self, provider: &str) -> (Person, Connection) {
        let index = if provider == "fiskil" {
            0
        } else {
            spec(provider).spare_credentials
        };
        let credentials = &self.credentials_of(provider)[index];
        let email = format!("many.{provider}@example.com");
        if provider == "fiskil" {
            let (key, connection) = (self.olivia.key.clone(), self.olivia.connections[0].clone());
            let user = self
                .storage
                .users()
                .find(connection.user_id)
                .await
                .unwrap()
                .expect("Olivia");
            return (
                Person {
                    user,
                    key,
                    connections: Vec::new(),
                },
                connection,
            );
        }
        let person = self
            .add_person(&email, bellbird_domain::Plan::Professional, &[credentials])
            .await;
        let connection = person.connections[0].clone();
        self.fill(&connection).await;
        (person, connection)
    }
}

#[tokio::test]
async fn poll_without_news_calls_no_provider() {
    let app = App::start(setup()).await;
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::new(&app, &person, connection);
        copy.follow(&app).await;
        app.reset_calls();
        for _ in 0..5 {
            assert_eq!(copy.follow(&app).await, Vec::<Value>::new());
            app.clock.set(app.clock.now() + STALE / 10);
        }
        assert_eq!(app.bank(provider).total_calls(), 0, "{provider}");
        // A sync of the background job serves as well.
        app.advance_clock(HOUR);
        app.sync(connection).await;
        app.reset_calls();
        assert_eq!(copy.follow(&app).await, Vec::<Value>::new());
        assert_eq!(
            app.bank(provider).total_calls(),
            0,
            "{provider}: after a sync"
        );
    }
}

#[tokio::test]
async fn poll_without_news_counts_as_metadata() {
    let mut setup = setup();
    let limits = &mut setup.settings.api_context;
    (limits.metadata_per_minute, limits.live_per_minute) = (40, 10);
    let app = App::start(setup).await;
    for (provider, live) in [("fiskil", "transactions"), ("snaptrade", "trades")] {
        let person = app.person_at(provider).await;
        let connection = &person.connections[0];
        let mut copy = Follower::new(&app, &person, connection);
        let live_left = async || {
            let path = format!("/v1/{live}?connectionId={}&limit=1", connection.id);
            remaining(&app.get_as(&person.key, &path).await)
        };
        // Each of these is a live request, too.
        assert_eq!(live_left().await, 9, "{provider}");
        let first = copy.ask(&app).await;
        copy.apply(200, &first.json());
        assert_eq!(
            live_left().await,
            7,
            "{provider}: the first copy syncs and reads, and is one request"
        );
        let before = remaining(&copy.ask(&app).await);
        for polls in 1..=5 {
            let answer = copy.ask(&app).await;
            assert!(answer.data().is_empty(), "{provider}");
            assert_eq!(remaining(&answer), before - polls, "{provider}");
            assert_eq!(limit(&answer), limit(&first), "{provider}");
        }
        assert_eq!(
            live_left().await,
            6,
            "{provider}: polls are no live requests"
        );
        assert_ne!(
            limit(&first),
            10,
            "{provider}: not the limit of live requests"
        );
    }
}

#[tokio::test]
async fn without_live_requests_left_polls_go_on() {
    let mut setup = setup();
    (
        setup.settings.api_context.metadata_per_minute,
        setup.settings.api_context.live_per_minute,
    ) = (60, 1);
    let app = App::start(setup).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::new(&app, &person, connection);
    copy.follow(&app).await;
    for _ in 0..3 {
        assert_eq!(copy.follow(&app).await, Vec::<Value>::new());
    }
    // With news, it is a live request.
    app.add_recent_row(connection, "NEWS").await;
    app.sync(connection).await;
    let answer = copy.ask(&app).await;
    assert_eq!(answer.status, 429, "{}", answer.text);
    assert_eq!(answer.json()["error"]["code"], "rate_limited");
    assert!(answer.header("retry-after").is_some());
    app.advance_clock(STALE);
    assert_eq!(
        changes(&copy.follow(&app).await),
        [("upsert", Some(true), "NEWS")]
    );
}

#[tokio::test]
async fn one_new_row_costs_one_window() {
    let mut setup = setup();
    setup.rows = MANY;
    let app = App::start(setup).await;
    for provider in simulated_providers() {
        let (person, connection) = app.with_many_rows(provider).await;
        let mut copy = Follower::new(&app, &person, &connection);
        copy.follow(&app).await;
        app.add_recent_row(&connection, "ONE AMONG MANY").await;
        app.advance_clock(STALE);
        app.reset_calls();
        app.sync(&connection).await;
        let sync = app.row_calls(provider);
        app.reset_calls();
        let list = spec(provider).list;
        let window = format!("/v1/{list}?connectionId={}&limit=500", connection.id);
        assert_eq!(app.get_as(&person.key, &window).await.status, 200);
        let window = app.row_calls(provider);
        app.reset_calls();
        assert_eq!(
            changes(&copy.follow(&app).await),
            [("upsert", Some(true), "ONE AMONG MANY")],
            "{provider}"
        );
        let calls = app.bank(provider).calls();
        let news = app.row_calls(provider);
        assert!(
            news >= 1 && news <= window,
            "{provider}: {calls:?}, but {window} for a window"
        );
        assert!(
            sync <= window,
            "{provider}: {sync} for the sync, but {window} for a window"
        );
    }
}

/// Requests at the same time share the sync.
#[tokio::test]
async fn concurrent_requests_sync_once() {
    let app = App::start(setup()).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::new(&app, &person, connection);
    copy.follow(&app).await;
    app.advance_clock(STALE);
    app.reset_calls();
    let asked = futures_util::future::join_all((0..6).map(|_| copy.ask(&app))).await;
    assert!(
        asked
            .iter()
            .all(|answer| answer.status == 200 && answer.data().is_empty())
    );
    let together = app.transaction_calls();
    app.advance_clock(STALE);
    app.reset_calls();
    copy.follow(&app).await;
    assert_eq!(together, app.transaction_calls(), "one sync");
}

#[tokio::test]
async fn background_syncs_and_endpoints_change_nothing() {
    let mut setup = setup();
    setup.settings.sync.enabled = true;
    let app = App::start(setup).await;
    let person = app.person_at("fiskil").await;
    let connection = &person.connections[0];
    let mut copy = Follower::new(&app, &person, connection);
    copy.follow(&app).await;
    let hook = app.hook(&person.user).await;
    app.add_recent_row(connection, "FOUND BY THE JOB").await;
    app.advance_clock(25 * HOUR);
    app.connections.jobs().run_due("sync").await.unwrap();
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    assert_eq!(
        changes(&copy.follow(&app).await),
        [("upsert", Some(true), "FOUND BY THE JOB")]
    );
    copy.assert_equal(&app, "with jobs").await;
}

also_on_postgres! { concurrent_requests_sync_once }
