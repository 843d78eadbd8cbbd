//! The instances of the service that run on one database. Each one announces itself, and commands compare them.

mod compare;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use anyhow::{Context as _, bail};
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
    /// Returns whether the database was replaced by a backup.
    renewal: JoinHandle<bool>,
}

impl Presence {
    /// Stores that this instance runs. Call it before the first request, so that commands know of every instance that
    /// seals and opens secrets. Cancels `service` if a backup replaces the database while the instance runs.
    pub async fn announce(
        storage: &Storage,
        settings: &Settings,
        urls: &Urls,
        service: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let now = storage.instances().database_time(Timestamp::now()).await?;
        let instance = NewInstance {
            id: Uuid::now_v7(),
            version: VERSION.to_owned(),
            host: host_name(),
            api_url: urls.api_url.clone(),
            console_url: urls.public_console(settings).to_owned(),
            settings: serde_json::to_string(&settings.shared()?)?,
            started_at: now,
        };
        if storage.kind() == "sqlite" {
            // The lock of the file allows one service: others in the table were killed.
            storage.instances().delete_all().await?;
        }
        storage.instances().renew(&instance, now).await.context("could not announce this instance")?;
        let (id, stop) = (instance.id, CancellationToken::new());
        let renewal = tokio::spawn(renew_regularly(storage.clone(), instance, stop.clone(), service.clone()));
        Ok(Self { storage: storage.clone(), id, stop, renewal })
    }

    #[must_use]
    pub fn id(&self) -> Uuid {
        self.id
    }

    /// Deletes the row. Call it once nothing uses a secret any more.
    ///
    /// # Errors
    /// If a backup has replaced the database meanwhile.
    pub async fn withdraw(self) -> anyhow::Result<()> {
        self.stop.cancel();
        let deleted = async {
            // A renewal under way would insert the row again.
            let was_restored = self.renewal.await.unwrap_or_default();
            self.storage.instances().delete(self.id).await.map(|()| was_restored)
        };
        match tokio::time::timeout(WITHDRAW_TIMEOUT, deleted).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => bail!("the database was restored from a backup: {}", wiring::RESTORE_DECISION),
            Ok(Err(error)) => tracing::warn!(%error, "could not delete the row of this instance"),
            Err(_) => tracing::warn!("could not delete the row of this instance in time"),
        }
        Ok(())
    }
}

/// Continues after an error: the database may be lost for a while.
async fn renew_regularly(
    storage: Storage,
    instance: NewInstance,
    stop: CancellationToken,
    service: CancellationToken,
) -> bool {
    while stop.run_until_cancelled(tokio::time::sleep(RENEW_INTERVAL)).await.is_some() {
        match renew(&storage, &instance).await {
            Ok(false) => {}
            Ok(true) => {
                tracing::error!("database was restored from a backup, stopping");
                service.cancel();
                return true;
            }
            Err(error) => tracing::warn!(%error, "could not renew the row of this instance"),
        }
    }
    false
}

/// Returns whether the database awaits a decision after a restore. Then the row is not renewed.
async fn renew(storage: &Storage, instance: &NewInstance) -> Result<bool, StorageError> {
    if storage.backups().awaits_restore_decision().await? {
        return Ok(true);
    }
    let now = storage.instances().database_time(Timestamp::now()).await?;
    storage.instances().renew(instance, now).await?;
    storage.instances().delete_dead(now).await?;
    Ok(false)
}

/// The name of this machine, as instances store it.
#[must_use]
pub fn host_name() -> String {
    uname().nodename().to_string_lossy().into_owned()
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
    /// The URL at which browsers reach its console.
    pub console_url: String,
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
        let InstanceRecord { id, version, host, api_url, console_url, key_ids, settings, started_at, last_seen_at } =
            record;
        // Of a later version, perhaps: what cannot be read is not compared.
        let settings = serde_json::from_str(&settings).unwrap_or_default();
        Self { id, version, host, api_url, console_url, key_ids, started_at, last_seen_at, settings }
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
    let now = storage.instances().database_time(Timestamp::now()).await?;
    Ok(storage.instances().list(now).await?.into_iter().map(Instance::from).collect())
}

/// Finds what differs between the running instances, and between them and a command with these settings.
#[must_use]
pub fn compare_with(running: &[Instance], settings: &Settings) -> Vec<Finding> {
    // Other checks report settings that cannot be used.
    let sealer = wiring::sealer(settings).ok().flatten();
    let key_ids: Vec<_> = sealer.iter().flat_map(|sealer| sealer.key_ids()).map(str::to_owned).collect();
    compare::compare(running, &settings.shared().unwrap_or_default(), &key_ids)
}
