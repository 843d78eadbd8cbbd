//! Random sequences of syncs, deliveries and commands leave the same rows in both databases, and no orphans. Finishing
//! a sync and finishing attempts have a statement of their own on PostgreSQL.

use std::collections::BTreeMap;

use bellbird_domain::{ConnectionId, ConnectionStatus, EndpointId, EventId, EventType, SyncRunId, UserId};
use uuid::Uuid;

use crate::tests::fixtures::{connection_to_sync, digest, endpoint, fingerprint, finished_attempt, state_after};
use crate::tests::support::{TestDb, at, on_postgres, on_sqlite};
use crate::{
    AttemptOutcome, ClaimedEndpoint, ClaimedJob, FinishedAttempt, FinishedSync, JobKey, NewWebhookEvent, PingResult,
    job_kinds,
};

const SEEDS: u64 = 10;
const STEPS: i64 = 60;

/// All columns that do not hold a random value.
const TABLES: [(&str, &[&str]); 8] = [
    ("connections", &["id", "status"]),
    ("syncs", &["connection_id", "synced_at", "covered_from", "sequence"]),
    ("jobs", &["kind", "subject", "run_at", "started_at", "lease_until", "attempts", "last_error"]),
    ("fingerprints", &["connection_id", "LENGTH(entries)"]),
    (
        "webhook_endpoints",
        &[
            "id",
            "event_types",
            "status",
            "disabled_reason",
            "failing_since",
            "unhealthy_since",
            "is_failing",
            "delivered_at",
            "due_at",
            "lease_until",
            "fence",
        ],
    ),
    (
        "webhook_events",
        &[
            "id",
            "connection_id",
            "sync_run_id",
            "event_type",
            "created_at",
            "date_range_from",
            "date_range_to",
            "LENGTH(row_digests)",
            "new_count",
            "updated_count",
            "chunk",
            "total_chunks",
            "LENGTH(row_hint)",
            "connection_status",
            "previous_status",
            "provider",
            "institution_name",
            "last_refreshed_at",
        ],
    ),
    (
        "webhook_deliveries",
        &[
            "endpoint_id",
            "event_id",
            "sync_run_id",
            "chunk",
            "created_at",
            "state",
            "attempts",
            "next_attempt_at",
            "ended_at",
            "last_status",
            "last_error",
            "last_duration_ms",
            "last_attempt_at",
        ],
    ),
    ("webhook_attempts", &["endpoint_id", "event_id", "attempt", "attempted_at", "duration_ms", "status", "error"]),
];

const ORPHANS: [&str; 4] = [
    "SELECT e.id FROM webhook_events e WHERE e.connection_id IS NOT NULL AND NOT EXISTS
        (SELECT 1 FROM connections c WHERE c.user_id = e.user_id AND c.id = e.connection_id)",
    "SELECT d.event_id FROM webhook_deliveries d WHERE NOT EXISTS
        (SELECT 1 FROM webhook_events e WHERE e.user_id = d.user_id AND e.id = d.event_id)",
    "SELECT d.event_id FROM webhook_deliveries d WHERE NOT EXISTS
        (SELECT 1 FROM webhook_endpoints e WHERE e.user_id = d.user_id AND e.id = d.endpoint_id)",
    "SELECT a.event_id FROM webhook_attempts a WHERE NOT EXISTS (SELECT 1 FROM webhook_deliveries d
        WHERE d.user_id = a.user_id AND d.endpoint_id = a.endpoint_id AND d.event_id = a.event_id)",
];

struct Random(u64);

impl Random {
    /// A number from 0 to `end - 1`.
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }

    fn one_of<'a, T>(&mut self, values: &'a [T]) -> Option<&'a T> {
        values.get(usize::try_from(self.below(values.len().max(1) as u64)).unwrap())
    }

    /// Mostly the newest.
    fn claim<'a, T>(&mut self, values: &'a [T]) -> Option<&'a T> {
        if self.below(4) == 0 { self.one_of(values) } else { values.last() }
    }
}

struct Play<'a> {
    db: &'a TestDb,
    random: Random,
    user: UserId,
    connections: Vec<ConnectionId>,
    endpoints: Vec<EndpointId>,
    events: Vec<EventId>,
    /// Claims, stale ones too, in the order in which the endpoints were made.
    claims: Vec<ClaimedEndpoint>,
    syncs: Vec<ClaimedJob>,
    /// Random ids of this database, with names that both databases share.
    names: BTreeMap<String, String>,
    ids: u128,
}

impl Play<'_> {
    fn id(&mut self) -> Uuid {
        self.ids += 1;
        Uuid::from_u128(self.ids)
    }

    async fn add_endpoint(&mut self) {
        let event_types = if self.random.below(4) == 0 { &[EventType::TradesSynced] } else { EventType::SUBSCRIBABLE };
        let id = endpoint(self.db, self.user, event_types).await;
        self.names.insert(id.to_string(), format!("endpoint {}", self.endpoints.len()));
        self.endpoints.push(id);
    }

    /// Runs one random operation and returns its result.
    async fn step(&mut self, now: i64) -> String {
        let db = self.db;
        let endpoint = *self.random.one_of(&self.endpoints).unwrap();
        let event = self.random.one_of(&self.events).copied().unwrap_or_else(EventId::new);
        match self.random.below(17) {
            0 | 1 => {
                let key = JobKey::new(job_kinds::SYNC, self.user, *self.random.one_of(&self.connections).unwrap());
                let claim = db.jobs().claim(&key, at(now), at(now + 9)).await.unwrap();
                let found = claim.is_some();
                self.syncs.extend(claim);
                format!("claim sync: {found}")
            }
            2..=4 => self.finish_sync(now).await,
            5 | 6 => {
                let failing = self.random.below(2) == 0;
                let mut claims = db.deliveries().claim_endpoints(at(now), at(now + 9), 99, failing).await.unwrap();
                claims.sort_by_key(|claim| self.endpoints.iter().position(|id| *id == claim.endpoint_id));
                let found = format!("claim: {:?}", claims.iter().map(|claim| &claim.failing_since).collect::<Vec<_>>());
                self.claims.extend(claims);
                found
            }
            7..=9 => self.finish_attempts(now).await,
            10 => {
                let Some(claim) = self.random.one_of(&self.claims) else { return String::new() };
                format!("release: {}", db.deliveries().release_endpoint(claim, at(now)).await.unwrap())
            }
            11 => {
                format!("redeliver: {}", db.deliveries().redeliver(self.user, endpoint, event, at(now)).await.unwrap())
            }
            12 => {
                // Deliveries to a disabled endpoint have failed.
                db.endpoints().enable(self.user, endpoint).await.unwrap();
                format!(
                    "recover: {}",
                    db.deliveries().recover(self.user, endpoint, at(now - 30), at(now)).await.unwrap()
                )
            }
            13 => match self.random.below(4) {
                0 => format!("disable: {:?}", db.endpoints().disable(self.user, endpoint, "x", at(now)).await.unwrap()),
                1 => match self.random.claim(&self.claims) {
                    Some(claim) => {
                        format!("disable: {}", db.deliveries().disable_endpoint(claim, "x", at(now)).await.unwrap())
                    }
                    None => String::new(),
                },
                _ => format!("enable: {}", db.endpoints().enable(self.user, endpoint).await.unwrap()),
            },
            14 => match self.random.below(6) {
                0 => format!("cleanup: {}", db.webhook_events().delete_outdated(at(now - 40), 3).await.unwrap()),
                1 | 2 => {
                    let deleted = db.endpoints().delete(self.user, endpoint).await.unwrap();
                    self.add_endpoint().await;
                    format!("delete: {deleted}")
                }
                3 => {
                    let connection = *self.random.one_of(&self.connections).unwrap();
                    format!("remove: {}", db.remove(self.user, connection, at(now)).await)
                }
                _ => String::new(),
            },
            15 => self.change_status(now).await,
            _ => {
                let delivered = self.random.below(2) == 0;
                let result = PingResult { at: at(now), duration_ms: 7, status: Some(200), error: None, delivered };
                let (event, run) = (EventId::from(self.id()), SyncRunId::from(self.id()));
                self.events.push(event);
                format!(
                    "ping: {}",
                    db.deliveries().insert_ping(self.user, endpoint, event, run, &result).await.unwrap()
                )
            }
        }
    }

    async fn change_status(&mut self, now: i64) -> String {
        let connection = *self.random.one_of(&self.connections).unwrap();
        let Some(found) = self.db.connections().find(self.user, connection).await.unwrap() else {
            return String::new();
        };
        let (from, to) = match found.status {
            ConnectionStatus::Active => (ConnectionStatus::Active, ConnectionStatus::Revoked),
            other => (other, ConnectionStatus::Active),
        };
        let changed = self.db.set_status((self.user, connection), from, to, at(now)).await;
        // The storage makes the id, so it differs between the databases.
        for id in self.db.texts("SELECT id FROM webhook_events WHERE event_type = 'connection.updated'").await {
            let event: Uuid = id.parse().unwrap();
            if !self.events.contains(&EventId::from(event)) {
                self.names.insert(id, format!("status event {}", self.events.len()));
                self.events.push(EventId::from(event));
            }
        }
        format!("{from} to {to}: {changed}")
    }

    async fn finish_sync(&mut self, now: i64) -> String {
        let Some(claim) = self.random.claim(&self.syncs).cloned() else { return String::new() };
        let total_chunks = u32::try_from(self.random.below(4)).unwrap();
        let rows = [digest(1), digest(2)];
        let events: Vec<NewWebhookEvent<'_>> = (1..=total_chunks)
            .map(|chunk| {
                let id = EventId::from(self.id());
                NewWebhookEvent { id, rows: &rows, new_count: 1, updated_count: 1, chunk, total_chunks, hint: &[7] }
            })
            .collect();
        let fingerprints = [fingerprint(1, 0, 1), fingerprint(2, 0, 1)];
        let after = crate::SyncState { next_at: Some(at(now + 5)), ..state_after(now) };
        let finished = FinishedSync {
            run: SyncRunId::from(self.id()),
            started_at: at(now),
            date_range: (at(now - 500), at(now)),
            before: &after,
            after: &after,
            fingerprints: self.random.below(2).eq(&0).then_some(&fingerprints[self.random.below(3) as usize..]),
            first_attempt_at: at(now + i64::from(total_chunks == 1)),
            event_type: if self.random.below(3) == 0 { EventType::TradesSynced } else { EventType::TransactionsSynced },
            events: &events,
        };
        let written = self.db.syncs().finish(&claim, &finished).await.unwrap();
        self.events.extend(events.iter().map(|event| event.id));
        format!("finish sync: {written:?}")
    }

    async fn finish_attempts(&mut self, now: i64) -> String {
        let Some(claim) = self.random.claim(&self.claims).cloned() else { return String::new() };
        let due = self.db.deliveries().list_due(&claim, at(now), 99).await.unwrap();
        let mut attempts = Vec::new();
        for due in &due {
            let outcome = match self.random.below(5) {
                0 => AttemptOutcome::Retry(at(now + 3)),
                1 => AttemptOutcome::Failed,
                2 => continue,
                _ => AttemptOutcome::Delivered,
            };
            let WebhookEventParts { id, chunk, total_chunks, run } = WebhookEventParts::of(due);
            let new = NewWebhookEvent { id, rows: &[], new_count: 1, updated_count: 0, chunk, total_chunks, hint: &[] };
            let finished = finished_attempt(&new, run, now, outcome);
            attempts.push(FinishedAttempt { attempt: due.attempts + 1, ..finished });
        }
        let finished = self.db.deliveries().finish_attempts(&claim, &attempts, at(now)).await.unwrap();
        let twice = self.db.deliveries().finish_attempts(&claim, &attempts, at(now)).await.unwrap();
        format!("finish attempts: {} of {}: {finished} {twice}", attempts.len(), due.len())
    }

    /// All rows, and no orphans.
    async fn state(&self) -> String {
        let tables = TABLES.map(|(table, columns)| {
            let columns: Vec<_> = columns.iter().map(|name| format!("COALESCE(CAST({name} AS TEXT), '')")).collect();
            format!("SELECT '{table}|' || {} FROM {table}", columns.join(" || '|' || "))
        });
        let orphans = ORPHANS.map(|orphans| orphans.replacen("SELECT ", "SELECT 'orphan|' || ", 1));
        let all = [tables.as_slice(), orphans.as_slice()].concat().join(" UNION ALL ");
        let named = |row: String| self.names.iter().fold(row, |row, (id, name)| row.replace(id, name));
        let mut rows: Vec<String> = self.db.texts(&all).await.into_iter().map(named).collect();
        rows.sort_unstable();
        assert!(!rows.iter().any(|row| row.starts_with("orphan")), "{rows:#?}");
        rows.join("\n")
    }
}

struct WebhookEventParts {
    id: EventId,
    chunk: u32,
    total_chunks: u32,
    run: SyncRunId,
}

impl WebhookEventParts {
    fn of(due: &crate::DueDelivery) -> Self {
        let event = &due.event;
        Self { id: event.id, chunk: event.chunk, total_chunks: event.total_chunks, run: event.sync_run_id }
    }
}

/// Plays a sequence, and returns what each step returned and left.
async fn play(db: &TestDb, seed: u64) -> Vec<(String, String)> {
    let user = db.user(&format!("{seed}@x")).await.id;
    let mut play = Play {
        db,
        random: Random(seed),
        user,
        connections: Vec::new(),
        endpoints: Vec::new(),
        events: Vec::new(),
        claims: Vec::new(),
        syncs: Vec::new(),
        names: BTreeMap::new(),
        ids: u128::from(seed) << 64,
    };
    for number in 0..3 {
        let id = connection_to_sync(db, user, &format!("{seed} {number}"), 0).await;
        play.names.insert(id.to_string(), format!("connection {number}"));
        play.connections.push(id);
        play.add_endpoint().await;
    }
    let mut steps = Vec::new();
    for now in 0..STEPS {
        steps.push((play.step(now).await, play.state().await));
    }
    db.raw(
        "DELETE FROM webhook_attempts; DELETE FROM webhook_deliveries; DELETE FROM webhook_events;
        DELETE FROM webhook_endpoints; DELETE FROM jobs; DELETE FROM connections",
    )
    .await;
    steps
}

#[test]
fn postgres_and_sqlite_have_the_same_rows() {
    let (mut sqlite, mut postgres) = (Vec::new(), Vec::new());
    on_sqlite(async |db| {
        for seed in 0..SEEDS {
            sqlite.push(play(db, seed).await);
        }
    });
    on_postgres(async |db| {
        for seed in 0..SEEDS {
            postgres.push(play(db, seed).await);
        }
    });
    let all: Vec<&str> = sqlite.iter().flatten().map(|(result, _)| result.as_str()).collect();
    let status_changed = "active to revoked: true";
    for result in ["finish sync: Some(3)", "finish sync: None", "redeliver: true", "disable: true", status_changed] {
        assert!(all.contains(&result), "no step had the result {result}: {all:?}");
    }
    let has_recovered = |result: &&str| result.starts_with("recover: ") && *result != "recover: 0";
    assert!(all.iter().any(has_recovered), "no step recovered a delivery: {all:?}");
    for (seed, (sqlite, postgres)) in sqlite.iter().zip(&postgres).enumerate() {
        for (step, (sqlite, postgres)) in sqlite.iter().zip(postgres).enumerate() {
            assert_eq!(sqlite, postgres, "seed {seed}, step {step}");
        }
    }
}
