//! Endpoints of the installation: one URL and one secret for the events of all users.

use std::collections::BTreeMap;

use bellbird_domain::{EventType, UserId};
use bellbird_storage::UserChange;
use serde_json::{Value, json};

use super::{DAY, HOUR};
use crate::support::harness::{App, Setup, on_both_databases, simulated_providers};
use crate::support::receiver::{Hook, ReceivedEvent, Reply};

const SYNCED: &[EventType] = &[EventType::TransactionsSynced, EventType::TradesSynced];

/// The rows of events by user, in the order of their ids.
fn rows_by_user(events: &[ReceivedEvent]) -> BTreeMap<String, Vec<Value>> {
    let mut rows: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for event in events {
        let user = event.body["metadata"]["user_id"].as_str().expect("a user").to_owned();
        rows.entry(user).or_default().extend(event.rows("new").iter().cloned());
    }
    rows.values_mut().for_each(|rows| rows.sort_by_key(ToString::to_string));
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

on_both_databases! {
    async fn gets_what_each_user_gets(app: App) {
        let shared = app.hook_for_all(SYNCED).await;
        let mut own = Vec::new();
        for provider in simulated_providers() {
            let person = app.person_at(provider).await;
            let reference = format!("customer \"{provider}\"");
            let change = UserChange { reference: Some(Some(&reference)), ..UserChange::default() };
            app.storage.users().update(person.user.id, &change).await.unwrap();
            let hook = app.hook(&person.user).await;
            app.sync(&person.connections[0]).await;
            own.push((person.user.id, reference, received(&app, &hook).await));
        }
        let all = received(&app, &shared).await;
        assert_eq!(rows_by_user(&all).len(), own.len());
        for (user, reference, expected) in own {
            let of_user: Vec<_> =
                all.iter().filter(|event| event.body["metadata"]["user_id"] == json!(user)).collect();
            assert!(of_user.iter().all(|event| event.body["metadata"]["user_reference"] == reference));
            let shown: Vec<_> = of_user.iter().map(|event| as_own(event)).collect();
            let expected: Vec<_> = expected.iter().map(|event| event.body.clone()).collect();
            assert!(!expected.is_empty());
            assert_eq!(shown, expected, "{reference}: the same events with the same ids");
        }
    }
}

on_both_databases! {
    async fn rejected_events_of_one_user_delay_no_other(app: App) {
        let shared = app.hook_for_all(SYNCED).await;
        let (first, second) = (app.person_at("fiskil").await, app.person_at("akahu").await);
        app.sync(&first.connections[0]).await;
        shared.receiver.reply_with(Reply::Status(410));
        let rejected = received(&app, &shared).await;
        assert_eq!(rows_by_user(&rejected).keys().collect::<Vec<_>>(), [&first.user.id.to_string()]);
        shared.receiver.reply_with(Reply::Status(204));
        app.sync(&second.connections[0]).await;
        let accepted = rows_by_user(&received(&app, &shared).await);
        assert_eq!(accepted.keys().collect::<Vec<_>>(), [&second.user.id.to_string()]);
        let endpoint = app.endpoint_of(&shared).await;
        assert_eq!((endpoint.status.as_str(), endpoint.disabled_users), ("enabled", 1));

        // What the first user's events met is repeated for that user.
        let (owner, id, now) = (UserId::INSTALLATION, shared.endpoint.id, app.clock.now());
        assert!(app.storage.endpoints().enable(owner, id).await.unwrap());
        app.storage.endpoints().align_queues(now).await.unwrap();
        let lost = app.storage.deliveries().recover(owner, id, now - DAY, now).await.unwrap();
        assert_eq!(lost, u64::try_from(rejected.len()).unwrap());
        assert_eq!(rows_by_user(&received(&app, &shared).await), rows_by_user(&rejected));
    }
}

on_both_databases! {
    async fn interrupted_change_is_finished_by_the_service(app: App) {
        let shared = app.hook_for_all(SYNCED).await;
        let person = app.person_at("fiskil").await;
        app.sync(&person.connections[0]).await;
        // A command that was killed after its first step.
        let (owner, id, now) = (UserId::INSTALLATION, shared.endpoint.id, app.clock.now());
        app.storage.endpoints().disable(owner, id, "by command", now).await.unwrap().expect("disabled");
        app.clean_up().await;
        assert!(received(&app, &shared).await.is_empty());
        assert!(app.storage.endpoints().enable(owner, id).await.unwrap());
        app.advance_clock(HOUR).await;
        app.clean_up().await;
        assert!(app.storage.deliveries().recover(owner, id, now, app.clock.now()).await.unwrap() > 0);
        assert!(!received(&app, &shared).await.is_empty());

        assert!(app.storage.endpoints().delete(owner, id).await.unwrap());
        app.advance_clock(HOUR).await;
        app.clean_up().await;
        assert!(app.storage.endpoints().list_queue_users(id, owner, 9).await.unwrap().is_empty());
        app.sync(&person.connections[0]).await;
        assert!(received(&app, &shared).await.is_empty());
    }
}
