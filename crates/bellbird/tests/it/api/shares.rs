//! How users and jobs share a provider: one user's requests leave enough for all others, and a
//! provider that hangs does not stop the others.

use bellbird_storage::in_tx;
use std::time::Duration;

use bellbird_connections::{ConnectionsError, LinkTarget};
use bellbird_domain::{Connection, Plan};
use bellbird_providers::Error;
use bellbird_sandbox::Fault;
use jiff::SignedDuration;
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::support::client::{Query, Trade};
use crate::support::harness::{App, Person, Response, Setup, eventually};
use crate::support::words::assert_has;

const PROVIDER: &str = "snaptrade";
/// As the provider documents it.
const CALLS_PER_MINUTE: u64 = 250;
/// More requests than the provider allows calls.
const REQUESTS: u32 = 300;

async fn limited(calls_per_minute: u32) -> (App, Person, Person) {
    let mut setup = Setup::default();
    setup.settings.api_context.provider_calls_per_minute = calls_per_minute;
    // A request waits for its share until then, and a share takes nearly a minute.
    setup.settings.reads.deadline = Duration::from_secs(10);
    let app = App::start(setup).await;
    let credentials = app.credentials_of(PROVIDER);
    let greedy = app
        .add_person("mia@example.com", Plan::Professional, &[&credentials[0]])
        .await;
    let other = app
        .add_person("noah@example.com", Plan::Professional, &[&credentials[1]])
        .await;
    app.bank(PROVIDER)
        .set_options(&json!({"perMinute": CALLS_PER_MINUTE}))
        .unwrap();
    app.reset_calls();
    (app, greedy, other)
}

/// Requests one window after the other, none of them cached, until one is rejected.
async fn read_until_rejected(app: &App, person: &Person) -> Response {
    for limit in 1..=REQUESTS as usize {
        let answer = trades(app, person).limit(limit).send().await;
        if answer.status != 200 {
            return answer;
        }
    }
    panic!("the budget was never used up");
}

fn trades<'a>(app: &'a App, person: &'a Person) -> Query<'a, Trade> {
    app.all_trades(person.connections[0].id).by(person)
}

async fn holdings(app: &App, person: &Person) -> Response {
    let read = app.all_holdings(person.connections[0].id).by(person);
    read.send().await
}

#[tokio::test]
async fn greedy_user_leaves_calls_to_others_and_jobs() {
    let (app, greedy, other) = limited(300).await;
    let rejected = read_until_rejected(&app, &greedy).await;
    assert_has(&rejected.error(429), "Too many requests");
    let wait: u64 = rejected.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=60).contains(&wait), "{wait}");
    assert!(
        app.bank(PROVIDER).total_calls() <= 88,
        "half of what is for requests"
    );
    assert_eq!(holdings(&app, &other).await.status, 200, "another user");
    app.sync(&greedy.connections[0]).await;
    // What needs no provider call still succeeds.
    let cached = trades(&app, &greedy).limit(1).send().await;
    assert_eq!(cached.status, 200);
    assert_eq!(cached.cache(), Some("HIT"));
}

#[tokio::test]
async fn one_greedy_request_leaves_calls_to_ten_users() {
    let (app, greedy, _) = limited(300).await;
    let authorization_id = &app.credentials_of(PROVIDER)[0]["authorizationId"];
    for _ in 0..150 {
        app.bank(PROVIDER)
            .add_account(&json!({"authorizationId": authorization_id}))
            .unwrap();
    }
    app.refresh(greedy.user.id, greedy.connections[0].id).await;
    let mut others = Vec::new();
    for number in 0..10 {
        let other = app
            .add_person(&format!("{number}@example.com"), Plan::Professional, &[])
            .await;
        let (connections, _) = app.link_at(other.user.id, PROVIDER).await;
        others.push(Person {
            connections,
            ..other
        });
    }
    holdings(&app, &greedy).await.error(429);
    for other in &others {
        assert!(!holdings(&app, other).await.data().is_empty());
    }
}

#[tokio::test]
async fn refreshes_are_refused_when_the_share_of_their_user_is_used_up() {
    let (app, greedy, other) = limited(300).await;
    let (user, connection) = (greedy.user.id, greedy.connections[0].id);
    let refresh = async || app.connections.refreshes().run(user, connection).await;
    let mut made = 0;
    while refresh().await.is_ok() {
        made += 1;
    }
    assert!((20..60).contains(&made), "{made}");
    holdings(&app, &greedy).await.error(429);
    assert_eq!(holdings(&app, &other).await.status, 200, "another user");
}

#[tokio::test]
async fn read_waits_for_the_budget_until_its_deadline() {
    let setup = Setup::with(|settings| settings.api_context.provider_calls_per_minute = 120);
    let app = App::start(setup).await;
    let (connection, mut limit) = (app.olivia.connections[0].id, 0);
    // The budget then has another call every half second.
    while app.fiskil().total_calls() <= 120 {
        limit += 1;
        app.all_transactions(connection).limit(limit).page().await;
    }
}

#[tokio::test]
async fn requests_leave_the_last_calls_to_jobs() {
    let (app, greedy, other) = limited(0).await;
    let rejected = read_until_rejected(&app, &greedy).await;
    rejected.error(503);
    assert!(rejected.header("retry-after").is_some());
    holdings(&app, &other).await.error(503);
    // Some more may be on their way when the last response comes.
    assert!(app.bank(PROVIDER).total_calls() <= CALLS_PER_MINUTE * 8 / 10);
    app.sync(&greedy.connections[0]).await;
}

/// Presses the button of a link page. Each time with a new link, as the page of connections does.
async fn link(app: &App, person: &Person) -> Result<(), ConnectionsError> {
    let (links, target) = (app.connections.links(), LinkTarget::Provider(PROVIDER));
    let created = app.create_link(person.user.id, target).await?;
    let token = created.url.expose_secret().rsplit('/').next();
    let begun = links.start_consent_session(token.unwrap_or_default(), target, "browser");
    begun.await.map(drop)
}

#[tokio::test]
async fn links_of_one_user_leave_calls_to_others() {
    let (app, greedy, other) = limited(300).await;
    let mut refused = 0;
    for _ in 0..125 {
        let linked = link(&app, &greedy).await;
        refused += usize::from(matches!(linked, Err(ConnectionsError::TooManySessions)));
    }
    assert_eq!(refused, 120, "five sessions are open at most");
    // They expire, again and again.
    let mut last = Ok(());
    for number in 0..100 {
        if number % 5 == 0 {
            app.advance_clock(SignedDuration::from_mins(31));
        }
        last = link(&app, &greedy).await;
        if last.is_err() {
            break;
        }
    }
    let Err(ConnectionsError::Provider(Error::BudgetUsedUp { .. })) = last else {
        panic!("{last:?}")
    };
    assert!(app.bank(PROVIDER).total_calls() <= 100);
    assert_eq!(holdings(&app, &other).await.status, 200);
    app.sync(&other.connections[0]).await;
}

#[tokio::test]
async fn polls_for_changes_leave_calls_to_others_and_to_the_schedule() {
    let (app, greedy, other) = limited(300).await;
    let path = format!(
        "/v1/trades/changes?connectionId={}",
        greedy.connections[0].id
    );
    // More keys give no more calls.
    let mut keys = vec![greedy.key.clone()];
    for name in ["second", "third"] {
        let key = bellbird_storage::new_key();
        let (user, now) = (greedy.user.id, app.clock.now());
        let added = in_tx!(app.storage, keys::insert(user, &key, name, None, now));
        added.await.unwrap();
        keys.push(key.expose().to_owned());
    }
    let mut last = None;
    for key in keys.iter().cycle().take(REQUESTS as usize) {
        app.advance_clock(SignedDuration::from_secs(61));
        let answer = app.get_as(key, &path).await;
        if answer.status != 200 {
            last = Some(answer);
            break;
        }
    }
    let refused = last.expect("the share was never used up");
    assert_eq!(refused.status, 429);
    assert_eq!(refused.header("bellbird-error"), Some("budget_used_up"));
    assert!(app.bank(PROVIDER).total_calls() <= 100);
    app.sync(&other.connections[0]).await;
    assert_eq!(holdings(&app, &other).await.status, 200);
}

#[tokio::test]
async fn sync_that_the_user_asks_for_is_charged() {
    let (app, greedy, other) = limited(300).await;
    app.sync(&greedy.connections[0]).await;
    read_until_rejected(&app, &greedy).await;
    let (user, id) = (greedy.user.id, greedy.connections[0].id);
    let before = app.bank(PROVIDER).total_calls();
    in_tx!(
        app.storage,
        syncs::request((user, id), app.clock.now(), SignedDuration::ZERO)
    )
    .await
    .unwrap();
    app.connections.jobs().run_due("sync").await.unwrap();
    let calls = app.bank(PROVIDER).total_calls();
    assert_eq!(calls, before, "it waits for the budget");
    let state = app.sync_state(user, id).await;
    assert!(
        state.last_error.is_none() && state.next_at > Some(app.clock.now()),
        "{state:?}"
    );
    app.sync(&other.connections[0]).await;
}

#[tokio::test]
async fn every_attempt_of_an_event_wanted_again_is_charged() {
    let (app, greedy, _) = limited(300).await;
    let connection = &greedy.connections[0];
    let hook = app.hook(&greedy.user).await;
    app.complete_initial_sync(connection, &hook).await;
    app.add_recent_row(connection, "WANTED AGAIN").await;
    app.sync(connection).await;
    assert_eq!(app.delivered_to(&hook).await.len(), 1);
    let event = app.last_delivery(&hook).await.event_id;
    app.redeliver(&hook, event).await.unwrap();
    for attempt in 1..=2 {
        read_until_rejected(&app, &greedy).await;
        let before = app.bank(PROVIDER).total_calls();
        assert!(app.delivered_to(&hook).await.is_empty());
        assert_eq!(app.bank(PROVIDER).total_calls(), before, "{attempt}");
        assert!(app.advance_to_next_attempt(&hook).await, "it stays pending");
    }
}

#[tokio::test]
async fn hanging_provider_stops_no_sync_elsewhere() {
    let app = App::start(Setup::with(|settings| settings.sync.enabled = true)).await;
    let elsewhere = app.person_at(PROVIDER).await;
    let credentials = app.credentials_of("fiskil");
    app.add_person("ava@example.com", Plan::Professional, &[&credentials[3]])
        .await;
    app.add_person("leo@example.com", Plan::Professional, &[&credentials[4]])
        .await;
    app.fiskil().add_fault(Fault::delay_ms(600_000).at("/"));
    let synced_at = async |connection: &Connection| {
        let state = app.sync_state(connection.user_id, connection.id).await;
        state.synced_at
    };
    assert_eq!(synced_at(&elsewhere.connections[0]).await, None);
    app.advance_own_clock(SignedDuration::from_hours(12));
    app.bank(PROVIDER)
        .advance_clock(SignedDuration::from_secs(12 * 3600));
    app.start_background_jobs();
    // Five connections of the hanging provider fill its lane of four syncs.
    eventually(async || app.fiskil().total_calls() >= 4).await;
    eventually(async || synced_at(&elsewhere.connections[0]).await.is_some()).await;
    let hanging = synced_at(&app.olivia.connections[0]).await;
    assert_eq!(hanging, None, "it still hangs");
}

#[tokio::test]
async fn provider_that_hangs_is_rejected_fast() {
    let app = App::start(Setup::with(|settings| {
        settings.provider_timeout = Duration::from_millis(500);
    }))
    .await;
    let connection = app.olivia.connections[0].id;
    app.fiskil()
        .add_fault(Fault::delay_ms(600_000).at("/v1/banking/transactions"));
    let read = |limit: usize| {
        let query = app.all_transactions(connection).limit(limit);
        async move { query.send().await }
    };
    // Each makes three attempts, and eight in a row without a response are enough.
    for limit in 1..=3 {
        read(limit).await.error(503);
    }
    app.reset_calls();
    for answer in futures_util::future::join_all((4..=23).map(read)).await {
        answer.error(503);
    }
    assert!(app.transaction_calls() < 20, "only trial calls are made");
    app.clear_faults();
    eventually(async || read(30).await.status == 200).await;
}
