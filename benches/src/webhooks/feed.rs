//! Syncs that end one after the other, as many at once as the service makes, and never far ahead of the deliveries.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bellbird_domain::{ConnectionId, UserId};
use bellbird_storage::Storage;
use bellbird_webhooks::outbox::Outbox;
use tokio::task::JoinSet;

use super::rows;
use super::stage::Subscriber;

/// As many as one copy of the service makes at once.
const SYNCS_AT_ONCE: usize = 4;
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Where the events come from.
pub(super) struct Feed {
    pub(super) storage: Storage,
    pub(super) outbox: Outbox,
    /// Of each event.
    pub(super) rows: Vec<Vec<u8>>,
    /// Events that may wait at any time: their bodies have to stay in memory.
    pub(super) ahead_max: usize,
    /// Syncs that were begun.
    begun: AtomicUsize,
    /// Events that came in.
    pub(super) arrived: AtomicUsize,
    stopped: AtomicBool,
}

impl Feed {
    pub(super) fn new(storage: Storage, outbox: Outbox, rows: Vec<Vec<u8>>, ahead_max: usize) -> Self {
        let (begun, arrived, stopped) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
        Self { storage, outbox, rows, ahead_max, begun, arrived, stopped }
    }

    /// Counts from 0 again.
    pub(super) fn restart(&self) {
        self.begun.store(0, Ordering::Relaxed);
        self.arrived.store(0, Ordering::Relaxed);
        self.stopped.store(false, Ordering::Relaxed);
    }

    /// Lets [`Self::run`] end when the syncs do that are under way.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    fn may_go_on(&self, number: usize) -> bool {
        number < self.arrived.load(Ordering::Relaxed) + self.ahead_max
    }

    /// Makes `events` syncs of one event each, in turns for each user and each connection.
    pub(super) async fn run(self: &Arc<Self>, subscribers: &[Subscriber], events: usize) -> anyhow::Result<()> {
        let mut syncing = JoinSet::new();
        for first in 0..SYNCS_AT_ONCE {
            // Each has connections of its own: no two syncs of one connection meet.
            let own: Vec<_> = in_turns(subscribers).into_iter().skip(first).step_by(SYNCS_AT_ONCE).collect();
            let feed = Arc::clone(self);
            syncing.spawn(async move { feed.sync_in_turns(&own, events).await });
        }
        while let Some(ended) = syncing.join_next().await {
            ended??;
        }
        Ok(())
    }

    async fn sync_in_turns(&self, own: &[(UserId, ConnectionId)], events: usize) -> anyhow::Result<()> {
        for place in own.iter().cycle() {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            if number >= events {
                break;
            }
            while !self.may_go_on(number) && !self.stopped.load(Ordering::Relaxed) {
                tokio::time::sleep(LOOK_EVERY).await;
            }
            if self.stopped.load(Ordering::Relaxed) {
                break;
            }
            rows::sync(&self.storage, &self.outbox, *place, &self.rows, false).await?;
        }
        Ok(())
    }
}

/// The first connection of every user, the second of every user, and so on.
fn in_turns(subscribers: &[Subscriber]) -> Vec<(UserId, ConnectionId)> {
    let most = subscribers.iter().map(|subscriber| subscriber.connections.len()).max().unwrap_or(0);
    let turn = |number: usize| {
        subscribers.iter().filter_map(move |subscriber| Some((subscriber.user, *subscriber.connections.get(number)?)))
    };
    (0..most).flat_map(turn).collect()
}
