//! Counts how often each key is used on each route, in memory for a minute.

use std::collections::HashMap;

use axum::extract::MatchedPath;
use bellbird_domain::{Caller, KeyId, UserId};
use bellbird_storage::{KeyReadCount, Storage, StorageError};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::http::route_metrics::UNKNOWN_ROUTE;

/// Counts in one transaction.
const BATCH_SIZE: usize = 500;

/// The counts since they were last written.
#[derive(Default)]
pub(crate) struct KeyReads {
    counts: Mutex<Counts>,
}

/// A key is used on few routes, so a list of them is as fast as a map.
type Counts = HashMap<(UserId, KeyId), Vec<(Option<MatchedPath>, u64)>>;

impl KeyReads {
    /// `None` counts a path that does not exist.
    pub(crate) fn count(&self, caller: &Caller, route: Option<&MatchedPath>) {
        let mut counts = self.counts.lock();
        let routes = counts.entry((caller.user_id, caller.key_id)).or_default();
        let is_same = |counted: &Option<MatchedPath>| {
            counted.as_ref().map(MatchedPath::as_str) == route.map(MatchedPath::as_str)
        };
        match routes.iter_mut().find(|(counted, _)| is_same(counted)) {
            Some((_, requests)) => *requests = requests.saturating_add(1),
            None => routes.push((route.cloned(), 1)),
        }
    }

    /// Writes the counts since the last call. If the database cannot be used, they are lost.
    pub(crate) async fn write(
        &self,
        storage: &Storage,
        now: Timestamp,
    ) -> Result<(), StorageError> {
        let taken = std::mem::take(&mut *self.counts.lock());
        let mut counts = Vec::new();
        for (&(user_id, key_id), routes) in &taken {
            for (route, requests) in routes {
                counts.push(KeyReadCount {
                    user_id,
                    key_id,
                    route: route.as_ref().map_or(UNKNOWN_ROUTE, MatchedPath::as_str),
                    requests: *requests,
                });
            }
        }
        counts.sort();
        for batch in counts.chunks(BATCH_SIZE) {
            storage.key_reads().add(batch, now).await?;
        }
        Ok(())
    }
}
