//! Stores the registrations of our users at providers that require one before linking, with the
//! credentials that the provider returned.
//!
//! Deleting the row here leaves the registration at the provider, so a user must not be registered
//! twice. Registering is a job (see `jobs/mod.rs`), which ends with the registration. The reference
//! is stored before the attempt, so that an interrupted registration can be found and undone at the
//! provider.

use bellbird_domain::UserId;
use jiff::Timestamp;
use secrecy::SecretString;

use crate::ProviderUsers;
use crate::db::{from_row, params, statements};
use crate::digest::provider_user_digest;
use crate::error::Result;
use crate::jobs::{self, ClaimedJob, JobKey, job_kinds};
use crate::locks::{begin_locked_write, lock_user, lock_user_if_exists};
use crate::secrets::store::{SecretSlot, delete_secret};

statements! {
    INSERT = "INSERT INTO provider_users (user_id, provider, created_at) VALUES ($1, $2, $3)
        ON CONFLICT (user_id, provider) DO NOTHING";

    FIND_REFERENCE = "SELECT reference FROM provider_users WHERE user_id = $1 AND provider = $2";

    SET_REFERENCE = "UPDATE provider_users SET reference = $3 WHERE user_id = $1 AND provider = $2";

    FINISH = "UPDATE provider_users SET provider_user_digest = $3 WHERE user_id = $1 AND provider = $2";

    LIST = "SELECT provider, reference FROM provider_users WHERE user_id = $1 ORDER BY provider";

    DELETE = "DELETE FROM provider_users WHERE user_id = $1 AND provider = $2";

    DELETE_REGISTERED = "DELETE FROM provider_users WHERE user_id = $1 AND provider = $2 AND provider_user_digest = $3
        AND EXISTS (SELECT s.subject FROM secrets s
            WHERE s.user_id = $1 AND s.purpose = 'provider_user' AND s.subject = $2)";
}

/// `Debug` shows no credentials.
#[derive(Debug)]
pub enum ProviderUserState {
    /// Registered, with these credentials.
    Ready(SecretString),
    /// The caller registers the user, before the lease ends.
    Claimed(ClaimedProviderUser),
    /// Another task holds the lease.
    Busy,
}

/// The right to register a user, until the lease ends and another task claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedProviderUser {
    pub job: ClaimedJob,
    /// The reference of an earlier attempt with an unknown outcome.
    pub abandoned_reference: Option<String>,
}

/// A registration, complete or not. `Debug` shows no credentials.
#[derive(Debug, Clone)]
pub struct ProviderUserRecord {
    pub provider: String,
    /// The reference of the last attempt.
    pub reference: Option<String>,
    /// None until the registration is complete.
    pub credentials: Option<SecretString>,
}

impl ProviderUsers<'_> {
    /// Returns the user's credentials at a provider, or claims the registration if there are none.
    pub async fn claim(
        self,
        user: UserId,
        provider: &str,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<ProviderUserState> {
        if let Some(credentials) = self.find_credentials(user, provider).await? {
            return Ok(ProviderUserState::Ready(credentials));
        }
        let mut tx = self.db.begin().await?;
        lock_user(&mut tx, user).await?;
        if let Some(credentials) = self
            .secrets()
            .find_in(&mut tx, &SecretSlot::provider_user(user, provider))
            .await?
        {
            tx.rollback().await;
            return Ok(ProviderUserState::Ready(credentials));
        }
        let key = JobKey::new(job_kinds::PROVIDER_USER, user, provider);
        tx.run(INSERT, params![user, provider, now]).await?;
        jobs::insert(&mut tx, &key, provider, Some(now)).await?;
        let Some(job) = jobs::claim(&mut tx, self.holder, &key, now, lease_until).await? else {
            tx.rollback().await;
            return Ok(ProviderUserState::Busy);
        };
        let abandoned_reference = tx.value(FIND_REFERENCE, params![user, provider]).await?;
        tx.commit().await?;
        Ok(ProviderUserState::Claimed(ClaimedProviderUser {
            job,
            abandoned_reference,
        }))
    }

    /// The reference of an unfinished registration, for its claimed job.
    pub async fn find_abandoned_reference(self, job: &ClaimedJob) -> Result<Option<String>> {
        let values = params![job.user_id(), &job.provider];
        self.db.value(FIND_REFERENCE, values).await
    }

    /// Stores the reference before the registration is attempted. Returns false, and changes
    /// nothing, if the lease was lost.
    pub async fn set_reference(self, claim: &ClaimedProviderUser, reference: &str) -> Result<bool> {
        let (user, provider) = (claim.job.user_id(), claim.job.provider.as_str());
        let Some(mut tx) = jobs::begin_held(&self.db, &claim.job).await? else {
            return Ok(false);
        };
        tx.run(SET_REFERENCE, params![user, provider, reference])
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Deletes an unfinished registration, which does not exist at the provider. Returns false, and
    /// changes nothing, if the lease was lost.
    pub async fn delete_unfinished(self, job: &ClaimedJob) -> Result<bool> {
        let Some(mut tx) = jobs::begin_deleted(&self.db, job).await? else {
            return Ok(false);
        };
        tx.run(DELETE, params![job.user_id(), &job.provider])
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Completes a registration: seals the credentials and deletes the job. `provider_user_id` is
    /// the provider's id of the user, which provider events name. Returns false, and changes
    /// nothing, if the lease was lost.
    pub async fn finish(
        self,
        claim: &ClaimedProviderUser,
        provider_user_id: Option<&str>,
        credentials: &SecretString,
    ) -> Result<bool> {
        let (user, provider) = (claim.job.user_id(), claim.job.provider.as_str());
        let Some(mut tx) = jobs::begin_deleted(&self.db, &claim.job).await? else {
            return Ok(false);
        };
        let provider_user_id = provider_user_id.map(provider_user_digest);
        tx.run(FINISH, params![user, provider, provider_user_id.as_deref()])
            .await?;
        self.secrets()
            .store(
                &mut tx,
                &SecretSlot::provider_user(user, provider),
                credentials,
            )
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// The credentials of a user whom we registered at a provider.
    pub async fn find_credentials(
        self,
        user: UserId,
        provider: &str,
    ) -> Result<Option<SecretString>> {
        self.secrets()
            .find(&SecretSlot::provider_user(user, provider))
            .await
    }

    /// All registrations of a user, by provider, including incomplete ones.
    pub async fn list(self, user: UserId) -> Result<Vec<ProviderUserRecord>> {
        let mut records = self.db.all(LIST, params![user], record).await?;
        for record in &mut records {
            record.credentials = self.find_credentials(user, &record.provider).await?;
        }
        Ok(records)
    }

    /// Deletes a registration and its credentials here, not at the provider. Idempotent. A task
    /// that holds the claim loses its lease.
    pub async fn delete(self, user: UserId, provider: &str) -> Result<()> {
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(());
        }
        jobs::delete_of(&mut tx, user, provider).await?;
        tx.run(DELETE, params![user, provider]).await?;
        delete_secret(&mut tx, &SecretSlot::provider_user(user, provider)).await?;
        tx.commit().await
    }

    /// As [`Self::delete`], but only if the user is registered under this provider id. Otherwise
    /// returns false and changes nothing.
    pub async fn delete_of(
        self,
        user: UserId,
        provider: &str,
        provider_user_id: &str,
    ) -> Result<bool> {
        let digest = provider_user_digest(provider_user_id);
        let values = params![user, provider, &digest];
        let Some(mut tx) = begin_locked_write(&self.db, user, DELETE_REGISTERED, values).await?
        else {
            return Ok(false);
        };
        delete_secret(&mut tx, &SecretSlot::provider_user(user, provider)).await?;
        tx.commit().await?;
        Ok(true)
    }
}

from_row! {
    fn record(row) -> ProviderUserRecord {
        provider, reference, credentials = None,
    }
}
