//! Stores the registrations of our users at providers that require one before linking, with the credentials that the
//! provider returned.
//!
//! Deleting the row here leaves the registration at the provider, so a user must not be registered twice. Registering
//! is claimed with a lease and a fence, as in `connections/removals.rs`. The reference is stored before the attempt, so
//! that an interrupted registration can be found and undone at the provider.

use bellbird_domain::UserId;
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use crate::db::{Row, params, statements};
use crate::digest::provider_user_digest;
use crate::error::Result;
use crate::locks::{lock_user, lock_user_if_exists};
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::{Storage, StorageError};

statements! {
    FIND_LEASE = "SELECT lease_until FROM provider_users WHERE user_id = $1 AND provider = $2";

    INSERT = "INSERT INTO provider_users (user_id, provider, created_at, lease_until, fence)
        VALUES ($1, $2, $3, $4, $5)";

    CLAIM = "UPDATE provider_users SET lease_until = $3, fence = fence + 1 WHERE user_id = $1 AND provider = $2
        RETURNING user_id, provider, reference, fence";

    SET_REFERENCE = "UPDATE provider_users SET reference = $4
        WHERE user_id = $1 AND provider = $2 AND fence = $3 AND lease_until IS NOT NULL";

    FINISH = "UPDATE provider_users SET provider_user_digest = $4, lease_until = NULL
        WHERE user_id = $1 AND provider = $2 AND fence = $3 AND lease_until IS NOT NULL";

    RELEASE = "UPDATE provider_users SET lease_until = NULL WHERE user_id = $1 AND provider = $2 AND fence = $3";

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
    pub user_id: UserId,
    pub provider: String,
    /// The reference of an earlier attempt with an unknown outcome.
    pub abandoned_reference: Option<String>,
    fence: i64,
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

impl Storage {
    /// Returns the user's credentials at a provider, or claims the registration if there are none.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] if the user does not exist, [`StorageError::Sealed`] if the credentials cannot be
    /// opened.
    pub async fn claim_provider_user(
        &self,
        user: UserId,
        provider: &str,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<ProviderUserState> {
        if let Some(credentials) = self.find_provider_user_credentials(user, provider).await? {
            return Ok(ProviderUserState::Ready(credentials));
        }
        let mut tx = self.db.begin().await?;
        lock_user(&mut tx, user).await?;
        if let Some(credentials) = self.find_secret_in(&mut tx, &SecretSlot::provider_user(user, provider)).await? {
            tx.rollback().await;
            return Ok(ProviderUserState::Ready(credentials));
        }
        let lease = tx.one(FIND_LEASE, params![user, provider], |row| row.opt_time(0)).await?;
        let claim = match lease {
            Some(Some(until)) if until > now => {
                tx.rollback().await;
                return Ok(ProviderUserState::Busy);
            }
            Some(_) => tx.one(CLAIM, params![user, provider, lease_until], claimed).await?,
            None => {
                let fence = first_fence();
                tx.run(INSERT, params![user, provider, now, lease_until, fence]).await?;
                Some(ClaimedProviderUser {
                    user_id: user,
                    provider: provider.to_owned(),
                    abandoned_reference: None,
                    fence,
                })
            }
        };
        tx.commit().await?;
        claim.map(ProviderUserState::Claimed).ok_or(StorageError::NotFound("provider user"))
    }

    /// Stores the reference before the registration is attempted. Returns false, and changes nothing, if the lease was
    /// lost.
    pub async fn set_provider_user_reference(&self, claim: &ClaimedProviderUser, reference: &str) -> Result<bool> {
        let values = params![claim.user_id, claim.provider.as_str(), claim.fence, reference];
        Ok(self.db.run(SET_REFERENCE, values).await? > 0)
    }

    /// Completes a registration: seals the credentials and releases the lease. `provider_user_id` is the provider's id
    /// of the user, which provider events name. Returns false, and changes nothing, if the lease was lost.
    pub async fn finish_provider_user(
        &self,
        claim: &ClaimedProviderUser,
        provider_user_id: Option<&str>,
        credentials: &SecretString,
    ) -> Result<bool> {
        let (user, provider) = (claim.user_id, claim.provider.as_str());
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(false);
        }
        let provider_user_id = provider_user_id.map(provider_user_digest);
        if tx.run(FINISH, params![user, provider, claim.fence, provider_user_id.as_deref()]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        self.store_secret(&mut tx, &SecretSlot::provider_user(user, provider), credentials).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Releases the claim after a failure and keeps the reference. Does nothing if the lease was lost.
    pub async fn release_provider_user(&self, claim: &ClaimedProviderUser) -> Result<()> {
        let values = params![claim.user_id, claim.provider.as_str(), claim.fence];
        self.db.run(RELEASE, values).await.map(|_| ())
    }

    /// The credentials of a user whom we registered at a provider.
    ///
    /// # Errors
    /// [`StorageError::Sealed`] if they cannot be opened.
    pub async fn find_provider_user_credentials(&self, user: UserId, provider: &str) -> Result<Option<SecretString>> {
        self.find_secret(&SecretSlot::provider_user(user, provider)).await
    }

    /// All registrations of a user, by provider, including incomplete ones.
    ///
    /// # Errors
    /// [`StorageError::Sealed`] if credentials cannot be opened.
    pub async fn list_provider_users(&self, user: UserId) -> Result<Vec<ProviderUserRecord>> {
        let mut records = self.db.all(LIST, params![user], record).await?;
        for record in &mut records {
            record.credentials = self.find_provider_user_credentials(user, &record.provider).await?;
        }
        Ok(records)
    }

    /// Deletes a registration and its credentials here, not at the provider. Idempotent. A task that holds the claim
    /// loses its lease.
    pub async fn delete_provider_user(&self, user: UserId, provider: &str) -> Result<()> {
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(());
        }
        tx.run(DELETE, params![user, provider]).await?;
        delete_secret(&mut tx, &SecretSlot::provider_user(user, provider)).await?;
        tx.commit().await
    }

    /// As [`Self::delete_provider_user`], but only if the user is registered under this provider id. Otherwise returns
    /// false and changes nothing.
    pub async fn delete_provider_user_of(&self, user: UserId, provider: &str, provider_user_id: &str) -> Result<bool> {
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(false);
        }
        if tx.run(DELETE_REGISTERED, params![user, provider, provider_user_digest(provider_user_id).as_str()]).await?
            == 0
        {
            tx.rollback().await;
            return Ok(false);
        }
        delete_secret(&mut tx, &SecretSlot::provider_user(user, provider)).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// A large arbitrary number, so that a claim of a deleted row never matches a new row.
fn first_fence() -> i64 {
    i64::try_from(Uuid::now_v7().as_u64_pair().1 >> 2).unwrap_or(0)
}

fn claimed(row: &Row<'_>) -> Result<ClaimedProviderUser> {
    Ok(ClaimedProviderUser {
        user_id: row.id(0)?,
        provider: row.text(1)?.to_owned(),
        abandoned_reference: row.opt_text(2)?.map(str::to_owned),
        fence: row.int(3)?,
    })
}

fn record(row: &Row<'_>) -> Result<ProviderUserRecord> {
    Ok(ProviderUserRecord {
        provider: row.text(0)?.to_owned(),
        reference: row.opt_text(1)?.map(str::to_owned),
        credentials: None,
    })
}
