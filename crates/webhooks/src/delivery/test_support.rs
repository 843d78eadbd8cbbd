//! Delivers without the loop, for the tests of other crates.

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::{FAILING_QUEUES_MAX, HEALTHY_QUEUES_MAX};
use crate::Webhooks;

impl Webhooks {
    /// Runs all due deliveries and returns when none is left.
    pub async fn run_due_deliveries(&self) {
        let stop = CancellationToken::new();
        let mut slices = JoinSet::new();
        loop {
            // One set for both kinds: failing queues may use all permits that healthy ones leave.
            for (permits, failing) in [
                (HEALTHY_QUEUES_MAX, false),
                (HEALTHY_QUEUES_MAX + FAILING_QUEUES_MAX, true),
            ] {
                let slices = &mut slices;
                let _ = self
                    .start_time_slices(slices, permits, failing, &stop)
                    .await;
            }
            if slices.join_next().await.is_none() {
                return;
            }
        }
    }
}
