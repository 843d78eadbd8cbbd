//! Loads and caches what a read needs: a connection of the caller, with its accounts and decrypted
//! credentials.
//!
//! A cached context is valid until anything of its user changes, and kept while it is used.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bellbird_domain::{
    Account, AccountId, Caller, Connection, ConnectionCategory, ConnectionId, ConnectionStatus,
    UserId,
};
use bellbird_limits::Expiring;
use bellbird_providers::Provider;
use bellbird_providers::pages::RowKind;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use tracing::Instrument as _;

use crate::{ReadError, Reads};

/// Minimum time between two writes of a connection's refresh time: one write a minute, not one for
/// each read.
const REFRESH_WRITE_INTERVAL_US: i64 = 60_000_000;
/// How long reads of a revoked connection fail without a call, after a call that said so.
const GONE_TTL_US: i64 = 60_000_000;
/// Time to live of a context after its last use: no longer than that do decrypted credentials stay
/// in memory.
const CONTEXT_TTL: Duration = Duration::from_secs(300);
/// A use restarts the time to live once this much of it has passed, since restarting costs more
/// than a use.
const CONTEXT_RENEW_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// Maximum size in bytes of all cached contexts.
const CONTEXTS_BYTES_MAX: u64 = 16 * 1024 * 1024;

/// A connection of the caller, and all that is needed to read it.
pub struct ConnectionContext {
    pub connection: Connection,
    pub accounts: Vec<Account>,
    pub(crate) credentials: SecretString,
    pub(crate) revision: i64,
    /// When the provider last returned data, in microseconds. Changes do not raise the revision.
    pub(crate) refreshed_us: AtomicI64,
    /// When the provider last said that the consent is gone, in microseconds.
    pub(crate) gone_us: AtomicI64,
}

/// Cached contexts by user and connection. Each is valid for one revision of its user.
pub(crate) type ConnectionContexts = Expiring<(UserId, ConnectionId), Arc<ConnectionContext>>;

pub(crate) fn new_contexts() -> ConnectionContexts {
    let bytes_of = |_: &(UserId, ConnectionId), context: &Arc<ConnectionContext>| context.bytes();
    Expiring::new(CONTEXT_TTL, CONTEXTS_BYTES_MAX, bytes_of)
}

impl Reads {
    /// Loads a connection of the caller, or takes it from the cache if the caller's revision has
    /// not changed.
    ///
    /// Fails with [`ReadError::NotFound`] if it does not exist, is being removed, or belongs to
    /// another user, and with [`ReadError::Reconnect`] if the provider has said a moment ago that
    /// its consent is revoked: a client that repeats a read then costs the provider one call a
    /// minute.
    pub async fn connection_context(
        &self,
        caller: &Caller,
        id: ConnectionId,
    ) -> Result<Arc<ConnectionContext>, ReadError> {
        let context = self.load_context(caller, id).await?;
        self.require_consent(&context)?;
        Ok(context)
    }

    /// Fails with [`ReadError::Reconnect`] as [`Self::connection_context`] does.
    pub fn require_consent(&self, context: &ConnectionContext) -> Result<(), ReadError> {
        match context.is_gone(self.inner.clock.now()) {
            true => Err(ReadError::Reconnect(context.connection.status)),
            false => Ok(()),
        }
    }

    /// As [`Self::connection_context`], also if the consent is gone: for a request whose faults
    /// count first.
    pub async fn load_context(
        &self,
        caller: &Caller,
        id: ConnectionId,
    ) -> Result<Arc<ConnectionContext>, ReadError> {
        let key = (caller.user_id, id);
        let (contexts, now) = (&self.inner.connection_contexts, self.inner.clock.now());
        if let Some((context, age)) = contexts
            .get(&key, now)
            .filter(|(context, _)| context.revision == caller.revision)
        {
            if age >= CONTEXT_RENEW_AFTER {
                contexts.renew(&key, now);
            }
            return Ok(context);
        }
        let storage = &self.inner.storage;
        let connection = storage
            .connections()
            .find(caller.user_id, id)
            .await?
            .ok_or(ReadError::NotFound)?;
        let accounts = storage
            .accounts()
            .list_of_connection(caller.user_id, id)
            .await?;
        let credentials = storage
            .secrets()
            .find_credentials(caller.user_id, id)
            .await?
            .ok_or(ReadError::NotFound)?;
        let refreshed_us = AtomicI64::new(
            connection
                .last_refreshed_at
                .map_or(i64::MIN, Timestamp::as_microsecond),
        );
        let (revision, gone_us) = (caller.revision, AtomicI64::new(i64::MIN));
        let context = Arc::new(ConnectionContext {
            connection,
            accounts,
            credentials,
            revision,
            refreshed_us,
            gone_us,
        });
        contexts.insert(key, Arc::clone(&context), now);
        Ok(context)
    }

    pub(crate) fn provider(&self, connection: &Connection) -> Result<Arc<dyn Provider>, ReadError> {
        self.inner
            .providers
            .find(&connection.provider)
            .ok_or(ReadError::OperatorNeeded)
    }

    /// Records that the provider returned data: at most once a minute, in the background.
    pub(crate) fn record_refresh(&self, context: &ConnectionContext) {
        let now = self.inner.clock.now();
        let now_us = now.as_microsecond();
        let written = context.refreshed_us.load(Ordering::Relaxed);
        if now_us.saturating_sub(written) < REFRESH_WRITE_INTERVAL_US {
            return;
        }
        if context
            .refreshed_us
            .compare_exchange(written, now_us, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        let storage = self.inner.storage.clone();
        let (user_id, id) = (context.connection.user_id, context.connection.id);
        let write = async move {
            if let Err(error) = storage
                .connections()
                .set_last_refreshed_at(user_id, id, now)
                .await
            {
                tracing::warn!(connection_id = %id, error = %error, "could not store refresh time");
            }
        };
        tokio::spawn(write.in_current_span());
    }
}

impl ConnectionContext {
    /// The revision of the user that it was loaded at.
    pub fn revision(&self) -> i64 {
        self.revision
    }

    /// Records that the provider said at `now` that the consent is gone.
    pub fn note_gone(&self, now: Timestamp) {
        self.gone_us.store(now.as_microsecond(), Ordering::Relaxed);
    }

    /// Whether the connection is revoked, and was so at the provider within [`GONE_TTL_US`].
    pub(crate) fn is_gone(&self, now: Timestamp) -> bool {
        let since = now
            .as_microsecond()
            .saturating_sub(self.gone_us.load(Ordering::Relaxed));
        self.connection.status == ConnectionStatus::Revoked && (0..GONE_TTL_US).contains(&since)
    }

    /// Approximate size in memory.
    fn bytes(&self) -> usize {
        let text_of = |account: &Account| {
            let optional = account.institution_name.as_ref().map_or(0, String::len);
            account.provider_account_id.len()
                + account.provider.len()
                + account.name.len()
                + optional
        };
        let accounts: usize = self
            .accounts
            .iter()
            .map(|account| size_of::<Account>() + text_of(account))
            .sum();
        // The connection's texts are short, except for its logo.
        let connection = self
            .connection
            .institution_logo
            .as_ref()
            .map_or(0, String::len)
            + 200;
        size_of::<Self>() + accounts + connection + self.credentials.expose_secret().len()
    }

    /// Returns the requested account, or all accounts. Fails with [`ReadError::NotFound`] if the
    /// connection has no such account.
    pub fn accounts_of(&self, account_id: Option<AccountId>) -> Result<&[Account], ReadError> {
        let Some(id) = account_id else {
            return Ok(&self.accounts);
        };
        let at = self
            .accounts
            .iter()
            .position(|account| account.id == id)
            .ok_or(ReadError::NotFound)?;
        Ok(&self.accounts[at..=at])
    }

    /// Fails with [`ReadError::WrongCategory`] if the connection has another category.
    pub fn require_category(&self, category: ConnectionCategory) -> Result<(), ReadError> {
        if self.connection.category == category {
            Ok(())
        } else {
            Err(ReadError::WrongCategory)
        }
    }
}

/// The part of a provider that lists such rows, if it has one.
pub(crate) fn lister<K: RowKind>(provider: &dyn Provider) -> Result<K::Provider<'_>, ReadError> {
    K::provider(provider.kind()).ok_or(ReadError::WrongCategory)
}
