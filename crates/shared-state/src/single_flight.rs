//! Equal work at the same time is done once.
//!
//! Own code: moka's fill waits for ever when the filling request is dropped (moka-rs/moka#240); here the work is a task
//! of its own, which no request can drop.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;

/// The work was lost: its task panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost;

type Flights<K, V> = Arc<Mutex<HashMap<K, watch::Receiver<Option<V>>>>>;

/// Joins equal work.
pub struct SingleFlight<K, V> {
    flights: Flights<K, V>,
}

impl<K, V> Default for SingleFlight<K, V> {
    fn default() -> Self {
        Self { flights: Arc::default() }
    }
}

/// Takes the flight off the list when its work is over, also by a panic.
struct Landing<K: Hash + Eq, V> {
    key: K,
    flights: Flights<K, V>,
}

impl<K: Hash + Eq, V> Drop for Landing<K, V> {
    fn drop(&mut self) {
        self.flights.lock().remove(&self.key);
    }
}

impl<K, V> SingleFlight<K, V>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    /// Does the work, or waits for the same work that is under way. It goes on when the caller leaves. The second value
    /// is true for the caller whose work it was.
    ///
    /// # Errors
    /// [`Lost`] when the work panicked.
    pub async fn join<F>(&self, key: K, work: impl FnOnce() -> F) -> Result<(V, bool), Lost>
    where
        F: Future<Output = V> + Send + 'static,
    {
        let (mut landed, ours) = self.board(key, work);
        let value = landed.wait_for(Option::is_some).await.map_err(|_| Lost)?.clone();
        value.map(|value| (value, ours)).ok_or(Lost)
    }

    fn board<F>(&self, key: K, work: impl FnOnce() -> F) -> (watch::Receiver<Option<V>>, bool)
    where
        F: Future<Output = V> + Send + 'static,
    {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&key) {
            return (flight.clone(), false);
        }
        let (land, landed) = watch::channel(None);
        flights.insert(key.clone(), landed.clone());
        drop(flights);
        let landing = Landing { key, flights: Arc::clone(&self.flights) };
        let work = work();
        tokio::spawn(async move {
            let value = work.await;
            // Off the list before the value is out: who comes later asks anew.
            drop(landing);
            land.send_replace(Some(value));
        });
        (landed, true)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::sync::Notify;

    use super::*;

    #[tokio::test]
    async fn equal_work_is_done_once_and_anew_afterwards() {
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
        assert_eq!((one, two), (Ok((1, true)), Ok((1, false))));
        gate.notify_one();
        assert_eq!(flights.join("a", work).await, Ok((2, true)));
        assert!(flights.flights.lock().is_empty());
    }

    #[tokio::test]
    async fn goes_on_when_the_first_caller_leaves() {
        let flights: SingleFlight<&str, u32> = SingleFlight::default();
        let gate = Arc::new(Notify::new());
        let held = Arc::clone(&gate);
        let (landed, _) = flights.board("a", || async move {
            held.notified().await;
            7
        });
        drop(landed);
        let late = flights.join("a", || async { 8 });
        gate.notify_one();
        assert_eq!(late.await, Ok((7, false)));
    }

    #[tokio::test]
    async fn a_panic_is_told_and_does_not_stick() {
        let flights: SingleFlight<&str, u32> = SingleFlight::default();
        assert_eq!(flights.join("a", || async { panic!("lost") }).await, Err(Lost));
        assert_eq!(flights.join("a", || async { 1 }).await, Ok((1, true)));
    }
}
