//! Whose connection it is, with its accounts and its grant.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use bellbird_domain::{Account, AccountId, Caller, Connection, ConnectionCategory, ConnectionId, UserId};
use bellbird_providers::{Banking, Brokerage, Kind, Provider};
use jiff::Timestamp;
use secrecy::SecretString;

use crate::{ReadError, Reads};

/// A connection's last answer is kept to the minute: one write a minute, not one a read.
const ANSWERED_NOTED_EVERY_US: i64 = 60_000_000;
/// Scopes that are remembered.
const SCOPES_MAX: u64 = 10_000;

/// A connection of the caller's, and what is needed to read it.
pub struct Scope {
    /// The connection.
    pub connection: Connection,
    /// Its accounts.
    pub accounts: Vec<Account>,
    pub(crate) grant: SecretString,
    revision: i64,
    /// When the provider was last noted to have answered, in microseconds: changes without the revision.
    answered_us: AtomicI64,
}

/// Scopes by owner and connection, each true at one revision of its owner.
pub(crate) struct Scopes(moka::sync::Cache<(UserId, ConnectionId), Arc<Scope>>);

impl Default for Scopes {
    fn default() -> Self {
        Self(moka::sync::Cache::new(SCOPES_MAX))
    }
}

impl Scopes {
    /// Takes one out; its accounts.
    pub(crate) fn take_out(&self, user_id: UserId, connection_id: ConnectionId) -> Vec<AccountId> {
        let scope = self.0.remove(&(user_id, connection_id));
        scope.iter().flat_map(|scope| &scope.accounts).map(|account| account.id).collect()
    }
}

impl Reads {
    /// The caller's connection. What was loaded before is used again while the caller's revision, which every change
    /// of theirs raises, is the same.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] when it does not exist, is being removed, or is another user's.
    pub async fn scope(&self, caller: &Caller, id: ConnectionId) -> Result<Arc<Scope>, ReadError> {
        let key = (caller.user_id, id);
        if let Some(scope) = self.inner.scopes.0.get(&key).filter(|scope| scope.revision == caller.revision) {
            return Ok(scope);
        }
        let storage = &self.inner.storage;
        let connection = storage.find_connection(caller.user_id, id).await?.ok_or(ReadError::NotFound)?;
        let accounts = storage.list_connection_accounts(caller.user_id, id).await?;
        let grant = storage.find_grant(caller.user_id, id).await?.ok_or(ReadError::NotFound)?;
        let answered_us = AtomicI64::new(connection.last_refreshed_at.map_or(i64::MIN, Timestamp::as_microsecond));
        let scope = Arc::new(Scope { connection, accounts, grant, revision: caller.revision, answered_us });
        self.inner.scopes.0.insert(key, Arc::clone(&scope));
        Ok(scope)
    }

    fn provider(&self, connection: &Connection) -> Result<&Arc<dyn Provider>, ReadError> {
        self.inner.providers.find(&connection.provider).ok_or_else(ReadError::not_offered)
    }

    pub(crate) fn banking(&self, connection: &Connection) -> Result<&dyn Banking, ReadError> {
        match self.provider(connection)?.kind() {
            Kind::Banking(banking) => Ok(banking),
            Kind::Brokerage(_) => Err(ReadError::WrongCategory),
        }
    }

    pub(crate) fn brokerage(&self, connection: &Connection) -> Result<&dyn Brokerage, ReadError> {
        match self.provider(connection)?.kind() {
            Kind::Brokerage(brokerage) => Ok(brokerage),
            Kind::Banking(_) => Err(ReadError::WrongCategory),
        }
    }

    /// Notes that the provider answered with data, at most once a minute, without keeping anybody waiting.
    pub(crate) fn note_answered(&self, scope: &Scope) {
        let now = self.inner.clock.now();
        let now_us = now.as_microsecond();
        let noted = scope.answered_us.load(Ordering::Relaxed);
        if now_us.saturating_sub(noted) < ANSWERED_NOTED_EVERY_US {
            return;
        }
        if scope.answered_us.compare_exchange(noted, now_us, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            return;
        }
        let storage = self.inner.storage.clone();
        let (user_id, id) = (scope.connection.user_id, scope.connection.id);
        tokio::spawn(async move {
            if let Err(error) = storage.mark_refreshed(user_id, id, now).await {
                tracing::warn!(connection_id = %id, error = %error, "refresh time not kept");
            }
        });
    }
}

impl Scope {
    /// The accounts that a request is about: the one asked for, or all.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] when the connection has no such account.
    pub fn accounts_of(&self, account_id: Option<AccountId>) -> Result<&[Account], ReadError> {
        let Some(id) = account_id else { return Ok(&self.accounts) };
        let at = self.accounts.iter().position(|account| account.id == id).ok_or(ReadError::NotFound)?;
        Ok(&self.accounts[at..=at])
    }

    /// Fails unless the connection is of this category.
    ///
    /// # Errors
    /// [`ReadError::WrongCategory`].
    pub fn expect(&self, category: ConnectionCategory) -> Result<(), ReadError> {
        if self.connection.category == category { Ok(()) } else { Err(ReadError::WrongCategory) }
    }
}
