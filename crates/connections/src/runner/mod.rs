//! Claims due jobs and runs them.
//!
//! Each kind of job is a [`JobKind`] in a file of its own, listed in [`KINDS`]. Each kind and
//! provider has a lane, with its own limit of running jobs, so a slow provider never delays jobs of
//! another provider or kind.

#[cfg(feature = "test-support")]
mod test_support;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bellbird_limits::jitter::{self, jittered};
use bellbird_providers::registry::PROVIDERS;
use bellbird_storage::{JobKey, LastFailure, StorageError};
use tokio::sync::OwnedSemaphorePermit;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::jobs::JobKind;
use crate::linking::{poll, provider_user};
use crate::provider_events::ProviderEvents;
use crate::state::part;
use crate::{ConnectionsError, cleanup, refresh, removal, sync, user_removal};

/// Every kind of job.
pub(crate) static KINDS: &[&JobKind] = &[
    &refresh::KIND,
    &sync::KIND,
    &removal::KIND,
    &user_removal::KIND,
    &poll::KIND,
    &provider_user::KIND,
    &cleanup::KIND,
];

/// How often a lane with free capacity claims without a signal, before jitter. It costs one indexed
/// read.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

part! {
    /// Runs what outlives a request.
    Jobs
}

/// Every kind of job at every provider that has a limit of its own.
pub(crate) fn lanes() -> impl Iterator<Item = (&'static str, &'static str)> {
    KINDS
        .iter()
        .flat_map(|kind| lanes_of(kind).into_iter().map(|lane| (kind.name, lane)))
}

/// The names of all kinds of jobs.
pub fn job_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|kind| kind.name)
}

impl Jobs<'_> {
    /// Runs due jobs of all kinds until `stop`. Then waits for the running ones.
    ///
    /// Every instance runs this.
    pub async fn run(self, stop: CancellationToken) {
        let mut lanes = JoinSet::new();
        for kind in KINDS
            .iter()
            .copied()
            .filter(|kind| (kind.is_enabled)(self.0))
        {
            for lane in lanes_of(kind) {
                let (state, stop) = (Arc::clone(self.0), stop.clone());
                lanes.spawn(async move { Jobs(&state).run_lane(kind, lane, stop).await });
            }
        }
        let (state, stop) = (Arc::clone(self.0), stop.clone());
        lanes.spawn(async move {
            let prepared = ProviderEvents(&state).prepare_all();
            stop.run_until_cancelled(prepared).await;
        });
        while lanes.join_next().await.is_some() {}
    }

    pub(crate) async fn run_lane(
        self,
        kind: &'static JobKind,
        provider: &'static str,
        stop: CancellationToken,
    ) {
        let mut is_added = !kind.is_periodic;
        let (mut running, mut failure) = (JoinSet::new(), LastFailure::default());
        let places = self.0.places(kind, provider);
        while !stop.is_cancelled() {
            if !is_added {
                let added = self
                    .0
                    .storage
                    .jobs()
                    .insert(&JobKey::of_service(kind.name), "", self.0.clock.now())
                    .await;
                is_added = added.is_ok();
            }
            while running.try_join_next().is_some() {}
            // Before the claim, so that a request that waits for a place gets its turn too.
            let place = tokio::select! {
                biased;
                () = stop.cancelled() => break,
                place = Arc::clone(&places).acquire_owned() => place,
            };
            let Ok(place) = place else { break };
            let started = self.start_due(kind, provider, place, &mut running).await;
            if let Some(error) = failure.news(&started) {
                tracing::warn!(kind = kind.name, provider, error, "could not claim job");
            }
            if matches!(started, Ok(true)) {
                continue;
            }
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                Some(_) = running.join_next() => {}
                () = self.0.lanes.requested(kind.name, provider) => {}
                () = tokio::time::sleep(poll_interval()) => {}
            }
        }
        while running.join_next().await.is_some() {}
    }

    /// Claims a job that is due, and starts it in a task, which keeps the place. Returns false if
    /// none is due.
    async fn start_due(
        self,
        kind: &'static JobKind,
        provider: &str,
        place: OwnedSemaphorePermit,
        running: &mut JoinSet<Result<(), ConnectionsError>>,
    ) -> Result<bool, StorageError> {
        if kind.yields_when_limited
            && self
                .0
                .provider(provider)
                .is_ok_and(|provider| provider.syncs_wait())
        {
            return Ok(false);
        }
        let (now, lease) = self.0.lease(kind.lease);
        let Some(claim) = self
            .0
            .storage
            .jobs()
            .claim_due(kind.name, provider, now, lease)
            .await?
        else {
            return Ok(false);
        };
        if self.0.defers_interrupted(kind, &claim).await? {
            return Ok(true);
        }
        let state = Arc::clone(self.0);
        running.spawn(async move {
            let _place = place;
            let work = (kind.run)(&state, &claim);
            state
                .run_claimed(kind, &claim, work)
                .await
                .map_err(|failed| failed.error)
        });
        Ok(true)
    }
}

/// The providers whose jobs have a limit of their own.
fn lanes_of(kind: &JobKind) -> Vec<&'static str> {
    if kind.has_provider {
        PROVIDERS
            .iter()
            .map(|provider| provider.name.as_str())
            .collect()
    } else {
        vec![""]
    }
}

/// Between 80 and 100 % of [`POLL_INTERVAL`].
fn poll_interval() -> Duration {
    jittered(POLL_INTERVAL * 4 / 5, POLL_INTERVAL / 5, jitter::random())
}
