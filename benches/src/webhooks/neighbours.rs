//! Measures the time from a sync to the delivery of its event, alone, and beside 1,000 dead
//! endpoints and a provider that hangs.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use bellbird_domain::{
    ApiVersion, ConnectionId, EndpointId, EventType, Fingerprints, Plan, TimestampExt as _, UserId,
};
use bellbird_storage::{
    AttemptOutcome, ClaimedEndpoint, DueDelivery, FinishedAttempt, JobKey, NewEndpoint, NewUser,
    Sealer, Storage, in_tx, job_kinds,
};
use bellbird_webhooks::delivery::sign::new_secret;
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::setup::new_connection;
use super::{Receiver, receiver, rows};
use crate::WebhooksArgs;
use crate::client;
use crate::fan_out::settings;
use crate::figures::{Figure, Report, percentile, progress};
use crate::process::Server;
use crate::recording::{self, Access};
use crate::service::{self, Workdir};

const NAME: &str = "healthy tenant beside dead endpoints, sqlite";
/// Events of a side in a round.
const EVENTS: usize = 100;
/// Target: how many times longer the 99th percentile may be beside the dead endpoints.
const RATIO_MAX: f64 = 2.0;
/// Users with dead endpoints, and endpoints of each.
const DEAD_USERS: usize = 50;
const DEAD_ENDPOINTS: usize = 20;
/// Due deliveries of each dead endpoint.
const DUE_EVENTS: usize = 10;
/// Syncs of each user at the provider that hangs are due, too.
const HANGING_PROVIDER: &str = "akahu";
const HANG_MS: u32 = 600_000;
/// Rows of the busiest account.
const ROWS: u32 = 200;
/// Time that the service has with the dead endpoints before the measurement.
const WARM_UP: Duration = Duration::from_secs(10);
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const TIME_MAX: Duration = Duration::from_secs(600);
const LEASE: SignedDuration = SignedDuration::from_secs(3_600);

pub(super) async fn run(args: &WebhooksArgs, report: &mut Report) -> anyhow::Result<()> {
    if !args.is_selected(NAME) {
        return Ok(());
    }
    let binary = service::binary(&args.program)?;
    let events = (EVENTS * args.size as usize / 100).max(1);
    let (mut alone, mut beside) = (Latencies::default(), Latencies::default());
    for round in 1..=args.rounds {
        // The order alternates, because the machine may grow busier.
        for has_dead in if round % 2 == 0 {
            [true, false]
        } else {
            [false, true]
        } {
            let side = Side::start(&binary, has_dead).await?;
            let latencies = if has_dead { &mut beside } else { &mut alone };
            latencies.add(side.measure(events).await?);
        }
        let last =
            |latencies: &Latencies| (latencies.p50.last().copied(), latencies.p99.last().copied());
        if let ((Some(p50), Some(p99)), (Some(beside_p50), Some(beside_p99))) =
            (last(&alone), last(&beside))
        {
            progress(&format!(
                "{NAME}, round {round}: alone p50 {p50:.0} ms, p99 {p99:.0} ms; beside {beside_p50:.0}, \
                 {beside_p99:.0} ms; p99 ratio {:.2}",
                beside_p99 / p99
            ));
        }
    }
    report.add(Figure::compared(
        NAME,
        "sync to delivery, p50, ms",
        "alone",
        &beside.p50,
        &alone.p50,
        None,
    ));
    let p99 = "sync to delivery, p99, ms";
    report.add(Figure::compared(
        NAME,
        p99,
        "alone",
        &beside.p99,
        &alone.p99,
        Some(RATIO_MAX),
    ));
    Ok(())
}

/// Milliseconds from sync to delivery, one value for each round.
#[derive(Default)]
struct Latencies {
    p50: Vec<f64>,
    p99: Vec<f64>,
}

impl Latencies {
    fn add(&mut self, mut round: Vec<f64>) {
        round.sort_by(f64::total_cmp);
        self.p50.push(percentile(&round, 0.5));
        self.p99.push(percentile(&round, 0.99));
    }
}

/// A service of its own with a healthy tenant.
struct Side {
    folder: TempDir,
    access: Access,
    storage: Storage,
    tenant: UserId,
    endpoint: EndpointId,
    /// The tenant's connections, each with an account's id at the provider.
    connections: Vec<(ConnectionId, String)>,
    has_dead: bool,
    receiver: Receiver,
    _service: Server,
    _sandbox: Server,
}

impl Side {
    async fn start(binary: &Path, has_dead: bool) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("bellbird-bench-")
            .tempdir()?;
        let (sandbox, description) = recording::start_with_description(binary, ROWS)?;
        let access = Access::read(&description)?;
        let mut more = settings(&description)?;
        more.push(("BELLBIRD_WEBHOOKS__ALLOW_LOOPBACK", "true".to_owned()));
        let workdir =
            Workdir::new(binary, folder.path().to_owned(), access.clone()).with_settings(more);
        workdir.add_user()?;
        let all = description["credentials"]
            .as_array()
            .context("no credentials")?
            .iter();
        for credentials in all.filter(|credentials| credentials["provider"] == "fiskil") {
            workdir.import(credentials)?;
        }
        let receiver = Receiver::start().await?;
        workdir.add_endpoint(&format!("http://{}{}", receiver.address(), receiver::QUICK))?;
        let database = format!("sqlite:{}", folder.path().join("bellbird.db").display());
        let storage = Storage::open(&database, Sealer::parse(service::MASTER_KEY)?).await?;
        let tenant = storage.users().list().await?.first().context("no user")?.id;
        let endpoint = storage
            .endpoints()
            .list(tenant)
            .await?
            .first()
            .context("no endpoint")?
            .id;
        let mut connections = Vec::new();
        for connection in storage.connections().list(tenant).await? {
            let accounts = storage
                .accounts()
                .list_of_connection(tenant, connection.id)
                .await?;
            let account = accounts.first().context("a connection has no account")?;
            connections.push((connection.id, account.provider_account_id.clone()));
        }
        if has_dead {
            add_dead_endpoints(&storage, receiver.address().port()).await?;
            hang(&description).await?;
        }
        let (service, _) = workdir.serve().await?;
        Ok(Self {
            folder,
            access,
            storage,
            tenant,
            endpoint,
            connections,
            has_dead,
            receiver,
            _service: service,
            _sandbox: sandbox,
        })
    }

    /// Milliseconds from the end of a sync to the end of its event's delivery, for each of `events`
    /// events.
    async fn measure(mut self, events: usize) -> anyhow::Result<Vec<f64>> {
        for (connection, _) in &self.connections {
            self.request_sync(*connection).await?;
        }
        let first = self.wait_for_deliveries(self.connections.len()).await?;
        if self.has_dead {
            tokio::time::sleep(WARM_UP).await;
        }
        self.sync_repeatedly(events).await?;
        let delivered = self.wait_for_deliveries(first + events).await?;
        ensure!(
            delivered == first + events,
            "{delivered} events instead of {}",
            first + events
        );
        if self.has_dead {
            ensure!(
                self.receiver.counts().await?.unanswered > 0,
                "the silent endpoints got no request"
            );
            let left = self.storage.deliveries().overview(Timestamp::now()).await?;
            ensure!(
                left.due > 0 && left.disabled == 0,
                "no delivery to a dead endpoint was due any more"
            );
        }
        let mut latencies = self.latencies().await?;
        latencies.drain(..latencies.len() - events);
        Ok(latencies)
    }

    /// Adds a row to a connection and syncs it, as soon as its sync before has ended.
    async fn sync_repeatedly(&self, events: usize) -> anyhow::Result<()> {
        let (started, mut requested) = (Instant::now(), 0);
        let mut synced_at = BTreeMap::new();
        while requested < events {
            for (connection, account) in &self.connections {
                let last = self
                    .storage
                    .syncs()
                    .find(self.tenant, *connection)
                    .await?
                    .and_then(|sync| sync.synced_at);
                if requested == events || synced_at.insert(*connection, last) == Some(last) {
                    continue;
                }
                let row =
                    json!({ "account_id": account, "description": format!("ROW {requested}") });
                client::text(
                    self.access.address,
                    &client::post("/__control/transactions", &row),
                )
                .await?;
                self.request_sync(*connection).await?;
                requested += 1;
            }
            ensure!(started.elapsed() < TIME_MAX, "the syncs did not end");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(())
    }

    async fn request_sync(&self, connection: ConnectionId) -> anyhow::Result<()> {
        let key = JobKey::new(job_kinds::SYNC, self.tenant, connection);
        let requested = self
            .storage
            .jobs()
            .request(&key, Timestamp::now(), SignedDuration::ZERO)
            .await?;
        ensure!(requested, "no sync was requested");
        Ok(())
    }

    /// Waits until the tenant's endpoint has received this many events, and returns how many.
    async fn wait_for_deliveries(&mut self, events: usize) -> anyhow::Result<usize> {
        let started = Instant::now();
        loop {
            let open = self
                .storage
                .deliveries()
                .list(self.tenant, self.endpoint, None, 10_000)
                .await?;
            let delivered = open
                .iter()
                .filter(|delivery| delivery.ended_at.is_some())
                .count();
            if delivered >= events && delivered == open.len() {
                return Ok(delivered);
            }
            ensure!(
                started.elapsed() < TIME_MAX,
                "the deliveries did not end: {delivered} of {events}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// In the order of the events. The end of a sync is the time of its line in the log.
    async fn latencies(&self) -> anyhow::Result<Vec<f64>> {
        let log = std::fs::read_to_string(self.folder.path().join("log"))?;
        let mut ends: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
        for line in log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            if line["message"] == "connection synced" && line["events"].as_u64() > Some(0) {
                let connection =
                    find(&line, "connection_id").context("a line of a sync names no connection")?;
                let at = line["timestamp"]
                    .as_str()
                    .context("a line has no time")?
                    .parse()?;
                ends.entry(connection.to_owned()).or_default().push(at);
            }
        }
        ends.values_mut().for_each(|ends| ends.reverse());
        let mut all = self
            .storage
            .deliveries()
            .list(self.tenant, self.endpoint, None, 10_000)
            .await?;
        all.reverse();
        let mut latencies = Vec::new();
        for delivery in all {
            let event = self
                .storage
                .webhook_events()
                .find(self.tenant, delivery.event_id)
                .await?;
            let connection = event
                .and_then(|event| event.connection_id)
                .context("an event without a connection")?;
            let ended = ends
                .get_mut(&connection.to_string())
                .and_then(Vec::pop)
                .context("an event without a sync")?;
            ensure!(
                delivery.attempts == 1,
                "an event needed {} attempts",
                delivery.attempts
            );
            let sent = delivery.last_attempt_at.context("an event was not sent")?;
            let answered = f64::from(delivery.last_duration_ms.unwrap_or(0));
            latencies.push(sent.duration_since(ended).as_secs_f64() * 1e3 + answered);
        }
        Ok(latencies)
    }
}

/// Finds a member with this name anywhere in a line of the log.
fn find<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    match value {
        Value::Object(members) => match members.get(name) {
            Some(Value::String(found)) => Some(found),
            _ => members.values().find_map(|value| find(value, name)),
        },
        Value::Array(items) => items.iter().find_map(|value| find(value, name)),
        _ => None,
    }
}

/// Makes a provider of the sandbox send no responses.
async fn hang(description: &Value) -> anyhow::Result<()> {
    let base = recording::text(&description[HANGING_PROVIDER]["baseUrl"])?;
    let address = base
        .trim_start_matches("http://")
        .split('/')
        .next()
        .unwrap_or_default()
        .parse()?;
    let fault = json!({ "kind": "delay", "delayMs": HANG_MS });
    client::text(address, &client::post("/__control/faults", &fault))
        .await
        .map(drop)
}

/// Adds users with dead endpoints, which have been failing for an hour and have due deliveries. A
/// third resolves to no address, a third has a closed port, a third accepts connections and never
/// responds.
async fn add_dead_endpoints(storage: &Storage, silent_port: u16) -> anyhow::Result<()> {
    let closed_port = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let mut number = 0;
    for user in 0..DEAD_USERS {
        let now = Timestamp::now();
        let email = format!("dead{user}@example.com");
        let new = NewUser {
            email: &email,
            plan: Plan::Professional,
            timezone: None,
            reference: None,
            console_sign_in: true,
        };
        let user = in_tx!(storage, user::insert(&new, now)).await?.id;
        for _ in 0..DEAD_ENDPOINTS {
            let url = match number % 3 {
                0 => format!("https://hooks-{number}.example.com/"),
                1 => format!("http://{closed_port}/"),
                _ => format!(
                    "http://{}:{silent_port}{}",
                    receiver::loopback_address(number),
                    receiver::SILENT
                ),
            };
            let (event_types, secret) = (&[EventType::TransactionsSynced], &new_secret());
            let new = NewEndpoint {
                user_id: user,
                url: &url,
                event_types,
                api_version: ApiVersion::DEFAULT,
                secret,
            };
            in_tx!(
                storage,
                endpoints::insert(storage.secrets(), &new, u32::MAX, now)
            )
            .await?;
            number += 1;
        }
        let consent = format!("consent of {email}");
        let new = bellbird_storage::NewConnection {
            provider: HANGING_PROVIDER,
            next_refresh_at: Some(now),
            ..new_connection(user, &consent)
        };
        let connection = storage.connections().import(&new, &[], now).await?.id;
        let (buffer, row) = (WebhookEventBuffer::default(), rows::rows(1)?);
        for _ in 0..DUE_EVENTS {
            // Without digests: these need no provider to be sent again.
            rows::sync(
                storage,
                &buffer,
                (user, connection),
                &row,
                &mut Fingerprints::default(),
                true,
            )
            .await?;
        }
        let key = JobKey::new(job_kinds::SYNC, user, connection);
        storage
            .jobs()
            .request(&key, now, SignedDuration::ZERO)
            .await?;
    }
    fail_for_an_hour(storage).await
}

async fn fail_for_an_hour(storage: &Storage) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let limit = u32::try_from(DEAD_USERS * DEAD_ENDPOINTS)?;
    for claim in storage
        .deliveries()
        .claim_endpoints(now, now + LEASE, limit, false)
        .await?
    {
        let due = storage
            .deliveries()
            .list_due(&claim, now, 1)
            .await?
            .pop()
            .context("nothing is due")?;
        for minutes_ago in [60, 30] {
            let at = now.minus(SignedDuration::from_mins(minutes_ago));
            storage
                .deliveries()
                .finish_attempts(&claim, &[failed_attempt(&due, at, now)], now)
                .await?;
        }
        release(storage, &claim, now).await?;
    }
    Ok(())
}

fn failed_attempt(due: &DueDelivery, at: Timestamp, now: Timestamp) -> FinishedAttempt {
    FinishedAttempt {
        event_id: due.event.id,
        sync_run_id: due.event.sync_run_id,
        chunk: due.event.chunk,
        total_chunks: due.event.total_chunks,
        attempt: 1,
        due_at: now,
        at,
        duration_ms: 0,
        status: None,
        error: Some("not reached"),
        exchange_failed: true,
        endpoint_at_fault: true,
        outcome: AttemptOutcome::Retry(now),
    }
}

async fn release(storage: &Storage, claim: &ClaimedEndpoint, now: Timestamp) -> anyhow::Result<()> {
    ensure!(
        storage.deliveries().release_endpoint(claim, now).await?,
        "lease lost"
    );
    Ok(())
}
