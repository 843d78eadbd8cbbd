//! The users of this installation.

use bellbird_domain::user::{DEFAULT_TIMEZONE, find_timezone};
use bellbird_domain::{Plan, User, UserId};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::db::{Row, params, statements, stored};
use crate::error::Result;
use crate::linking::{link_sessions, links};
use crate::locks::lock_user;
use crate::webhooks::endpoints;
use crate::{Storage, StorageError};

statements! {
    INSERT = "INSERT INTO users (id, email, email_folded, plan, timezone, revision, created_at)
        VALUES ($1, $2, $3, $4, $5, 0, $6)";

    FIND = "SELECT id, email, plan, timezone, created_at FROM users WHERE id = $1";

    FIND_BY_EMAIL = "SELECT id, email, plan, timezone, created_at FROM users WHERE email_folded = $1";

    LIST = "SELECT id, email, plan, timezone, created_at FROM users ORDER BY email_folded";

    UPDATE = "UPDATE users SET plan = $2, timezone = $3, revision = revision + 1 WHERE id = $1";

    HAS_CONNECTIONS = "SELECT user_id FROM connections WHERE user_id = $1 LIMIT 1";

    IS_REGISTERED = "SELECT user_id FROM provider_users WHERE user_id = $1 LIMIT 1";

    DELETE_KEYS = "DELETE FROM api_keys WHERE user_id = $1";

    DELETE = "DELETE FROM users WHERE id = $1";
}

const STILL_CONNECTED: &str = "the user still has connections: remove them first";

const STILL_REGISTERED: &str = "the user is still registered at a provider: have the registration deleted there first, \
                          which forgets it here too";

/// A user to add.
#[derive(Debug, Clone, Copy)]
pub struct NewUser<'a> {
    /// Kept as written; unique without regard to case.
    pub email: &'a str,
    /// What they may call.
    pub plan: Plan,
    /// IANA name. The caller has checked it with `find_timezone`.
    pub timezone: Option<&'a str>,
}

/// What to change of a user; none means that it stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserChange<'a> {
    /// The new plan.
    pub plan: Option<Plan>,
    /// The new timezone, checked by the caller; `Some(None)` takes it away.
    pub timezone: Option<Option<&'a str>>,
}

impl Storage {
    /// Adds a user.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] when somebody has the address, in whatever case.
    pub async fn insert_user(&self, user: &NewUser<'_>, now: Timestamp) -> Result<User> {
        let id = UserId::new();
        let folded = fold(user.email);
        let values = params![id, user.email, folded.as_str(), user.plan.as_str(), user.timezone, now];
        self.db.run(INSERT, values).await.map_err(|error| error.or_conflict("a user with this e-mail address"))?;
        Ok(User {
            id,
            email: user.email.to_owned(),
            plan: user.plan,
            timezone: user.timezone.map(str::to_owned),
            created_at: stored(now),
        })
    }

    /// The user with this id.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_user(&self, id: UserId) -> Result<Option<User>> {
        self.db.one(FIND, params![id], user).await
    }

    /// The zone in which the user's days are days; none without the user.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_zone(&self, id: UserId) -> Result<Option<TimeZone>> {
        let user = self.find_user(id).await?;
        user.map(|user| parse_timezone(user.timezone.as_deref())).transpose()
    }

    /// The user with this address, compared without case.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_user_by_email(&self, email: &str) -> Result<Option<User>> {
        self.db.one(FIND_BY_EMAIL, params![fold(email).as_str()], user).await
    }

    /// All users, by address.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_users(&self) -> Result<Vec<User>> {
        self.db.all(LIST, params![], user).await
    }

    /// Changes a user's plan, timezone or both, and gives the user as it is then. The revision grows when something
    /// really changed.
    ///
    /// # Errors
    /// [`StorageError::NotFound`].
    pub async fn update_user(&self, id: UserId, change: &UserChange<'_>) -> Result<User> {
        let mut tx = self.db.begin().await?;
        lock_user(&mut tx, id).await?;
        let before = tx.one(FIND, params![id], user).await?.ok_or(StorageError::NotFound("user"))?;
        let mut after = before.clone();
        after.plan = change.plan.unwrap_or(before.plan);
        if let Some(timezone) = change.timezone {
            after.timezone = timezone.map(str::to_owned);
        }
        if after == before {
            tx.rollback().await;
        } else {
            tx.run(UPDATE, params![id, after.plan.as_str(), after.timezone.as_deref()]).await?;
            tx.commit().await?;
        }
        Ok(after)
    }

    /// Removes a user, their keys, their endpoints with all that was to be told there, and the links and link sessions
    /// made for them.
    ///
    /// # Errors
    /// [`StorageError::Conflict`] while the user has connections, those being deleted included: each of them holds a
    /// consent to withdraw first; and while the user is registered at a provider by us, which has to be undone there.
    /// [`StorageError::NotFound`].
    pub async fn delete_user(&self, id: UserId) -> Result<()> {
        let mut tx = self.db.begin().await?;
        lock_user(&mut tx, id).await?;
        if tx.one(HAS_CONNECTIONS, params![id], |_| Ok(())).await?.is_some() {
            return Err(StorageError::Conflict(STILL_CONNECTED));
        }
        if tx.one(IS_REGISTERED, params![id], |_| Ok(())).await?.is_some() {
            return Err(StorageError::Conflict(STILL_REGISTERED));
        }
        tx.run(DELETE_KEYS, params![id]).await?;
        links::delete_links(&mut tx, id).await?;
        let endpoints = endpoints::delete_endpoints(&mut tx, id).await?;
        link_sessions::delete_sessions(&mut tx, id).await?;
        endpoints::delete_secrets(&mut tx, id, endpoints).await?;
        let deleted = tx.run(DELETE, params![id]).await;
        deleted.map_err(|error| error.or_conflict("something was made for the user just now: try again"))?;
        tx.commit().await
    }
}

/// The form in which addresses are compared. Made here, because the databases do not agree on lower case.
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

/// The zone of this name, or that of whoever has set none. A name that is not one is corrupt: a day must not be
/// shifted.
pub(crate) fn parse_timezone(name: Option<&str>) -> Result<TimeZone> {
    find_timezone(name.unwrap_or(DEFAULT_TIMEZONE)).map_err(|_| StorageError::Corrupt("a timezone"))
}
