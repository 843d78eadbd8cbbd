//! Concurrent workers send each event once and in order.

use std::collections::BTreeMap;

use bellbird_domain::DeliveryState;

use super::with_chunks_of;
use crate::support::harness::{App, Setup, also_on_postgres, eventually};
use crate::support::process::text;
use crate::support::receiver::Reply;

#[tokio::test]
async fn concurrent_workers_send_everything_once() {
    let app = with_chunks_of(2).await;
    let user = &app.olivia.user;
    let hooks = [
        app.hook(user).await,
        app.hook(user).await,
        app.hook(user).await,
    ];
    let mut events = 0;
    for connection in &app.olivia.connections {
        events += app.sync(connection).await.events;
    }
    assert!(events > 20);
    tokio::join!(
        app.webhooks.run_due_deliveries(),
        app.webhooks.run_due_deliveries(),
        app.webhooks.run_due_deliveries()
    );
    // A worker skips endpoints that another one has claimed, so some deliveries may still be
    // due.
    app.webhooks.run_due_deliveries().await;
    for hook in &hooks {
        let mut runs: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for event in hook.drain() {
            let run = text(&event.body["metadata"], "sync_run_id").to_owned();
            let chunks = runs.entry(run).or_default();
            chunks.push(event.chunk_position().chunk);
        }
        assert_eq!(runs.len(), app.olivia.connections.len());
        for chunks in runs.values() {
            assert_eq!(*chunks, (1..=chunks.len() as u64).collect::<Vec<_>>());
        }
        assert_eq!(runs.values().map(Vec::len).sum::<usize>(), events);
        let deliveries = app.deliveries_to(hook).await;
        assert!(deliveries.iter().all(|delivery| delivery.attempts == 1));
    }
}

#[tokio::test]
async fn in_flight_result_of_disabled_endpoint_is_ignored() {
    let app = App::start(Setup::default()).await;
    let connection = &app.olivia.connections[0];
    let hook = app.hook(&app.olivia.user).await;
    let before = app.clock.now();
    app.sync(connection).await;
    hook.receiver.reply_with(Reply::Held(500));
    let disable = async || {
        eventually(async || hook.receiver.has_requests()).await;
        assert_eq!(app.disable_hook(&hook, "by command").await, 1, "cancelled");
        hook.receiver.release();
    };
    tokio::join!(app.webhooks.run_due_deliveries(), disable());
    let delivery = app.deliveries_to(&hook).await.remove(0);
    assert_eq!(
        (delivery.state, delivery.attempts),
        (DeliveryState::Failed, 0)
    );
    assert_eq!(delivery.last_error.as_deref(), Some("endpoint disabled"));
    assert_eq!(app.endpoint_of(&hook).await.failing_since, None);

    let first = hook.drain().remove(0);
    hook.receiver.reply_with(Reply::Status(204));
    app.enable_hook(&hook).await;
    assert_eq!(app.recover(&hook, before).await, Some(1));
    assert_eq!(app.delivered_to(&hook).await[0].id, first.id);
}

also_on_postgres! { concurrent_workers_send_everything_once in_flight_result_of_disabled_endpoint_is_ignored }
