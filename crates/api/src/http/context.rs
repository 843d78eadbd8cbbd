//! The state shared by all interfaces: the services they use, and who may call how often.

use std::sync::Arc;
use std::time::Duration;

use bellbird_connections::Connections;
use bellbird_domain::{Account, Caller, Clock, ConnectionStatus, KeyId, OperatorKeyId};
use bellbird_limits::client_address::Network;
use bellbird_limits::{Expiring, InFlight, RateLimiter, SharedStore};
use bellbird_reads::balances::Balances;
use bellbird_reads::{CallContext, Cause, ConnectionContext, ReadError, Reads};
use bellbird_storage::{Storage, StorageError};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use uuid::Uuid;

use crate::http::key_reads::KeyReads;
use crate::http::problem::{Problem, problem_for_category};
use crate::http::quota::{LivePermit, QuotaClass, Quotas, Refused};
use crate::http::route_metrics::RouteMetrics;

/// How long a key counts as known after its first request. Whether it still works is read for each
/// request.
const KNOWN_KEY_TTL: Duration = Duration::from_secs(24 * 3600);
const KNOWN_KEYS_MAX: u64 = 10_000;
/// Lookups at the same time that anyone can cause with a made-up key or token. They must leave
/// database connections to others.
const UNPROVEN_LOOKUPS_MAX: usize = 4;

#[derive(Debug, Clone)]
pub struct ApiContextSettings {
    /// Requests a minute for each key: connections, accounts, categories and the key's user. 0
    /// disables this and every limit below.
    pub metadata_per_minute: u32,
    /// Requests a minute for each key: balances.
    pub balances_per_minute: u32,
    /// Requests a minute for each key: transactions, holdings and trades together.
    pub live_per_minute: u32,
    /// Concurrent requests for each key: transactions, holdings and trades together.
    pub live_in_flight: u32,
    /// Provider calls a minute that each user may cause, at each provider. The clients of the
    /// providers enforce it.
    pub provider_calls_per_minute: u32,
    /// Requests a minute for each operator's key.
    pub operator_per_minute: u32,
    /// What asks for changes syncs the connection if its last sync is older.
    pub changes_max_age: Duration,
    /// Proxies whose `X-Forwarded-For` header is trusted.
    pub trusted_proxies: Vec<Network>,
    /// Origins whose pages may call the API from a browser. Empty disables CORS.
    pub cors_origins: Vec<String>,
}

/// Cheap to clone.
#[derive(Clone)]
pub struct ApiContext {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub storage: Storage,
    reads: Reads,
    pub connections: Connections,
    pub clock: Clock,
    pub settings: ApiContextSettings,
    shared_store: Option<SharedStore>,
    quotas: Quotas,
    /// SHA-256 of the keys that worked recently. They are looked up at once.
    pub known_keys: Expiring<[u8; 32], ()>,
    /// Places for lookups of other keys, and of setup tokens.
    pub unproven_lookups: Semaphore,
    pub live_in_flight: InFlight<KeyId>,
    /// Keys of users and operators whose last-used time is being written. One permit for each key.
    pub last_used_writes: InFlight<Uuid>,
    pub operator_limit: Option<RateLimiter<OperatorKeyId>>,
    pub key_reads: KeyReads,
    pub route_metrics: RouteMetrics,
}

impl ApiContext {
    /// Instances with one `shared_store` share limits and cached responses. Without it, each has
    /// its own.
    pub fn new(
        storage: Storage,
        reads: Reads,
        connections: Connections,
        clock: Clock,
        settings: ApiContextSettings,
        shared_store: Option<SharedStore>,
    ) -> Self {
        let store = shared_store.as_ref();
        let live = QuotaClass::per_minute("live", settings.live_per_minute, store).with_permit();
        let metadata = QuotaClass::per_minute("metadata", settings.metadata_per_minute, store);
        let operator_limit = RateLimiter::per_minute(settings.operator_per_minute);
        let inner = Inner {
            quotas: Quotas {
                every_plan: metadata.clone().for_every_plan(),
                brokerage_metadata: metadata.clone().for_professionals(),
                metadata,
                balances: QuotaClass::per_minute("balances", settings.balances_per_minute, store),
                brokerage: live.clone().for_professionals(),
                live,
            },
            known_keys: Expiring::new(KNOWN_KEY_TTL, KNOWN_KEYS_MAX, |_, ()| 1),
            unproven_lookups: Semaphore::new(UNPROVEN_LOOKUPS_MAX),
            live_in_flight: InFlight::new(settings.live_in_flight).shared(store),
            last_used_writes: InFlight::new(1),
            operator_limit: operator_limit.map(|limit| limit.shared(store, "operator")),
            key_reads: KeyReads::default(),
            route_metrics: RouteMetrics::default(),
            storage,
            reads,
            connections,
            clock,
            settings,
            shared_store,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    pub fn storage(&self) -> &Storage {
        &self.inner.storage
    }

    pub fn reads(&self) -> &Reads {
        &self.inner.reads
    }

    pub fn connections(&self) -> &Connections {
        &self.inner.connections
    }

    pub fn clock(&self) -> &Clock {
        &self.inner.clock
    }

    /// Whether this instance can serve, for `/health/ready`.
    pub fn is_ready(&self) -> bool {
        self.inner.storage.instances().fault().is_none()
    }

    /// Where instances share limits and cached responses.
    pub fn shared_store(&self) -> Option<&SharedStore> {
        self.inner.shared_store.as_ref()
    }

    /// Writes how often keys were used since the last call. If the database cannot be used, these
    /// counts are lost.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub async fn write_key_reads(&self) -> Result<(), StorageError> {
        self.inner
            .key_reads
            .write(&self.inner.storage, self.inner.clock.now())
            .await
    }

    /// Whose `traceparent` is believed.
    pub(crate) fn trusted_proxies(&self) -> &[Network] {
        &self.inner.settings.trusted_proxies
    }

    /// Origins whose pages may call from a browser.
    pub fn cors_origins(&self) -> &[String] {
        &self.inner.settings.cors_origins
    }

    /// A connection whose last sync began longer ago is synced before its changes are read.
    pub fn changes_max_age(&self) -> Duration {
        self.inner.settings.changes_max_age
    }

    /// The call context of a request of this caller that reads from providers now.
    pub fn call_context(&self, caller: &Caller) -> CallContext {
        self.inner
            .reads
            .call_context(Cause::Request(caller.user_id))
    }

    pub fn quotas(&self) -> &Quotas {
        &self.inner.quotas
    }

    /// Takes quota, permit and plan of a class, for an interface that learns from the body what a
    /// request reads.
    pub async fn admit(
        &self,
        quota: &QuotaClass,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<LivePermit, Problem> {
        let admitted = self.admit_also(quota, caller, now).await;
        admitted.map_err(|refused| refused.problem)
    }

    /// As [`Self::admit`]. The response of a request that is refused shows the limit of this class.
    pub(crate) async fn admit_also(
        &self,
        quota: &QuotaClass,
        caller: &Caller,
        now: Timestamp,
    ) -> Result<LivePermit, Refused> {
        let permits = &self.inner.live_in_flight;
        let (decision, admitted) = quota.admit(caller, permits, now).await;
        let limit = quota.calls().zip(decision);
        admitted.map_err(|problem| Refused { problem, limit })
    }

    /// Checks again, between two pages of a long response, what was checked at its start: key, plan
    /// and, if one is open, connection. Returns the caller as of now.
    pub async fn check_again(
        &self,
        quota: &QuotaClass,
        caller: &Caller,
        context: Option<&Arc<ConnectionContext>>,
    ) -> Result<Caller, Problem> {
        let now = self.inner.clock.now();
        let found = self
            .inner
            .storage
            .keys()
            .find_caller_by_id(caller.user_id, caller.key_id, now)
            .await?;
        let found = found.ok_or(Problem::Unauthorized)?.caller;
        quota.check_plan(found.plan)?;
        // Compare with the context's revision, not the caller's: a response over several
        // connections may have started with an older context.
        if let Some(context) = context.filter(|context| found.revision != context.revision()) {
            let connection = &context.connection;
            let again = self.reads().connection_context(&found, connection.id).await;
            let again = again.map_err(|error| {
                problem_for_category(&error, "Connection", connection.category).at(connection.id)
            })?;
            let is_gone =
                |account: &Account| !again.accounts.iter().any(|other| other.id == account.id);
            if context.accounts.iter().any(is_gone) {
                return Err(Problem::NotFound("Account"));
            }
        }
        Ok(found)
    }

    /// Reads balances, and requests a refresh of each connection whose consent turns out to be
    /// gone, as [`Self::after_failed_read`] does.
    pub async fn balances(
        &self,
        call: &CallContext,
        caller: &Caller,
        accounts: Vec<Account>,
    ) -> Result<Balances, ReadError> {
        let balances = self.reads().balances(call, caller, accounts).await?;
        let mut requested = None;
        for (account, read) in &balances {
            let id = account.connection_id;
            if let Err(ReadError::Reconnect(status)) = read
                && *status != ConnectionStatus::Revoked
                && requested != Some(id)
            {
                requested = Some(id);
                let refreshes = self.inner.connections.refreshes();
                refreshes.request_in_background(caller.user_id, id, &account.provider);
            }
        }
        Ok(balances)
    }

    /// Maps a failed read to an HTTP error.
    ///
    /// If the provider reports that the consent is gone, the connection may have been removed
    /// meanwhile: that is a 404. Otherwise the user must reconnect: that is a 503, and a background
    /// refresh updates the status. A connection that is known as revoked needs none, so a client
    /// that repeats its reads does not write to the database each time.
    pub async fn after_failed_read(
        &self,
        caller: &Caller,
        context: &ConnectionContext,
        error: &ReadError,
    ) -> Problem {
        let ReadError::Reconnect(status) = error else {
            return problem_for_category(error, "Account", context.connection.category)
                .at(context.connection.id);
        };
        let id = context.connection.id;
        match self
            .inner
            .storage
            .connections()
            .find(caller.user_id, id)
            .await
        {
            Ok(Some(connection)) => {
                context.note_gone(self.inner.clock.now());
                if *status != ConnectionStatus::Revoked {
                    let refreshes = self.inner.connections.refreshes();
                    refreshes.request_in_background(caller.user_id, id, &connection.provider);
                }
                Problem::reconnect(*status).at(id)
            }
            Ok(None) => Problem::NotFound("Connection"),
            Err(error) => Problem::from(error),
        }
    }
}
