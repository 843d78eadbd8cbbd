//! Endpoints of the installation: one URL and one secret for the events of all users.

use std::collections::BTreeSet;

use bellbird_domain::{DeliveryState, EndpointStatus, EventType, Plan, UserId};
use bellbird_storage::{EndpointChange, in_tx};
use serde_json::{Value, json};

use super::DAY;
use crate::support::harness::{App, Person, Setup, simulated_providers};
use crate::support::process::text;
use crate::support::receiver::{Hook, ReceivedEvent, Receiver, Reply};

const SYNCED: &[EventType] = &[EventType::TransactionsSynced, EventType::TradesSynced];

/// Without what only an endpoint for all users gets.
fn as_own(event: &ReceivedEvent) -> Value {
    let mut body = event.body.clone();
    let metadata = body["metadata"].as_object_mut().unwrap();
    metadata.remove("user_id");
    metadata.remove("user_reference");
    body
}

/// The users of these events.
fn users(events: &[ReceivedEvent]) -> BTreeSet<String> {
    let metadata = events.iter().map(|event| &event.body["metadata"]);
    metadata.map(|of| text(of, "user_id").to_owned()).collect()
}

/// Asserts that these are events of these people, of each of them.
#[track_caller]
fn assert_of(events: &[ReceivedEvent], people: &[&Person]) {
    let people = people.iter().map(|person| person.user.id.to_string());
    let expected: BTreeSet<String> = people.collect();
    assert_eq!(users(events), expected);
}

/// Makes all failed deliveries of the last day due, which only an endpoint for all users can.
async fn recover_all(app: &App, hook: &Hook) -> u64 {
    let (deliveries, now) = (app.storage.deliveries(), app.clock.now());
    let recovered = deliveries.recover_all(hook.endpoint.id, now - DAY, now);
    recovered.await.unwrap()
}

/// Delivers until nothing is due, and takes what came.
async fn received(app: &App, hook: &Hook) -> Vec<ReceivedEvent> {
    let mut events = app.delivered_to(hook).await;
    events.sort_by(|one, other| one.id.cmp(&other.id));
    events
}

#[tokio::test]
async fn gets_what_each_user_gets() {
    let app = App::start(Setup::default()).await;
    let shared = app.hook_for_all(SYNCED).await;
    let mut own = Vec::new();
    for provider in simulated_providers() {
        let person = app.person_at(provider).await;
        let reference = format!("customer \"{provider}\"");
        app.set_reference(person.user.id, &reference).await;
        let hook = app.hook(&person.user).await;
        app.sync(&person.connections[0]).await;
        own.push((person.user.id, reference, received(&app, &hook).await));
    }
    let all = received(&app, &shared).await;
    assert_eq!(users(&all).len(), own.len());
    for (user, reference, expected) in own {
        let of_user: Vec<_> = all
            .iter()
            .filter(|event| event.body["metadata"]["user_id"] == json!(user))
            .collect();
        let mut references = of_user
            .iter()
            .map(|event| &event.body["metadata"]["user_reference"]);
        assert!(references.all(|shown| *shown == reference));
        let shown: Vec<_> = of_user.iter().map(|event| as_own(event)).collect();
        let expected: Vec<_> = expected.iter().map(|event| event.body.clone()).collect();
        assert!(!expected.is_empty());
        assert_eq!(shown, expected, "{reference}: with the same ids");
    }
}

/// From the first failure to its removal.
#[tokio::test]
async fn what_happens_to_it_concerns_everyone() {
    let app = App::start(Setup::default()).await;
    let mut shared = app.hook_for_all(SYNCED).await;
    let (first, second) = (app.person_at("fiskil").await, app.person_at("akahu").await);
    // Failing for one user delays no other.
    app.sync(&first.connections[0]).await;
    shared.receiver.reply_with(Reply::Status(500));
    assert_of(&received(&app, &shared).await, &[&first]);
    assert!(app.endpoint_of(&shared).await.failing_since.is_some());
    shared.receiver.reply_with(Reply::Status(204));
    app.sync(&second.connections[0]).await;
    assert_of(&received(&app, &shared).await, &[&second]);
    app.assert_enabled(&shared).await;

    // Gone, it is disabled for everyone.
    shared.receiver.reply_with(Reply::Status(410));
    app.advance_to_next_attempt(&shared).await;
    assert_of(&received(&app, &shared).await, &[&first]);
    let endpoint = app.endpoint_of(&shared).await;
    assert_eq!(endpoint.status, EndpointStatus::Disabled);
    assert_eq!(endpoint.disabled_reason.as_deref(), Some("gone"));
    shared.receiver.reply_with(Reply::Status(204));
    app.add_event(&second.connections[0], "WHILE IT IS GONE")
        .await;
    assert_of(&received(&app, &shared).await, &[]);
    app.enable_hook(&shared).await;
    assert!(recover_all(&app, &shared).await > 1);
    assert_of(&received(&app, &shared).await, &[&first, &second]);

    // A change takes effect with the next message.
    for person in [&first, &second] {
        app.add_event(&person.connections[0], "BEFORE IT MOVES")
            .await;
    }
    let former = std::mem::replace(&mut shared.receiver, Receiver::start().await);
    let moved = EndpointChange {
        url: Some(&shared.receiver.url),
        ..EndpointChange::default()
    };
    let place = (UserId::INSTALLATION, shared.endpoint.id);
    let updated = in_tx!(app.storage, endpoints::update(place, &moved)).await;
    assert!(updated.unwrap());
    assert_of(&received(&app, &shared).await, &[&first, &second]);
    assert!(former.drain().is_empty());

    let third = app.person_at("snaptrade").await;
    app.sync(&third.connections[0]).await;
    app.disable_hook(&shared, "by command").await;
    assert_of(&received(&app, &shared).await, &[]);
    app.enable_hook(&shared).await;
    assert!(recover_all(&app, &shared).await > 0, "they have failed");
    assert_of(&received(&app, &shared).await, &[&third]);

    app.sync(&app.olivia.connections[0]).await;
    app.delete_hook(&shared).await;
    assert_of(&received(&app, &shared).await, &[]);
    app.clean_up().await;
    assert_eq!(app.rows_in("webhook_queues").await, 0);
    app.sync(&app.olivia.connections[1]).await;
    assert_of(&received(&app, &shared).await, &[]);
}

#[tokio::test]
async fn fails_for_all_users_once_it_has_failed_one_for_a_minute() {
    let app = App::start(Setup::default()).await;
    let shared = app.hook_for_all(SYNCED).await;
    shared.receiver.reply_with(Reply::Status(500));
    let (first, second) = (app.person_at("fiskil").await, app.person_at("akahu").await);
    app.sync(&first.connections[0]).await;
    for _ in 0..3 {
        assert_of(&received(&app, &shared).await, &[&first]);
        app.advance_to_next_attempt(&shared).await;
    }
    app.sync(&second.connections[0]).await;
    assert_of(&received(&app, &shared).await, &[&first, &second]);

    let (deliveries, now) = (app.storage.deliveries(), app.clock.now() + DAY);
    let claimed = async |failing| {
        let claims = deliveries.claim_endpoints(now, now + DAY, 9, failing).await;
        claims.unwrap().len()
    };
    assert_eq!((claimed(false).await, claimed(true).await), (0, 2));
}

#[tokio::test]
async fn events_follow_the_plan() {
    let app = App::start(Setup::default()).await;
    let (trader, saver) = (
        app.person_at("snaptrade").await,
        app.person_at("fiskil").await,
    );
    let (trades, transactions) = (app.hook(&trader.user).await, app.hook(&saver.user).await);
    app.set_plan(trader.user.id, Plan::Developer).await;
    assert_eq!(app.sync(&trader.connections[0]).await.events, 0);
    assert!(app.deliveries_to(&trades).await.is_empty());

    app.sync(&saver.connections[0]).await;
    transactions.receiver.reply_with(Reply::Status(500));
    assert!(!app.delivered_to(&transactions).await.is_empty());
    transactions.receiver.reply_with(Reply::Status(204));
    app.set_plan(saver.user.id, Plan::Saver).await;
    assert!(app.advance_to_next_attempt(&transactions).await);
    assert!(app.delivered_to(&transactions).await.is_empty());
    let deliveries = app.deliveries_to(&transactions).await;
    for delivery in &deliveries {
        let given_up = (DeliveryState::Failed, Some("not in the user's plan"));
        assert_eq!((delivery.state, delivery.last_error.as_deref()), given_up);
    }
    app.assert_enabled(&transactions).await;

    app.set_plan(saver.user.id, Plan::Developer).await;
    app.recover(&transactions, app.clock.now() - DAY).await;
    let delivered = app.delivered_to(&transactions).await;
    assert_eq!(delivered.len(), deliveries.len());
}
