//! Stores the users of this installation: e-mail address, plan, timezone and revision.

use bellbird_domain::{ConnectionStatus, EventType, Plan, User, UserId};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::connections::events;
use crate::db::{Param, Tx, as_stored, from_row, named, pair, params, statements};
use crate::error::Result;
use crate::jobs;
use crate::linking::{consent_sessions, links};
use crate::locks::lock_user;
use crate::management::{audit, requests};
use crate::users::sessions;
use crate::users::timezone::parse_timezone;
use crate::webhooks::endpoints::{self, was_stopped};
use crate::webhooks::queues;
use crate::{StorageError, Users};

/// The users of a filter, in their order, `:limit` at most. `REPLACE` finds a part of a text alike
/// on both databases, and knows no wildcards.
macro_rules! matching {
    () => {
        concat!(
            " FROM users u
        WHERE u.id > :after
            AND (:folded = '' OR REPLACE(u.email_folded, :folded, '') <> u.email_folded
                OR REPLACE(u.reference, :part, '') <> u.reference)
            AND (:plan = '' OR u.plan = :plan)
            AND u.is_operator >= :operators
            AND (:status = '' OR EXISTS (SELECT 1 FROM connections c WHERE c.user_id = u.id AND c.status = :status
                AND (:provider = '' OR c.provider = :provider)))
            AND (:needs = ''
                OR EXISTS (SELECT 1 FROM connections c WHERE c.user_id = u.id
                    AND c.status IN ('invalidated', 'pending_mfa', 'revoked'))
                OR (:needs = 'attention' AND EXISTS (
                    SELECT 1 FROM webhook_endpoints e WHERE e.user_id = u.id AND ", was_stopped!(), ")))
        ORDER BY u.id LIMIT :limit"
        )
    };
}

/// The columns that [`user`] expects, in its order.
macro_rules! select_users {
    ($rest:literal) => {
        concat!(
            "SELECT id, email, plan, timezone, created_at, reference, is_operator, console_sign_in FROM users ",
            $rest
        )
    };
}

statements! {
    INSERT = "INSERT INTO users
            (id, email, email_folded, plan, timezone, reference, revision, created_at, console_sign_in)
        VALUES ($1, $2, $3, $4, $5, $6, 0, $7, $8)";

    FIND = select_users!("WHERE id = $1");

    FIND_BY_EMAIL = select_users!("WHERE email_folded = $1");

    FIND_BY_REFERENCE = select_users!("WHERE reference = $1");

    LIST = select_users!("ORDER BY email_folded");

    /// Ids are UUIDv7, so the oldest come first.
    LIST_AFTER = select_users!("WHERE id > $1 ORDER BY id LIMIT $2");

    LIST_MATCHING = concat!(
        "SELECT u.id, u.email, u.plan, u.timezone, u.created_at, u.reference, u.is_operator, u.console_sign_in",
        matching!()
    );

    COUNT_MATCHING = concat!(
        "SELECT COUNT(*), COUNT(CASE WHEN id <= :last THEN 1 END) FROM (SELECT u.id", matching!(), ") found"
    );

    COUNT_BY_PLAN = "SELECT plan, COUNT(*) FROM users GROUP BY plan";

    UPDATE = "UPDATE users
        SET email = $2, email_folded = $3, plan = $4, timezone = $5, reference = $6, is_operator = $7,
            console_sign_in = $8, revision = revision + 1
        WHERE id = $1";

    HAS_CONNECTIONS = "SELECT user_id FROM connections WHERE user_id = $1 LIMIT 1";

    IS_REGISTERED = "SELECT user_id FROM provider_users WHERE user_id = $1 LIMIT 1";

    DELETE_KEYS = "DELETE FROM api_keys WHERE user_id = $1";

    DELETE_KNOWN_BROWSERS = "DELETE FROM known_browsers WHERE user_id = $1";

    DELETE_SENT_EMAILS = "DELETE FROM sent_emails WHERE user_id = $1";

    DELETE_IDENTITIES = "DELETE FROM identities WHERE user_id = $1";

    DELETE_SETUP_TOKENS = "DELETE FROM setup_tokens WHERE user_id = $1";

    DELETE_KEY_READS = "DELETE FROM key_reads WHERE user_id = $1";

    DELETE_KEY_AUDIT = "DELETE FROM key_audit WHERE user_id = $1";

    DELETE = "DELETE FROM users WHERE id = $1";
}

const EMAIL_IN_USE: &str = "a user with this e-mail address";

/// The text of the conflict.
pub const REFERENCE_IN_USE: &str = "a user with this reference";

const STILL_CONNECTED: &str = "the user still has connections: remove them first";

const STILL_REGISTERED: &str =
    "the user is still registered at a provider: unregister the user there first";

#[derive(Debug, Clone, Copy)]
pub struct NewUser<'a> {
    /// Kept as written, and unique without regard to case.
    pub email: &'a str,
    pub plan: Plan,
    /// IANA name, already checked with `find_timezone`.
    pub timezone: Option<&'a str>,
    /// Unique.
    pub reference: Option<&'a str>,
    /// Whether somebody proved that the address is the user's.
    pub console_sign_in: bool,
}

/// The fields to change. None keeps the stored value.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserChange<'a> {
    /// Kept as written, and unique without regard to case.
    pub email: Option<&'a str>,
    pub plan: Option<Plan>,
    /// Already checked with `find_timezone`. `Some(None)` clears it.
    pub timezone: Option<Option<&'a str>>,
    /// `Some(None)` clears it.
    pub reference: Option<Option<&'a str>>,
    pub is_operator: Option<bool>,
    /// None: stays, unless the e-mail address changes, because nobody has proved the new one.
    pub console_sign_in: Option<bool>,
}

/// Which users a list has. The default has all.
#[derive(Debug, Clone, Copy, Default)]
pub struct UserFilter<'a> {
    /// A part of the e-mail address without regard to case, or of the reference as written. Empty:
    /// any.
    pub part: &'a str,
    pub plan: Option<Plan>,
    pub operators_only: bool,
    /// Those who have a connection with this status, at this provider or at any.
    pub connection: Option<(ConnectionStatus, Option<&'a str>)>,
    pub needs: Option<UserNeed>,
}

/// What has to be done for a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UserNeed {
    /// To reconnect something.
    Bank,
    /// That, or to mend an endpoint that was not disabled on purpose.
    Attention,
}

impl<'a> UserFilter<'a> {
    /// The values of a statement of those that match.
    fn values(
        &self,
        folded: &'a str,
        after: Option<UserId>,
        limit: u32,
    ) -> Vec<(&'static str, Param<'a>)> {
        let (status, provider) = match self.connection {
            Some((status, provider)) => (status.as_str(), provider.unwrap_or_default()),
            None => ("", ""),
        };
        named![
            after = after.map_or(Param::BEFORE_ALL_IDS, Param::from),
            folded = folded,
            part = self.part,
            plan = self.plan.map_or("", Plan::as_str),
            operators = self.operators_only,
            status = status,
            provider = provider,
            needs = match self.needs {
                Some(UserNeed::Bank) => "bank",
                Some(UserNeed::Attention) => "attention",
                None => "",
            },
            limit = limit
        ]
        .to_vec()
    }
}

impl Users<'_> {
    pub async fn find(self, id: UserId) -> Result<Option<User>> {
        self.db.one(FIND, params![id], user).await
    }

    /// The timezone in which the user's days begin and end. None if the user does not exist.
    pub async fn find_zone(self, id: UserId) -> Result<Option<TimeZone>> {
        let user = self.find(id).await?;
        user.map(|user| parse_timezone(user.timezone.as_deref()))
            .transpose()
    }

    /// Finds the user with this e-mail address, without regard to case.
    pub async fn find_by_email(self, email: &str) -> Result<Option<User>> {
        self.db
            .one(FIND_BY_EMAIL, params![&fold(email)], user)
            .await
    }

    /// Finds the user with this reference of the operator's.
    pub async fn find_by_reference(self, reference: &str) -> Result<Option<User>> {
        self.db
            .one(FIND_BY_REFERENCE, params![reference], user)
            .await
    }

    /// Users behind this one, oldest first.
    pub async fn list_after(self, after: Option<UserId>, limit: u32) -> Result<Vec<User>> {
        let after = after.map_or(Param::BEFORE_ALL_IDS, Param::from);
        self.db.all(LIST_AFTER, params![after, limit], user).await
    }

    /// As [`Self::list_after`], those that match. Reads the whole table until the list is full.
    pub async fn list_matching(
        self,
        filter: &UserFilter<'_>,
        after: Option<UserId>,
        limit: u32,
    ) -> Result<Vec<User>> {
        let folded = fold(filter.part);
        let (list, values) = LIST_MATCHING.with(&filter.values(&folded, after, limit));
        self.db.all(list, &values, user).await
    }

    /// How many users match, and how many of them are listed up to one of them. Counts no further
    /// than `limit`, and reads the whole table if fewer match.
    pub async fn count_matching(
        self,
        filter: &UserFilter<'_>,
        last: Option<UserId>,
        limit: u32,
    ) -> Result<(u64, u64)> {
        let folded = fold(filter.part);
        let mut values = filter.values(&folded, None, limit);
        values.push(("last", last.map_or(Param::BEFORE_ALL_IDS, Param::from)));
        let (count, values) = COUNT_MATCHING.with(&values);
        let counts = self.db.one(count, &values, pair).await?;
        Ok(counts.unwrap_or_default())
    }

    /// How many users have each plan that anybody has.
    pub async fn count_by_plan(self) -> Result<Vec<(Plan, u64)>> {
        self.db.all(COUNT_BY_PLAN, params![], pair).await
    }

    /// All users, by e-mail address.
    pub async fn list(self) -> Result<Vec<User>> {
        self.db.all(LIST, params![], user).await
    }
}

/// Adds a user. [`StorageError::Conflict`] if the e-mail address, in any case, or the reference
/// is in use.
pub async fn insert(tx: &mut Tx, user: &NewUser<'_>, now: Timestamp) -> Result<User> {
    let id = UserId::new();
    let folded = fold(user.email);
    require_free(tx, user.reference, id).await?;
    let values = params![
        id,
        user.email,
        &folded,
        user.plan,
        user.timezone,
        user.reference,
        now,
        user.console_sign_in
    ];
    tx.execute_or_conflict(INSERT, values, EMAIL_IN_USE).await?;
    Ok(User {
        id,
        email: user.email.to_owned(),
        plan: user.plan,
        timezone: user.timezone.map(str::to_owned),
        reference: user.reference.map(str::to_owned),
        is_operator: false,
        console_sign_in: user.console_sign_in,
        created_at: as_stored(now),
    })
}

/// As [`find`], until the transaction ends unchanged by others.
pub async fn find_locked(tx: &mut Tx, id: UserId) -> Result<Option<User>> {
    lock_user(tx, id).await?;
    find(tx, id).await
}

/// As `storage.users().find`, in a transaction.
pub async fn find(tx: &mut Tx, id: UserId) -> Result<Option<User>> {
    tx.one(FIND, params![id], user).await
}

/// As `storage.users().find_by_email`, in a transaction.
pub(crate) async fn find_by_email(tx: &mut Tx, email: &str) -> Result<Option<User>> {
    tx.one(FIND_BY_EMAIL, params![&fold(email)], user).await
}

/// Changes a user, and returns the result. Another e-mail address, or becoming an operator, ends
/// the sessions. Without `console_sign_in`, the identities are forgotten too. The revision grows
/// only if a value changes. [`StorageError::Conflict`] if another user has the e-mail address or
/// the reference.
pub async fn update(tx: &mut Tx, id: UserId, change: &UserChange<'_>) -> Result<User> {
    lock_user(tx, id).await?;
    let before = find(tx, id).await?.ok_or(StorageError::NotFound("user"))?;
    let mut after = before.clone();
    if let Some(email) = change.email {
        email.clone_into(&mut after.email);
    }
    after.plan = change.plan.unwrap_or(before.plan);
    if let Some(timezone) = change.timezone {
        after.timezone = timezone.map(str::to_owned);
    }
    if let Some(reference) = change.reference {
        after.reference = reference.map(str::to_owned);
    }
    after.is_operator = change.is_operator.unwrap_or(before.is_operator);
    let has_same_address = fold(&after.email) == fold(&before.email);
    after.console_sign_in = change
        .console_sign_in
        .unwrap_or(before.console_sign_in && has_same_address);
    if after == before {
        return Ok(after);
    }
    require_free(tx, after.reference.as_deref(), id).await?;
    let folded = fold(&after.email);
    let values = params![
        id,
        &after.email,
        &folded,
        after.plan,
        after.timezone.as_deref(),
        after.reference.as_deref(),
        after.is_operator,
        after.console_sign_in
    ];
    tx.execute_or_conflict(UPDATE, values, EMAIL_IN_USE).await?;
    // What the address has let in ends with it. An identity is known by its subject, whatever its
    // address is now. A new operator may have to sign in by another way than before.
    let is_new_operator = after.is_operator && !before.is_operator;
    if !after.console_sign_in || !has_same_address || is_new_operator {
        sessions::revoke_all(tx, id).await?;
    }
    if !after.console_sign_in {
        tx.run(DELETE_IDENTITIES, params![id]).await?;
    }
    Ok(after)
}

/// Fails if another user has the reference. Asked first, to name what is in use. The indexes reject
/// what another transaction inserts meanwhile.
async fn require_free(tx: &mut Tx, reference: Option<&str>, id: UserId) -> Result<()> {
    let Some(reference) = reference else {
        return Ok(());
    };
    match tx.one(FIND_BY_REFERENCE, params![reference], user).await? {
        Some(holder) if holder.id != id => Err(StorageError::Conflict(REFERENCE_IN_USE)),
        _ => Ok(()),
    }
}

/// Deletes a user with their keys, setup tokens, links, consent sessions, endpoints and webhook
/// events. Events that an endpoint of the installation has not accepted outlive the user, and
/// `user.removed` is the last of them.
///
/// # Errors
/// [`StorageError::Conflict`] while the user has connections, including those being deleted:
/// their consents must be withdrawn first. The same while the user is registered at a provider,
/// because that registration must be deleted there. [`StorageError::NotFound`] if the user does
/// not exist.
pub async fn delete(tx: &mut Tx, id: UserId, now: Timestamp) -> Result<()> {
    lock_user(tx, id).await?;
    let reference = find(tx, id).await?.and_then(|user| user.reference);
    if tx.exists(HAS_CONNECTIONS, params![id]).await? {
        return Err(StorageError::Conflict(STILL_CONNECTED));
    }
    if tx.exists(IS_REGISTERED, params![id]).await? {
        return Err(StorageError::Conflict(STILL_REGISTERED));
    }
    delete_access(tx, id).await?;
    for delete in [DELETE_SENT_EMAILS, DELETE_KEY_AUDIT, DELETE_KEY_READS] {
        tx.run(delete, params![id]).await?;
    }
    audit::delete_own(tx, id).await?;
    endpoints::lock_queues(tx, id).await?;
    let endpoints = endpoints::delete_own_endpoints(tx, id).await?;
    events::insert_now(tx, (id, None), EventType::UserRemoved, now).await?;
    queues::outlive(tx, id, reference.as_deref()).await?;
    jobs::delete_of_user(tx, id).await?;
    consent_sessions::delete_sessions(tx, id).await?;
    requests::delete_of(tx, id).await?;
    endpoints::delete_secrets(tx, id, endpoints).await?;
    let conflict = "the user's data changed meanwhile: try again";
    tx.execute_or_conflict(DELETE, params![id], conflict).await
}

/// Deletes everything with which somebody acts as the user, or reads their data. The caller holds
/// the lock on the user's row.
pub(crate) async fn delete_access(tx: &mut Tx, id: UserId) -> Result<()> {
    for delete in [
        DELETE_KEYS,
        DELETE_KNOWN_BROWSERS,
        DELETE_IDENTITIES,
        DELETE_SETUP_TOKENS,
    ] {
        tx.run(delete, params![id]).await?;
    }
    sessions::revoke_all(tx, id).await?;
    links::delete_links(tx, id).await
}

/// The form in which e-mail addresses are compared. The databases disagree on lower case, so Rust
/// computes it.
fn fold(email: &str) -> String {
    email.to_lowercase()
}

from_row! {
    fn user(row) -> User {
        id, email, plan, timezone, created_at, reference, is_operator, console_sign_in,
    }
}
