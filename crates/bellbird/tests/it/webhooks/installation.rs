//! Endpoints of the installation: one URL and one secret for the events of all users.

use std::collections::BTreeMap;

use bellbird_domain::{DeliveryState, EventType, Plan, UserId};
use bellbird_storage::{EndpointChange, UserChange, in_tx};
use serde_json::{Value, json};

use super::DAY;
use crate::support::harness::{App, Setup, simulated_providers};
use crate::support::receiver::{Hook, ReceivedEvent, Receiver, Reply};

const SYNCED: &[EventType] = &[EventType::TransactionsSynced, EventType::TradesSynced];

/// The rows of events by user, in the order of their ids.
fn rows_by_user(events: &[ReceivedEvent]) -> BTreeMap<String, Vec<Value>> {
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events {
        let user = event.body["metadata"]["user_id"]
            .as_str()
            .expect("a user")
            .to_owned();
        rows.entry(user)
            .or_default()
            .extend(event.rows("new").iter().cloned());
    }
    rows.values_mut()
        .for_each(|rows| rows.sort_by_key(ToString::to_string));
    rows
}

/// Without what only an endpoint for all users gets.
fn as_own(event: &ReceivedEvent) -> Value {
    let mut body = event.body.clone();
    let metadata = body["metadata"].as_object_mut().unwrap();
    metadata.remove("user_id");
    metadata.remove("user_reference");
    body
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
        let change = UserChange {
            reference: Some(Some(&reference)),
            ..UserChange::default()
        };
        in_tx!(app.storage, user::update(person.user.id, &change))
            .await
            .unwrap();
        let hook = app.hook(&person.user).await;
        app.sync(&person.connections[0]).await;
        own.push((person.user.id, reference, received(&app, &hook).await));
    }
    let all = received(&app, &shared).await;
    assert_eq!(rows_by_user(&all).len(), own.len());
    for (user, reference, expected) in own {
        let of_user: Vec<_> = all
            .iter()
            .filter(|event| event.body["metadata"]["user_id"] == json!(user))
            .collect();
        assert!(
            of_user
                .iter()
                .all(|event| event.body["metadata"]["user_reference"] == reference)
        );
        let shown: Vec<_> = of_user.iter().map(|event| as_own(event)).collect();
        let expected: Vec<_> = expected.iter().map(|event| event.body.clone()).collect();
        assert!(!expected.is_empty());
        assert_eq!(
            shown, expected,
            "{reference}: the same events with the same ids"
        );
    }
}

#[tokio::test]
async fn failing_for_one_user_delays_no_other() {
    let app = App::start(Setup::default()).await;
    let shared = app.hook_for_all(SYNCED).await;
    let (first, second) = (app.person_at("fiskil").await, app.person_at("akahu").await);
    app.sync(&first.connections[0]).await;
    shared.receiver.reply_with(Reply::Status(500));
    let rejected = received(&app, &shared).await;
    assert_eq!(
        rows_by_user(&rejected).keys().collect::<Vec<_>>(),
        [&first.user.id.to_string()]
    );
    assert!(app.endpoint_of(&shared).await.failing_since.is_some());
    shared.receiver.reply_with(Reply::Status(204));
    app.sync(&second.connections[0]).await;
    let accepted = rows_by_user(&received(&app, &shared).await);
    assert_eq!(
        accepted.keys().collect::<Vec<_>>(),
        [&second.user.id.to_string()]
    );
    app.assert_enabled(&shared).await;
}

#[tokio::test]
async fn gone_disables_it_for_everyone() {
    let app = App::start(Setup::default()).await;
    let shared = app.hook_for_all(SYNCED).await;
    let (first, second) = (app.person_at("fiskil").await, app.person_at("akahu").await);
    app.sync(&first.connections[0]).await;
    shared.receiver.reply_with(Reply::Status(410));
    let rejected = received(&app, &shared).await;
    assert_eq!(
        rows_by_user(&rejected).keys().collect::<Vec<_>>(),
        [&first.user.id.to_string()]
    );
    let endpoint = app.endpoint_of(&shared).await;
    assert_eq!(
        (
            endpoint.status.as_str(),
            endpoint.disabled_reason.as_deref()
        ),
        ("disabled", Some("gone"))
    );
    shared.receiver.reply_with(Reply::Status(204));
    app.sync(&second.connections[0]).await;
    assert!(received(&app, &shared).await.is_empty());

    let (owner, id, now) = (UserId::INSTALLATION, shared.endpoint.id, app.clock.now());
    assert!(
        in_tx!(app.storage, endpoints::enable((owner, id), now))
            .await
            .unwrap()
    );
    assert!(
        app.storage
            .deliveries()
            .recover_all(id, now - DAY, now)
            .await
            .unwrap()
            > 1
    );
    assert_eq!(rows_by_user(&received(&app, &shared).await).len(), 2);
}

#[tokio::test]
async fn change_takes_effect_with_the_next_message() {
    let app = App::start(Setup::default()).await;
    let mut shared = app.hook_for_all(SYNCED).await;
    let (first, second) = (app.person_at("fiskil").await, app.person_at("akahu").await);
    app.sync(&first.connections[0]).await;
    app.sync(&second.connections[0]).await;
    let former = std::mem::replace(&mut shared.receiver, Receiver::start().await);
    let (owner, id, now) = (UserId::INSTALLATION, shared.endpoint.id, app.clock.now());
    let moved = EndpointChange {
        url: Some(&shared.receiver.url),
        ..EndpointChange::default()
    };
    assert!(
        in_tx!(app.storage, endpoints::update((owner, id), &moved))
            .await
            .unwrap()
    );
    assert_eq!(rows_by_user(&received(&app, &shared).await).len(), 2);
    assert!(former.drain().is_empty());

    let third = app.person_at("snaptrade").await;
    app.sync(&third.connections[0]).await;
    in_tx!(
        app.storage,
        endpoints::disable((owner, id), "by command", now)
    )
    .await
    .unwrap()
    .expect("disabled");
    assert!(received(&app, &shared).await.is_empty());
    assert!(
        in_tx!(app.storage, endpoints::enable((owner, id), now))
            .await
            .unwrap()
    );
    assert!(
        app.storage
            .deliveries()
            .recover_all(id, now - DAY, now)
            .await
            .unwrap()
            > 0,
        "they have failed"
    );
    assert_eq!(rows_by_user(&received(&app, &shared).await).len(), 1);

    app.sync(&app.olivia.connections[0]).await;
    assert!(
        in_tx!(app.storage, endpoints::delete((owner, id)))
            .await
            .unwrap()
    );
    assert!(received(&app, &shared).await.is_empty());
    app.clean_up().await;
    assert_eq!(app.rows_in("webhook_queues").await, 0);
    app.sync(&app.olivia.connections[1]).await;
    assert!(received(&app, &shared).await.is_empty());
}

#[tokio::test]
async fn events_follow_the_plan() {
    let app = App::start(Setup::default()).await;
    let set_plan = async |user, plan| {
        app.set_plan(user, plan).await;
    };
    let (trader, saver) = (
        app.person_at("snaptrade").await,
        app.person_at("fiskil").await,
    );
    let (trades, transactions) = (app.hook(&trader.user).await, app.hook(&saver.user).await);
    set_plan(trader.user.id, Plan::Developer).await;
    assert_eq!(app.sync(&trader.connections[0]).await.events, 0);
    assert!(app.deliveries_to(&trades).await.is_empty());

    app.sync(&saver.connections[0]).await;
    transactions.receiver.reply_with(Reply::Status(500));
    assert!(!app.delivered_to(&transactions).await.is_empty());
    transactions.receiver.reply_with(Reply::Status(204));
    set_plan(saver.user.id, Plan::Saver).await;
    assert!(app.advance_to_next_attempt(&transactions).await);
    assert!(app.delivered_to(&transactions).await.is_empty());
    let deliveries = app.deliveries_to(&transactions).await;
    for delivery in &deliveries {
        let given_up = (DeliveryState::Failed, Some("not in the user's plan"));
        assert_eq!((delivery.state, delivery.last_error.as_deref()), given_up);
    }
    app.assert_enabled(&transactions).await;

    set_plan(saver.user.id, Plan::Developer).await;
    let (user, now) = (saver.user.id, app.clock.now());
    in_tx!(
        app.storage,
        redeliveries::recover((user, transactions.endpoint.id), now - DAY, now)
    )
    .await
    .unwrap();
    assert_eq!(
        app.delivered_to(&transactions).await.len(),
        deliveries.len()
    );
}
