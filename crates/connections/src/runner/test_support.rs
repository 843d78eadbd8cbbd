//! Runs jobs without the loops, for the tests of other crates.

use std::sync::Arc;

use bellbird_storage::StorageError;
use tokio::task::JoinSet;

use super::{Jobs, KINDS, lanes_of};
use crate::ConnectionsError;

impl Jobs<'_> {
    /// Runs every due job of a kind, and returns when none is due.
    ///
    /// On a database error, the claimed jobs run again when their leases end.
    pub async fn run_due(self, kind: &str) -> Result<(), ConnectionsError> {
        for kind in KINDS.iter().copied().filter(|known| known.name == kind) {
            for provider in lanes_of(kind) {
                loop {
                    let (mut running, places) = (JoinSet::new(), self.0.places(kind, provider));
                    while let Ok(place) = Arc::clone(&places).try_acquire_owned() {
                        if !self.start_due(kind, provider, place, &mut running).await? {
                            break;
                        }
                    }
                    if running.is_empty() {
                        break;
                    }
                    while let Some(ended) = running.join_next().await {
                        if let Ok(Err(
                            error @ ConnectionsError::Storage(StorageError::Unavailable(_)),
                        )) = ended
                        {
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(())
    }
}
