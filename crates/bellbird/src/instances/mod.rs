//! The instances of the service that run on one database. Each one keeps a row, and commands
//! compare them.

mod compare;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use aws_lc_rs::hmac::{self, HMAC_SHA256};
use bellbird_connections::Connections;
use bellbird_domain::{Clock, CurrentText};
use bellbird_management::health::CLOCK_NOTICED;
use bellbird_storage::{Chain, Instance, Sealer, Storage, StorageError};
use jiff::{SignedDuration, Timestamp};
use rustix::system::uname;
use secrecy::ExposeSecret as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use compare::Own;
pub use compare::{Finding, difference};

use crate::config::{Address, Settings};
use crate::public_info;
use crate::roles::{Role, Roles};
use crate::wiring::{self, NotReady, Parts, Urls};

/// Sections of which each instance may have its own values. The ids of keys are compared by another
/// check, and SQLite has one instance, which may name the folder of backups in another way.
const OWN_SECTIONS: [&str; 6] = ["backup", "database", "log", "ops", "secrets", "traces"];

/// The commit that the program is built from, or `unknown`: see `build.rs`.
pub const COMMIT: &str = env!("BELLBIRD_COMMIT");
/// The version with its commit: `0.1.0+b76420e12345`.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("BELLBIRD_COMMIT"));

/// An instance counts as dead after three missed renewals.
const RENEW_INTERVAL: Duration = Duration::from_secs(5);
/// A time that took longer to arrive is not the time any more: the process may have stood still
/// meanwhile.
const CLOCK_ROUND_TRIP_MAX: SignedDuration = SignedDuration::from_secs(1);
/// Limit for deleting the row when the service stops, in case the database is lost.
const WITHDRAW_TIMEOUT: Duration = Duration::from_secs(2);

/// The row of this instance, renewed until [`Heartbeat::withdraw`].
#[must_use]
pub struct Heartbeat {
    storage: Storage,
    id: Uuid,
    stop: CancellationToken,
    /// Returns whether the database was replaced by a backup.
    renewal: JoinHandle<bool>,
}

impl Heartbeat {
    /// Stores that this instance runs. Call it before the first request, so that commands know of
    /// every instance that seals and opens secrets. From then on the instance's clock follows that
    /// of the database, or this machine's on SQLite. Stops the service if a backup replaces the
    /// database while the instance runs.
    pub async fn start(
        id: Uuid,
        urls: &Urls,
        roles: &Roles,
        parts: &Parts,
        settings: &Settings,
        sealer: &Sealer,
        service: &CancellationToken,
    ) -> anyhow::Result<Self> {
        let (storage, clock) = (&parts.storage, &parts.clock);
        let Clocks {
            now,
            ahead_ms: clock_ahead_ms,
            age_max,
        } = clocks(storage).await?;
        if let Some(age_max) = age_max {
            clock.follow(now, age_max);
        }
        let instance = Instance {
            id,
            version: VERSION.to_owned(),
            host: host_name(),
            // One that no other process of this machine has.
            api_url: if urls.api_url.is_empty() {
                &urls.ops_url
            } else {
                &urls.api_url
            }
            .clone(),
            roles: roles.names(),
            boot_id: boot_id(),
            console_url: urls.public.console_url.get().to_string(),
            key_ids: sealer.key_ids().map(str::to_owned).collect(),
            settings: settings_digests(settings, sealer),
            allow_loopback: settings.webhooks.rules.allow_loopback,
            started_at: now,
            last_seen_at: now,
            clock_ahead_ms,
            provider_calls: parts.connections.provider_calls(),
        };
        apply_clock_check(storage, &instance, None);
        if storage.kind() == "sqlite" {
            // The lock of the file allows one service: others in the table were killed.
            storage.instances().delete_all().await?;
            // The clock may have been set back while no service ran.
            let last = storage.instances().last_job_started_at().await?;
            bring_forward(
                storage,
                now,
                last.map_or(SignedDuration::ZERO, |last| last.duration_since(now)),
            )
            .await?;
        } else {
            storage.instances().delete_predecessors(&instance).await?;
            refuse_other_key(&running(storage).await?, &instance)?;
        }
        let renewed = storage.instances().renew(&instance, now).await;
        storage.instances().record_renewal(&renewed);
        renewed.context("could not store that this instance runs")?;
        let stop = CancellationToken::new();
        let renewal = tokio::spawn(renew_regularly(
            storage.clone(),
            parts.connections.clone(),
            clock.clone(),
            (instance, urls.public.console_url.clone()),
            stop.clone(),
            service.clone(),
        ));
        Ok(Self {
            storage: storage.clone(),
            id,
            stop,
            renewal,
        })
    }

    /// Deletes the row. Call it once nothing uses a secret any more.
    ///
    /// # Errors
    /// If a backup has replaced the database meanwhile.
    pub async fn withdraw(self) -> anyhow::Result<()> {
        self.stop.cancel();
        let deleted = async {
            // A running renewal would insert the row again.
            let was_restored = self.renewal.await.unwrap_or_default();
            self.storage
                .instances()
                .delete(self.id)
                .await
                .map(|()| was_restored)
        };
        match tokio::time::timeout(WITHDRAW_TIMEOUT, deleted).await {
            Ok(Ok(false)) => {}
            Ok(Ok(true)) => bail!(
                "the database was restored from a backup: {}",
                wiring::RESTORE_DECISION
            ),
            Ok(Err(error)) => tracing::warn!(%error, "could not delete the row of this instance"),
            Err(_) => tracing::warn!("could not delete the row of this instance in time"),
        }
        Ok(())
    }
}

/// Continues after an error: the database may be lost for a while.
async fn renew_regularly(
    storage: Storage,
    connections: Connections,
    clock: Clock,
    (mut instance, console_url): (Instance, CurrentText),
    stop: CancellationToken,
    service: CancellationToken,
) -> bool {
    while stop
        .run_until_cancelled(tokio::time::sleep(RENEW_INTERVAL))
        .await
        .is_some()
    {
        instance.provider_calls = connections.provider_calls();
        instance.console_url = console_url.get().to_string();
        let renewed = match renew(&storage, &clock, &mut instance).await {
            Ok(true) => {
                tracing::error!("database was restored from a backup, stopping");
                service.cancel();
                return true;
            }
            renewed => renewed.map(|_| ()),
        };
        // What is wrong with the file explains why a write has failed.
        let renewed = storage.check_file().and(renewed);
        let is_news = storage.instances().record_renewal(&renewed);
        match renewed {
            Ok(()) if is_news => tracing::info!("row of this instance renewed again"),
            Err(error) if is_news => {
                tracing::warn!(error = %Chain(&error), "could not renew the row of this instance");
            }
            Ok(()) | Err(_) => {}
        }
    }
    false
}

/// Returns whether the database was replaced by a backup. Then the row is not renewed. Fails also
/// if the service must not use the database as it is.
async fn renew(
    storage: &Storage,
    clock: &Clock,
    instance: &mut Instance,
) -> Result<bool, StorageError> {
    let checked = wiring::check_ready(storage).await;
    if matches!(checked, Err(NotReady::AwaitsDecision)) {
        return Ok(true);
    }
    let Clocks {
        now,
        ahead_ms,
        age_max,
    } = clocks(storage).await?;
    if let Some(age_max) = age_max {
        if storage.kind() == "sqlite" {
            bring_forward(storage, now, clock.ahead_of(now)).await?;
        }
        clock.follow(now, age_max);
        let was_wrong = compare::wrong_clock(instance).map(|found| found.is_wrong);
        instance.clock_ahead_ms = ahead_ms;
        apply_clock_check(storage, instance, was_wrong);
    }
    storage.instances().renew(instance, now).await?;
    let dead = storage.instances().delete_dead(now).await?;
    if dead > 0 {
        tracing::warn!(
            count = dead,
            "instances were killed; what they held is free"
        );
    }
    match checked {
        Ok(()) | Err(NotReady::AwaitsDecision) => Ok(false),
        Err(NotReady::PendingMigrations(_)) => Err(StorageError::Schema(
            "the database has pending migrations".to_owned(),
        )),
        Err(NotReady::Unreadable(error) | NotReady::UnknownSchema(error)) => Err(error),
    }
}

/// An instance that shares no master key with any other would seal what none of them opens.
fn refuse_other_key(running: &[Instance], own: &Instance) -> anyhow::Result<()> {
    let shares_key = |other: &Instance| other.key_ids.iter().any(|id| own.opens(id));
    let Some(other) = running.first().filter(|_| !running.iter().any(shares_key)) else {
        return Ok(());
    };
    bail!(
        "the other instances seal with the master key `{}`, such as {other}, and this one has only `{}`: give it the \
         secrets.key of the others",
        other.sealing_key_id(),
        own.key_ids.join("`, `")
    )
}

/// On SQLite: plans everything earlier, because this machine's clock went back by this time.
async fn bring_forward(
    storage: &Storage,
    now: Timestamp,
    back: SignedDuration,
) -> Result<(), StorageError> {
    if back <= CLOCK_NOTICED {
        return Ok(());
    }
    tracing::warn!(
        seconds = back.as_secs(),
        "this machine's clock went back; what was planned comes earlier"
    );
    storage.instances().bring_forward(now, back).await
}

struct Clocks {
    /// The database's time when it was asked.
    now: Timestamp,
    /// By how much this machine is ahead of it. The way to the database counts half, and where it
    /// was long, this is the least that is certain.
    ahead_ms: i64,
    /// How long ago that was at most. None if it took longer than [`CLOCK_ROUND_TRIP_MAX`].
    age_max: Option<SignedDuration>,
}

async fn clocks(storage: &Storage) -> Result<Clocks, StorageError> {
    let asked = Instant::now();
    let before = Timestamp::now();
    let now = storage.instances().database_time(before).await?;
    let (before, after) = (before.as_millisecond(), Timestamp::now().as_millisecond());
    let age_max = SignedDuration::try_from(asked.elapsed())
        .ok()
        .filter(|age| *age <= CLOCK_ROUND_TRIP_MAX);
    // Of an answer that came late, only what the wait does not explain.
    let unsure = if age_max.is_some() {
        0
    } else {
        (after - before).abs() / 2
    };
    let ahead = (before + after) / 2 - now.as_millisecond();
    let ahead = ahead - ahead.clamp(-unsure, unsure);
    Ok(Clocks {
        now,
        ahead_ms: if storage.kind() == "sqlite" { 0 } else { ahead },
        age_max,
    })
}

/// Leaves jobs and events to other instances while this machine's clock is wrong. Logs what has
/// changed since `was_wrong`.
fn apply_clock_check(storage: &Storage, instance: &Instance, was_wrong: Option<bool>) {
    let found = compare::wrong_clock(instance);
    let is_wrong = found.as_ref().map(|found| found.is_wrong);
    if let Some(Finding { text, .. }) = found
        && is_wrong != was_wrong
    {
        tracing::warn!(clock_ahead_ms = instance.clock_ahead_ms, "{text}");
    }
    storage.set_claims_paused(is_wrong == Some(true));
}

fn host_name() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

/// The kernel's id of this boot, which all containers of a machine share.
fn boot_id() -> String {
    std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

/// Lists the running instances, oldest first.
pub async fn running(storage: &Storage) -> Result<Vec<Instance>, StorageError> {
    let now = storage.instances().database_time(Timestamp::now()).await?;
    storage.instances().list(now).await
}

/// The URL of the console for links: the one that is set or entered, else that of an instance on
/// this machine, which may listen elsewhere than these settings say.
pub async fn console_url(
    settings: &Settings,
    storage: &Storage,
) -> Result<Option<String>, StorageError> {
    let entered = storage.provider_settings().console().await?;
    if let Some(url) = public_info::console_url(settings, &entered) {
        return Ok(Some(url.to_owned()));
    }
    let of = |instance: Instance| instance.console_url;
    url_of(storage, &settings.console, Role::Console, of).await
}

/// As [`console_url`], or what the settings say if the database cannot be read.
pub async fn known_console_url(settings: &Settings) -> String {
    let found = match wiring::open_storage(settings).await {
        Ok(storage) => {
            let found = console_url(settings, &storage).await;
            storage.close().await;
            found.ok().flatten()
        }
        Err(_) => None,
    };
    let expected = || settings.console.expected_url();
    found.or_else(expected).unwrap_or_default()
}

/// As [`console_url`], of the API.
pub async fn api_url(
    settings: &Settings,
    storage: &Storage,
) -> Result<Option<String>, StorageError> {
    let entered = storage.provider_settings().console().await?;
    if let Some(url) = public_info::api_url(settings, &entered) {
        return Ok(Some(url));
    }
    let of = |instance: Instance| instance.api_url;
    url_of(storage, &settings.api, Role::Api, of).await
}

async fn url_of(
    storage: &Storage,
    address: &Address,
    role: Role,
    of: fn(Instance) -> String,
) -> Result<Option<String>, StorageError> {
    let mut running = running(storage).await?.into_iter();
    let first = running.find(|instance| is_here(instance) && role.is_in(&instance.roles));
    Ok(first.map(of).or_else(|| address.expected_url()))
}

/// Whether an instance runs on this machine.
pub fn is_here(instance: &Instance) -> bool {
    instance.host == host_name()
}

/// Finds what differs between the running instances, and between them and a command with these
/// settings.
pub fn compare_with(running: &[Instance], settings: &Settings) -> Vec<Finding> {
    // Other checks report settings that cannot be used.
    let sealer = wiring::sealer(settings).ok().flatten();
    let own = Own {
        key_ids: wiring::key_ids(settings).unwrap_or_default(),
        settings: sealer
            .map(|sealer| settings_digests(settings, &sealer))
            .unwrap_or_default(),
        console_url: settings.console.public_url.as_deref(),
    };
    compare::compare(running, &own)
}

/// A keyed digest of the settings of each section that should be the same in all instances.
fn settings_digests(settings: &Settings, sealer: &Sealer) -> BTreeMap<String, String> {
    let key = hmac::Key::new(HMAC_SHA256, &sealer.name_key());
    let mut sections: BTreeMap<String, hmac::Context> = BTreeMap::new();
    for (name, value) in &settings.effective {
        let Some((section, setting)) = name.split_once('.') else {
            continue;
        };
        // Another check compares console.public_url.
        if OWN_SECTIONS.contains(&section) || setting == "listen" || name == "console.public_url" {
            continue;
        }
        let digest = sections
            .entry(section.to_owned())
            .or_insert_with(|| hmac::Context::with_key(&key));
        for part in [setting, value.expose_secret()] {
            digest.update(&(part.len() as u64).to_le_bytes());
            digest.update(part.as_bytes());
        }
    }
    let shortened = |digest: hmac::Context| {
        digest.sign().as_ref()[..4]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    };
    sections
        .into_iter()
        .map(|(section, digest)| (section, shortened(digest)))
        .collect()
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    #[test]
    fn boot_is_known_also_in_the_unit() {
        assert_eq!(super::boot_id().len(), 36);
        let unit = include_str!("../../../../deploy/systemd/bellbird.service");
        let is_hidden = unit.lines().any(|line| line.starts_with("ProcSubset="));
        assert!(!is_hidden, "/proc/sys is not there with ProcSubset=pid");
    }
}
