//! Claims queues with due deliveries, and holds each for a time slice.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use bellbird_storage::{ClaimedEndpoint, DueDelivery, SealError, StorageError};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;

use super::ping::PingError;
use super::rebuild::REBUILD_DEADLINE;
use super::schedule::LATE_ATTEMPT;
use super::send::ConnectTime;
use super::sign::Signer;
use crate::Webhooks;
use crate::target::check_url;

/// Number of deliveries loaded in one query.
pub(super) const BATCH_SIZE: u32 = 128;
/// Length of a time slice. It starts no attempt after that.
const TIME_SLICE: Duration = Duration::from_secs(10);
/// Time for running attempts to finish when the service stops.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(8);
/// Part of the lease reserved for a slow database.
const DATABASE_MARGIN: Duration = Duration::from_secs(20);

/// A claim, and what its holder needs to send.
pub(super) struct TimeSlice {
    pub(super) claim: ClaimedEndpoint,
    /// None: the secret's key is not configured here.
    pub(super) signer: Option<Signer>,
    pub(super) url: Url,
    /// No attempt starts after this time.
    pub(super) ends_at: Instant,
    /// No request is sent after this time, because the lease could expire before the response
    /// comes.
    pub(super) cutoff: Instant,
    pub(super) lease_ends_at: Instant,
}

impl TimeSlice {
    /// A dead endpoint must not hold a permit for long, but a slow one has to be reached in the
    /// end.
    pub(super) fn connect_time(&self, delivery: &DueDelivery) -> ConnectTime {
        if self.claim.is_failing && delivery.attempts.saturating_add(1) < LATE_ATTEMPT {
            ConnectTime::Short
        } else {
            ConnectTime::Usual
        }
    }
}

/// Why a time slice ended early.
pub(super) enum ServeError {
    /// Another instance has claimed the endpoint, or the endpoint was disabled or removed
    /// meanwhile.
    LeaseLost,
    /// This time slice disabled the endpoint.
    Disabled,
    Storage(StorageError),
}

impl From<StorageError> for ServeError {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl Webhooks {
    /// Claims an endpoint for each free permit, and starts its time slice. Returns whether all
    /// permits are in use now.
    pub(super) async fn start_time_slices(
        &self,
        slices: &mut JoinSet<()>,
        permits: usize,
        failing: bool,
        stop: &CancellationToken,
    ) -> Result<bool, StorageError> {
        while slices.try_join_next().is_some() {}
        let free = u32::try_from(permits.saturating_sub(slices.len())).unwrap_or(0);
        if free == 0 {
            return Ok(true);
        }
        let now = self.inner.clock.now();
        let lease = now.plus(self.lease());
        let deliveries = self.inner.storage.deliveries();
        let claims = deliveries.claim_endpoints(now, lease, free, failing).await;
        for claim in claims? {
            let (webhooks, stop) = (self.clone(), stop.clone());
            slices.spawn(async move { webhooks.run_time_slice(claim, &stop).await });
        }
        Ok(slices.len() >= permits)
    }

    /// Covers a time slice, its last rebuild and exchange, and a slow database.
    fn lease(&self) -> Duration {
        TIME_SLICE + REBUILD_DEADLINE + self.inner.settings.timeout + DATABASE_MARGIN
    }

    async fn run_time_slice(&self, claim: ClaimedEndpoint, stop: &CancellationToken) {
        let id = claim.endpoint_id;
        let shutdown_grace = async {
            stop.cancelled().await;
            tokio::time::sleep(SHUTDOWN_GRACE).await;
        };
        let served = tokio::select! {
            biased;
            served = self.serve(&claim, stop) => served,
            // Aborts the running attempts. Their deliveries stay due, so those events are sent
            // again.
            () = shutdown_grace => Ok(()),
        };
        match served {
            Ok(()) | Err(ServeError::Disabled) => {
                if let Err(error) = self
                    .inner
                    .storage
                    .deliveries()
                    .release_endpoint(&claim, self.inner.clock.now())
                    .await
                {
                    tracing::warn!(endpoint_id = %id, %error, "could not release endpoint lease; it will expire");
                }
            }
            Err(ServeError::LeaseLost) => {
                tracing::info!(endpoint_id = %id, "endpoint lease lost");
            }
            Err(ServeError::Storage(error)) => {
                tracing::warn!(endpoint_id = %id, %error, "could not finish time slice");
            }
        }
    }

    /// Finds where the deliveries of a claim go, and what signs them. None if nothing can be sent:
    /// the endpoint is disabled or removed, or this disables it, or the queue joins the failing
    /// ones.
    pub(super) async fn open_slice(
        &self,
        claim: &ClaimedEndpoint,
    ) -> Result<Option<Arc<TimeSlice>>, ServeError> {
        let started_at = Instant::now();
        let (deliveries, now) = (self.inner.storage.deliveries(), self.inner.clock.now());
        let Some(url) = &claim.url else {
            deliveries.end_deliveries(claim, now).await?;
            return Ok(None);
        };
        if deliveries.join_failing(claim, now).await? {
            return Ok(None);
        }
        let Ok(url) = check_url(url, self.inner.settings.rules) else {
            self.disable(claim, "address not allowed").await?;
            return Ok(None);
        };
        let signer = match self.signer(claim.owner_id, claim.endpoint_id).await {
            Ok(Some(signer)) => Some(signer),
            // It was removed since the claim.
            Ok(None) => return Ok(None),
            // The operator can configure the key again, so this disables nothing. The attempts
            // fail.
            Err(PingError::Storage(StorageError::Sealed(SealError::UnknownKeyId(_)))) => None,
            Err(PingError::Storage(error))
                if !matches!(error, StorageError::Sealed(_) | StorageError::Corrupt(_)) =>
            {
                return Err(error.into());
            }
            Err(_) => {
                self.disable(claim, "secret broken").await?;
                return Ok(None);
            }
        };
        let ends_at = started_at + TIME_SLICE;
        Ok(Some(Arc::new(TimeSlice {
            claim: claim.clone(),
            signer,
            url,
            ends_at,
            cutoff: ends_at + REBUILD_DEADLINE,
            lease_ends_at: started_at + self.lease(),
        })))
    }

    /// Keeps the deliveries that are still due, if the lease lasts for an exchange. A paused
    /// machine may have lost it.
    pub(super) async fn retain_due(
        &self,
        slice: &TimeSlice,
        deliveries: &mut Vec<DueDelivery>,
    ) -> Result<(), StorageError> {
        if deliveries.is_empty() {
            return Ok(());
        }
        let now = self.inner.clock.now();
        let lease_after = now.plus(self.inner.settings.timeout);
        // All that one batch listed are still among the first of them, and so are those that are
        // being sent.
        let ids = self
            .inner
            .storage
            .deliveries()
            .list_due_ids(&slice.claim, now, lease_after, 2 * BATCH_SIZE)
            .await?;
        deliveries.retain(|delivery| ids.contains(&delivery.event.id));
        Ok(())
    }

    /// Whether nothing has changed while the rows were read again.
    pub(super) async fn is_still_due(&self, slice: &TimeSlice, delivery: &DueDelivery) -> bool {
        let mut deliveries = vec![delivery.clone()];
        self.retain_due(slice, &mut deliveries).await.is_ok() && !deliveries.is_empty()
    }
}
