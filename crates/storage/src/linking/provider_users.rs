//! Users whom we registered at a provider that wants that before anything is linked.
//!
//! Registering cannot be undone by forgetting it, so it must happen once: the row is claimed first, with a lease and a
//! fencing number as in `removals.rs`, and what the registration is tried under is written down before it is tried.

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

/// A user's standing at a provider. `Debug` shows no credentials.
#[derive(Debug)]
pub enum ProviderUserState {
    /// Registered: here is the credentials.
    Ready(SecretString),
    /// The caller's to register, until the lease ends.
    Claimed(ClaimedProviderUser),
    /// Somebody else is at it.
    Busy,
}

/// The right to register a user, until the lease ends or somebody else claims it after that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedProviderUser {
    /// Whom.
    pub user_id: UserId,
    /// Where.
    pub provider: String,
    /// The reference of an earlier attempt whose end nobody knows.
    pub abandoned_reference: Option<String>,
    fence: i64,
}

/// A user at a provider, registered or about to be. `Debug` shows no credentials.
#[derive(Debug, Clone)]
pub struct ProviderUserRecord {
    /// Where.
    pub provider: String,
    /// Under what the registration was last tried.
    pub reference: Option<String>,
    /// The credentials; none while the registration has not come to its end.
    pub credentials: Option<SecretString>,
}

impl Storage {
    /// Tells a user's credentials at a provider, or claims the registration when there is none and nobody is at it.
    ///
    /// # Errors
    /// [`StorageError::NotFound`] without such a user, [`StorageError::Sealed`] when the credentials does not open.
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
        claim.map(ProviderUserState::Claimed).ok_or(StorageError::NotFound("user of the provider"))
    }

    /// Writes down under which reference the registration is about to be tried. False when somebody else has overtaken
    /// the claim; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn set_provider_user_reference(&self, claim: &ClaimedProviderUser, reference: &str) -> Result<bool> {
        let values = params![claim.user_id, claim.provider.as_str(), claim.fence, reference];
        Ok(self.db.run(SET_REFERENCE, values).await? > 0)
    }

    /// Notes that the user is registered: the credentials `provider_user` is sealed, and the lease given back.
    /// `provider_user_id` is the provider's id of the user, by which events name them. False when somebody else has
    /// overtaken the claim; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Gives the claim back after a failure; the reference stays. A claim that was overtaken changes nothing.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn release_provider_user(&self, claim: &ClaimedProviderUser) -> Result<()> {
        let values = params![claim.user_id, claim.provider.as_str(), claim.fence];
        self.db.run(RELEASE, values).await.map(|_| ())
    }

    /// The user's credentials at a provider where we registered them.
    ///
    /// # Errors
    /// [`StorageError::Sealed`] when it does not open.
    pub async fn find_provider_user_credentials(&self, user: UserId, provider: &str) -> Result<Option<SecretString>> {
        self.find_secret(&SecretSlot::provider_user(user, provider)).await
    }

    /// Where we registered the user, or are about to, by provider.
    ///
    /// # Errors
    /// [`StorageError::Sealed`] when a credentials does not open.
    pub async fn list_provider_users(&self, user: UserId) -> Result<Vec<ProviderUserRecord>> {
        let mut records = self.db.all(LIST, params![user], record).await?;
        for record in &mut records {
            record.credentials = self.find_provider_user_credentials(user, &record.provider).await?;
        }
        Ok(records)
    }

    /// Forgets that a user is registered at a provider, with the credentials. Whoever is at registering them is
    /// overtaken.
    ///
    /// # Errors
    /// Those of the database. A user who is not registered is none.
    pub async fn delete_provider_user(&self, user: UserId, provider: &str) -> Result<()> {
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            return Ok(());
        }
        tx.run(DELETE, params![user, provider]).await?;
        delete_secret(&mut tx, &SecretSlot::provider_user(user, provider)).await?;
        tx.commit().await
    }

    /// As [`Self::delete_provider_user`], but only where the user is registered under this id of the provider. False
    /// otherwise; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
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

/// Any number with room above it, so that a claim of a row that was deleted since never fits a new one.
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
