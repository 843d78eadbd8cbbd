//! Refreshes a connection: reads its status, the end of its consent and its accounts from the
//! provider.
//!
//! Failed reads and provider events request a refresh. Linking schedules several, because accounts
//! may appear later than the consent; these also subscribe to provider events.
//!
//! A refresh is a job, so no request is lost. All instances together run one refresh of a
//! connection at a time. If another is requested meanwhile, it runs afterwards.

use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, UserId};
use bellbird_providers::{CallContext, Cause, Consent, ConsentStatus, Provider};
use bellbird_storage::{ClaimedJob, JobKey, job_kinds};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::account_matching::{match_accounts, new_accounts};
use crate::jobs::{JobKind, claim_or_wait, require_lease};
use crate::state::part;
use crate::{ConnectionsError, lifecycle, schedule};

/// For the provider calls of one refresh.
const REFRESH_DEADLINE: Duration = Duration::from_secs(40);
/// For one subscription to provider events. Other subscriptions wait meanwhile.
const SUBSCRIBE_DEADLINE: Duration = Duration::from_secs(10);
const FAILED_READ_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Longer than [`REFRESH_DEADLINE`], with time for the database.
const LEASE: Duration = Duration::from_secs(60);

pub(crate) static KIND: JobKind = JobKind {
    has_connection: true,
    // Failed reads, provider events and links ask for one.
    ..JobKind::new(job_kinds::REFRESH, LEASE, |state, claim| {
        let cause = Cause::RequestedJob(claim.user_id());
        Box::pin(Refreshes(state).refresh_claimed(claim, Refreshes(state).context(cause)))
    })
};

part! {
    /// Refreshes of a connection.
    Refreshes
}

impl Refreshes<'_> {
    /// Refreshes a connection now and returns its status.
    ///
    /// If a refresh is running already, here or in another instance, returns the stored status
    /// without waiting.
    pub async fn run(
        self,
        user_id: UserId,
        id: ConnectionId,
    ) -> Result<ConnectionStatus, ConnectionsError> {
        let key = JobKey::new(KIND.name, user_id, id);
        let claim = self.0.claim(&KIND, &key).await?;
        self.run_refresh(
            user_id,
            id,
            claim,
            self.context(Cause::RequestedJob(user_id)),
        )
        .await
    }

    /// As [`Self::run`], but if a refresh is running already, waits for it and then refreshes
    /// again. The result of the running one may be outdated.
    pub(crate) async fn run_after_current(
        self,
        user_id: UserId,
        id: ConnectionId,
        cause: Cause,
    ) -> Result<ConnectionStatus, ConnectionsError> {
        let key = JobKey::new(KIND.name, user_id, id);
        let claim = claim_or_wait(Instant::now() + LEASE, || self.0.claim(&KIND, &key)).await?;
        self.run_refresh(
            user_id,
            id,
            claim,
            self.context(cause).for_refresh_of_sync(),
        )
        .await
    }

    /// Refreshes, if there is a claim, and returns the status.
    async fn run_refresh(
        self,
        user_id: UserId,
        id: ConnectionId,
        claim: Option<ClaimedJob>,
        context: CallContext,
    ) -> Result<ConnectionStatus, ConnectionsError> {
        if let Some(claim) = claim {
            let refresh = self.refresh_claimed(&claim, context);
            self.0
                .run_claimed(&KIND, &claim, refresh)
                .await
                .map_err(|failed| failed.error)?;
        }
        let connection = self.0.connection(user_id, id).await?;
        Ok(connection.status)
    }

    fn context(self, cause: Cause) -> CallContext {
        self.0.call_context_within(REFRESH_DEADLINE, cause)
    }

    /// Requests a refresh after a failed read, without waiting for it: at most one in half a
    /// minute, however often a client repeats the read.
    pub fn request_in_background(self, user_id: UserId, id: ConnectionId, provider: &str) {
        let (state, provider) = (Arc::clone(self.0), provider.to_owned());
        let request = async move {
            let key = JobKey::new(KIND.name, user_id, id);
            match state
                .storage
                .jobs()
                .request(&key, state.clock.now(), FAILED_READ_INTERVAL)
                .await
            {
                Ok(_) => state.wake(&KIND, &provider),
                Err(error) => {
                    tracing::warn!(connection_id = %id, %error, "could not request a refresh");
                }
            }
        };
        self.0.tasks.spawn(request.in_current_span());
    }

    /// Refreshes, then releases the job until the next refresh, if one is planned.
    async fn refresh_claimed(
        self,
        claim: &ClaimedJob,
        context: CallContext,
    ) -> Result<(), ConnectionsError> {
        let backfill_ends_at = self
            .0
            .storage
            .refreshes()
            .find_backfill_end(claim.user_id(), claim.subject_id())
            .await?;
        self.refresh_connection(claim, context, backfill_ends_at)
            .await?;
        let now = self.0.clock.now();
        match backfill_ends_at {
            // Until a refresh after the backfill window succeeds, accounts with new ids are matched
            // with stored ones.
            Some(until) if until <= now => require_lease(
                self.0
                    .storage
                    .refreshes()
                    .finish_backfill(claim, None)
                    .await?,
            ),
            Some(until) => {
                self.0
                    .finish_job(claim, schedule::next_refresh_at(now, until))
                    .await
            }
            None => self.0.finish_job(claim, None).await,
        }
    }

    async fn refresh_connection(
        self,
        claim: &ClaimedJob,
        context: CallContext,
        backfill_ends_at: Option<Timestamp>,
    ) -> Result<(), ConnectionsError> {
        let (user, id) = (claim.user_id(), claim.subject_id());
        let connection = self.0.connection(user, id).await?;
        let credentials = self.0.credentials(user, id).await?;
        let provider = self.0.provider(&connection.provider)?;
        let Consent {
            status: mut consent_status,
            expires_at,
        } = provider.consent(&context, &credentials).await?;
        // A provider that omits the end once has not taken it back.
        if expires_at.is_some() && expires_at != connection.consent_expires_at {
            require_lease(
                self.0
                    .storage
                    .refreshes()
                    .set_consent_expiry(claim, expires_at)
                    .await?,
            )?;
        }
        if consent_status == ConsentStatus::Active {
            match self
                .refresh_accounts(
                    claim,
                    (provider.as_ref(), &context),
                    &connection,
                    &credentials,
                    backfill_ends_at,
                )
                .await
            {
                Err(ConnectionsError::ConsentInactive(status)) => {
                    consent_status = ConsentStatus::Broken(status);
                }
                refreshed => refreshed?,
            }
        }
        let Some(next) = lifecycle::next_status(connection.status, consent_status) else {
            return Ok(());
        };
        let (from, now) = (connection.status, self.0.clock.now());
        let first_attempt_at = self.0.event_buffer.first_attempt_at(now);
        // False if another process has changed the status since. That change is the newer one.
        if self
            .0
            .storage
            .refreshes()
            .set_status(claim, from, next, "refreshed", now, first_attempt_at)
            .await?
        {
            tracing::info!(%from, to = %next, "connection status changed");
            self.0.event_buffer.wake();
        }
        Ok(())
    }

    /// Updates the stored accounts to what the provider lists.
    ///
    /// During the backfill window, accounts may still appear. So none counts as missing, and
    /// accounts with new ids are matched with stored ones, hidden ones included.
    async fn refresh_accounts(
        self,
        claim: &ClaimedJob,
        (provider, context): (&dyn Provider, &CallContext),
        connection: &Connection,
        credentials: &SecretString,
        backfill_ends_at: Option<Timestamp>,
    ) -> Result<(), ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let found = provider.accounts(context, credentials).await?;
        let now = self.0.clock.now();
        let is_backfilling = backfill_ends_at.is_some_and(|until| now < until);
        if !found.is_empty() {
            let known_as = if backfill_ends_at.is_some() {
                match_accounts(
                    &self.0.storage.accounts().list_with_hidden(user, id).await?,
                    &found,
                )
            } else {
                Vec::new()
            };
            let accounts = new_accounts(&found, &known_as);
            // Lease lost: these accounts may belong to a consent that the connection no longer has.
            require_lease(
                self.0
                    .storage
                    .refreshes()
                    .apply(claim, &accounts, !is_backfilling, now)
                    .await?,
            )?;
        }
        if is_backfilling {
            self.subscribe_in_background(connection.provider.clone(), user, credentials.clone());
        }
        Ok(())
    }

    fn subscribe_in_background(self, provider: String, user: UserId, credentials: SecretString) {
        let state = Arc::clone(self.0);
        let work = async move {
            if let Ok(provider) = state.provider(&provider) {
                Refreshes(&state)
                    .subscribe(provider.as_ref(), user, &credentials)
                    .await;
            }
        };
        self.0.tasks.spawn(work.in_current_span());
    }

    /// Subscribes to the provider's events for these credentials, if the provider requires that.
    /// Failures are only logged: without events, scheduled syncs and failed reads still notice
    /// changes.
    pub(crate) async fn subscribe(
        self,
        provider: &dyn Provider,
        user: UserId,
        credentials: &SecretString,
    ) {
        let Some(webhook_verifier) = provider.webhook_verifier() else {
            return;
        };
        // Two concurrent calls could both find no subscription, and create it twice.
        let _guard = self.0.subscribe_lock.lock().await;
        let context = self
            .0
            .call_context_within(SUBSCRIBE_DEADLINE, Cause::RequestedJob(user));
        if let Err(error) = webhook_verifier
            .subscribe(&context, credentials, &user.to_string())
            .await
        {
            tracing::warn!(provider = %provider.name(), %error, "could not subscribe to provider events");
        }
    }
}
