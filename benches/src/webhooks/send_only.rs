//! The baseline of delivery: sends the same signed bodies with the same client, without a database.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use anyhow::ensure;
use bellbird_domain::{
    ApiVersion, ConnectionId, EndpointId, EventId, EventType, RowKey, SyncRunId,
};
use bellbird_webhooks::delivery::send::{Client, ConnectTime};
use bellbird_webhooks::delivery::sign::Signer;
use bellbird_webhooks::event::payload::{Envelope, RowJson, body};
use bellbird_webhooks::target::resolver::Resolver;
use bytes::Bytes;
use jiff::Timestamp;
use tokio::task::JoinSet;
use url::Url;

use super::setup::Subscriber;
use super::{RULES, TIMEOUT};

/// Concurrent messages per endpoint, as in the service.
const CONCURRENT_SENDS: usize = 16;

struct Destination {
    url: Url,
    signer: Signer,
    endpoint: EndpointId,
}

/// Sends `events` messages, each with its own id and signature. Returns messages per second.
pub(super) async fn run(
    subscribers: &[Subscriber],
    rows: &[RowJson],
    events: usize,
) -> anyhow::Result<f64> {
    let resolver = Resolver::from_system(RULES).map_err(anyhow::Error::msg)?;
    let client = Arc::new(Client::new(resolver, RULES, TIMEOUT).map_err(anyhow::Error::msg)?);
    let envelope = Envelope {
        id: EventId::new(),
        event_type: EventType::TransactionsSynced,
        created: Timestamp::now(),
        sync_run_id: SyncRunId::new(),
        connection_id: Some(ConnectionId::new()),
        chunk: 1,
        total_chunks: 1,
    };
    let rows: Vec<(RowKey, RowJson)> = rows
        .iter()
        .map(|row| (RowKey([7; 8]), row.clone()))
        .collect();
    let (body, sent) = (
        body(&envelope, ApiVersion::DEFAULT.into(), &rows, &[]),
        Arc::new(AtomicUsize::new(0)),
    );
    let started = Instant::now();
    let mut sending = JoinSet::new();
    for subscriber in subscribers {
        let signer = Signer::new(&[&subscriber.secret])?;
        let destination = Arc::new(Destination {
            url: subscriber.url.parse()?,
            signer,
            endpoint: subscriber.endpoint,
        });
        for _ in 0..CONCURRENT_SENDS {
            let (client, destination) = (Arc::clone(&client), Arc::clone(&destination));
            let (body, sent) = (body.clone(), Arc::clone(&sent));
            sending.spawn(async move {
                while sent.fetch_add(1, Ordering::Relaxed) < events {
                    send(&client, &destination, body.clone()).await?;
                }
                anyhow::Ok(())
            });
        }
    }
    while let Some(ended) = sending.join_next().await {
        ended??;
    }
    Ok(events as f64 / started.elapsed().as_secs_f64())
}

async fn send(client: &Client, destination: &Destination, body: Bytes) -> anyhow::Result<()> {
    let message =
        destination
            .signer
            .sign(EventId::new(), destination.endpoint, Timestamp::now(), body);
    let exchange = client
        .send(&destination.url, message, ConnectTime::Usual)
        .await;
    ensure!(
        exchange.is_success(),
        "the receiver did not accept a message: {:?}",
        exchange.error
    );
    Ok(())
}
