//! Single flight: concurrent callers with the same key share one run of the work.
//!
//! The work runs in its own task, so dropping a request does not cancel it, which a cache's own
//! `get_or_insert` would do. Log lines of the work carry the span of the caller that started it.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tracing::Instrument as _;

/// The task that ran the work panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TaskPanicked;

type Flights<K, V> = Arc<Mutex<HashMap<K, watch::Receiver<Option<V>>>>>;

pub struct SingleFlight<K, V> {
    flights: Flights<K, V>,
    tasks: TaskTracker,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self::tracked(TaskTracker::new())
    }
}

impl<K, V> SingleFlight<K, V> {
    /// The work runs in tasks of this tracker, so that a stopping service can wait for it.
    pub fn tracked(tasks: TaskTracker) -> Self {
        Self {
            flights: Arc::default(),
            tasks,
        }
    }
}

/// Removes the flight from the map when its work ends, also after a panic.
struct FlightGuard<K: Hash + Eq, V> {
    key: K,
    flights: Flights<K, V>,
}

impl<K: Hash + Eq, V> Drop for FlightGuard<K, V> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}

impl<K, V> SingleFlight<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Starts the work, or waits for work with the same key that is already running. The work
    /// continues if the caller is dropped. The second value is true for the caller that started the
    /// work.
    pub async fn join<F>(&self, key: K, work: impl FnOnce() -> F) -> Result<(V, bool), TaskPanicked>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let (mut receiver, is_leader) = self.start_or_join(key, work);
        let value = receiver
            .wait_for(Option::is_some)
            .await
            .map_err(|_| TaskPanicked)?
            .clone();
        value.map(|value| (value, is_leader)).ok_or(TaskPanicked)
    }

    fn start_or_join<F>(
        &self,
        key: K,
        work: impl FnOnce() -> F,
    ) -> (watch::Receiver<Option<V>>, bool)
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&key) {
            return (flight.clone(), false);
        }
        let (sender, receiver) = watch::channel(None);
        flights.insert(key.clone(), receiver.clone());
        drop(flights);
        let guard = FlightGuard {
            key,
            flights: Arc::clone(&self.flights),
        };
        let work = work();
        let run = async move {
            let value = work.await;
            // Remove the flight before publishing the value, so that later callers start new work.
            drop(guard);
            sender.send_replace(Some(value));
        };
        self.tasks.spawn(run.in_current_span());
        (receiver, true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn concurrent_calls_share_one_run() {
        let flights: SingleFlight<&str, u32> = SingleFlight::default();
        let runs = Arc::new(AtomicU32::new(0));
        let gate = Arc::new(Notify::new());
        let work = || {
            let (runs, gate) = (Arc::clone(&runs), Arc::clone(&gate));
            async move {
                gate.notified().await;
                runs.fetch_add(1, Ordering::Relaxed) + 1
            }
        };
        let open = async {
            tokio::task::yield_now().await;
            gate.notify_one();
        };
        let (one, two, ()) = tokio::join!(flights.join("a", work), flights.join("a", work), open);
        assert_eq!(one, Ok((1, true)), "the first caller starts the work");
        assert_eq!(two, Ok((1, false)), "the second caller joins it");
        gate.notify_one();
        assert_eq!(flights.join("a", work).await, Ok((2, true)));
        assert!(flights.flights.lock().is_empty());
    }

    #[tokio::test]
    async fn work_continues_if_its_caller_is_dropped() {
        let flights: SingleFlight<&str, u32> = SingleFlight::default();
        let gate = Arc::new(Notify::new());
        let waiting = Arc::clone(&gate);
        let (receiver, _) = flights.start_or_join("a", || async move {
            waiting.notified().await;
            7
        });
        drop(receiver);
        let late = flights.join("a", || async { 8 });
        gate.notify_one();
        assert_eq!(late.await, Ok((7, false)));
    }

    #[tokio::test]
    async fn panic_is_reported_and_not_cached() {
        let flights: SingleFlight<&str, u32> = SingleFlight::default();
        let joined = flights.join("a", || async { panic!("lost") }).await;
        assert_eq!(joined, Err(TaskPanicked));
        assert_eq!(flights.join("a", || async { 1 }).await, Ok((1, true)));
    }
}
