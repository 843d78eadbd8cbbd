//! Deletes what has expired: links, link sessions, provider events, webhook events. One instance does it, every hour.

use std::time::Duration;

use bellbird_storage::ClaimedJob;
use bellbird_webhooks::delivery::cleanup;

use crate::jobs::JobKind;
use crate::{Connections, ConnectionsError};

const INTERVAL: Duration = Duration::from_secs(3_600);

pub(crate) static KIND: JobKind = JobKind {
    name: "cleanup",
    is_periodic: true,
    has_connection: false,
    lease: Duration::from_secs(60),
    concurrency_max: 1,
    is_enabled: |_| true,
    run: |connections, claim| Box::pin(connections.clean_up(claim)),
};

impl Connections {
    async fn clean_up(&self, claim: &ClaimedJob) -> Result<(), ConnectionsError> {
        let now = self.clock.now();
        self.storage.link_sessions().delete_outdated(now).await?;
        cleanup::delete_outdated(&self.storage, now).await?;
        self.finish_job(claim, now.saturating_add(INTERVAL).ok()).await
    }
}
