//! Stores which instances of the service run, so that commands can check them before a change, and
//! so that nothing waits for the leases of an instance that is gone.
//!
//! Times come from `storage.instances().database_time`. So an instance whose own clock is wrong is
//! not taken for a dead one.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::db::{Db, Param, Sql, from_row, params, scalar, statements};
use crate::error::Result;
use crate::{Instances, StorageError};

/// An instance that has not renewed its row for this long is dead.
pub const INSTANCE_TIMEOUT: SignedDuration = SignedDuration::from_secs(20);

const WRONG_CLOCK: &str =
    "the clock of this machine differs from that of the database by 20 s or more";

/// Frees the leases of instances that have no row. On PostgreSQL, `$lock` skips rows that another
/// transaction has locked, whose leases end by themselves. To wait for them could be a deadlock:
/// other transactions lock queues before jobs, or jobs before queues.
macro_rules! free {
    ($table:literal, $key:literal, $lock:literal) => {
        concat!(
            "WITH held AS MATERIALIZED (SELECT ",
            $key,
            " FROM ",
            $table,
            " WHERE lease_until > 0 AND holder IS NOT NULL
                AND holder NOT IN (SELECT id FROM instances)",
            $lock,
            ") UPDATE ",
            $table,
            " SET lease_until = 0 WHERE (",
            $key,
            ") IN (SELECT ",
            $key,
            " FROM held)"
        )
    };
}

statements! {
    TIME_ON_POSTGRES = "", on_postgres = "SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)";

    CONNECTIONS_MAX_ON_POSTGRES = "", on_postgres =
        "SELECT CAST(setting AS BIGINT) FROM pg_settings WHERE name = 'max_connections'";

    /// Inserts the row again if it was deleted: the instance could not reach the database for some
    /// time.
    RENEW = "INSERT INTO instances (id, version, host, api_url, boot_id, console_url, key_ids, allow_loopback,
            started_at, last_seen_at, clock_ahead_ms, roles, settings, provider_calls)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
        ON CONFLICT (id) DO UPDATE SET last_seen_at = excluded.last_seen_at, clock_ahead_ms = excluded.clock_ahead_ms,
            provider_calls = excluded.provider_calls, console_url = excluded.console_url
        RETURNING (SELECT CAST(COALESCE(SUM(revision), 0) AS BIGINT) FROM provider_settings)";

    LIST = "SELECT id, version, host, api_url, boot_id, console_url, key_ids, allow_loopback, started_at,
            last_seen_at, clock_ahead_ms, roles, settings, provider_calls
        FROM instances WHERE last_seen_at > $1 ORDER BY started_at, id";

    DELETE = "DELETE FROM instances WHERE id = $1";

    /// Runs before [`DELETE_DEAD`], which takes SQLite's one writer.
    HAS_DEAD = "SELECT 1 FROM instances WHERE last_seen_at <= $1 LIMIT 1";

    DELETE_DEAD = "DELETE FROM instances WHERE last_seen_at <= $1";

    DELETE_PREDECESSORS = "DELETE FROM instances WHERE host = $1 AND api_url = $2 AND boot_id = $3";

    /// An instance that is not dead, but was cut off from the database, finds that its fences are
    /// lost.
    FREE_JOBS = free!("jobs", "user_id, kind, subject", ""),
        on_postgres = free!("jobs", "user_id, kind, subject", " FOR UPDATE SKIP LOCKED");

    /// The two columns are compared with each other.
    BRING_JOBS_FORWARD = "UPDATE jobs SET run_at = CASE WHEN run_at > $1 THEN run_at - $2 ELSE run_at END,
            started_at = CASE WHEN started_at > $1 THEN started_at - $2 ELSE started_at END
        WHERE run_at > $1 OR started_at > $1";

    FIND_LAST_START = "SELECT MAX(started_at) FROM jobs";

    BRING_DELIVERIES_FORWARD = "UPDATE webhook_deliveries SET next_attempt_at = next_attempt_at - $2
        WHERE next_attempt_at > $1";

    BRING_QUEUES_FORWARD = "UPDATE webhook_queues SET due_at = due_at - $2 WHERE due_at > $1";

    FREE_QUEUES = free!("webhook_queues", "user_id, endpoint_id", ""),
        on_postgres = free!("webhook_queues", "user_id, endpoint_id", " FOR UPDATE SKIP LOCKED");
}

/// A running instance, as it describes itself. Serialized as `bellbird status --json` prints it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    pub id: Uuid,
    pub version: String,
    /// The name of its machine.
    pub host: String,
    /// The URL of its API on that machine; of its ops listener, if it has no API.
    pub api_url: String,
    /// `api`, `console`, `worker`.
    pub roles: Vec<String>,
    /// Differs from boot to boot and from machine to machine, also between machines of one name.
    /// Empty if unknown.
    #[serde(skip)]
    pub boot_id: String,
    /// The URL at which browsers reach its console.
    pub console_url: String,
    /// The ids of its master keys. The first one seals.
    pub key_ids: Vec<String>,
    /// A keyed digest of the settings of each section. Those of instances with one sealing key can
    /// be compared.
    pub settings: BTreeMap<String, String>,
    /// Whether it delivers to endpoints on its own machine.
    #[serde(skip)]
    pub allow_loopback: bool,
    pub started_at: Timestamp,
    pub last_seen_at: Timestamp,
    /// By how much its clock is ahead of the database's, in milliseconds.
    pub clock_ahead_ms: i64,
    /// How its calls to each provider went, by the provider's name.
    #[serde(skip)]
    pub provider_calls: BTreeMap<String, ProviderCalls>,
}

/// How the calls of an instance to a provider went, since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProviderCalls {
    pub calls: u64,
    /// Those that failed, by the fault of the provider or of the operator's settings.
    pub failed: u64,
    /// Those that failed since the last one that succeeded.
    pub failed_in_a_row: u64,
    pub succeeded_at: Option<Timestamp>,
    pub failed_at: Option<Timestamp>,
    /// Why the last one failed that did.
    pub error: Option<String>,
    /// Whether calls are rejected for a moment, because nearly all have failed.
    pub is_paused: bool,
}

impl ProviderCalls {
    /// Those of two instances together: the newest success and failure, and the sums.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let (newer, older) = if self.failed_at >= other.failed_at {
            (self, other)
        } else {
            (other, self)
        };
        // What failed before the newest success is over, whichever instance it was.
        let succeeded_at = newer.succeeded_at.max(older.succeeded_at);
        let in_a_row = |calls: &Self| {
            let is_over = calls.failed_at <= succeeded_at;
            if is_over { 0 } else { calls.failed_in_a_row }
        };
        Self {
            calls: newer.calls + older.calls,
            failed: newer.failed + older.failed,
            failed_in_a_row: in_a_row(&newer) + in_a_row(&older),
            succeeded_at,
            is_paused: newer.is_paused || older.is_paused,
            failed_at: newer.failed_at,
            error: newer.error,
        }
    }
}

impl Instance {
    /// Whether it opens what this master key sealed.
    pub fn opens(&self, key_id: &str) -> bool {
        self.key_ids.iter().any(|id| id == key_id)
    }

    /// The id of the master key with which it seals.
    pub fn sealing_key_id(&self) -> &str {
        self.key_ids.first().map_or("", String::as_str)
    }
}

/// As messages name it: `web-1 (http://127.0.0.1:8080)`.
impl fmt::Display for Instance {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} ({})", self.host, self.api_url)
    }
}

impl Instances<'_> {
    /// The time that all instances on this database agree on: the server's for PostgreSQL. SQLite
    /// is used by one machine only, so there it is `local`.
    pub async fn database_time(self, local: Timestamp) -> Result<Timestamp> {
        match &self.db {
            Db::Sqlite(_) => Ok(local),
            Db::Postgres(_) => {
                let time = self.db.value(TIME_ON_POSTGRES, params![]).await?;
                time.ok_or_else(|| StorageError::unavailable("the server returned no time"))
            }
        }
    }

    /// The most connections that the PostgreSQL server takes. None for SQLite.
    pub async fn connections_max(self) -> Result<Option<i64>> {
        match &self.db {
            Db::Sqlite(_) => Ok(None),
            Db::Postgres(_) => self.db.value(CONNECTIONS_MAX_ON_POSTGRES, params![]).await,
        }
    }

    /// Stores that an instance runs. It stays alive for [`INSTANCE_TIMEOUT`] after `now`. Reads
    /// whether the providers' settings have changed, for `storage.provider_settings().changes()`.
    pub async fn renew(self, instance: &Instance, now: Timestamp) -> Result<()> {
        let provider_calls =
            serde_json::to_string(&instance.provider_calls).map_err(StorageError::unavailable)?;
        let settings: Vec<_> = instance
            .settings
            .iter()
            .map(|(section, digest)| format!("{section}={digest}"))
            .collect();
        let (key_ids, roles) = (instance.key_ids.join(","), instance.roles.join(","));
        let settings = settings.join(",");
        let values = params![
            instance.id,
            &instance.version,
            &instance.host,
            &instance.api_url,
            &instance.boot_id,
            &instance.console_url,
            &key_ids,
            instance.allow_loopback,
            instance.started_at,
            now,
            instance.clock_ahead_ms,
            &roles,
            &settings,
            &provider_calls
        ];
        let revision: Option<i64> = self.db.write_one(RENEW, values, scalar).await?;
        let known = &self.renewals.provider_settings;
        known.send_if_modified(|known| {
            let read = revision.unwrap_or_default();
            std::mem::replace(known, read) != read
        });
        Ok(())
    }

    /// Records how a renewal went, for [`Self::fault`]. Returns whether that is news.
    pub fn record_renewal(self, renewed: &Result<()>) -> bool {
        self.renewals.record(renewed)
    }

    /// Why this instance should get no requests, as its renewals found. Asks nobody. None for a
    /// command.
    pub fn fault(self) -> Option<String> {
        if self.claims_paused() {
            Some(WRONG_CLOCK.to_owned())
        } else {
            self.renewals.fault()
        }
    }

    /// How long ago this instance last wrote to the database. None for a command.
    pub fn renewal_age(self) -> Option<Duration> {
        self.renewals.age()
    }

    /// Lists the instances that are alive, oldest first.
    pub async fn list(self, now: Timestamp) -> Result<Vec<Instance>> {
        self.db
            .all(LIST, params![now.minus(INSTANCE_TIMEOUT)], instance)
            .await
    }

    /// Deletes the row of an instance that stops, and frees its leases. Idempotent.
    pub async fn delete(self, id: Uuid) -> Result<()> {
        self.delete_and_free(DELETE, params![id]).await.map(|_| ())
    }

    /// Deletes the rows of dead instances and frees their leases. Returns the number of rows.
    pub async fn delete_dead(self, now: Timestamp) -> Result<u64> {
        let seen_until = params![now.minus(INSTANCE_TIMEOUT)];
        if !self.db.exists(HAS_DEAD, seen_until).await? {
            return Ok(0);
        }
        self.delete_and_free(DELETE_DEAD, seen_until).await
    }

    /// As `storage.instances().delete_dead`, for an instance that listens at its URL of its
    /// machine: whoever listened there since the boot was killed. Whoever did before it, or does on
    /// another machine of the same name, is dead only after [`INSTANCE_TIMEOUT`]. So is everybody
    /// if the boot is unknown.
    pub async fn delete_predecessors(self, instance: &Instance) -> Result<u64> {
        if instance.boot_id.is_empty() {
            return Ok(0);
        }
        let values = params![&instance.host, &instance.api_url, &instance.boot_id];
        self.delete_and_free(DELETE_PREDECESSORS, values).await
    }

    /// As `storage.instances().delete_dead`, for a caller that knows that no other instance runs.
    pub async fn delete_all(self) -> Result<u64> {
        self.delete_and_free(DELETE_DEAD, params![Timestamp::MAX])
            .await
    }

    /// When a job last started, by the clock of that time. Reads the whole table of jobs.
    pub async fn last_job_started_at(self) -> Result<Option<Timestamp>> {
        self.db.value(FIND_LAST_START, params![]).await
    }

    /// Plans everything after `now` earlier by this time, because the clock by which it was planned
    /// went back.
    pub async fn bring_forward(self, now: Timestamp, by: SignedDuration) -> Result<()> {
        let by = i64::try_from(by.as_micros()).map_err(StorageError::unavailable)?;
        let mut tx = self.db.begin().await?;
        for update in [
            BRING_JOBS_FORWARD,
            BRING_DELIVERIES_FORWARD,
            BRING_QUEUES_FORWARD,
        ] {
            tx.run(update, params![now, by]).await?;
        }
        tx.commit().await
    }

    async fn delete_and_free(self, delete: Sql, values: &[Param<'_>]) -> Result<u64> {
        let mut tx = self.db.begin().await?;
        let deleted = tx.run(delete, values).await?;
        // Each reads its whole table, and without a row that went there is nothing to free.
        if deleted > 0 {
            for free in [FREE_JOBS, FREE_QUEUES] {
                tx.run(free, params![]).await?;
            }
        }
        tx.commit().await?;
        Ok(deleted)
    }
}

from_row! {
    fn instance(row) -> Instance {
        id, version, host, api_url, boot_id, console_url, key_ids = comma_separated(row.text(6)?),
        allow_loopback, started_at, last_seen_at, clock_ahead_ms,
        roles = comma_separated(row.text(11)?),
        settings = row.text(12)?.split(',').filter_map(|part| part.split_once('=')).map(owned)
            .collect(),
        // Another version may have written it.
        provider_calls = serde_json::from_str(row.text(13)?).unwrap_or_default(),
    }
}

fn comma_separated(text: &str) -> Vec<String> {
    text.split(',').map(str::to_owned).collect()
}

fn owned((section, digest): (&str, &str)) -> (String, String) {
    (section.to_owned(), digest.to_owned())
}
