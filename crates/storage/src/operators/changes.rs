//! Changes that operators make, by API, in the console or by command, and users in the console. The
//! change, its row in the audit, and the response to a request that may be repeated commit in one
//! transaction, so a process that is killed leaves all of them or none.

use bellbird_domain::{
    Actor, ApiKey, ConnectionId, EndpointId, EventId, KeyId, OperatorKey, OperatorKeyId, User,
    UserId,
};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use crate::connections::{removals, syncs};
use crate::db::Tx;
use crate::error::Result;
use crate::linking::links;
use crate::locks::lock_user;
use crate::operators::audit::{self, OperatorAction, OwnAction};
use crate::operators::keys as operator_keys;
use crate::operators::requests::{self, Earlier, Idempotency, StoredResponse};
use crate::users::{identities, keys, removal, sessions, setup_tokens, user};
use crate::webhooks::{endpoints, redeliveries};
use crate::{
    Endpoint, EndpointChange, KeyRecord, NewEndpoint, NewLink, NewSetupToken, NewSignInLink,
    NewUser, OperatorKeyRecord, SecretRotation, Storage, StorageError, UserChange,
};

/// How a change begins.
pub enum BegunChange<'s> {
    New(OperatorChange<'s>),
    /// The request is repeated: nothing is changed, and the response is the same.
    Repeated(StoredResponse),
    /// The `Idempotency-Key` is that of another request.
    KeyInUse,
}

/// A change in progress. Dropping it changes nothing. On SQLite it holds the one writer, so do not
/// await anything else.
pub struct OperatorChange<'s> {
    storage: &'s Storage,
    tx: Tx,
    by: Actor,
    now: Timestamp,
    request: Option<(OperatorKeyId, Idempotency, Uuid)>,
}

impl Storage {
    /// Begins a change by API.
    pub async fn begin_change(
        &self,
        operator: OperatorKeyId,
        idempotency: Option<Idempotency>,
        now: Timestamp,
    ) -> Result<BegunChange<'_>> {
        if let Some(idempotency) = &idempotency {
            requests::forget_expired(&self.db, operator, idempotency, now).await?;
        }
        let mut tx = self.db.begin().await?;
        let request = match idempotency {
            None => None,
            Some(idempotency) => {
                match requests::begin(&mut tx, self.secrets(), operator, &idempotency, now).await? {
                    Earlier::None(id) => Some((operator, idempotency, id)),
                    Earlier::Same(response) => return Ok(BegunChange::Repeated(response)),
                    Earlier::Other => return Ok(BegunChange::KeyInUse),
                }
            }
        };
        Ok(BegunChange::New(OperatorChange {
            storage: self,
            tx,
            by: Actor::operator_key(operator),
            now,
            request,
        }))
    }

    /// Begins a change in the console or by command.
    pub async fn begin_change_by(
        &self,
        actor: Actor,
        now: Timestamp,
    ) -> Result<OperatorChange<'_>> {
        let tx = self.db.begin().await?;
        Ok(OperatorChange {
            storage: self,
            tx,
            by: actor,
            now,
            request: None,
        })
    }

    /// Begins a change by a user in a session of the console. It locks the user's row, so that a
    /// removal of the user finds all rows of the audit.
    pub async fn begin_own_change(
        &self,
        user: UserId,
        session: Uuid,
        now: Timestamp,
    ) -> Result<OperatorChange<'_>> {
        let mut tx = self.db.begin().await?;
        lock_user(&mut tx, user).await?;
        Ok(OperatorChange {
            storage: self,
            tx,
            by: Actor::user(session),
            now,
            request: None,
        })
    }
}

impl OperatorChange<'_> {
    /// As `storage.users().insert`.
    pub async fn insert_user(&mut self, new: &NewUser<'_>) -> Result<User> {
        user::insert(&mut self.tx, new, self.now).await
    }

    /// As `storage.users().update`.
    pub async fn update_user(&mut self, id: UserId, change: &UserChange<'_>) -> Result<User> {
        user::update(&mut self.tx, id, change).await
    }

    /// As `storage.users().delete`.
    pub async fn delete_user(&mut self, id: UserId) -> Result<()> {
        user::delete(&mut self.tx, id, self.now).await
    }

    /// Begins the removal of a user with their connections. The caller wakes the service. Returns
    /// false, and is not to be committed, if it has begun already.
    pub async fn begin_user_removal(&mut self, id: UserId) -> Result<bool> {
        removal::begin(&mut self.tx, id, self.now).await
    }

    /// Adds an operator's key.
    pub async fn insert_operator_key(
        &mut self,
        key: &OperatorKey,
        name: &str,
        expires_at: Option<Timestamp>,
    ) -> Result<OperatorKeyRecord> {
        operator_keys::insert(&mut self.tx, key, name, expires_at, self.now).await
    }

    /// Revokes an operator's key. Revoking it again keeps the first time.
    pub async fn revoke_operator_key(&mut self, id: OperatorKeyId) -> Result<OperatorKeyRecord> {
        operator_keys::revoke(&mut self.tx, id, self.now).await
    }

    /// As `storage.keys().insert`.
    pub async fn insert_key(
        &mut self,
        user: UserId,
        key: &ApiKey,
        name: &str,
        expires_at: Option<Timestamp>,
    ) -> Result<KeyRecord> {
        keys::insert(&mut self.tx, user, key, name, expires_at, self.now).await
    }

    /// As `storage.keys().rotate`.
    pub async fn rotate_key(
        &mut self,
        old: &KeyRecord,
        new: &ApiKey,
        ends_at: Timestamp,
    ) -> Result<(KeyRecord, KeyRecord)> {
        keys::rotate(&mut self.tx, old, new, ends_at, self.now).await
    }

    /// As `storage.keys().revoke`.
    pub async fn revoke_key(&mut self, id: KeyId) -> Result<KeyRecord> {
        keys::revoke(&mut self.tx, id, self.now).await
    }

    /// As `storage.setup_tokens().insert`.
    pub async fn insert_setup_token(&mut self, new: &NewSetupToken<'_>) -> Result<Uuid> {
        setup_tokens::insert(&mut self.tx, new, self.now).await
    }

    /// As `storage.setup_tokens().revoke_unclaimed`.
    pub async fn revoke_setup_tokens(&mut self, user: UserId) -> Result<u64> {
        setup_tokens::revoke_unclaimed(&mut self.tx, user, self.now).await
    }

    /// As `storage.sessions().insert_link`. If it returns false, the change is not to be committed.
    pub async fn insert_sign_in_link(
        &mut self,
        link: &NewSignInLink<'_>,
        links_max: i64,
    ) -> Result<bool> {
        sessions::insert_link(&mut self.tx, link, links_max, self.now).await
    }

    /// Forgets with which accounts of identity providers a user signs in. Returns how many there
    /// were.
    pub async fn forget_identities(&mut self, user: UserId) -> Result<u64> {
        identities::forget(&mut self.tx, user).await
    }

    /// Ends a session of the user. Returns whether there was one.
    pub async fn revoke_session(&mut self, user: UserId, id: Uuid) -> Result<bool> {
        sessions::revoke(&mut self.tx, user, id).await
    }

    /// Ends all sessions of the user but one.
    pub async fn revoke_other_sessions(&mut self, user: UserId, kept: Uuid) -> Result<()> {
        sessions::revoke_others(&mut self.tx, user, kept).await
    }

    /// Ends all sessions of a user.
    pub async fn revoke_sessions(&mut self, user: UserId) -> Result<()> {
        sessions::revoke_all(&mut self.tx, user).await
    }

    /// As `storage.links().insert`.
    pub async fn insert_link(&mut self, link: &NewLink<'_>) -> Result<Uuid> {
        links::insert(&mut self.tx, link, self.now).await
    }

    /// As `storage.endpoints().insert`.
    pub async fn insert_endpoint(&mut self, new: &NewEndpoint<'_>, max: u32) -> Result<Endpoint> {
        endpoints::insert(&mut self.tx, self.storage.secrets(), new, max, self.now).await
    }

    /// As `storage.endpoints().find_any`.
    pub async fn find_endpoint(&mut self, id: EndpointId) -> Result<Option<Endpoint>> {
        endpoints::find(&mut self.tx, id).await
    }

    /// As `storage.endpoints().update`.
    pub async fn update_endpoint(
        &mut self,
        endpoint: (UserId, EndpointId),
        change: &EndpointChange<'_>,
    ) -> Result<bool> {
        endpoints::update(&mut self.tx, endpoint, change).await
    }

    /// As `storage.endpoints().enable`.
    pub async fn enable_endpoint(&mut self, endpoint: (UserId, EndpointId)) -> Result<bool> {
        endpoints::enable(&mut self.tx, endpoint, self.now).await
    }

    /// As `storage.endpoints().disable`.
    pub async fn disable_endpoint(
        &mut self,
        endpoint: (UserId, EndpointId),
        reason: &str,
    ) -> Result<Option<u64>> {
        endpoints::disable(&mut self.tx, endpoint, reason, self.now).await
    }

    /// As `storage.endpoints().rotate_secret`. None if the user has no such endpoint.
    pub async fn rotate_endpoint_secret(
        &mut self,
        endpoint: (UserId, EndpointId),
        new: &SecretString,
        old_until: Timestamp,
    ) -> Result<Option<SecretRotation>> {
        endpoints::rotate_secret(
            &mut self.tx,
            self.storage.secrets(),
            endpoint,
            new,
            old_until,
        )
        .await
    }

    /// As `storage.endpoints().delete`.
    pub async fn delete_endpoint(&mut self, endpoint: (UserId, EndpointId)) -> Result<bool> {
        endpoints::delete(&mut self.tx, endpoint).await
    }

    /// As `storage.deliveries().redeliver`. If it returns false, the change is not to be committed.
    pub async fn redeliver(
        &mut self,
        endpoint: (UserId, EndpointId),
        event: EventId,
    ) -> Result<bool> {
        redeliveries::redeliver(&mut self.tx, endpoint, event, self.now).await
    }

    /// As `storage.deliveries().recover`. None if there is no such endpoint, or it is disabled.
    pub async fn recover(
        &mut self,
        endpoint: (UserId, EndpointId),
        since: Timestamp,
    ) -> Result<Option<u64>> {
        redeliveries::recover(&mut self.tx, endpoint, since, self.now).await
    }

    /// Requests a sync. The caller wakes the service.
    pub async fn request_sync(&mut self, user: UserId, id: ConnectionId) -> Result<()> {
        if syncs::request(&mut self.tx, (user, id), self.now, SignedDuration::ZERO).await? {
            return Ok(());
        }
        Err(StorageError::NotFound("connection"))
    }

    /// As `storage.removals().begin_because` without a lease: hides a connection. The caller wakes
    /// the service. Returns false, and is not to be committed, if it is hidden or gone already.
    pub async fn hide_connection(&mut self, user: UserId, id: ConnectionId) -> Result<bool> {
        removals::hide(&mut self.tx, "removed", user, id, self.now).await
    }

    /// Commits the change with its audit row.
    pub async fn commit_alone(mut self, action: &OperatorAction<'_>) -> Result<()> {
        audit::insert(&mut self.tx, &self.by, action, self.now).await?;
        self.tx.commit().await
    }

    /// Commits the change of a user with its audit row.
    pub async fn commit_own(mut self, user: UserId, action: &OwnAction<'_>) -> Result<()> {
        audit::insert_own(&mut self.tx, &self.by, user, action, self.now).await?;
        self.tx.commit().await
    }

    /// Commits the change with its audit row. `response` is what a repeated request gets.
    pub async fn commit(
        mut self,
        action: &OperatorAction<'_>,
        response: &StoredResponse,
    ) -> Result<()> {
        audit::insert(&mut self.tx, &self.by, action, self.now).await?;
        if let Some((operator, idempotency, id)) = &self.request {
            let request = (*operator, idempotency, *id);
            requests::finish(
                &mut self.tx,
                self.storage.secrets(),
                request,
                action.user_id,
                response,
            )
            .await?;
        }
        self.tx.commit().await
    }
}
