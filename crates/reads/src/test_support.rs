//! Reads over simulated providers.

use std::sync::atomic::AtomicI64;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bellbird_domain::{
    Account, Caller, Clock, Connection, ConnectionId, ConnectionStatus, KeyId, Plan, UserId,
};
pub(crate) use bellbird_providers::simulated::{NOW, Row, Simulated, UNAVAILABLE, account, at};
use bellbird_providers::{CallContext, Cause, Provider, Registry};
use bellbird_storage::{Sealer, Storage};
use jiff::tz::TimeZone;
use secrecy::SecretString;
use tokio::runtime::Runtime;
use tokio::time::Instant;

use crate::{ConnectionContext, Limits, Reads};

/// The database of all worlds, that only refresh times are written to. It stays open when its
/// folder is deleted.
static STORAGE: LazyLock<Storage> = LazyLock::new(|| {
    let open = || {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("reads.db").display());
        let opened = runtime().block_on(Storage::open(&url, Sealer::random()));
        opened.unwrap()
    };
    // A thread that runs a test must not block on another runtime.
    std::thread::spawn(open).join().expect("opened")
});

pub(crate) fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap()
}

/// Reads over simulated providers, with nothing cached.
pub(crate) struct World {
    pub(crate) reads: Reads,
    pub(crate) caller: Caller,
}

impl World {
    pub(crate) fn new(providers: &[&Arc<Simulated>]) -> Self {
        let providers = providers
            .iter()
            .map(|provider| Arc::clone(provider) as Arc<dyn Provider>)
            .collect::<Vec<_>>();
        let limits = Limits {
            deadline: Duration::from_secs(25),
            row_cap: 5_000,
        };
        let reads = Reads::new(
            STORAGE.clone(),
            Registry::of(providers),
            Clock::manual(at(NOW)),
            limits,
            None,
        );
        let caller = Caller {
            key_id: KeyId::new(),
            user_id: UserId::new(),
            plan: Plan::Professional,
            timezone: TimeZone::UTC,
            revision: 1,
        };
        Self { reads, caller }
    }

    /// A connection with these accounts, by the provider's ids.
    pub(crate) fn connection(
        &self,
        provider: &Simulated,
        accounts: &[&str],
    ) -> Arc<ConnectionContext> {
        let (id, user_id) = (ConnectionId::new(), self.caller.user_id);
        let account = |provider_account_id: &&str| Account {
            user_id,
            connection_id: id,
            provider: provider.name.as_str().to_owned(),
            ..account(provider_account_id)
        };
        let connection = Connection {
            id,
            user_id,
            provider: provider.name.as_str().to_owned(),
            category: provider.category,
            institution_id: "1".to_owned(),
            institution_name: "Bank".to_owned(),
            institution_logo: None,
            status: ConnectionStatus::Active,
            consent_expires_at: None,
            last_refreshed_at: None,
            created_at: at(0),
        };
        Arc::new(ConnectionContext {
            connection,
            accounts: accounts.iter().map(account).collect(),
            credentials: SecretString::from(""),
            revision: 1,
            refreshed_us: AtomicI64::new(i64::MIN),
            gone_us: AtomicI64::new(i64::MIN),
        })
    }

    pub(crate) fn call(&self) -> CallContext {
        CallContext::new(
            Instant::now() + Duration::from_secs(25),
            at(NOW),
            Cause::Schedule,
        )
    }
}
