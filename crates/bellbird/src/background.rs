//! What a running service does when nobody asks: it goes on with the removals, looks, trips, syncs and deliveries that
//! are due.

use std::collections::HashSet;
use std::time::Duration;

use bellbird_connections::{Connections, ConnectionsError};
use bellbird_domain::{ConnectionId, UserId};
use bellbird_storage::{Storage, StorageError};
use bellbird_webhooks::Webhooks;
use jiff::{SignedDuration, Timestamp};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// How often due work is looked for: one indexed read where there is none.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// How often addresses, trips and events long past are forgotten.
const TIDY_EVERY: Duration = Duration::from_secs(3_600);
/// What work that is under way gets to end when the service stops. What does not make it is due again when its lease
/// ends, for whichever copy comes first.
const STOP_TIMEOUT: Duration = Duration::from_secs(10);
/// Clocks of several machines differ; looking back so far finds what another one wrote down.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(120);

/// How often what is due is counted.
const SHOW_EVERY: Duration = Duration::from_secs(15);

/// The metric of connections by how their syncs stand.
pub const SYNC_STATES: &str = "bellbird_syncs";
/// The metric of deliveries that have not ended, by how they stand.
pub const DELIVERY_STATES: &str = "bellbird_webhook_deliveries";
/// For how many seconds the oldest delivery that is due has been due.
pub const DELIVERY_LATENESS: &str = "bellbird_webhook_lateness_seconds";
/// The metric of endpoints that fail, or are not sent to any more.
pub const ENDPOINT_STATES: &str = "bellbird_webhook_endpoints";
/// The metric of connections that are hidden and not gone yet.
pub const REMOVALS_WAITING: &str = "bellbird_removals_waiting";

/// Works until `stop`. Each connection that was hidden or removed, by whichever program, is given to `ended`, within
/// seconds and perhaps more than once: what is in memory about it can go.
pub fn start(
    storage: Storage,
    connections: Connections,
    webhooks: Webhooks,
    ended: impl Fn(UserId, ConnectionId) + Send + Sync + 'static,
    stop: CancellationToken,
) -> JoinHandle<()> {
    tokio::spawn(async move {
        // Apart from each other: a provider that does not answer must not hold up what only needs the database.
        let work = async {
            tokio::join!(
                remove(&connections, &stop),
                repeat("looks", &stop, || connections.look_due(), || connections.look_wanted()),
                repeat("trips to providers", &stop, || connections.arrive_due(), || connections.trip_wanted()),
                sync(&connections, &stop),
                webhooks.deliver(stop.clone()),
                tidy(&connections, &webhooks, &stop),
                show(&storage, &stop),
                tell(&connections, ended, &stop),
            )
        };
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_TIMEOUT).await;
        };
        tokio::select! {
            _ = work => {}
            () = late => tracing::warn!("work was given up because the service stops; it is due again in minutes"),
        }
    })
}

/// Waits for the next round; false when there is none.
async fn next(time: Duration, stop: &CancellationToken) -> bool {
    tokio::select! {
        biased;
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}

/// Does the work that is due, round by round: every few seconds, and when it is `wanted`.
async fn repeat<W, N>(what: &str, stop: &CancellationToken, work: impl Fn() -> W, wanted: impl Fn() -> N)
where
    W: Future<Output = Result<(), ConnectionsError>>,
    N: Future<Output = ()>,
{
    loop {
        if let Err(error) = work().await {
            tracing::warn!(%error, "{what} that are due could not be worked on");
        }
        let goes_on = tokio::select! {
            biased;
            goes_on = next(LOOK_EVERY, stop) => goes_on,
            () = wanted() => true,
        };
        if !goes_on {
            return;
        }
    }
}

/// Syncs, unless that is switched off.
async fn sync(connections: &Connections, stop: &CancellationToken) {
    if connections.syncs_by_itself() {
        connections.sync_until(stop.clone()).await;
    }
}

/// Shows how much is due, for whoever watches the metrics.
async fn show(storage: &Storage, stop: &CancellationToken) {
    loop {
        if let Err(error) = show_once(storage).await {
            tracing::warn!(%error, "what is due could not be counted");
        }
        if !next(SHOW_EVERY, stop).await {
            return;
        }
    }
}

async fn show_once(storage: &Storage) -> Result<(), StorageError> {
    let now = Timestamp::now();
    let (syncs, deliveries) = (storage.sync_overview(now).await?, storage.delivery_overview(now).await?);
    for (name, state, count) in [
        (SYNC_STATES, "due", syncs.due),
        (SYNC_STATES, "under_way", syncs.under_way),
        (SYNC_STATES, "failing", syncs.failing),
        (DELIVERY_STATES, "due", deliveries.due),
        (DELIVERY_STATES, "pending", deliveries.pending),
        (DELIVERY_STATES, "waiting", deliveries.waiting),
        (ENDPOINT_STATES, "failing", deliveries.failing),
        (ENDPOINT_STATES, "disabled", deliveries.disabled),
    ] {
        metrics::gauge!(name, "state" => state).set(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
    }
    let late = deliveries.oldest_due.map_or(0, |due| now.duration_since(due).as_secs().max(0));
    metrics::gauge!(DELIVERY_LATENESS).set(f64::from(u32::try_from(late).unwrap_or(u32::MAX)));
    Ok(())
}

/// Goes on with removals.
async fn remove(connections: &Connections, stop: &CancellationToken) {
    repeat("removals", stop, || remove_once(connections), std::future::pending).await;
}

/// Forgets what is long past.
async fn tidy(connections: &Connections, webhooks: &Webhooks, stop: &CancellationToken) {
    loop {
        if let Err(error) = webhooks.tidy().await {
            tracing::warn!(%error, "old events could not be forgotten");
        }
        if let Err(error) = connections.tidy().await {
            tracing::warn!(%error, "what is long past could not be forgotten");
        }
        if !next(TIDY_EVERY, stop).await {
            return;
        }
    }
}

async fn remove_once(connections: &Connections) -> Result<(), ConnectionsError> {
    // Before and after: with a provider that does not answer, a round takes long.
    show_waiting(connections).await?;
    connections.remove_due().await?;
    show_waiting(connections).await
}

async fn show_waiting(connections: &Connections) -> Result<(), ConnectionsError> {
    // A gauge is a float; no count of connections is too large for one.
    let waiting = u32::try_from(connections.removals_waiting().await?).unwrap_or(u32::MAX);
    metrics::gauge!(REMOVALS_WAITING).set(f64::from(waiting));
    Ok(())
}

/// Tells what ended.
async fn tell(connections: &Connections, ended: impl Fn(UserId, ConnectionId), stop: &CancellationToken) {
    // Nothing about what ended before this process began is in its memory.
    let mut since = Timestamp::now();
    let mut told: HashSet<ConnectionId> = HashSet::new();
    while next(LOOK_EVERY, stop).await {
        let now = Timestamp::now();
        match connections.ended_since(since.saturating_sub(CLOCKS_DIFFER).unwrap_or(since)).await {
            Ok(all) => {
                for (user, connection) in all.iter().filter(|(_, connection)| !told.contains(connection)) {
                    ended(*user, *connection);
                    tokio::task::yield_now().await;
                }
                // Those that the next look finds once more.
                told = all.into_iter().map(|(_, connection)| connection).collect();
                since = now;
            }
            Err(error) => tracing::warn!(%error, "removed connections could not be looked for"),
        }
    }
}
