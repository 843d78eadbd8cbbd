//! Syncs that end one after the other, as many at once as the service makes, and never far ahead of the deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bellbird_domain::{ConnectionId, UserId};
use bellbird_storage::Storage;
use bellbird_webhooks::webhook_events::WebhookEventBuffer;
use tokio::task::JoinSet;

use super::rows;
use super::setup::Subscriber;

/// As many as one copy of the service makes at once.
const CONCURRENT_SYNCS: usize = 4;
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Where the events come from.
pub(super) struct Feed {
    pub(super) storage: Storage,
    pub(super) event_buffer: WebhookEventBuffer,
    /// Of each event.
    pub(super) rows: Vec<Vec<u8>>,
    /// Events that may wait at any time: their bodies have to stay in memory.
    pub(super) unsent_max: usize,
    /// Syncs that were started_count.
    started_count: AtomicUsize,
    /// Events that came in.
    pub(super) received: AtomicUsize,
    stopped: AtomicBool,
}

impl Feed {
    pub(super) fn new(storage: Storage, event_buffer: WebhookEventBuffer, rows: Vec<Vec<u8>>, unsent_max: usize) -> Self {
        let (started_count, received, stopped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self { storage, event_buffer, rows, unsent_max, started_count, received, stopped }
    }

    /// Counts from 0 again.
    pub(super) fn restart(&self) {
        self.started_count.store(0, Ordering::Relaxed);
        self.received.store(0, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
    }

    /// Lets [`Self::run`] end when the syncs do that are under way.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn may_go_on(&self, number: usize) -> bool {
        number < self.received.load(Ordering::Relaxed) + self.unsent_max
    }

    /// Makes `events` syncs of one event each, in turns for each user and each connection.
    pub(super) async fn run(self: &Arc<Self>, subscribers: &[Subscriber], events: usize) -> anyhow::Result<()> {
        let mut syncing = JoinSet::new();
        for first in 0..CONCURRENT_SYNCS {
            // Each has connections of its own: no two syncs of one connection meet.
            let own: Vec<_> = interleaved(subscribers).into_iter().skip(first).step_by(CONCURRENT_SYNCS).collect();
            let feed = Arc::clone(self);
            syncing.spawn(async move { feed.sync_interleaved(&own, events).await });
        }
        while let Some(ended) = syncing.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn sync_interleaved(&self, own: &[(UserId, ConnectionId)], events: usize) -> anyhow::Result<()> {
        for target in own.iter().cycle() {
            let number = self.started_count.fetch_add(1, Ordering::Relaxed);
            if number >= events {
                break;
            }
            while !self.may_go_on(number) && !self.stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            rows::sync(&self.storage, &self.event_buffer, *target, &self.rows, false).await?;
        }
        Ok(())
    }
}

/// The first connection of every user, the second of every user, and so on.
fn interleaved(subscribers: &[Subscriber]) -> Vec<(UserId, ConnectionId)> {
    let most = subscribers.iter().map(|subscriber| subscriber.connections.len()).max().unwrap_or(0);
    let nth_connections = |number: usize| {
        subscribers.iter().filter_map(move |subscriber| Some((subscriber.user, *subscriber.connections.get(number)?)))
    };
    (0..most).flat_map(nth_connections).collect()
}
