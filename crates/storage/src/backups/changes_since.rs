//! Repeats in a restored database what was revoked, removed, disabled or lowered since its backup was made. The
//! database that it replaces knows: what it lacks was removed. A key of a user who exists is never deleted, only
//! revoked.

use std::collections::HashMap;
use std::hash::Hash;

use bellbird_domain::{
    Connection, ConnectionId, ConnectionStatus, EndpointId, EndpointStatus, KeyId, OperatorKeyId, TimestampExt as _,
    User, UserId,
};
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use crate::db::{params, statements};
use crate::error::{Result, StorageError};
use crate::jobs::{JobKey, job_kinds};
use crate::{Backups, Endpoint, EndpointChange, KeyRecord, OperatorKeyRecord, UserChange};

/// Long enough for the few statements of a removal.
const REMOVAL_LEASE: SignedDuration = SignedDuration::from_mins(5);
/// Webhook events that one transaction deletes.
const EVENTS_BATCH: u32 = 1_000;

statements! {
    LIST_PROVIDER_USERS = "SELECT user_id, provider, provider_user_digest FROM provider_users
        ORDER BY user_id, provider";

    REVOKE_ALL = "UPDATE api_keys SET revoked_at = $1 WHERE revoked_at IS NULL";

    REVOKE_ALL_OF_OPERATORS = "UPDATE operator_keys SET revoked_at = $1 WHERE revoked_at IS NULL";

    REMOVE_OPERATORS = "UPDATE users SET is_operator = 0 WHERE is_operator = 1";
}

/// Who may do what, at one time.
pub struct PresentState {
    users: HashMap<UserId, User>,
    keys: HashMap<KeyId, KeyRecord>,
    operator_keys: HashMap<OperatorKeyId, OperatorKeyRecord>,
    connections: HashMap<ConnectionId, Connection>,
    endpoints: HashMap<EndpointId, Endpoint>,
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
    pub operator_keys_revoked: u64,
    /// Operators' keys that expire earlier now.
    pub operator_keys_shortened: u64,
    pub connections_removed: u64,
    /// Connections whose consent the service still has to withdraw.
    pub removals_continued: u64,
    pub users_removed: u64,
    pub plans_changed: u64,
    /// Users who are no operators any more.
    pub operators_removed: u64,
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
    pub operator_keys: u64,
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
        let users = self.0.users().list().await?;
        let mut keys = HashMap::new();
        for user in &users {
            keys.extend(self.0.keys().list(user.id).await?.into_iter().map(|key| (key.id, key)));
        }
        let operator_keys = self.0.operator_keys().list().await?;
        let connections = self.0.connections().list_all().await?;
        let endpoints = self.0.endpoints().list_all().await?;
        let provider_users = self.0.db.all(LIST_PROVIDER_USERS, params![], |row| {
            Ok(((row.id(0)?, row.text(1)?.to_owned()), row.opt_text(2)?.map(str::to_owned)))
        });
        Ok(PresentState {
            users: users.into_iter().map(|user| (user.id, user)).collect(),
            keys,
            operator_keys: operator_keys.into_iter().map(|key| (key.id, key)).collect(),
            connections: connections.into_iter().map(|connection| (connection.id, connection)).collect(),
            endpoints: endpoints.into_iter().map(|endpoint| (endpoint.id, endpoint)).collect(),
            provider_users: provider_users.await?.into_iter().collect(),
        })
    }

    /// Revokes and removes in this restored database what was revoked and removed in the previous one. Idempotent, so
    /// an interrupted call is repeated. No provider is called: the consents of removed connections are withdrawn
    /// already, or a removal that had begun continues.
    pub async fn carry_over(self, previous: &PresentState, now: Timestamp) -> Result<(CarriedOver, LostSince)> {
        let restored = self.present_state().await?;
        let mut done = CarriedOver::default();
        for (id, connection) in &restored.connections {
            let user = connection.user_id;
            match previous.connections.get(id).map(|present| present.status) {
                None => {
                    self.remove_locally(user, *id, now).await?;
                    done.connections_removed += 1;
                }
                Some(ConnectionStatus::Deleting) if connection.status != ConnectionStatus::Deleting => {
                    // Without a lease, so the removal is due at once.
                    self.0.removals().begin_because("removed", user, *id, now, None).await?;
                    done.removals_continued += 1;
                }
                Some(_) => {}
            }
        }
        for (key @ (user, provider), digest) in &restored.provider_users {
            if previous.provider_users.get(key) != Some(digest) {
                self.0.provider_users().delete(*user, provider).await?;
                done.registrations_removed += 1;
            }
        }
        self.carry_over_endpoints(&restored, previous, now, &mut done).await?;
        for (id, user) in &restored.users {
            let Some(present) = previous.users.get(id) else {
                self.0.users().delete(*id, now).await?;
                done.users_removed += 1;
                continue;
            };
            if present.plan != user.plan {
                let plan = UserChange { plan: Some(present.plan), ..UserChange::default() };
                self.0.users().update(*id, &plan).await?;
                done.plans_changed += 1;
            }
            if user.is_operator && !present.is_operator {
                let no_operator = UserChange { is_operator: Some(false), ..UserChange::default() };
                self.0.users().update(*id, &no_operator).await?;
                done.operators_removed += 1;
            }
        }
        self.carry_over_keys(&restored, previous, now, &mut done).await?;
        self.carry_over_operator_keys(&restored, previous, now, &mut done).await?;
        Ok((done, lost(&restored, previous)))
    }

    async fn carry_over_endpoints(
        self,
        restored: &PresentState,
        previous: &PresentState,
        now: Timestamp,
        done: &mut CarriedOver,
    ) -> Result<()> {
        for (id, endpoint) in &restored.endpoints {
            let user = endpoint.user_id;
            let Some(present) = previous.endpoints.get(id) else {
                self.0.endpoints().delete(user, *id).await?;
                done.endpoints_removed += 1;
                continue;
            };
            if (&present.url, &present.event_types) != (&endpoint.url, &endpoint.event_types) {
                let change = EndpointChange {
                    url: Some(&present.url),
                    event_types: Some(&present.event_types),
                    api_version: None,
                };
                self.0.endpoints().update(user, *id, &change).await?;
                done.endpoints_changed += 1;
            }
            if present.status == EndpointStatus::Disabled && endpoint.status != EndpointStatus::Disabled {
                let reason = present.disabled_reason.as_deref().unwrap_or("disabled before the restore");
                self.0.endpoints().disable(user, *id, reason, now).await?;
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
            let present = previous.keys.get(id).map(|present| (present.revoked_at, present.expires_at));
            match since_backup(key.expires_at, present, now) {
                KeyChange::Revoked(at) => match self.0.keys().revoke(*id, at).await {
                    Ok(_) => done.keys_revoked += 1,
                    // Deleted with its user.
                    Err(StorageError::NotFound(_)) => {}
                    Err(error) => return Err(error),
                },
                KeyChange::Shortened(at) => {
                    self.0.keys().expire(*id, at).await?;
                    done.keys_shortened += 1;
                }
                KeyChange::None => {}
            }
        }
        Ok(())
    }

    async fn carry_over_operator_keys(
        self,
        restored: &PresentState,
        previous: &PresentState,
        now: Timestamp,
        done: &mut CarriedOver,
    ) -> Result<()> {
        for (id, key) in restored.operator_keys.iter().filter(|(_, key)| key.revoked_at.is_none()) {
            let present = previous.operator_keys.get(id).map(|present| (present.revoked_at, present.expires_at));
            match since_backup(key.expires_at, present, now) {
                KeyChange::Revoked(at) => {
                    self.0.operator_keys().revoke(*id, at).await?;
                    done.operator_keys_revoked += 1;
                }
                KeyChange::Shortened(at) => {
                    self.0.operator_keys().expire(*id, at).await?;
                    done.operator_keys_shortened += 1;
                }
                KeyChange::None => {}
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

    /// Revokes every key of users and operators, and makes no user an operator. Returns the numbers of both keys.
    pub async fn revoke_all_keys(self, now: Timestamp) -> Result<(u64, u64)> {
        let mut tx = self.0.db.begin().await?;
        let revoked = tx.run(REVOKE_ALL, params![now]).await?;
        let revoked_of_operators = tx.run(REVOKE_ALL_OF_OPERATORS, params![now]).await?;
        tx.run(REMOVE_OPERATORS, params![]).await?;
        tx.commit().await?;
        Ok((revoked, revoked_of_operators))
    }
}

/// What happened to a valid key of the backup.
enum KeyChange {
    None,
    Revoked(Timestamp),
    /// It expires earlier.
    Shortened(Timestamp),
}

/// `present` is when the key was revoked in the previous database, and when it expires there.
fn since_backup(
    expires_at: Option<Timestamp>,
    present: Option<(Option<Timestamp>, Option<Timestamp>)>,
    now: Timestamp,
) -> KeyChange {
    match present {
        None => KeyChange::Revoked(now),
        Some((Some(at), _)) => KeyChange::Revoked(at),
        Some((None, Some(at))) if expires_at.is_none_or(|expires_at| at < expires_at) => KeyChange::Shortened(at),
        Some((None, _)) => KeyChange::None,
    }
}

fn lost(restored: &PresentState, previous: &PresentState) -> LostSince {
    let is_lost = |key: &&KeyRecord| key.revoked_at.is_none() && !restored.keys.contains_key(&key.id);
    LostSince {
        users: count_missing(&restored.users, &previous.users),
        keys: previous.keys.values().filter(is_lost).count() as u64,
        operator_keys: count_missing(&restored.operator_keys, &previous.operator_keys),
        // Also those that are being removed: their consent is not withdrawn yet.
        connections: count_missing(&restored.connections, &previous.connections),
        endpoints: count_missing(&restored.endpoints, &previous.endpoints),
    }
}

fn count_missing<K: Eq + Hash, V>(restored: &HashMap<K, V>, previous: &HashMap<K, V>) -> u64 {
    previous.keys().filter(|key| !restored.contains_key(key)).count() as u64
}
