//! The only crate with SQL: users, keys, connections, accounts, fingerprints of rows, events and their deliveries,
//! sealed secrets, on SQLite and PostgreSQL.
//!
//! No amount and no transaction is ever stored: of rows that were seen, keyed digests are. Grants of providers are
//! sealed ([`Sealer`]), API keys and the tokens of links are kept as SHA-256 only, account numbers as their last four
//! digits.
//!
//! Every finder begins with the user: another user's row is as absent as one that never was. The few that do not say
//! so in their names or are for the command line.
//!
//! # Revisions
//!
//! A user's `revision` grows, in the same transaction, with every change of plan, timezone, connections, credentials
//! and accounts. So what was learned at one revision (whose connection is it, which accounts has it) is true while the
//! revision stays, and [`Storage::find_caller`], which runs with every request, tells the revision. Only the time of a
//! key's last use changes without it, and what is about linking, looking, syncing and endpoints. That of a connection's
//! last refresh changes because somebody read: callers note it once a minute, not with every read.

mod connections;
mod db;
mod digest;
mod error;
mod linking;
mod locks;
mod migrate;
mod secrets;
mod users;
mod webhooks;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

pub use connections::accounts::NewAccount;
pub use connections::audit::AuditRow;
pub use connections::imports::NewConnection;
pub use connections::refreshes::ClaimedRefresh;
pub use connections::removals::{ClaimedRemoval, PendingRemoval};
pub use connections::sync_overview::{SyncOverview, SyncState};
pub use connections::syncs::{ClaimedSync, FinishedSync};
pub use error::{SealError, StorageError};
pub use linking::link_session_claims::ClaimedLinkSession;
pub use linking::link_sessions::{LinkPhase, LinkSession, NewLinkSession, OtherLinkSession, UnknownPhase};
pub use linking::links::{Link, NewLink};
pub use linking::provider_events::AffectedRef;
pub use linking::provider_users::{ClaimedProviderUser, ProviderUserRecord, ProviderUserState};
pub use secrets::sealer::{SealedFor, Sealer, key_id_of};
pub use secrets::store::{Leftovers, ResealedBatch, SealedSecrets, SecretCursor, UnopenableSecret};
pub use users::keys::{FoundCaller, KeyRecord};
pub use users::user::{NewUser, UserChange};
pub use webhooks::deliveries::{AttemptOutcome, ClaimedEndpoint, DueDelivery, FinishedAttempt};
pub use webhooks::delivery_log::{AttemptRecord, DeliveryOverview, DeliveryRecord};
pub use webhooks::endpoints::{Endpoint, EndpointSecrets, NewEndpoint};
pub use webhooks::redeliveries::PingResult;
pub use webhooks::webhook_events::{NewWebhookEvent, WebhookEvent};

use db::postgres::Postgres;
use db::sqlite::Sqlite;
use db::{Db, params, statements};

statements! {
    PING = "SELECT 1 FROM users WHERE id = $1";
}

/// The database and the keys that seal its secrets. Cheap to clone; the clones share everything.
#[derive(Clone)]
pub struct Storage {
    db: Db,
    sealer: Sealer,
}

impl Storage {
    /// Opens the database named by the URL: `sqlite:PATH` (a relative path is relative to the working directory; a
    /// missing file is made, a missing folder is not), `postgres://` or `postgresql://`. The tables stay as they are:
    /// see [`Self::migrate`].
    ///
    /// For PostgreSQL, `sslmode` may be `disable`, `prefer`, `require`, `verify-ca` or `verify-full`. Wherever TLS is
    /// spoken, the certificate is checked. Without it: `prefer`, or `disable` for a server on this machine.
    ///
    /// # Errors
    /// [`StorageError::BadUrl`], or [`StorageError::Unavailable`] when the file or the server cannot be reached.
    pub async fn open(url: &str, sealer: Sealer) -> Result<Self, StorageError> {
        let db = if let Some(path) = url.strip_prefix("sqlite:") {
            Db::Sqlite(Arc::new(Sqlite::open(sqlite_path(path)?).await?))
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            Db::Postgres(Box::pin(Postgres::open(url)).await?)
        } else {
            return Err(StorageError::BadUrl(
                "the database URL must be sqlite:PATH, postgres://... or postgresql://...".to_owned(),
            ));
        };
        Ok(Self { db, sealer })
    }

    /// Tidies up and lets go of the database, within seconds. Other clones must not be used any more: on PostgreSQL
    /// their calls fail from now on.
    pub async fn close(self) {
        match &self.db {
            Db::Sqlite(db) => {
                if let Err(error) = db.close().await {
                    tracing::warn!(error = %Chain(&error), "the database was not tidied up when it was closed");
                }
            }
            Db::Postgres(db) => db.close(),
        }
    }

    /// Asks the database for nothing, to see that it answers and has its tables.
    ///
    /// # Errors
    /// [`StorageError::Unavailable`], or [`StorageError::Schema`] when there are no tables.
    pub async fn ping(&self) -> Result<(), StorageError> {
        self.db.one(PING, params![""], |_| Ok(())).await.map(|_| ())
    }

    /// `sqlite` or `postgres`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.db {
            Db::Sqlite(_) => "sqlite",
            Db::Postgres(_) => "postgres",
        }
    }
}

impl fmt::Debug for Storage {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("Storage").field(&self.kind()).finish()
    }
}

/// The path after `sqlite:`; two slashes, as other programs write, are taken as none.
fn sqlite_path(text: &str) -> Result<PathBuf, StorageError> {
    let path = text.strip_prefix("//").unwrap_or(text);
    if path.is_empty() || path.starts_with(":memory:") {
        return Err(StorageError::BadUrl("sqlite: needs the path of a file, as in sqlite:bellbird.db".to_owned()));
    }
    Ok(PathBuf::from(path))
}

/// Shows an error with all of its causes, for the log.
pub struct Chain<'a>(pub &'a StorageError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)?;
        let mut cause = std::error::Error::source(self.0);
        while let Some(error) = cause {
            write!(out, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
