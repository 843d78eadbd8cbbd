//! Registers provider users, at providers where a user must be registered before the first consent.
//!
//! Each user is registered once at each provider. The registration is a job, whose lease keeps
//! concurrent sessions and instances from doing it twice.

use std::time::Duration;

use bellbird_domain::{User, UserId};
use bellbird_providers::registry::PROVIDERS;
use bellbird_providers::{Cause, Error, Linking};
use bellbird_storage::{ClaimedJob, ClaimedProviderUser, ProviderUserState, job_kinds};
use secrecy::SecretString;
use tokio::time::Instant;
use uuid::Uuid;

use crate::ConnectionsError;
use crate::jobs::{FailedRun, JobKind, claim_or_wait, require_lease};
use crate::linking::Links;
use crate::state::linking_of;

/// Longer than [`REGISTER_DEADLINE`], with time for the database before and after it.
const LEASE: Duration = Duration::from_secs(30);
/// For the provider calls of one registration.
const REGISTER_DEADLINE: Duration = Duration::from_secs(20);
/// How long a caller waits for a registration by another process.
const WAIT_MAX: Duration = Duration::from_secs(20);

/// A registration that was interrupted or failed is undone at the provider, unless the user tries
/// again before.
pub(crate) static KIND: JobKind = JobKind {
    concurrency_max: |_, _| 4,
    ..JobKind::new(job_kinds::PROVIDER_USER, LEASE, |state, claim| {
        Box::pin(Links(state).undo_registration(claim))
    })
};

impl Links<'_> {
    /// Returns the credentials of the user's provider user, who is registered first if necessary.
    ///
    /// The reference of a registration is stored before the attempt. So the next attempt can find
    /// and remove what an interrupted one left at the provider.
    pub(crate) async fn ensure_provider_user(
        self,
        user: &User,
        provider: &str,
        linking: &dyn Linking,
    ) -> Result<SecretString, ConnectionsError> {
        let deadline = Instant::now() + WAIT_MAX;
        loop {
            let state = claim_or_wait(deadline, async || {
                let (now, lease) = self.0.lease(LEASE);
                match self
                    .0
                    .storage
                    .provider_users()
                    .claim(user.id, provider, now, lease)
                    .await?
                {
                    ProviderUserState::Busy => Ok(None),
                    state => Ok(Some(state)),
                }
            });
            let claim = match state.await? {
                Some(ProviderUserState::Ready(provider_user)) => return Ok(provider_user),
                Some(ProviderUserState::Claimed(claim)) => claim,
                Some(ProviderUserState::Busy) | None => return Err(ConnectionsError::Busy),
            };
            let registration = self.register_provider_user(user, &claim, linking);
            match self.0.run_claimed(&KIND, &claim.job, registration).await {
                Ok(provider_user) => return Ok(provider_user),
                Err(FailedRun {
                    error: ConnectionsError::Busy,
                    ..
                }) => {}
                Err(FailedRun { error, .. }) => return Err(error),
            }
        }
    }

    /// Removes what an unfinished registration may have left at the provider.
    async fn undo_registration(self, job: &ClaimedJob) -> Result<(), ConnectionsError> {
        let user = self
            .0
            .storage
            .users()
            .find(job.user_id())
            .await?
            .ok_or(ConnectionsError::NotFound)?;
        if let Some(reference) = self
            .0
            .storage
            .provider_users()
            .find_abandoned_reference(job)
            .await?
        {
            let context = self
                .0
                .call_context_within(REGISTER_DEADLINE, Cause::RequestedJob(user.id));
            let provider = self.0.provider(&job.provider)?;
            linking_of(provider.as_ref())?
                .abandon_registration(&context, &reference, &user.email)
                .await?;
        }
        require_lease(
            self.0
                .storage
                .provider_users()
                .delete_unfinished(job)
                .await?,
        )
    }

    /// Fails with [`ConnectionsError::Busy`] if the lease was lost.
    async fn register_provider_user(
        self,
        user: &User,
        claim: &ClaimedProviderUser,
        linking: &dyn Linking,
    ) -> Result<SecretString, ConnectionsError> {
        let context = self
            .0
            .call_context_within(REGISTER_DEADLINE, Cause::Request(user.id));
        if let Some(abandoned) = &claim.abandoned_reference {
            linking
                .abandon_registration(&context, abandoned, &user.email)
                .await?;
        }
        let reference = format!("bellbird-{}", Uuid::new_v4());
        require_lease(
            self.0
                .storage
                .provider_users()
                .set_reference(claim, &reference)
                .await?,
        )?;
        let provider_user = match linking.register(&context, &reference, &user.email).await {
            Err(Error::InvalidCredentials(_)) => {
                return Err(ConnectionsError::NoConsentPage(claim.job.provider.clone()));
            }
            registered => registered?,
        };
        let provider_user_id = linking.provider_user_id(&provider_user);
        if self
            .0
            .storage
            .provider_users()
            .finish(claim, provider_user_id.as_deref(), &provider_user)
            .await?
        {
            tracing::info!(user_id = %user.id, provider = claim.job.provider, "provider user registered");
            return Ok(provider_user);
        }
        linking.unregister(&context, &provider_user).await?;
        Err(ConnectionsError::Busy)
    }

    /// Unregisters a user at all providers, before the user is removed here. With `local_only`,
    /// only deletes the stored registrations, without any provider call.
    ///
    /// On an error, finished unregistrations stay; call it again for the rest.
    pub async fn unregister_provider_users(
        self,
        id: UserId,
        local_only: bool,
    ) -> Result<(), ConnectionsError> {
        let Some(user) = self.0.storage.users().find(id).await? else {
            return Err(ConnectionsError::NotFound);
        };
        if local_only {
            for provider in PROVIDERS {
                self.0
                    .storage
                    .provider_users()
                    .delete(id, provider.name.as_str())
                    .await?;
            }
            return Ok(());
        }
        for record in self.0.storage.provider_users().list(id).await? {
            let provider = self.0.provider(&record.provider)?;
            let linking = linking_of(provider.as_ref())?;
            let context = self
                .0
                .call_context_within(REGISTER_DEADLINE, Cause::Request(user.id));
            let removed = match (&record.credentials, &record.reference) {
                (Some(provider_user), _) => linking.unregister(&context, provider_user).await,
                (None, Some(reference)) => {
                    linking
                        .abandon_registration(&context, reference, &user.email)
                        .await
                }
                (None, None) => Ok(()),
            };
            match removed {
                Ok(()) | Err(Error::ReconnectNeeded(_)) => {}
                Err(error) => return Err(error.into()),
            }
            self.0
                .storage
                .provider_users()
                .delete(id, &record.provider)
                .await?;
        }
        Ok(())
    }
}
