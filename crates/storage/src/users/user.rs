//! Stores the users of this installation: e-mail address, plan, timezone and revision.

use bellbird_domain::user::{DEFAULT_TIMEZONE, find_timezone};
use bellbird_domain::{Plan, User, UserId};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::db::{Row, as_stored, params, statements};
use crate::error::Result;
use crate::jobs;
use crate::linking::{consent_sessions, links};
use crate::locks::lock_user;
use crate::webhooks::endpoints;
use crate::{StorageError, Users};

statements! {
    INSERT = "INSERT INTO users (id, email, email_folded, plan, timezone, revision, created_at)
        VALUES ($1, $2, $3, $4, $5, 0, $6)";

    FIND = "SELECT id, email, plan, timezone, created_at FROM users WHERE id = $1";

    FIND_BY_EMAIL = "SELECT id, email, plan, timezone, created_at FROM users WHERE email_folded = $1";

    LIST = "SELECT id, email, plan, timezone, created_at FROM users ORDER BY email_folded";

    UPDATE = "UPDATE users SET email = $2, email_folded = $3, plan = $4, timezone = $5, revision = revision + 1
        WHERE id = $1";

    HAS_CONNECTIONS = "SELECT user_id FROM connections WHERE user_id = $1 LIMIT 1";

    IS_REGISTERED = "SELECT user_id FROM provider_users WHERE user_id = $1 LIMIT 1";

    DELETE_KEYS = "DELETE FROM api_keys WHERE user_id = $1";

    DELETE_SETUP_TOKENS = "DELETE FROM setup_tokens WHERE user_id = $1";

    DELETE_KEY_AUDIT = "DELETE FROM key_audit WHERE user_id = $1";

    DELETE = "DELETE FROM users WHERE id = $1";
}

const STILL_CONNECTED: &str = "the user still has connections: remove them first";

const STILL_REGISTERED: &str = "the user is still registered at a provider: unregister the user there first";

#[derive(Debug, Clone, Copy)]
pub struct NewUser<'a> {
    /// Kept as written, and unique without regard to case.
    pub email: &'a str,
    pub plan: Plan,
    /// IANA name, already checked with `find_timezone`.
    pub timezone: Option<&'a str>,
}

/// The fields to change. None keeps the stored value.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserChange<'a> {
    /// Kept as written, and unique without regard to case.
    pub email: Option<&'a str>,
    pub plan: Option<Plan>,
    /// Already checked with `find_timezone`. `Some(None)` clears it.
    pub timezone: Option<Option<&'a str>>,
}

impl Users<'_> {
    /// Adds a user. [`StorageError::Conflict`] if the e-mail address is in use, in any case.
    pub async fn insert(self, user: &NewUser<'_>, now: Timestamp) -> Result<User> {
        let id = UserId::new();
        let folded = fold(user.email);
        let values = params![id, user.email, folded.as_str(), user.plan.as_str(), user.timezone, now];
        self.0.db.run(INSERT, values).await.map_err(|error| error.or_conflict("a user with this e-mail address"))?;
        Ok(User {
            id,
            email: user.email.to_owned(),
            plan: user.plan,
            timezone: user.timezone.map(str::to_owned),
            created_at: as_stored(now),
        })
    }

    pub async fn find(self, id: UserId) -> Result<Option<User>> {
        self.0.db.one(FIND, params![id], user).await
    }

    /// The timezone in which the user's days begin and end. None if the user does not exist.
    pub async fn find_zone(self, id: UserId) -> Result<Option<TimeZone>> {
        let user = self.find(id).await?;
        user.map(|user| parse_timezone(user.timezone.as_deref())).transpose()
    }

    /// Finds the user with this e-mail address, without regard to case.
    pub async fn find_by_email(self, email: &str) -> Result<Option<User>> {
        self.0.db.one(FIND_BY_EMAIL, params![fold(email).as_str()], user).await
    }

    /// All users, by e-mail address.
    pub async fn list(self) -> Result<Vec<User>> {
        self.0.db.all(LIST, params![], user).await
    }

    /// Changes a user's e-mail address, plan or timezone, and returns the result. The revision grows only if a value
    /// changes. [`StorageError::Conflict`] if another user has the e-mail address.
    pub async fn update(self, id: UserId, change: &UserChange<'_>) -> Result<User> {
        let mut tx = self.0.db.begin().await?;
        lock_user(&mut tx, id).await?;
        let before = tx.one(FIND, params![id], user).await?.ok_or(StorageError::NotFound("user"))?;
        let mut after = before.clone();
        if let Some(email) = change.email {
            email.clone_into(&mut after.email);
        }
        after.plan = change.plan.unwrap_or(before.plan);
        if let Some(timezone) = change.timezone {
            after.timezone = timezone.map(str::to_owned);
        }
        if after == before {
            tx.rollback().await;
        } else {
            let folded = fold(&after.email);
            let (email, plan) = (after.email.as_str(), after.plan.as_str());
            let updated = tx.run(UPDATE, params![id, email, folded.as_str(), plan, after.timezone.as_deref()]).await;
            updated.map_err(|error| error.or_conflict("a user with this e-mail address"))?;
            tx.commit().await?;
        }
        Ok(after)
    }

    /// Deletes a user with their keys, setup tokens, links, consent sessions, endpoints and webhook events.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] while the user has connections, including those being deleted: their consents must be
    /// withdrawn first. The same while the user is registered at a provider, because that registration must be deleted
    /// there. [`StorageError::NotFound`] if the user does not exist.
    pub async fn delete(self, id: UserId) -> Result<()> {
        let mut tx = self.0.db.begin().await?;
        lock_user(&mut tx, id).await?;
        if tx.one(HAS_CONNECTIONS, params![id], |_| Ok(())).await?.is_some() {
            return Err(StorageError::Conflict(STILL_CONNECTED));
        }
        if tx.one(IS_REGISTERED, params![id], |_| Ok(())).await?.is_some() {
            return Err(StorageError::Conflict(STILL_REGISTERED));
        }
        tx.run(DELETE_KEYS, params![id]).await?;
        tx.run(DELETE_SETUP_TOKENS, params![id]).await?;
        tx.run(DELETE_KEY_AUDIT, params![id]).await?;
        links::delete_links(&mut tx, id).await?;
        let endpoints = endpoints::delete_endpoints(&mut tx, id).await?;
        jobs::delete_of_user(&mut tx, id).await?;
        consent_sessions::delete_sessions(&mut tx, id).await?;
        endpoints::delete_secrets(&mut tx, id, endpoints).await?;
        let deleted = tx.run(DELETE, params![id]).await;
        deleted.map_err(|error| error.or_conflict("the user's data changed meanwhile: try again"))?;
        tx.commit().await
    }
}

/// The form in which e-mail addresses are compared. The databases disagree on lower case, so Rust computes it.
fn fold(email: &str) -> String {
    email.to_lowercase()
}

fn user(row: &Row<'_>) -> Result<User> {
    Ok(User {
        id: row.id(0)?,
        email: row.text(1)?.to_owned(),
        plan: row.word(2, "a plan")?,
        timezone: row.opt_text(3)?.map(str::to_owned),
        created_at: row.time(4)?,
    })
}

/// Returns the user's timezone, or the default one. An unknown name is corrupt data: a fallback would shift days.
pub(crate) fn parse_timezone(name: Option<&str>) -> Result<TimeZone> {
    find_timezone(name.unwrap_or(DEFAULT_TIMEZONE)).map_err(|_| StorageError::Corrupt("a timezone"))
}
