//! The user at the provider on whom consents hang: registered once, by whoever comes first.

use std::time::Duration;

use bellbird_domain::{User, UserId};
use bellbird_providers::registry::PROVIDERS;
use bellbird_providers::{Error, Linking};
use bellbird_storage::{ClaimedProviderUser, ProviderUser};
use secrecy::SecretString;
use tokio::time::Instant;
use uuid::Uuid;

use crate::{Connections, ConnectionsError};

/// How long a registration is somebody's: as long as its calls may take, and the database before and after them.
const LEASE: Duration = Duration::from_secs(30);
const REGISTER_DEADLINE: Duration = Duration::from_secs(20);
/// How long one waits for somebody else's registration, and how often one looks.
const WAIT_MAX: Duration = Duration::from_secs(20);
const LOOK_EVERY: Duration = Duration::from_millis(250);

impl Connections {
    /// The grant of the user's own user at a provider, who is registered if there is none yet. Under which reference
    /// that is tried is written down before, so that whatever became of an attempt that was interrupted can be found
    /// and removed before the next one.
    pub(crate) async fn owner(
        &self,
        user: &User,
        provider: &str,
        linking: &dyn Linking,
    ) -> Result<SecretString, ConnectionsError> {
        let give_up = Instant::now() + WAIT_MAX;
        loop {
            let (now, lease) = self.lease(LEASE);
            match self.storage.claim_provider_user(user.id, provider, now, lease).await? {
                ProviderUser::Ready(owner) => return Ok(owner),
                ProviderUser::Claimed(claim) => {
                    let registered = self.register(user, &claim, linking).await;
                    if registered.is_err() {
                        self.storage.release_provider_user(&claim).await?;
                    }
                    if let Some(owner) = registered? {
                        return Ok(owner);
                    }
                }
                ProviderUser::Busy if Instant::now() >= give_up => return Err(ConnectionsError::Busy),
                ProviderUser::Busy => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// None when somebody else has overtaken the claim.
    async fn register(
        &self,
        user: &User,
        claim: &ClaimedProviderUser,
        linking: &dyn Linking,
    ) -> Result<Option<SecretString>, ConnectionsError> {
        let call = self.call_within(REGISTER_DEADLINE);
        if let Some(abandoned) = &claim.abandoned {
            linking.abandon(&call, abandoned, &user.email).await?;
        }
        let reference = format!("bellbird-{}", Uuid::new_v4());
        if !self.storage.begin_provider_user(claim, &reference).await? {
            return Ok(None);
        }
        let owner = match linking.register(&call, &reference, &user.email).await {
            Err(Error::BadGrant(_)) => return Err(ConnectionsError::NoConsentPage(claim.provider.clone())),
            registered => registered?,
        };
        let owner_id = linking.owner_id(&owner);
        if self.storage.finish_provider_user(claim, owner_id.as_deref(), &owner).await? {
            tracing::info!(user_id = %user.id, provider = claim.provider, "user registered at the provider");
            return Ok(Some(owner));
        }
        linking.unregister(&call, &owner).await?;
        Ok(None)
    }

    /// Removes the user from the providers where we have registered them, for a user who is about to be removed here.
    /// With `forget` the providers are not told.
    ///
    /// # Errors
    /// [`ConnectionsError`] when a provider cannot be told; what was done until then stays done.
    pub async fn unregister(&self, id: UserId, forget: bool) -> Result<(), ConnectionsError> {
        let Some(user) = self.storage.find_user(id).await? else { return Err(ConnectionsError::NotFound) };
        if forget {
            for provider in PROVIDERS {
                self.storage.delete_provider_user(id, provider.name.as_str()).await?;
            }
            return Ok(());
        }
        for record in self.storage.list_provider_users(id).await? {
            let provider = self.provider(&record.provider)?;
            let linking = provider.linking().ok_or_else(|| ConnectionsError::NoConsentPage(record.provider.clone()))?;
            let call = self.call_within(REGISTER_DEADLINE);
            let told = match (&record.owner, &record.reference) {
                (Some(owner), _) => linking.unregister(&call, owner).await,
                (None, Some(reference)) => linking.abandon(&call, reference, &user.email).await,
                (None, None) => Ok(()),
            };
            match told {
                Ok(()) | Err(Error::ReconnectNeeded(_)) => {}
                Err(error) => return Err(error.into()),
            }
            self.storage.delete_provider_user(id, &record.provider).await?;
        }
        Ok(())
    }
}
