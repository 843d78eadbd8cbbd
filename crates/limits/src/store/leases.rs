//! The leases of permits: renewed while they are held, given back when they are dropped. Those of
//! an instance that dies lapse by themselves.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::Inner;

/// How long a permit outlives its last renewal.
pub(super) const LEASE: Duration = Duration::from_secs(35);
const TICK: Duration = Duration::from_secs(1);
/// Ticks from one renewal to the next.
const RENEWAL_TICKS: u32 = 10;
/// Ticks from one probe of a server that responds to the next, so that it is known to be down
/// before a request waits.
const PROBE_TICKS: u32 = 5;

/// The right to one permit of the server.
pub struct Lease {
    id: Uuid,
    permits: Arc<str>,
    store: Weak<Inner>,
    /// Whether the server may hold it.
    may_be_held: bool,
}

#[derive(Default)]
pub(super) struct Leases {
    /// The names of the permits, by the ids of the leases.
    held: Mutex<HashMap<Uuid, Arc<str>>>,
    /// To be given back. Not more than there are requests.
    dropped: Mutex<Vec<(Uuid, Arc<str>)>>,
    wake: Arc<Notify>,
}

impl Leases {
    pub(super) fn wake(&self) -> Arc<Notify> {
        Arc::clone(&self.wake)
    }
}

impl Lease {
    pub(super) fn new(store: &Arc<Inner>, permits: &Arc<str>) -> Self {
        let (id, permits) = (Uuid::new_v4(), Arc::clone(permits));
        Self {
            id,
            permits,
            store: Arc::downgrade(store),
            may_be_held: true,
        }
    }

    /// Renews the lease from now on, because the server gave it. Renewing one that it may still
    /// refuse would take a permit that nobody has.
    pub(super) fn was_granted(self) -> Self {
        if let Some(store) = self.store.upgrade() {
            store
                .leases
                .held
                .lock()
                .insert(self.id, Arc::clone(&self.permits));
        }
        self
    }

    pub(super) fn id(&self) -> String {
        self.id.simple().to_string()
    }

    /// Drops a lease that the server did not give, so that it is not given back.
    pub(super) fn was_refused(mut self) {
        self.may_be_held = false;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let Some(store) = self.store.upgrade() else {
            return;
        };
        store.leases.held.lock().remove(&self.id);
        if self.may_be_held {
            store
                .leases
                .dropped
                .lock()
                .push((self.id, Arc::clone(&self.permits)));
            store.leases.wake.notify_one();
        }
    }
}

/// Gives back, renews, and probes the server, until the store is dropped.
pub(super) async fn keep(store: Weak<Inner>, wake: Arc<Notify>) {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut tick = 0_u32;
    loop {
        let is_tick = tokio::select! {
            () = wake.notified() => false,
            _ = ticks.tick() => true,
        };
        let Some(store) = store.upgrade() else { return };
        tick = tick.wrapping_add(u32::from(is_tick));
        if is_tick && (store.has_failed() || tick.is_multiple_of(PROBE_TICKS)) {
            let _ = store.probe().await;
            if store.is_away() {
                continue;
            }
        }
        let renews = is_tick && tick.is_multiple_of(RENEWAL_TICKS);
        store.send_leases(renews).await;
    }
}

impl Inner {
    pub(super) async fn send_leases(&self, renews: bool) {
        let mut commands = Vec::new();
        for (id, permits) in std::mem::take(&mut *self.leases.dropped.lock()) {
            let mut command = redis::cmd("ZREM");
            command.arg(&*permits).arg(id.simple().to_string());
            commands.push(command);
        }
        if renews {
            for (id, permits) in &*self.leases.held.lock() {
                let mut command = redis::cmd("EVAL");
                // In full, because a server that was emptied has lost the script too.
                command
                    .arg(include_str!("renew.lua"))
                    .arg(1)
                    .arg(&**permits);
                command
                    .arg(id.simple().to_string())
                    .arg(LEASE.as_micros() as u64);
                commands.push(command);
            }
        }
        // One by one, because those of several keys lie on several nodes of a cluster. Those that
        // cannot be given back lapse.
        let sent = commands.iter().map(async |command| {
            let mut connection = self.connection.clone();
            self.call(command.query_async::<()>(&mut connection)).await
        });
        join_all(sent).await;
    }
}
