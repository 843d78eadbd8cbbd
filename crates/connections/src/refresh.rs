//! Refreshes a connection: reads its status and its accounts from the provider.
//!
//! Failed reads and provider events request a refresh. Linking schedules several, because accounts may appear later
//! than the consent; these also subscribe to provider events.
//!
//! A refresh is a job on the connection's row, so no request is lost. All instances together run one refresh of a
//! connection at a time. If another is requested meanwhile, it runs afterwards.

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, UserId};
use bellbird_providers::{CallContext, ConsentStatus, Provider};
use bellbird_storage::{ClaimedRefresh, NewAccount, StorageError};
use secrecy::SecretString;
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::account_matching::match_accounts;
use crate::import::new_account;
use crate::{Connections, ConnectionsError, lifecycle, run_claims, schedule};

/// For the provider calls of one refresh.
const REFRESH_DEADLINE: Duration = Duration::from_secs(40);
/// For one subscription to provider events. Other subscriptions wait meanwhile.
const SUBSCRIBE_DEADLINE: Duration = Duration::from_secs(10);
/// Longer than [`REFRESH_DEADLINE`], with time for the database.
const LEASE: Duration = Duration::from_secs(60);
/// How often a caller tries to claim a refresh that is running already.
const LEASE_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Refreshes that one instance runs at the same time.
const CONCURRENCY_MAX: u32 = 8;

impl Connections {
    /// Refreshes a connection now and returns its status.
    ///
    /// If a refresh is running already, here or in another instance, returns the stored status without waiting.
    pub async fn refresh(&self, user_id: UserId, id: ConnectionId) -> Result<ConnectionStatus, ConnectionsError> {
        let (now, lease) = self.lease(LEASE);
        if let Some(claim) = self.storage.claim_refresh(user_id, id, now, lease).await? {
            self.run_refresh(&claim).await?;
        }
        let connection = self.storage.find_connection(user_id, id).await?.ok_or(ConnectionsError::NotFound)?;
        Ok(connection.status)
    }

    /// As [`Connections::refresh`], but if a refresh is running already, waits for it and then refreshes again. The
    /// result of the running one may be outdated.
    pub(crate) async fn refresh_after_current(
        &self,
        user_id: UserId,
        id: ConnectionId,
    ) -> Result<ConnectionStatus, ConnectionsError> {
        let deadline = Instant::now() + LEASE;
        loop {
            let (now, lease) = self.lease(LEASE);
            if let Some(claim) = self.storage.claim_refresh(user_id, id, now, lease).await? {
                self.run_refresh(&claim).await?;
                break;
            }
            if Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(LEASE_POLL_INTERVAL).await;
        }
        let connection = self.storage.find_connection(user_id, id).await?.ok_or(ConnectionsError::NotFound)?;
        Ok(connection.status)
    }

    /// Starts a refresh without waiting for it. Concurrent calls for one connection share a refresh.
    pub fn refresh_in_background(&self, user_id: UserId, id: ConnectionId) {
        let connections = self.clone();
        let work = async move {
            let refreshes = std::sync::Arc::clone(&connections.refreshes);
            let refresh = || async move {
                if let Err(error) = connections.refresh(user_id, id).await {
                    tracing::warn!(connection_id = %id, error = %error, "could not refresh connection");
                }
            };
            let _ = refreshes.join(id, refresh).await;
        };
        tokio::spawn(work.in_current_span());
    }

    /// Runs every due refresh, a few at a time, and returns when none is due.
    ///
    /// Every instance calls this periodically. On a database error, the claimed jobs run again when their leases
    /// expire.
    pub async fn run_due_refreshes(&self) -> Result<(), ConnectionsError> {
        loop {
            let (now, lease) = self.lease(LEASE);
            let claims = self.storage.claim_due_refreshes(now, lease, CONCURRENCY_MAX).await?;
            if claims.is_empty() {
                return Ok(());
            }
            run_claims(claims, |claim| {
                let connections = self.clone();
                async move {
                    match connections.run_refresh(&claim).await {
                        Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_))) => Err(error),
                        Err(error) => {
                            let id = claim.connection_id;
                            tracing::warn!(connection_id = %id, %error, "could not refresh connection");
                            Ok(())
                        }
                        Ok(()) => Ok(()),
                    }
                }
            })
            .await?;
        }
    }

    /// Waits until this process requests a refresh.
    pub async fn refresh_requested(&self) {
        self.job_signals.refreshes.notified().await;
    }

    /// Runs a claimed refresh, then releases the claim with the time of the next refresh, if any.
    async fn run_refresh(&self, claim: &ClaimedRefresh) -> Result<(), ConnectionsError> {
        let result = self.refresh_claimed(claim).await;
        // The lease expires, and the job runs again.
        if let Err(ConnectionsError::Storage(StorageError::Unavailable(_))) = result {
            return result;
        }
        let now = self.clock.now();
        // Until a refresh after the backfill window succeeds, accounts with new ids are matched with stored ones.
        let is_backfill_done = result.is_ok() && claim.backfill_ends_at.is_some_and(|until| until <= now);
        let failed = result.as_ref().is_err_and(ConnectionsError::is_transient);
        let next = schedule::next_refresh_at(claim.attempts, failed, now, claim.backfill_ends_at);
        let attempts = if next.is_some() { claim.attempts.saturating_add(1) } else { 0 };
        self.storage.finish_refresh(claim, next, attempts, is_backfill_done).await?;
        result
    }

    async fn refresh_claimed(&self, claim: &ClaimedRefresh) -> Result<(), ConnectionsError> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let connection = self.storage.find_connection(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let credentials = self.storage.find_credentials(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let provider = self.provider(&connection.provider)?;
        let context = self.call_context_within(REFRESH_DEADLINE);
        let mut consent_status = provider.consent_status(&context, &credentials).await?;
        if consent_status == ConsentStatus::Active {
            match self.refresh_accounts(provider.as_ref(), &context, &connection, &credentials, claim).await {
                Err(ConnectionsError::ConsentInactive(status)) => consent_status = ConsentStatus::Broken(status),
                refreshed => refreshed?,
            }
        }
        let Some(next) = lifecycle::next_status(connection.status, consent_status) else { return Ok(()) };
        // False if another process has changed the status since. That change is the newer one.
        if self.storage.set_status_after_refresh(claim, connection.status, next, "refreshed", self.clock.now()).await? {
            tracing::info!(connection_id = %id, from = %connection.status, to = %next, "connection status changed");
        }
        Ok(())
    }

    /// Updates the stored accounts to what the provider lists.
    ///
    /// During the backfill window, accounts may still appear. So none is deleted, and accounts with new ids are matched
    /// with stored ones.
    async fn refresh_accounts(
        &self,
        provider: &dyn Provider,
        context: &CallContext,
        connection: &Connection,
        credentials: &SecretString,
        claim: &ClaimedRefresh,
    ) -> Result<(), ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let found = provider.accounts(context, credentials).await?;
        let now = self.clock.now();
        let is_backfilling = claim.backfill_ends_at.is_some_and(|until| now < until);
        if !found.is_empty() {
            let known_as = if claim.backfill_ends_at.is_some() {
                match_accounts(&self.storage.list_connection_accounts(user, id).await?, &found)
            } else {
                Vec::new()
            };
            let known_as = known_as.into_iter().chain(std::iter::repeat(None));
            let accounts: Vec<NewAccount<'_>> =
                found.iter().zip(known_as).map(|(account, known_as)| new_account(account, known_as)).collect();
            // Lease lost: these accounts may belong to a consent that the connection no longer has.
            if !self.storage.apply_refresh(claim, &accounts, !is_backfilling, now).await? {
                return Err(ConnectionsError::Busy);
            }
        }
        if is_backfilling {
            self.subscribe_in_background(connection.provider.clone(), user, credentials.clone());
        }
        Ok(())
    }

    fn subscribe_in_background(&self, provider: String, user: UserId, credentials: SecretString) {
        let connections = self.clone();
        let work = async move {
            if let Ok(provider) = connections.provider(&provider) {
                connections.subscribe(provider.as_ref(), user, &credentials).await;
            }
        };
        tokio::spawn(work.in_current_span());
    }

    /// Subscribes to the provider's events for these credentials, if the provider requires that. Failures are only
    /// logged: without events, scheduled syncs and failed reads still notice changes.
    pub(crate) async fn subscribe(&self, provider: &dyn Provider, user: UserId, credentials: &SecretString) {
        let Some(webhook_verifier) = provider.webhook_verifier() else { return };
        // Two concurrent calls could both find no subscription, and create it twice.
        let _guard = self.subscribe_lock.lock().await;
        let context = self.call_context_within(SUBSCRIBE_DEADLINE);
        if let Err(error) = webhook_verifier.subscribe(&context, credentials, &user.to_string()).await {
            tracing::warn!(provider = %provider.name(), %error, "could not subscribe to provider events");
        }
    }
}
