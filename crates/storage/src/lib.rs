//! Stores users, API keys, connections, accounts, webhook events and sealed secrets in SQLite or
//! PostgreSQL. No other crate contains SQL.
//!
//! The database never holds an amount or a transaction. A transaction or trade that a sync has seen
//! is stored as two keyed digests. Provider credentials are sealed (see [`Sealer`]). API keys and
//! link tokens are stored as SHA-256, and account numbers as their last four digits.
//!
//! Most finders take the user first, so another user's row looks like a missing one. The others
//! look up a secret (an API key, a link token, an OAuth `state`), or serve background work or the
//! command line.
//!
//! # Revisions
//!
//! Each change of a user's plan, timezone, connections, credentials or accounts increments the
//! user's `revision`, in the same transaction. A cached response therefore stays valid while the
//! revision stays the same. `storage.keys().find_caller` runs for each request and returns the
//! revision.
//!
//! The revision does not cover the last use of a key, consent sessions, refresh and sync schedules,
//! and webhook endpoints. It does cover `last_refreshed_at`. Each request that reads from the
//! provider would change it, so callers write it at most once a minute.

mod backups;
mod connections;
mod contents;
mod db;
mod digest;
mod error;
mod instances;
mod jobs;
mod linking;
mod locks;
mod management;
mod migrate;
mod outdated;
mod renewals;
mod secrets;
#[cfg(any(test, feature = "test-support"))]
mod test_support;
mod users;
mod webhooks;

#[cfg(test)]
mod tests;

use std::fmt;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use uuid::Uuid;

pub use backups::access::AccessCut;
pub use backups::copy::{BackupContents, StagedBackup, delete_partial_copies};
pub use connections::accounts::NewAccount;
pub use connections::audit::ConnectionAuditRow;
pub use connections::imports::NewConnection;
pub use connections::overview::{BrokenConnection, ConnectionCount, EndingConsent};
pub use connections::removals::PendingRemoval;
pub use connections::syncs::{
    DegradedConnection, FinishedSync, Followers, SyncState, UnreadRange, UnreadableRows,
};
pub use db::Tx;
pub use db::postgres::PostgresOptions;
pub use db::service_lock::ServiceLock;
#[cfg(feature = "test-support")]
pub use db::simulated_link::{DatabaseSimulation, DatabaseStep};
pub use error::{Chain, LastFailure, SealError, StorageError};
pub use instances::{INSTANCE_TIMEOUT, Instance, ProviderCalls};
pub use jobs::overview::{FailingJob, JobCounts};
pub use jobs::{ClaimedJob, JobKey, job_kinds};
pub use linking::consent_session_claims::ClaimedConsentSession;
pub use linking::consent_sessions::{ConsentSession, NewConsentSession, OtherConsentSession};
pub use linking::links::{Link, NewLink, NewLinkSession};
pub use linking::provider_events::AffectedRef;
pub use linking::provider_users::{ClaimedProviderUser, ProviderUserRecord, ProviderUserState};
pub use locks::USER_BEING_REMOVED;
pub use management::audit::{AuditAction, AuditFilter, AuditRow};
pub use management::changes::{IdempotentStart, ManagementChange};
pub use management::first_start::FirstStart;
pub use management::operator_keys::{FoundOperatorKey, OperatorKeyRecord};
pub use management::provider_settings::{StoredConsole, StoredProviderSettings};
pub use management::requests::{Idempotency, StoredResponse};
use renewals::Renewals;
pub use secrets::random::{
    first_session_token, new_key, new_operator_key, new_setup_code, new_setup_token, new_token,
    random_bytes,
};
pub use secrets::sealer::{SealedFor, Sealer, key_id_of};
pub use secrets::store::{Leftovers, ResealCounts, SealedSecrets, UnopenableSecret};
#[cfg(feature = "test-support")]
pub use test_support::simulation::ClaimState;
use users::caller_lookups::CallerLookups;
pub use users::caller_lookups::FoundCaller;
pub use users::emails::{DueEmail, EmailKey};
pub use users::identities::{Identity, IdentitySignIn};
pub use users::key_reads::KeyReadCount;
pub use users::keys::KeyRecord;
pub use users::own_data::{LEFT_OUT, OWN_TABLES, OwnPosition, OwnRow, OwnTable, camel_case};
pub use users::sessions::{
    BegunSession, NO_CONSOLE_SIGN_IN, NewSession, NewSignInLink, SESSION_MAX, SESSION_TTL,
    SessionRecord, SignInLink, SignedIn,
};
pub use users::setup_tokens::{KeyAuditRow, NewSetupToken, SetupTokenClaim};
pub use users::user::{NewUser, REFERENCE_IN_USE, UserChange, UserFilter, UserNeed};
pub use webhooks::deliveries::{AttemptOutcome, ClaimedEndpoint, DueDelivery, FinishedAttempt};
pub use webhooks::delivery_log::{
    AttemptRecord, DeliveryOverview, DeliveryPosition, DeliveryRecord,
};
pub use webhooks::endpoints::{
    DISABLED_BY_COMMAND, DISABLED_BY_OPERATOR, DISABLED_BY_USER, Endpoint, EndpointChange,
    EndpointSecrets, NewEndpoint, SecretRotation,
};
pub use webhooks::redeliveries::PingResult;
pub use webhooks::webhook_events::{EventConnection, NewWebhookEvent, WebhookEvent, removed_bytes};

/// The writes of management. Each takes the transaction of a [`ManagementChange`].
pub mod writes {
    pub use crate::connections::{removals, syncs};
    pub use crate::linking::links;
    pub use crate::management::{first_start, operator_keys, provider_settings};
    pub use crate::users::{emails, identities, keys, removal, sessions, setup_tokens, user};
    pub use crate::webhooks::{delivery_log, endpoints, redeliveries};
}

use db::file_user;
use db::postgres::Postgres;
use db::service_lock::OpenLock;
use db::sqlite::{MissingFile, Sqlite};
use db::{Db, open_error, params, statements};

statements! {
    PING = "SELECT 1 FROM users WHERE id = $1";
}

/// Cheap to clone. Clones share the connections and the keys that seal secrets.
#[derive(Clone)]
pub struct Storage {
    db: Db,
    sealer: Sealer,
    /// The instance that takes leases. None: a command, whose leases end by themselves.
    holder: Option<Uuid>,
    /// Whether no job or endpoint is claimed, because this machine's clock is wrong.
    claims_paused: Arc<AtomicBool>,
    /// Whether no secret had the id of the first key when that was checked. See
    /// `storage.secrets().check_sealing_key`.
    sealing_key_is_new: Arc<AtomicBool>,
    renewals: Arc<Renewals>,
    caller_lookups: Arc<CallerLookups>,
    /// Keeps a SQLite file in its place. After the database: dropped last.
    _open_lock: Option<Arc<OpenLock>>,
}

/// Declares the parts of the storage. A part is a borrow: `storage.jobs().claim(..)`.
macro_rules! handles {
    ($($(#[$doc:meta])* $name:ident: $Part:ident;)*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy)]
            pub struct $Part<'s>(&'s Storage);

            /// So that a part reaches the database as `self.db`.
            impl Deref for $Part<'_> {
                type Target = Storage;

                fn deref(&self) -> &Storage {
                    self.0
                }
            }
        )*

        impl Storage {
            $(
                $(#[$doc])*
                pub fn $name(&self) -> $Part<'_> {
                    $Part(self)
                }
            )*
        }
    };
}

handles! {
    /// Users: plan, time zone, e-mail address.
    users: Users;
    /// API keys, and the caller of a request.
    keys: Keys;
    /// Keys of operators, for the API below `/admin`.
    operator_keys: OperatorKeys;
    /// What operators and commands changed, and what users did in the console.
    audit: Audit;
    /// Setup tokens of SimpleFIN, and the history of a key.
    setup_tokens: SetupTokens;
    /// Who is signed in to the console, and the links to sign in.
    sessions: Sessions;
    /// How often keys were used.
    key_reads: KeyReads;
    /// Which e-mails are due, and which ones a user wants.
    emails: Emails;
    /// The one table of work that outlives a request.
    jobs: Jobs;
    /// Connections: import, status, history.
    connections: Connections;
    /// Accounts of connections.
    accounts: Accounts;
    /// What a refresh writes.
    refreshes: Refreshes;
    /// Connections that are being removed.
    removals: Removals;
    /// What is known of the syncs of a connection.
    syncs: Syncs;
    /// Link URLs.
    links: Links;
    /// Consent sessions.
    consent_sessions: ConsentSessions;
    /// Registrations of users at providers.
    provider_users: ProviderUsers;
    /// Events that providers sent.
    provider_events: ProviderEvents;
    /// Webhook endpoints and their secrets.
    endpoints: Endpoints;
    /// Deliveries of webhook events to endpoints.
    deliveries: Deliveries;
    /// Webhook events, without their rows.
    webhook_events: WebhookEvents;
    /// Sealed credentials, cursors and the keys that seal them.
    secrets: Secrets;
    /// Whether this database is of a first start, and how far that has come.
    first_start: FirstStarts;
    /// What operators have entered for providers, and for the console itself.
    provider_settings: ProviderSettings;
    /// The running services on this database.
    instances: Instances;
    /// What a restore needs to know.
    backups: Backups;
}

impl Storage {
    /// Opens the database at `sqlite:PATH`, `postgres://...` or `postgresql://...`, and leaves the
    /// schema as it is (see [`Self::migrate`]). A relative SQLite path starts at the working
    /// directory. A missing file is created, a missing folder is not. [`StorageError::Open`] says
    /// what to do if it does not open.
    ///
    /// For PostgreSQL, `sslmode` may be `disable`, `prefer`, `require`, `verify-ca` or
    /// `verify-full`. Over TLS, the certificate is always checked. The default is `disable` for a
    /// server on this machine, otherwise `require`.
    pub async fn open(url: &str, sealer: Sealer) -> Result<Self, StorageError> {
        Self::open_pooled(url, sealer, PostgresOptions::default()).await
    }

    /// As [`Self::open`], with options for PostgreSQL.
    pub async fn open_pooled(
        url: &str,
        sealer: Sealer,
        options: PostgresOptions,
    ) -> Result<Self, StorageError> {
        Self::open_with(url, sealer, options, MissingFile::Create).await
    }

    /// As [`Self::open_pooled`], but a missing SQLite file is an error.
    pub async fn open_existing(
        url: &str,
        sealer: Sealer,
        options: PostgresOptions,
    ) -> Result<Self, StorageError> {
        Self::open_with(url, sealer, options, MissingFile::Fail).await
    }

    async fn open_with(
        url: &str,
        sealer: Sealer,
        options: PostgresOptions,
        missing: MissingFile,
    ) -> Result<Self, StorageError> {
        let mut open_lock = None;
        let opened = if let Some(path) = open_error::sqlite_file(url)? {
            let path =
                file_user::resolve(&path).map_err(|error| open_error::explain(url, error))?;
            if missing == MissingFile::Create || path.is_file() {
                let lock =
                    OpenLock::share(&path).map_err(|error| open_error::explain(url, error))?;
                open_lock = Some(Arc::new(lock));
            }
            Sqlite::open(path, missing)
                .await
                .map(|db| Db::Sqlite(Arc::new(db)))
        } else if url.starts_with("postgres://") || url.starts_with("postgresql://") {
            Box::pin(Postgres::open(url, options))
                .await
                .map(Db::Postgres)
        } else {
            return Err(StorageError::BadUrl(
                "the database URL must be sqlite:PATH, postgres://... or postgresql://..."
                    .to_owned(),
            ));
        };
        opened
            .map(|db| Self::new(db, sealer, open_lock))
            .map_err(|error| open_error::explain(url, error))
    }

    fn new(db: Db, sealer: Sealer, open_lock: Option<Arc<OpenLock>>) -> Self {
        Self {
            db,
            sealer,
            holder: None,
            claims_paused: Arc::default(),
            sealing_key_is_new: Arc::default(),
            renewals: Arc::default(),
            caller_lookups: Arc::default(),
            _open_lock: open_lock,
        }
    }

    /// The storage of an instance of the service. Its leases end with its row: see
    /// `storage.instances().renew`.
    #[must_use]
    pub fn held_by(self, instance: Uuid) -> Self {
        Self {
            holder: Some(instance),
            ..self
        }
    }

    /// The instance for which this claims jobs. None: a command.
    #[must_use]
    pub fn holder(&self) -> Option<Uuid> {
        self.holder
    }

    /// Claims no due job or endpoint from now on, or does again: a lease is measured by the clock
    /// of who takes it.
    pub fn set_claims_paused(&self, claims_paused: bool) {
        self.claims_paused.store(claims_paused, Ordering::Relaxed);
    }

    /// As it was set last.
    pub fn claims_paused(&self) -> bool {
        self.claims_paused.load(Ordering::Relaxed)
    }

    /// The path of the file at a `sqlite:` URL.
    #[must_use]
    pub fn sqlite_path(url: &str) -> Option<PathBuf> {
        open_error::sqlite_path(url)
    }

    /// Names the database of a URL, without user and password: `SQLite database
    /// /var/lib/bellbird.db`.
    #[must_use]
    pub fn location(url: &str) -> String {
        open_error::location(url)
    }

    /// Whether a URL of PostgreSQL lets the connection to another machine go without TLS, so that
    /// others on the way can read and change it.
    pub fn allows_plain_text(url: &str) -> bool {
        db::postgres_url::allows_plain_text(url)
    }

    /// The flags with which `pg_dump` and `psql` reach the database of a URL, without the password.
    /// None for another URL, and for names that need quoting.
    pub fn postgres_client_flags(url: &str) -> Option<String> {
        db::postgres_url::client_flags(url)
    }

    /// Closes the database, within seconds. Do not use other clones afterwards: on PostgreSQL their
    /// calls fail.
    pub async fn close(self) {
        match &self.db {
            Db::Sqlite(db) => {
                if let Err(error) = db.close().await {
                    tracing::warn!(error = %Chain(&error), "could not empty the write-ahead log on close");
                }
            }
            Db::Postgres(db) => db.close(),
        }
    }

    /// Checks that the database responds and has its tables.
    pub async fn ping(&self) -> Result<(), StorageError> {
        self.db.exists(PING, params![Uuid::nil()]).await.map(|_| ())
    }

    /// Fails if the file of a SQLite database was deleted or replaced since it was opened, or if
    /// its disk is full.
    pub fn check_file(&self) -> Result<(), StorageError> {
        match &self.db {
            Db::Sqlite(db) => db.file.check(),
            Db::Postgres(_) => Ok(()),
        }
    }

    /// How many connections to PostgreSQL are used and idle, and how many callers wait for one.
    /// None for SQLite.
    pub fn connections_in_use(&self) -> Option<(u32, u32, u32)> {
        match &self.db {
            Db::Sqlite(_) => None,
            Db::Postgres(db) => Some(db.connections()),
        }
    }

    /// Bytes that are free on the disk of a SQLite database. None for PostgreSQL.
    pub fn free_bytes(&self) -> Option<u64> {
        match &self.db {
            Db::Sqlite(db) => db.file.free_bytes().ok(),
            Db::Postgres(_) => None,
        }
    }

    /// `sqlite` or `postgres`.
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
