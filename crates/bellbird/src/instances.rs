//! The instances of the service that run on one database. Each one announces itself, and commands compare them.

mod compare;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::Context as _;
use bellbird_storage::{InstanceRecord, NewInstance, Storage, StorageError};
use jiff::Timestamp;
use rustix::system::uname;
use serde::Serialize;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

pub use compare::Finding;

use crate::config::Settings;
use crate::service::Urls;
use crate::wiring;

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// An instance counts as dead after three missed renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// Limit for deleting the row when the service stops, in case the database is lost.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

/// The row of this instance, renewed until [`Presence::withdraw`].
#[must_use]
pub struct Presence {
    storage: Storage,
    id: Uuid,
    stop: CancellationToken,
    renewal: JoinHandle<()>,
}

impl Presence {
    /// Stores that this instance runs. Call it before the first request, so that commands know of every instance that
    /// seals and opens secrets.
    pub async fn announce(storage: &Storage, settings: &Settings, urls: &Urls) -> anyhow::Result<Self> {
        let now = storage.database_time(Timestamp::now()).await?;
        let instance = NewInstance {
            id: Uuid::now_v7(),
            version: VERSION.to_owned(),
            host: uname().nodename().to_string_lossy().into_owned(),
            api_url: urls.api_url.clone(),
            settings: serde_json::to_string(&settings.shared()?)?,
            started_at: now,
        };
        if storage.kind() == "sqlite" {
            // The lock of the file allows one service: others in the table were killed.
            storage.delete_all_instances().await?;
        }
        storage.renew_instance(&instance, now).await.context("could not announce this instance")?;
        let (id, stop) = (instance.id, CancellationToken::new());
        let renewal = tokio::spawn(renew_regularly(storage.clone(), instance, stop.clone()));
        Ok(Self { storage: storage.clone(), id, stop, renewal })
    }

    /// Deletes the row. Call it once nothing uses a secret any more.
    pub async fn withdraw(self) {
        self.stop.cancel();
        let deleted = async {
            // A renewal under way would insert the row again.
            let _ = self.renewal.await;
            self.storage.delete_instance(self.id).await
        };
        match tokio::time::timeout(WITHDRAW_TIMEOUT, deleted).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "could not delete the row of this instance"),
            Err(_) => tracing::warn!("could not delete the row of this instance in time"),
        }
    }
}

/// Continues after an error: the database may be lost for a while.
async fn renew_regularly(storage: Storage, instance: NewInstance, stop: CancellationToken) {
    while stop.run_until_cancelled(tokio::time::sleep(RENEW_INTERVAL)).await.is_some() {
        if let Err(error) = renew(&storage, &instance).await {
            tracing::warn!(%error, "could not renew the row of this instance");
        }
    }
}

async fn renew(storage: &Storage, instance: &NewInstance) -> Result<(), StorageError> {
    let now = storage.database_time(Timestamp::now()).await?;
    storage.renew_instance(instance, now).await?;
    storage.delete_dead_instances(now).await.map(|_| ())
}

/// A running instance, as `bellbird status --json` prints it.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    pub id: Uuid,
    pub version: String,
    /// The name of its machine.
    pub host: String,
    /// The URL of its API on that machine.
    pub api_url: String,
    /// The ids of its master keys. The first one seals.
    pub key_ids: Vec<String>,
    pub started_at: Timestamp,
    pub last_seen_at: Timestamp,
    /// The settings that all instances should share.
    #[serde(skip)]
    pub settings: BTreeMap<String, Value>,
}

impl Instance {
    /// Whether it opens what this master key sealed.
    #[must_use]
    pub fn opens(&self, key_id: &str) -> bool {
        self.key_ids.iter().any(|id| id == key_id)
    }

    /// The id of the master key with which it seals.
    #[must_use]
    pub fn sealing_key_id(&self) -> &str {
        self.key_ids.first().map_or("", String::as_str)
    }
}

impl From<InstanceRecord> for Instance {
    fn from(record: InstanceRecord) -> Self {
        let InstanceRecord { id, version, host, api_url, key_ids, settings, started_at, last_seen_at } = record;
        // Of a later version, perhaps: what cannot be read is not compared.
        let settings = serde_json::from_str(&settings).unwrap_or_default();
        Self { id, version, host, api_url, key_ids, started_at, last_seen_at, settings }
    }
}

/// As messages name it: `web-1 (http://127.0.0.1:8080)`.
impl fmt::Display for Instance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.host, self.api_url)
    }
}

/// Lists the running instances, oldest first.
pub async fn running(storage: &Storage) -> Result<Vec<Instance>, StorageError> {
    let now = storage.database_time(Timestamp::now()).await?;
    Ok(storage.list_instances(now).await?.into_iter().map(Instance::from).collect())
}

/// Finds what differs between the running instances, and between them and a command with these settings.
#[must_use]
pub fn compare_with(running: &[Instance], settings: &Settings) -> Vec<Finding> {
    // Other checks report settings that cannot be used.
    let sealer = wiring::sealer(settings).ok().flatten();
    let key_ids: Vec<_> = sealer.iter().flat_map(|sealer| sealer.key_ids()).map(str::to_owned).collect();
    compare::compare(running, &settings.shared().unwrap_or_default(), &key_ids)
}
