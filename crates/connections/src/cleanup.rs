//! Deletes what has expired: links, consent sessions, keys, provider events, webhook events, and
//! what is remembered of operators' requests. Before that, tells endpoints of consents that expire
//! soon. One instance does it, every hour.

use std::time::Duration;

use bellbird_storage::ClaimedJob;
use bellbird_webhooks::delivery::cleanup;

use crate::ConnectionsError;
use crate::jobs::JobKind;
use crate::state::State;

const INTERVAL: Duration = Duration::from_secs(3_600);

pub(crate) static KIND: JobKind = JobKind {
    is_periodic: true,
    has_provider: false,
    concurrency_max: |_, _| 1,
    ..JobKind::new("cleanup", Duration::from_secs(60), |state, claim| {
        Box::pin(clean_up(state, claim))
    })
};

async fn clean_up(state: &State, claim: &ClaimedJob) -> Result<(), ConnectionsError> {
    let now = state.clock.now();
    state.storage.connections().report_expiring(now).await?;
    state
        .storage
        .consent_sessions()
        .delete_outdated(now)
        .await?;
    state.storage.audit().delete_outdated_requests(now).await?;
    state.storage.audit().delete_outdated(now).await?;
    state.storage.keys().delete_ended(now).await?;
    state
        .storage
        .connections()
        .delete_outdated_audit(now)
        .await?;
    state.storage.key_reads().delete_outdated(now).await?;
    state.storage.sessions().forget_browsers(now).await?;
    cleanup::delete_outdated(&state.storage, now).await?;
    state
        .finish_job(claim, now.saturating_add(INTERVAL).ok())
        .await
}
