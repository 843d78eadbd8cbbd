//! Runs syncs that make webhook events. It runs as many at once as the service, and never gets far
//! ahead of the deliveries.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bellbird_domain::{ConnectionId, Fingerprints, UserId};
use bellbird_storage::Storage;
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use bellbird_webhooks::event::payload::RowJson;
use tokio::task::JoinSet;

use super::rows;
use super::setup::Subscriber;

/// As many as one instance runs at once.
const CONCURRENT_SYNCS: usize = 4;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

pub(super) struct Feed {
    pub(super) storage: Storage,
    pub(super) event_buffer: WebhookEventBuffer,
    /// JSON rows of each event.
    pub(super) rows: Vec<RowJson>,
    /// Events that may wait at any time, because their bodies stay in memory.
    pub(super) unsent_max: usize,
    started: AtomicUsize,
    /// Events that the receiver has.
    pub(super) received: AtomicUsize,
    stopped: AtomicBool,
}

impl Feed {
    pub(super) fn new(
        storage: Storage,
        event_buffer: WebhookEventBuffer,
        rows: Vec<RowJson>,
        unsent_max: usize,
    ) -> Self {
        let (started, received, stopped) = (
            AtomicUsize::new(0),
            AtomicUsize::new(0),
            AtomicBool::new(false),
        );
        Self {
            storage,
            event_buffer,
            rows,
            unsent_max,
            started,
            received,
            stopped,
        }
    }

    /// Resets the counters.
    pub(super) fn restart(&self) {
        self.started.store(0, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
    }

    /// Makes [`Self::run`] return after the syncs in progress.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn has_room(&self, number: usize) -> bool {
        number < self.received.load(Ordering::Relaxed) + self.unsent_max
    }

    /// Runs `events` syncs of one event each, going round the users and their connections.
    pub(super) async fn run(
        self: &Arc<Self>,
        subscribers: &[Subscriber],
        events: usize,
    ) -> anyhow::Result<()> {
        let mut syncing = JoinSet::new();
        for first in 0..CONCURRENT_SYNCS {
            // Each task has its own connections, so two syncs of one connection never meet.
            let own: Vec<_> = interleaved(subscribers)
                .into_iter()
                .skip(first)
                .step_by(CONCURRENT_SYNCS)
                .collect();
            let feed = Arc::clone(self);
            syncing.spawn(async move { feed.sync_interleaved(&own, events).await });
        }
        while let Some(ended) = syncing.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn sync_interleaved(
        &self,
        own: &[(UserId, ConnectionId)],
        events: usize,
    ) -> anyhow::Result<()> {
        let mut known: HashMap<ConnectionId, Fingerprints> = HashMap::new();
        for target in own.iter().cycle() {
            let number = self.started.fetch_add(1, Ordering::Relaxed);
            if number >= events {
                break;
            }
            while !self.has_room(number) && !self.stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            let known = known.entry(target.1).or_default();
            rows::sync(
                &self.storage,
                &self.event_buffer,
                *target,
                &self.rows,
                known,
                false,
            )
            .await?;
        }
        Ok(())
    }
}

/// The first connection of every user, the second of every user, and so on.
fn interleaved(subscribers: &[Subscriber]) -> Vec<(UserId, ConnectionId)> {
    let most = subscribers
        .iter()
        .map(|subscriber| subscriber.connections.len())
        .max()
        .unwrap_or(0);
    let nth_connections = |number: usize| {
        subscribers.iter().filter_map(move |subscriber| {
            Some((subscriber.user, *subscriber.connections.get(number)?))
        })
    };
    (0..most).flat_map(nth_connections).collect()
}
