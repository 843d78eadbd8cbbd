//! What all instances share, in a Valkey or Redis server.
//!
//! The server holds nothing that may not be lost at any moment: buckets of rate limits, permits
//! that end by themselves, counts of calls to providers, sealed values. What an instance knows of a
//! bucket goes along with each call, so a server that was emptied is corrected by its callers.
//! While the server is down, each instance goes on alone, from what it knows.

pub(crate) mod calls;
mod connection;
mod permits;
mod values;

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use jiff::Timestamp;
use redis::{RedisResult, Script};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::runtime::Handle;
use tokio::time::MissedTickBehavior;

use crate::gcra::{self, Decision, Limit};
use connection::Connection;
use permits::PERMIT_LASTS;
pub(crate) use permits::SharedPermit;
pub use values::Generation;

/// A server that is late is as good as down.
const TIME_LIMITS: TimeLimits = TimeLimits {
    call: Duration::from_millis(500),
    connect: Duration::from_secs(1),
};
/// Calls that fail one after the other until the server counts as down. Then only a probe calls it.
const FAILURES_MAX: u32 = 3;
/// How often a server that does not respond is probed.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
/// One in so many of these probes also goes to a server that responds, so that it is known to be
/// away before a request waits.
const PROBES_OF_A_RESPONSIVE_ONE: u32 = 5;
/// The first part of all names in the server. It changes with the meaning of what is there.
const NAMES: &str = "bellbird1";
const PROBE: &str = "#!lua flags=allow-oom\nredis.call('SET', KEYS[1], '', 'PX', 1000)";

/// Gauge: whether the server responds.
const AVAILABLE: &str = "bellbird_shared_store_available";

#[derive(Clone, Copy)]
struct TimeLimits {
    /// What a request waits for the server, which responds within a millisecond.
    call: Duration,
    /// What a connection, and a probe, waits for it.
    connect: Duration,
}

#[derive(Debug, Clone)]
pub struct StoreSettings {
    /// redis:// or rediss://, perhaps with user and password. For a cluster, nodes that know the
    /// others, separated by commas.
    pub url: SecretString,
    pub is_cluster: bool,
}

impl StoreSettings {
    /// Hosts and ports, without user and password.
    #[must_use]
    pub fn servers(&self) -> String {
        let host = |url: &str| {
            let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
            let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
            rest.split(['/', '?']).next().unwrap_or_default().to_owned()
        };
        self.url
            .expose_secret()
            .split(',')
            .map(str::trim)
            .map(host)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Cheap to clone.
#[derive(Clone)]
pub struct SharedStore {
    inner: Arc<Inner>,
}

struct Inner {
    connection: Connection,
    limits: TimeLimits,
    admit: Script,
    put: Script,
    add_call: Script,
    name_key: hmac::Key,
    value_key: hmac::Key,
    /// The server's time less ours, in microseconds, as of the last response.
    ahead_us: AtomicI64,
    /// How many calls have failed since the last success.
    failures: AtomicU32,
    /// Gives permits back.
    runtime: Handle,
}

pub(crate) struct Bucket<'a> {
    pub(crate) limit: Limit,
    pub(crate) kind: &'a str,
    /// What this instance knows of it.
    pub(crate) full_at_us: i64,
    pub(crate) takes: bool,
    /// Whether the credit of the limit may be used.
    pub(crate) is_on_credit: bool,
}

pub(crate) struct Admitted {
    pub(crate) has_permit: bool,
    /// None if no bucket was asked for.
    pub(crate) decision: Option<Decision>,
}

impl SharedStore {
    /// Connects when it is first used, so a service starts without the server. Must be called
    /// within a runtime.
    ///
    /// The server sees names made with `key`, which do not tell whose a limit is, and values sealed
    /// with it.
    ///
    /// # Errors
    /// If the URL cannot be used. The text does not hold it, because it may have a password.
    pub fn open(settings: &StoreSettings, key: &[u8; 32]) -> Result<Self, String> {
        Self::open_with(settings, key, TIME_LIMITS)
    }

    fn open_with(
        settings: &StoreSettings,
        key: &[u8; 32],
        limits: TimeLimits,
    ) -> Result<Self, String> {
        let invalid = |_| {
            "expected redis://HOST:PORT or rediss://HOST:PORT, with user and password if needed"
                .to_owned()
        };
        let (url, is_cluster) = (settings.url.expose_secret(), settings.is_cluster);
        let inner = Arc::new(Inner {
            connection: Connection::open(url, is_cluster, limits.connect).map_err(invalid)?,
            limits,
            admit: Script::new(include_str!("admit.lua")),
            put: Script::new(include_str!("put.lua")),
            add_call: Script::new(include_str!("add_call.lua")),
            name_key: derived("names", key),
            value_key: derived("values", key),
            ahead_us: AtomicI64::new(0),
            failures: AtomicU32::new(0),
            runtime: Handle::current(),
        });
        tokio::spawn(watch(Arc::downgrade(&inner)));
        Ok(Self { inner })
    }

    /// Whether the server responds now, and takes what an instance writes.
    ///
    /// # Errors
    /// Says what is wrong, without the URL.
    pub async fn check(&self) -> Result<(), String> {
        self.inner.probe().await
    }

    /// What the server does when its memory is full: it must not evict. None if it does not say.
    pub async fn memory_policy(&self) -> Option<String> {
        let mut connection = self.inner.connection.clone();
        let mut info = redis::cmd("INFO");
        info.arg("memory");
        let within = self.inner.limits.connect;
        let reply = tokio::time::timeout(within, info.query_async::<String>(&mut connection)).await;
        let text = reply.ok()?.ok()?;
        text.lines()
            .find_map(|line| line.strip_prefix("maxmemory_policy:"))
            .map(|policy| policy.trim().to_owned())
    }

    /// Whether it is known that the server does not respond.
    #[must_use]
    pub fn is_down(&self) -> bool {
        self.inner.is_down()
    }

    /// Asks for a call out of a bucket of a key, its permit, or both. None if the server is down:
    /// the caller then decides itself.
    pub(crate) async fn admit(
        &self,
        key: &str,
        bucket: Option<Bucket<'_>>,
        permit: Option<&SharedPermit>,
        now: Timestamp,
    ) -> Option<Admitted> {
        let tag = self.inner.tag(key.as_bytes());
        self.ask(&tag, bucket, permit, now).await
    }

    async fn ask(
        &self,
        tag: &str,
        bucket: Option<Bucket<'_>>,
        permit: Option<&SharedPermit>,
        now: Timestamp,
    ) -> Option<Admitted> {
        let (limit, kind) = bucket
            .as_ref()
            .map_or((None, ""), |bucket| (Some(bucket.limit), bucket.kind));
        let refill_us = |bucket: &Bucket<'_>| bucket.limit.refill_us(bucket.is_on_credit);
        let (interval_us, most_us, with_credit_us) = bucket.as_ref().map_or((0, 0, 0), refill_us);
        let mut call = self.inner.admit.prepare_invoke();
        call.key(name(tag, kind))
            .key(name(tag, "permits"))
            .arg(interval_us)
            .arg(most_us)
            .arg(with_credit_us);
        call.arg(bucket.as_ref().map_or(0, |bucket| bucket.full_at_us));
        call.arg(u8::from(bucket.as_ref().is_none_or(|bucket| bucket.takes)));
        call.arg(permit.map_or(0, |permit| permit.max))
            .arg(permit.map_or("", |permit| &permit.id))
            .arg(PERMIT_LASTS.as_micros() as u64);
        let mut connection = self.inner.connection.clone();
        let reply = self
            .inner
            .call(call.invoke_async::<(u8, u8, i64, i64)>(&mut connection))
            .await?;
        let (has_permit, allowed, full_at_us, server_us) = reply;
        self.inner.ahead_us.store(
            server_us.saturating_sub(now.as_microsecond()),
            Ordering::Relaxed,
        );
        let decision = limit.map(|limit| Decision {
            allowed: allowed == 1,
            full_at_us,
            ..gcra::peek(limit, full_at_us, server_us)
        });
        Some(Admitted {
            has_permit: has_permit == 1,
            decision,
        })
    }

    fn server_us(&self, now: Timestamp) -> i64 {
        now.as_microsecond()
            .saturating_add(self.inner.ahead_us.load(Ordering::Relaxed))
    }
}

/// Probes the server until the store is dropped.
async fn watch(store: Weak<Inner>) {
    let mut ticks = tokio::time::interval(PROBE_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for probe in 1_u32.. {
        ticks.tick().await;
        let Some(store) = store.upgrade() else { return };
        if store.has_failed() || probe.is_multiple_of(PROBES_OF_A_RESPONSIVE_ONE) {
            let _ = store.probe().await;
        }
    }
}

/// A time by the clock of the store, if there is one, which makes the times of buckets.
pub(crate) fn time_us(store: Option<&SharedStore>, now: Timestamp) -> i64 {
    store.map_or(now.as_microsecond(), |store| store.server_us(now))
}

impl Inner {
    /// What stands for a key or a value in the server.
    fn tag(&self, of: &[u8]) -> String {
        let tag = hmac::sign(&self.name_key, of);
        tag.as_ref()
            .iter()
            .take(16)
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }

    fn is_down(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= FAILURES_MAX
    }

    fn has_failed(&self) -> bool {
        self.failures.load(Ordering::Relaxed) > 0
    }

    /// Whether the server takes what `admit` writes: a replica responds, but cannot.
    async fn probe(&self) -> Result<(), String> {
        let mut connection = self.connection.clone();
        let mut probe = redis::cmd("EVAL");
        probe
            .arg(PROBE)
            .arg(1)
            .arg(name(&self.tag(b"probe"), "probe"));
        let outcome = self
            .attempt(
                probe.query_async::<()>(&mut connection),
                self.limits.connect,
            )
            .await;
        metrics::gauge!(AVAILABLE).set(u8::from(!self.is_down()));
        outcome
    }

    /// None if the call fails, and at once while the server is down.
    async fn call<T>(&self, work: impl Future<Output = RedisResult<T>>) -> Option<T> {
        if self.is_down() {
            None
        } else {
            self.attempt(work, self.limits.call).await.ok()
        }
    }

    /// As [`Self::call`], for what only saves work. The server may refuse it, for example because
    /// its memory is full.
    async fn call_for_value<T>(&self, work: impl Future<Output = RedisResult<T>>) -> Option<T> {
        if self.is_down() {
            return None;
        }
        match tokio::time::timeout(self.limits.call, work).await {
            Ok(Ok(reply)) => return Some(reply),
            Ok(Err(error)) if error.code().is_some() => {}
            Ok(Err(error)) => self.failed(error.category()),
            Err(_) => self.failed("timed out"),
        }
        None
    }

    async fn attempt<T>(
        &self,
        work: impl Future<Output = RedisResult<T>>,
        within: Duration,
    ) -> Result<T, String> {
        match tokio::time::timeout(within, work).await {
            Ok(Ok(reply)) => {
                if self.failures.swap(0, Ordering::Relaxed) >= FAILURES_MAX {
                    metrics::gauge!(AVAILABLE).set(1);
                    tracing::info!("shared store available again");
                }
                Ok(reply)
            }
            Ok(Err(error)) => {
                self.failed(error.category());
                // What the server says, such as WRONGPASS, or what the system says of the
                // connection. Callers go on after it.
                Err(error.to_string().trim_end_matches('.').to_owned())
            }
            Err(_) => {
                self.failed("timed out");
                Err("it does not respond in time".to_owned())
            }
        }
    }

    fn failed(&self, reason: &str) {
        if self.failures.fetch_add(1, Ordering::Relaxed) == FAILURES_MAX - 1 {
            metrics::gauge!(AVAILABLE).set(0);
            tracing::warn!(
                reason,
                "shared store unavailable: each instance counts for itself"
            );
        }
    }
}

/// A key for one purpose.
fn derived(purpose: &str, key: &[u8; 32]) -> hmac::Key {
    let derived = hmac::sign(&hmac::Key::new(HMAC_SHA256, key), purpose.as_bytes());
    hmac::Key::new(HMAC_SHA256, derived.as_ref())
}

/// Names with the same tag lie on one node of a cluster.
fn name(tag: &str, kind: &str) -> String {
    format!("{NAMES}:{{{tag}}}:{kind}")
}

#[cfg(test)]
mod tests;
