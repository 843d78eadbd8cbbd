//! Repeats in a restored database what was revoked, removed, disabled or lowered since its backup was made. The
//! database that it replaces knows: what it lacks was removed. A key of a user who exists is never deleted, only
//! revoked.

use std::collections::HashMap;
use std::hash::Hash;

use bellbird_domain::{ConnectionId, EndpointId, EndpointStatus, KeyId, Plan, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::db::{ReadRow, Row, Sql, params, statements};
use crate::error::{Result, StorageError};
use crate::jobs::{JobKey, job_kinds};
use crate::{Backups, UserChange};

/// Long enough for the few statements of a removal.
const REMOVAL_LEASE: SignedDuration = SignedDuration::from_mins(5);
/// Webhook events that one transaction deletes.
const EVENTS_BATCH: u32 = 1_000;

statements! {
    LIST_USERS = "SELECT id, plan FROM users ORDER BY id";

    LIST_KEYS = "SELECT id, expires_at, revoked_at FROM api_keys ORDER BY id";

    LIST_CONNECTIONS = "SELECT id, user_id, status FROM connections ORDER BY id";

    LIST_ENDPOINTS = "SELECT id, user_id, status, disabled_reason, url, event_types FROM webhook_endpoints ORDER BY id";

    LIST_PROVIDER_USERS = "SELECT user_id, provider, provider_user_digest FROM provider_users
        ORDER BY user_id, provider";

    CHANGE_ENDPOINT = "UPDATE webhook_endpoints SET url = $3, event_types = $4 WHERE user_id = $1 AND id = $2";

    REVOKE_ALL = "UPDATE api_keys SET revoked_at = $1 WHERE revoked_at IS NULL";
}

struct KeyState {
    expires_at: Option<Timestamp>,
    revoked_at: Option<Timestamp>,
}

struct ConnectionState {
    user: UserId,
    is_hidden: bool,
}

struct EndpointState {
    user: UserId,
    status: EndpointStatus,
    disabled_reason: Option<String>,
    url: String,
    /// As stored.
    event_types: String,
}

/// Who may do what, at one time.
pub struct PresentState {
    users: HashMap<UserId, Plan>,
    keys: HashMap<KeyId, KeyState>,
    connections: HashMap<ConnectionId, ConnectionState>,
    endpoints: HashMap<EndpointId, EndpointState>,
    /// With the digest of the id at the provider.
    provider_users: HashMap<(UserId, String), Option<String>>,
}

/// Counts of what `storage.backups().carry_over` repeated. Serialized as `bellbird restore --json` prints it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CarriedOver {
    pub keys_revoked: u64,
    /// Keys that expire earlier now.
    pub keys_shortened: u64,
    pub connections_removed: u64,
    /// Connections whose consent the service still has to withdraw.
    pub removals_continued: u64,
    pub users_removed: u64,
    pub plans_changed: u64,
    pub endpoints_removed: u64,
    pub endpoints_disabled: u64,
    /// Endpoints whose URL or event types were changed.
    pub endpoints_changed: u64,
    /// Registrations of users at providers that were deleted there.
    pub registrations_removed: u64,
}

/// What only the replaced database has. Serialized as `bellbird restore --json` prints it.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LostSince {
    pub users: u64,
    pub keys: u64,
    pub connections: u64,
    pub endpoints: u64,
}

impl Backups<'_> {
    /// Reads what `storage.backups().carry_over` compares with, from the database of which `restored` is a backup.
    ///
    /// # Errors
    /// [`StorageError::Backup`] if it is another database, or itself awaits a decision after a restore.
    pub async fn state_for(self, restored: Self) -> Result<PresentState> {
        if self.created_at().await? != restored.created_at().await? {
            return Err(StorageError::Backup("it is another database, of which this is no backup".to_owned()));
        }
        if self.awaits_restore_decision().await? {
            return Err(StorageError::Backup(
                "it was itself restored from a backup, without a decision since".to_owned(),
            ));
        }
        self.present_state().await
    }

    async fn present_state(self) -> Result<PresentState> {
        let endpoint = |row: &Row<'_>| {
            let state = EndpointState {
                user: row.id(1)?,
                status: row.word(2, "the status of an endpoint")?,
                disabled_reason: row.opt_text(3)?.map(str::to_owned),
                url: row.text(4)?.to_owned(),
                event_types: row.text(5)?.to_owned(),
            };
            Ok((row.id(0)?, state))
        };
        let key =
            |row: &Row<'_>| Ok((row.id(0)?, KeyState { expires_at: row.opt_time(1)?, revoked_at: row.opt_time(2)? }));
        let connection = |row: &Row<'_>| {
            Ok((row.id(0)?, ConnectionState { user: row.id(1)?, is_hidden: row.text(2)? == "deleting" }))
        };
        let provider_user =
            |row: &Row<'_>| Ok(((row.id(0)?, row.text(1)?.to_owned()), row.opt_text(2)?.map(str::to_owned)));
        Ok(PresentState {
            users: self.list(LIST_USERS, |row| Ok((row.id(0)?, row.word(1, "a plan")?))).await?,
            keys: self.list(LIST_KEYS, key).await?,
            connections: self.list(LIST_CONNECTIONS, connection).await?,
            endpoints: self.list(LIST_ENDPOINTS, endpoint).await?,
            provider_users: self.list(LIST_PROVIDER_USERS, provider_user).await?,
        })
    }

    async fn list<K: Eq + Hash, V>(self, sql: Sql, read: ReadRow<(K, V)>) -> Result<HashMap<K, V>> {
        Ok(self.0.db.all(sql, params![], read).await?.into_iter().collect())
    }

    /// Revokes and removes in this restored database what was revoked and removed in the previous one. Idempotent, so
    /// an interrupted call is repeated. No provider is called: the consents of removed connections are withdrawn
    /// already, or a removal that had begun continues.
    pub async fn carry_over(self, previous: &PresentState, now: Timestamp) -> Result<(CarriedOver, LostSince)> {
        let restored = self.present_state().await?;
        let mut done = CarriedOver::default();
        for (id, connection) in missing(&restored.connections, &previous.connections) {
            self.remove_locally(connection.user, *id, now).await?;
            done.connections_removed += 1;
        }
        for (id, connection, present) in common(&restored.connections, &previous.connections) {
            if present.is_hidden && !connection.is_hidden {
                // Without a lease, so the removal is due at once.
                self.0.removals().begin(connection.user, *id, now, now).await?;
                done.removals_continued += 1;
            }
        }
        for (key @ (user, provider), digest) in &restored.provider_users {
            if previous.provider_users.get(key) != Some(digest) {
                self.0.provider_users().delete(*user, provider).await?;
                done.registrations_removed += 1;
            }
        }
        self.carry_over_endpoints(&restored, previous, now, &mut done).await?;
        for (id, _) in missing(&restored.users, &previous.users) {
            self.0.users().delete(*id).await?;
            done.users_removed += 1;
        }
        for (id, _, present) in common(&restored.users, &previous.users).filter(|(_, plan, present)| plan != present) {
            self.0.users().update(*id, &UserChange { plan: Some(*present), ..UserChange::default() }).await?;
            done.plans_changed += 1;
        }
        self.carry_over_keys(&restored, previous, now, &mut done).await?;
        Ok((done, lost(&restored, previous)))
    }

    async fn carry_over_endpoints(
        self,
        restored: &PresentState,
        previous: &PresentState,
        now: Timestamp,
        done: &mut CarriedOver,
    ) -> Result<()> {
        for (id, endpoint) in missing(&restored.endpoints, &previous.endpoints) {
            self.0.endpoints().delete(endpoint.user, *id).await?;
            done.endpoints_removed += 1;
        }
        for (id, endpoint, present) in common(&restored.endpoints, &previous.endpoints) {
            if (&present.url, &present.event_types) != (&endpoint.url, &endpoint.event_types) {
                let values = params![endpoint.user, *id, present.url.as_str(), present.event_types.as_str()];
                self.0.db.run(CHANGE_ENDPOINT, values).await?;
                done.endpoints_changed += 1;
            }
            if present.status == EndpointStatus::Disabled && endpoint.status != EndpointStatus::Disabled {
                let reason = present.disabled_reason.as_deref().unwrap_or("disabled before the restore");
                self.0.endpoints().disable(endpoint.user, *id, reason, now).await?;
                done.endpoints_disabled += 1;
            }
        }
        Ok(())
    }

    async fn carry_over_keys(
        self,
        restored: &PresentState,
        previous: &PresentState,
        now: Timestamp,
        done: &mut CarriedOver,
    ) -> Result<()> {
        for (id, key) in restored.keys.iter().filter(|(_, key)| key.revoked_at.is_none()) {
            let present = previous.keys.get(id);
            if let Some(revoked_at) = present.map_or(Some(now), |present| present.revoked_at) {
                match self.0.keys().revoke(*id, revoked_at).await {
                    Ok(_) => done.keys_revoked += 1,
                    // Deleted with its user.
                    Err(StorageError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                }
            } else if let Some(expires_at) = present.and_then(|present| present.expires_at)
                && key.expires_at.is_none_or(|at| expires_at < at)
            {
                self.0.keys().expire(*id, expires_at).await?;
                done.keys_shortened += 1;
            }
        }
        Ok(())
    }

    /// Deletes a connection whose consent is withdrawn already.
    async fn remove_locally(self, user: UserId, id: ConnectionId, now: Timestamp) -> Result<()> {
        let lease_until = now.plus(REMOVAL_LEASE);
        let claim = match self.0.removals().begin(user, id, now, lease_until).await? {
            Some(claim) => Some(claim),
            // Its removal had begun when the backup was made.
            None => self.0.jobs().claim(&JobKey::new(job_kinds::REMOVAL, user, id), now, lease_until).await?,
        };
        let Some(claim) = claim else {
            return Err(StorageError::Backup(
                "a removal was running when the backup was made: try again in a few minutes".to_owned(),
            ));
        };
        while self.0.removals().delete_webhook_events(&claim, EVENTS_BATCH).await? == Some(EVENTS_BATCH) {}
        self.0.removals().finish(&claim, "removed", now).await.map(|_| ())
    }

    /// Revokes every API key. Returns their number.
    pub async fn revoke_all_keys(self, now: Timestamp) -> Result<u64> {
        self.0.db.run(REVOKE_ALL, params![now]).await
    }
}

fn lost(restored: &PresentState, previous: &PresentState) -> LostSince {
    let keys = missing(&previous.keys, &restored.keys).filter(|(_, key)| key.revoked_at.is_none());
    LostSince {
        users: missing(&previous.users, &restored.users).count() as u64,
        keys: keys.count() as u64,
        // Also those that are being removed: their consent is not withdrawn yet.
        connections: missing(&previous.connections, &restored.connections).count() as u64,
        endpoints: missing(&previous.endpoints, &restored.endpoints).count() as u64,
    }
}

/// What `other` lacks.
fn missing<'a, K: Eq + Hash, V>(all: &'a HashMap<K, V>, other: &HashMap<K, V>) -> impl Iterator<Item = (&'a K, &'a V)> {
    all.iter().filter(|(key, _)| !other.contains_key(key))
}

/// What both have, with the value of each.
fn common<'a, K: Eq + Hash, V>(
    one: &'a HashMap<K, V>,
    other: &'a HashMap<K, V>,
) -> impl Iterator<Item = (&'a K, &'a V, &'a V)> {
    one.iter().filter_map(|(key, value)| Some((key, value, other.get(key)?)))
}
