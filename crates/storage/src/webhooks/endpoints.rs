//! Stores webhook endpoints: the URLs to which users want webhook events sent. Signing secrets are
//! sealed in the table `secrets`. Those of [`UserId::INSTALLATION`] get the events of all users.
//!
//! The deliveries of a user's events to an endpoint are a queue, which the first event adds. Locks
//! are taken in the order user, queue, endpoint, deliveries. A transaction that changes deliveries
//! locks their queue, and one that changes those of several queues locks the user's row before
//! that.
//!
//! A change of an endpoint of the installation writes no queue but the installation's own, which
//! has its pings. Claims find out by themselves: see `webhooks/deliveries.rs`.

use std::collections::HashMap;

use bellbird_domain::{
    ApiVersion, EndpointId, EndpointStatus, EventType, SubscribableEvent, UserId,
};
use jiff::Timestamp;
use secrecy::SecretString;
use serde::{Serialize, Serializer};

use crate::db::{Bound, Param, Tx, as_stored, from_row, pair, params, scalar, statements};
use crate::error::Result;
use crate::jobs::new_fence;
use crate::locks::{lock_owner_if_exists, lock_staying_user, user_lock};
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::{Endpoints, Secrets, StorageError};

/// The columns that [`endpoint`] expects, in its order.
macro_rules! select_endpoints {
    ($rest:literal) => {
        concat!(
            "SELECT e.user_id, e.id, e.url, e.event_types, e.api_version, e.status, e.disabled_reason,
                (SELECT MIN(q.failing_since) FROM webhook_queues q
                    WHERE q.endpoint_id = e.id AND q.failing_since >= e.enabled_at),
                e.delivered_at, e.created_at, e.old_secret_expires_at
            FROM webhook_endpoints e ",
            $rest
        )
    };
}

/// Disabled reason of an endpoint that its user has disabled.
pub const DISABLED_BY_USER: &str = "by user";
/// Disabled reason of an endpoint that the operator has disabled, by the API or on a page.
pub const DISABLED_BY_OPERATOR: &str = "by operator";
/// Disabled reason of an endpoint that the operator has disabled by a command.
pub const DISABLED_BY_COMMAND: &str = "by command";

/// The condition for the endpoints that are disabled, and not for one of the reasons above.
macro_rules! was_stopped {
    () => {
        "status = 'disabled'
            AND COALESCE(disabled_reason, '') NOT IN ('by user', 'by operator', 'by command')"
    };
}
pub(crate) use was_stopped;

/// Endpoints that are disabled in a way that is given, or failing, also those of the installation
/// that fail for one of its users. The candidates come from two indexes of few rows, so that no
/// healthy endpoint is read.
macro_rules! select_troubled {
    ($($disabled:tt)*) => {
        concat!(
            select_endpoints!(
                "WHERE e.id > $1 AND e.id IN (SELECT d.id FROM webhook_endpoints d WHERE d.status = 'disabled'
                        UNION ALL SELECT f.endpoint_id FROM webhook_queues f
                        WHERE f.failing_since IS NOT NULL AND f.endpoint_id > $1)
                    AND ("
            ),
            $($disabled)*,
            " OR (e.status <> 'disabled' AND EXISTS (SELECT 1 FROM webhook_queues q
                WHERE q.endpoint_id = e.id AND q.failing_since >= e.enabled_at))) ORDER BY e.id LIMIT $2"
        )
    };
}

/// The last error of a delivery that ended because its endpoint is disabled.
pub(crate) const ENDPOINT_DISABLED: &str = "endpoint disabled";

statements! {
    INSERT = "INSERT INTO webhook_endpoints (user_id, id, url, event_types, api_version, status, created_at, enabled_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $7)";

    COUNT = "SELECT COUNT(*) FROM webhook_endpoints WHERE user_id = $1";

    LIST = select_endpoints!("WHERE e.user_id = $1 ORDER BY e.created_at, e.id");

    FIND_NEWEST = "SELECT id FROM webhook_endpoints WHERE user_id = $1 ORDER BY id DESC LIMIT 1";

    LIST_ALL = select_endpoints!("ORDER BY e.created_at, e.id");

    LIST_AFTER = select_endpoints!("WHERE e.id > $1 ORDER BY e.id LIMIT $2");

    LIST_AFTER_OF_USER = select_endpoints!("WHERE e.user_id = $3 AND e.id > $1 ORDER BY e.id LIMIT $2");

    LIST_TROUBLED = select_troubled!("e.status = 'disabled'");

    LIST_STOPPED_OR_FAILING = select_troubled!(was_stopped!());

    COUNT_STOPPED_BY_USER = concat!(
        "SELECT user_id, COUNT(*) FROM webhook_endpoints WHERE ", was_stopped!(),
        " AND user_id >= $1 AND user_id <= $2 GROUP BY user_id"
    );

    FIND_ANY = select_endpoints!("WHERE e.id = $1");

    LOCK = "SELECT 1 FROM webhook_endpoints WHERE user_id = $1 AND id = $2", lock = " FOR NO KEY UPDATE";

    /// Always in the same order.
    LOCK_QUEUES = "SELECT fence FROM webhook_queues WHERE user_id = $1 ORDER BY endpoint_id",
        lock = " FOR NO KEY UPDATE";

    DELETE_OLD_SECRETS = "DELETE FROM secrets WHERE purpose = 'old_webhook'
        AND EXISTS (SELECT e.id FROM webhook_endpoints e WHERE e.user_id = secrets.user_id
            AND CAST(e.id AS TEXT) = secrets.subject AND e.old_secret_expires_at <= $1)";

    KEEP_OLD_SECRET = "UPDATE webhook_endpoints SET old_secret_expires_at = $3 WHERE user_id = $1 AND id = $2";

    FIND_OLD_SECRET_EXPIRES_AT = "SELECT old_secret_expires_at FROM webhook_endpoints WHERE user_id = $1 AND id = $2";

    /// NULL keeps a value, so that two changes at once do not undo each other.
    UPDATE = "UPDATE webhook_endpoints SET url = COALESCE($3, url), event_types = COALESCE($4, event_types),
            api_version = COALESCE($5, api_version), revision = revision + 1
        WHERE user_id = $1 AND id = $2 RETURNING revision";

    ENABLE = "UPDATE webhook_endpoints SET status = 'enabled', disabled_reason = NULL, enabled_at = $3,
            revision = revision + 1
        WHERE user_id = $1 AND id = $2";

    /// With a revision, only if the endpoint still has it.
    DISABLE = "UPDATE webhook_endpoints SET status = 'disabled', disabled_reason = $3, revision = revision + 1
        WHERE user_id = $1 AND id = $2 AND (CAST($4 AS BIGINT) IS NULL OR revision = $4)";

    /// Locks the queue. With another fence, the claim holder has lost its lease.
    STOP_QUEUE = "UPDATE webhook_queues SET lease_until = NULL, due_at = NULL, fence = $3
        WHERE user_id = $1 AND endpoint_id = $2";

    FAIL_UNFINISHED_DELIVERIES = "UPDATE webhook_deliveries SET state = 'failed', next_attempt_at = NULL, ended_at = $3,
            last_error = $4
        WHERE user_id = $1 AND endpoint_id = $2 AND ended_at IS NULL";

    DELETE = "DELETE FROM webhook_endpoints WHERE user_id = $1 AND id = $2";

    DELETE_QUEUE = "DELETE FROM webhook_queues WHERE user_id = $1 AND endpoint_id = $2";

    DELETE_DELIVERIES = "DELETE FROM webhook_deliveries WHERE user_id = $1 AND endpoint_id = $2";

    DELETE_ATTEMPTS = "DELETE FROM webhook_attempts WHERE user_id = $1 AND endpoint_id = $2";

    DELETE_OF_USER = "DELETE FROM webhook_endpoints WHERE user_id = $1 RETURNING id";
}

/// A URL that receives the events of a user, or of all users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = WebhookEndpoint)]
pub struct Endpoint {
    #[schema(value_type = String, format = "uuid", example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub id: EndpointId,
    /// Null: it receives the events of all users.
    // Then [`UserId::INSTALLATION`].
    #[serde(serialize_with = "user_or_null")]
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    #[schema(example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub user_id: UserId,
    #[schema(format = "uri", example = "https://hooks.example.com/bellbird")]
    pub url: String,
    /// The event types that it receives.
    #[serde(rename = "events")]
    #[schema(inline, value_type = Vec<SubscribableEvent>)]
    #[schema(example = json!(["transactions.synced", "trades.synced"]))]
    pub event_types: Vec<EventType>,
    /// Of the events' body.
    #[schema(inline, example = "2026-12-01")]
    pub api_version: ApiVersion,
    /// Whether it receives events.
    #[schema(inline, example = "enabled")]
    pub status: EndpointStatus,
    /// A few words. Null: enabled.
    #[schema(required = true, example = "by operator")]
    pub disabled_reason: Option<String>,
    /// The first failure since the last success. Of an endpoint for all users, the earliest of
    /// those that last.
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    pub failing_since: Option<Timestamp>,
    /// The last success, to the minute.
    #[serde(rename = "lastDeliveredAt")]
    #[schema(value_type = Option<String>, format = "date-time", required = true, example = "2026-11-20T21:04:11.52Z")]
    pub delivered_at: Option<Timestamp>,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T02:10:00.25Z")]
    pub created_at: Timestamp,
    // Until then, the previous secret signs too. Changes with each rotation of a secret that can be
    // opened.
    #[serde(skip)]
    #[schema(ignore)]
    pub old_secret_expires_at: Option<Timestamp>,
}

impl Endpoint {
    pub fn is_disabled(&self) -> bool {
        self.disabled_reason.is_some()
    }

    /// Whether its user or the operator has disabled it on purpose.
    pub fn is_paused(&self) -> bool {
        matches!(
            self.disabled_reason.as_deref(),
            Some(DISABLED_BY_USER | DISABLED_BY_OPERATOR | DISABLED_BY_COMMAND)
        )
    }
}

/// Writes the installation as null.
pub(crate) fn user_or_null<S: Serializer>(
    user: &UserId,
    out: S,
) -> std::result::Result<S::Ok, S::Error> {
    Some(user)
        .filter(|user| **user != UserId::INSTALLATION)
        .serialize(out)
}

/// What to change of an endpoint. What is None stays.
#[derive(Debug, Clone, Copy, Default)]
pub struct EndpointChange<'a> {
    /// Already checked by the caller.
    pub url: Option<&'a str>,
    pub event_types: Option<&'a [EventType]>,
    pub api_version: Option<ApiVersion>,
}

/// An endpoint to add.
#[derive(Debug, Clone, Copy)]
pub struct NewEndpoint<'a> {
    /// [`UserId::INSTALLATION`]: it gets the events of all users.
    pub user_id: UserId,
    /// Already checked by the caller.
    pub url: &'a str,
    /// The event types to subscribe to.
    pub event_types: &'a [EventType],
    /// Of the body of its events.
    pub api_version: ApiVersion,
    /// Signs messages. It is sealed before it is stored.
    pub secret: &'a SecretString,
}

/// The secrets that sign an endpoint's messages. `Debug` shows none.
#[derive(Debug, Clone)]
pub struct EndpointSecrets {
    pub current: SecretString,
    /// The previous secret, until it expires.
    pub old: Option<SecretString>,
}

/// A replaced secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecretRotation {
    /// Until then, the old one signs too. None: it could not be opened.
    pub old_expires_at: Option<Timestamp>,
}

impl Endpoints<'_> {
    /// The user's endpoints, oldest first.
    pub async fn list(self, user: UserId) -> Result<Vec<Endpoint>> {
        self.db.all(LIST, params![user], endpoint).await
    }

    /// All endpoints, oldest first. For the command line.
    pub async fn list_all(self) -> Result<Vec<Endpoint>> {
        self.db.all(LIST_ALL, params![], endpoint).await
    }

    /// Endpoints behind this one, oldest first, of one user or of all.
    pub async fn list_after(
        self,
        after: Option<EndpointId>,
        user: Option<UserId>,
        limit: u32,
    ) -> Result<Vec<Endpoint>> {
        let after = after.map_or(Param::BEFORE_ALL_IDS, Param::from);
        match user {
            Some(user) => {
                self.db
                    .all(LIST_AFTER_OF_USER, params![after, limit, user], endpoint)
                    .await
            }
            None => {
                self.db
                    .all(LIST_AFTER, params![after, limit], endpoint)
                    .await
            }
        }
    }

    /// Endpoints behind this one that are disabled, or whose last attempt failed, oldest first. One
    /// of the installation is listed if its last attempt failed for one of the users. With
    /// `paused`, those that were disabled on purpose are listed too.
    pub async fn list_troubled_after(
        self,
        after: Option<EndpointId>,
        paused: bool,
        limit: u32,
    ) -> Result<Vec<Endpoint>> {
        let after = after.map_or(Param::BEFORE_ALL_IDS, Param::from);
        let statement = match paused {
            true => LIST_TROUBLED,
            false => LIST_STOPPED_OR_FAILING,
        };
        self.db
            .all(statement, params![after, limit], endpoint)
            .await
    }

    /// Counts the endpoints of each user from one to another, by their ids, who has any that are
    /// disabled, and not on purpose.
    pub async fn count_stopped_by_user(
        self,
        first: UserId,
        last: UserId,
    ) -> Result<HashMap<UserId, u64>> {
        Ok(self
            .db
            .all(COUNT_STOPPED_BY_USER, params![first, last], pair)
            .await?
            .into_iter()
            .collect())
    }

    /// Finds an endpoint of any user, or of the installation. For the operator.
    pub async fn find_any(self, id: EndpointId) -> Result<Option<Endpoint>> {
        self.db.one(FIND_ANY, params![id], endpoint).await
    }

    /// The secrets of the user's endpoint, without an old one that does not open. None if there is
    /// no such endpoint.
    pub async fn secrets(
        self,
        user: UserId,
        id: EndpointId,
        now: Timestamp,
    ) -> Result<Option<EndpointSecrets>> {
        let until = self
            .db
            .one(
                FIND_OLD_SECRET_EXPIRES_AT,
                params![user, id],
                scalar::<Option<Timestamp>>,
            )
            .await?;
        let Some(until) = until else { return Ok(None) };
        let secrets = self.0.secrets();
        let Some(current) = secrets.find(&SecretSlot::webhook(user, id)).await? else {
            return Ok(None);
        };
        let old = match until.filter(|until| *until > now) {
            Some(_) => match secrets.find(&SecretSlot::old_webhook(user, id)).await {
                Err(StorageError::Sealed(_)) => None,
                found => found?,
            },
            None => None,
        };
        Ok(Some(EndpointSecrets { current, old }))
    }

    /// Deletes previous secrets that have expired.
    pub async fn delete_old_secrets(self, now: Timestamp) -> Result<u64> {
        self.db.run(DELETE_OLD_SECRETS, params![now]).await
    }
}

/// The endpoint of a user that was made last.
pub async fn find_newest(tx: &mut Tx, user: UserId) -> Result<Option<EndpointId>> {
    tx.value(FIND_NEWEST, params![user]).await
}

/// Adds an enabled endpoint.
///
/// # Errors
/// [`StorageError::Conflict`] if the user has `max` endpoints or is being removed,
/// [`StorageError::NotFound`] if the user does not exist.
pub async fn insert(
    tx: &mut Tx,
    secrets: Secrets<'_>,
    new: &NewEndpoint<'_>,
    max: u32,
    now: Timestamp,
) -> Result<Endpoint> {
    let (user, id) = (new.user_id, EndpointId::new());
    // The installation has no row.
    if user != UserId::INSTALLATION {
        lock_staying_user(tx, user).await?;
    }
    if tx.count(COUNT, params![user]).await? >= u64::from(max) {
        return Err(StorageError::Conflict("endpoints"));
    }
    let (api_version, status) = (new.api_version, EndpointStatus::Enabled);
    let event_types = joined(new.event_types);
    let values = params![user, id, new.url, &event_types, api_version, status, now];
    tx.run(INSERT, values).await?;
    secrets
        .store(tx, &SecretSlot::webhook(user, id), new.secret)
        .await?;
    Ok(Endpoint {
        user_id: user,
        id,
        url: new.url.to_owned(),
        event_types: new.event_types.to_vec(),
        api_version,
        status,
        disabled_reason: None,
        failing_since: None,
        delivered_at: None,
        created_at: as_stored(now),
        old_secret_expires_at: None,
    })
}

/// Finds an endpoint of any user, or of the installation.
pub async fn find(tx: &mut Tx, id: EndpointId) -> Result<Option<Endpoint>> {
    tx.one(FIND_ANY, params![id], endpoint).await
}

/// Replaces an endpoint's secret. The old one also signs until `old_until`, but is dropped at
/// once if it cannot be opened. Returns None if the user has no such endpoint.
pub async fn rotate_secret(
    tx: &mut Tx,
    secrets: Secrets<'_>,
    (user, id): (UserId, EndpointId),
    new: &SecretString,
    old_until: Timestamp,
) -> Result<Option<SecretRotation>> {
    let (slot, old_slot) = (
        SecretSlot::webhook(user, id),
        SecretSlot::old_webhook(user, id),
    );
    if !lock_owner_if_exists(tx, user).await? || !tx.exists(LOCK, params![user, id]).await? {
        return Ok(None);
    }
    let old = match secrets.find_in(tx, &slot).await {
        Err(StorageError::Sealed(_)) => None,
        other => other?,
    };
    let old_expires_at = old.as_ref().map(|_| old_until);
    tx.run(KEEP_OLD_SECRET, params![user, id, old_expires_at])
        .await?;
    match &old {
        Some(old) => secrets.store(tx, &old_slot, old).await?,
        None => delete_secret(tx, &old_slot).await?,
    }
    secrets.store(tx, &slot, new).await?;
    Ok(Some(SecretRotation {
        old_expires_at: old_expires_at.map(as_stored),
    }))
}

/// Changes an endpoint. Pending deliveries follow. Returns false if the user has no such
/// endpoint.
pub async fn update(
    tx: &mut Tx,
    (user, id): (UserId, EndpointId),
    change: &EndpointChange<'_>,
) -> Result<bool> {
    let event_types = change.event_types.map(joined);
    let types = event_types.as_deref();
    let values = params![user, id, change.url, types, change.api_version].to_vec();
    // An event is stored for its subscribers under the lock on the user's row.
    let updated = tx.batch(&[user_lock(user), (UPDATE, values)]).await?;
    Ok(updated[1].is_some())
}

/// Enables an endpoint and clears its failures. Failed deliveries stay failed. Returns false if
/// the user has no such endpoint.
pub async fn enable(tx: &mut Tx, (user, id): (UserId, EndpointId), now: Timestamp) -> Result<bool> {
    tx.changes(ENABLE, params![user, id, now]).await
}

/// Disables an endpoint and fails its unfinished deliveries. `reason` is a few words. Returns
/// the number of those deliveries, or None if the user has no such endpoint. At an endpoint of
/// the installation, each fails when it is due.
pub async fn disable(
    tx: &mut Tx,
    endpoint @ (user, _): (UserId, EndpointId),
    reason: &str,
    now: Timestamp,
) -> Result<Option<u64>> {
    if !lock_owner_if_exists(tx, user).await? || !is_of(tx, endpoint).await? {
        return Ok(None);
    }
    let failed = fail_deliveries(tx, endpoint, now).await?;
    Ok(set_disabled(tx, endpoint, reason, None)
        .await?
        .then_some(failed))
}

/// Disables an endpoint, with a revision only if it still has that. Returns false if it does not
/// exist or has changed.
pub(crate) async fn set_disabled(
    tx: &mut Tx,
    (user, id): (UserId, EndpointId),
    reason: &str,
    revision: Option<i64>,
) -> Result<bool> {
    tx.changes(DISABLE, params![user, id, reason, revision])
        .await
}

/// Deletes an endpoint with its secrets and deliveries. Returns false if the user has no such
/// endpoint. The deliveries of users to an endpoint of the installation are deleted when they
/// are due, or by the cleanup (`webhooks/queues.rs`).
pub async fn delete(tx: &mut Tx, endpoint @ (user, id): (UserId, EndpointId)) -> Result<bool> {
    if !lock_owner_if_exists(tx, user).await? || !is_of(tx, endpoint).await? {
        return Ok(false);
    }
    delete_queue(tx, endpoint).await?;
    if !tx.changes(DELETE, params![user, id]).await? {
        return Ok(false);
    }
    delete_secrets(tx, user, vec![id]).await?;
    Ok(true)
}

/// Whether the endpoint is the user's: they may have a queue at one of the installation.
async fn is_of(tx: &mut Tx, (user, id): (UserId, EndpointId)) -> Result<bool> {
    Ok(find(tx, id)
        .await?
        .is_some_and(|endpoint| endpoint.user_id == user))
}

/// Locks all queues of a user, so that no other task changes their deliveries. The caller holds the
/// lock on the user's row.
pub(crate) async fn lock_queues(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.all(LOCK_QUEUES, params![user], |_| Ok(()))
        .await
        .map(|_| ())
}

/// [`lock_queues`] as a part of a batch.
pub(crate) fn queues_lock<'a>(user: UserId) -> Bound<'a> {
    (LOCK_QUEUES, params![user].to_vec())
}

/// Fails the deliveries of a queue that have not ended, and returns their number. Ends the claim of
/// the queue.
pub(crate) async fn fail_deliveries(
    tx: &mut Tx,
    (user, id): (UserId, EndpointId),
    now: Timestamp,
) -> Result<u64> {
    tx.run(STOP_QUEUE, params![user, id, new_fence()]).await?;
    tx.run(
        FAIL_UNFINISHED_DELIVERIES,
        params![user, id, now, ENDPOINT_DISABLED],
    )
    .await
}

/// Deletes a user's own endpoints with their queues, but not their secrets. The caller holds the
/// locks on the user's row and queues.
pub(crate) async fn delete_own_endpoints(tx: &mut Tx, user: UserId) -> Result<Vec<EndpointId>> {
    let deleted = tx
        .all(DELETE_OF_USER, params![user], scalar::<EndpointId>)
        .await?;
    for endpoint in &deleted {
        delete_queue(tx, (user, *endpoint)).await?;
    }
    Ok(deleted)
}

/// Deletes a queue with its deliveries and their attempts.
pub(crate) async fn delete_queue(
    tx: &mut Tx,
    (user, endpoint): (UserId, EndpointId),
) -> Result<()> {
    for delete in [DELETE_QUEUE, DELETE_DELIVERIES, DELETE_ATTEMPTS] {
        tx.run(delete, params![user, endpoint]).await?;
    }
    Ok(())
}

/// Deletes the secrets of endpoints in the order of key rotation, so that the two cannot deadlock.
pub(crate) async fn delete_secrets(
    tx: &mut Tx,
    user: UserId,
    mut endpoints: Vec<EndpointId>,
) -> Result<()> {
    endpoints.sort_unstable();
    for slot in [SecretSlot::old_webhook, SecretSlot::webhook] {
        for endpoint in &endpoints {
            delete_secret(tx, &slot(user, *endpoint)).await?;
        }
    }
    Ok(())
}

from_row! {
    fn endpoint(row) -> Endpoint {
        user_id, id, url, event_types = event_types(row.text(3)?)?, api_version, status,
        disabled_reason, failing_since, delivered_at, created_at, old_secret_expires_at,
    }
}

/// The event types as the column has them.
fn joined(event_types: &[EventType]) -> String {
    event_types
        .iter()
        .map(|event| event.as_str())
        .collect::<Vec<_>>()
        .join(",")
}

fn event_types(column: &str) -> Result<Vec<EventType>> {
    let words = column.split(',').filter(|word| !word.is_empty());
    words
        .map(|word| {
            word.parse()
                .map_err(|_| StorageError::Corrupt("the type of an event"))
        })
        .collect()
}
