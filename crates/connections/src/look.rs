//! Looking at the provider: when a connection seems broken, when an event says that something has changed, and a few
//! times after a connection was linked, as data lag consent.
//!
//! A look that is asked for is due on the row of its connection, so that none is lost. One at a time for a connection,
//! in all copies of the service: what is asked for during a look is done after it.

use std::time::Duration;

use bellbird_domain::{Connection, ConnectionId, ConnectionStatus, UserId};
use bellbird_providers::{Call, Provider, Standing};
use bellbird_storage::{ClaimedLook, NewAccount, StorageError};
use secrecy::SecretString;
use tokio::time::Instant;

use crate::adopt::new_account;
use crate::matching::match_accounts;
use crate::{Connections, ConnectionsError, for_each, lifecycle, schedule};

/// How long one look may ask the provider.
const LOOK_DEADLINE: Duration = Duration::from_secs(40);
/// How long one subscription may take: others wait for it.
const SUBSCRIBE_DEADLINE: Duration = Duration::from_secs(10);
/// How long a look is somebody's: longer than it may take.
const LEASE: Duration = Duration::from_secs(60);
/// How often it is seen whether somebody else is done with a look.
const LOOKED_AFTER: Duration = Duration::from_millis(250);
/// Looks that one copy of the service makes at the same time.
const AT_ONCE: u32 = 8;

impl Connections {
    /// Asks the provider whether the connection works, moves it along the edge that the answer leads to, and brings its
    /// accounts up to date. Returns the status after that; where somebody looks at it now, that of before.
    ///
    /// # Errors
    /// [`ConnectionsError`] when the connection is gone or the provider does not say.
    pub async fn check(&self, user_id: UserId, id: ConnectionId) -> Result<ConnectionStatus, ConnectionsError> {
        let (now, lease) = self.lease(LEASE);
        if let Some(claim) = self.storage.claim_look(user_id, id, now, lease).await? {
            self.look(&claim).await?;
        }
        let connection = self.storage.find_connection(user_id, id).await?.ok_or(ConnectionsError::NotFound)?;
        Ok(connection.status)
    }

    /// As [`Connections::check`], after whoever looks now: what they learn may be older than what is asked for.
    ///
    /// # Errors
    /// As [`Connections::check`].
    pub(crate) async fn check_in_turn(
        &self,
        user_id: UserId,
        id: ConnectionId,
    ) -> Result<ConnectionStatus, ConnectionsError> {
        let give_up = Instant::now() + LEASE;
        loop {
            let (now, lease) = self.lease(LEASE);
            if let Some(claim) = self.storage.claim_look(user_id, id, now, lease).await? {
                self.look(&claim).await?;
                break;
            }
            if Instant::now() >= give_up {
                break;
            }
            tokio::time::sleep(LOOKED_AFTER).await;
        }
        let connection = self.storage.find_connection(user_id, id).await?.ok_or(ConnectionsError::NotFound)?;
        Ok(connection.status)
    }

    /// Starts a check that nobody waits for; one at a time for each connection.
    pub fn check_soon(&self, user_id: UserId, id: ConnectionId) {
        let connections = self.clone();
        tokio::spawn(async move {
            let checks = std::sync::Arc::clone(&connections.checks);
            let work = || async move {
                if let Err(error) = connections.check(user_id, id).await {
                    tracing::warn!(connection_id = %id, error = %error, "connection could not be checked");
                }
            };
            let _ = checks.join(id, work).await;
        });
    }

    /// Makes every look that is due, a few at a time, and returns when none is. To be called again and again by a
    /// running service; any number of copies may do so at once.
    ///
    /// # Errors
    /// Those of the database. What was claimed by then is due again when its lease ends.
    pub async fn look_due(&self) -> Result<(), ConnectionsError> {
        loop {
            let (now, lease) = self.lease(LEASE);
            let claims = self.storage.claim_due_looks(now, lease, AT_ONCE).await?;
            if claims.is_empty() {
                return Ok(());
            }
            for_each(claims, |claim| {
                let connections = self.clone();
                async move {
                    match connections.look(&claim).await {
                        Err(error @ ConnectionsError::Storage(StorageError::Unavailable(_))) => Err(error),
                        Err(error) => {
                            let id = claim.connection_id;
                            tracing::warn!(connection_id = %id, %error, "connection could not be looked at");
                            Ok(())
                        }
                        Ok(()) => Ok(()),
                    }
                }
            })
            .await?;
        }
    }

    /// Waits until somebody in this program asks for a look.
    pub async fn look_wanted(&self) {
        self.due.looks.notified().await;
    }

    /// Looks, and gives the claim back with the time of the next look, if there is to be one.
    async fn look(&self, claim: &ClaimedLook) -> Result<(), ConnectionsError> {
        let looked = self.look_at(claim).await;
        // The lease ends, and somebody looks again.
        if let Err(ConnectionsError::Storage(StorageError::Unavailable(_))) = looked {
            return looked;
        }
        let now = self.clock.now();
        // Accounts under new ids are matched until a look has seen them all.
        let settled = looked.is_ok() && claim.settles_at.is_some_and(|until| until <= now);
        let failed = looked.as_ref().is_err_and(ConnectionsError::is_passing);
        let next = schedule::looked_at_next(claim.attempts, failed, now, claim.settles_at);
        let attempts = if next.is_some() { claim.attempts.saturating_add(1) } else { 0 };
        self.storage.finish_look(claim, next, attempts, settled).await?;
        looked
    }

    async fn look_at(&self, claim: &ClaimedLook) -> Result<(), ConnectionsError> {
        let (user, id) = (claim.user_id, claim.connection_id);
        let connection = self.storage.find_connection(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let grant = self.storage.find_grant(user, id).await?.ok_or(ConnectionsError::NotFound)?;
        let provider = self.provider(&connection.provider)?;
        let call = self.call_within(LOOK_DEADLINE);
        let mut standing = provider.standing(&call, &grant).await?;
        if standing == Standing::Active {
            match self.refresh(provider.as_ref(), &call, &connection, &grant, claim).await {
                Err(ConnectionsError::Broken(status)) => standing = Standing::Broken(status),
                refreshed => refreshed?,
            }
        }
        let Some(next) = lifecycle::after_look(connection.status, standing) else { return Ok(()) };
        // Where it is lost to somebody else's step, theirs is the newer one.
        if self.storage.set_looked_at_status(claim, connection.status, next, "checked", self.clock.now()).await? {
            tracing::info!(connection_id = %id, from = %connection.status, to = %next, "connection changed its status");
        }
        Ok(())
    }

    /// Brings the accounts up to what the provider lists. While they may still be on their way, none is taken away, and
    /// one that comes under a new id may be one of ours.
    async fn refresh(
        &self,
        provider: &dyn Provider,
        call: &Call,
        connection: &Connection,
        grant: &SecretString,
        claim: &ClaimedLook,
    ) -> Result<(), ConnectionsError> {
        let (user, id) = (connection.user_id, connection.id);
        let found = provider.accounts(call, grant).await?;
        let now = self.clock.now();
        let settling = claim.settles_at.is_some_and(|until| now < until);
        if !found.is_empty() {
            let known_as = if claim.settles_at.is_some() {
                match_accounts(&self.storage.list_connection_accounts(user, id).await?, &found)
            } else {
                Vec::new()
            };
            let known_as = known_as.into_iter().chain(std::iter::repeat(None));
            let accounts: Vec<NewAccount<'_>> =
                found.iter().zip(known_as).map(|(account, known_as)| new_account(account, known_as)).collect();
            // Overtaken, what was found is about a consent that is not the connection's any more.
            if !self.storage.refresh_looked_at(claim, &accounts, !settling, now).await? {
                return Err(ConnectionsError::Busy);
            }
        }
        if settling {
            self.subscribe_soon(connection.provider.clone(), user, grant.clone());
        }
        Ok(())
    }

    fn subscribe_soon(&self, provider: String, user: UserId, grant: SecretString) {
        let connections = self.clone();
        tokio::spawn(async move {
            if let Ok(provider) = connections.provider(&provider) {
                connections.subscribe(provider.as_ref(), user, &grant).await;
            }
        });
    }

    /// Asks for the events of a grant, where that is needed. Best effort: without them, reads find out.
    pub(crate) async fn subscribe(&self, provider: &dyn Provider, user: UserId, grant: &SecretString) {
        let Some(notifying) = provider.notifying() else { return };
        // Two that look at the same moment what there is would both make the same subscription.
        let _turn = self.subscribing.lock().await;
        let call = self.call_within(SUBSCRIBE_DEADLINE);
        if let Err(error) = notifying.subscribe(&call, grant, &user.to_string()).await {
            tracing::warn!(provider = %provider.name(), %error, "events could not be subscribed to");
        }
    }
}
