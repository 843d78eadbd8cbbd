//! Several instances of the service over one database, in one thread. The syncs, the deliveries and
//! their statements are those of the service; the providers, the endpoints, the clocks and the time
//! are simulated. A seed decides which step comes next and which fails, who is killed or stands
//! still, and which commit succeeds without its caller hearing of it.

mod audit;
mod instance;
mod provider;
mod receiver;
mod scene;

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::UserId;
use bellbird_domain::lab::Outcome;
use bellbird_domain::random::simulation;
use bellbird_domain::{
    AccountType, ApiVersion, ConnectionCategory, EventId, EventType, Plan, TimestampExt as _,
};
use bellbird_storage::{
    JobKey, NewAccount, NewConnection, NewEndpoint, NewUser, Sealer, Storage, StorageError, in_tx,
    job_kinds,
};
use bellbird_webhooks::delivery::sign::{Signer, new_secret};
use bellbird_webhooks::event::digest::RowHasher;
use jiff::{SignedDuration, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use instance::{Running, SKEW_MAX};
use provider::{BANK, BROKER, Consented, HeldRow};
use receiver::{Connected, EndpointModel};
use scene::{Condition, Process, Scene};

use crate::tests::lab::faults::Fault;

const INSTANCES: usize = 3;
/// The user and the provider of each connection at the start.
const CONNECTIONS: [(usize, &str); 3] = [(0, BANK), (0, BROKER), (1, BANK)];
/// How many connections are removed at most. Another one of the same user takes the place of each.
const REMOVALS_MAX: usize = 2;
/// The endpoint that its user disables and enables.
const UNSTEADY: usize = 1;
/// The time at which a world begins, in seconds.
const BEGIN: i64 = 1_800_000_000;
/// Steps in which anything may fail.
const ROUGH_STEPS: u64 = 500;
/// How long everything may take to be delivered once nothing fails any more.
const SETTLE_MAX: Duration = Duration::from_secs(1_800);

std::thread_local!(static BEGAN: Cell<Option<Instant>> = const { Cell::new(None) });

/// Microseconds of simulated time.
fn elapsed() -> i64 {
    BEGAN.get().map_or(0, |began| {
        i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX)
    })
}

/// A directory in memory, if there is one.
fn directory() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() {
        TempDir::new_in(memory)
    } else {
        TempDir::new()
    }
    .expect("a directory")
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime")
}

fn url(directory: &TempDir) -> String {
    format!("sqlite:{}", directory.path().join("world.db").display())
}

/// A migrated database, of which each world gets a copy.
pub(super) fn template() -> TempDir {
    let directory = directory();
    runtime().block_on(async {
        let storage = Storage::open(&url(&directory), Sealer::random())
            .await
            .expect("opens");
        storage.migrate().await.expect("migrates");
        storage.close().await;
    });
    directory
}

pub(super) fn run(
    template: &TempDir,
    seed: u64,
    fault: Option<Fault>,
    keeps_trace: bool,
) -> Outcome {
    let directory = directory();
    std::fs::copy(
        template.path().join("world.db"),
        directory.path().join("world.db"),
    )
    .expect("copies");
    let outcome = runtime().block_on(async {
        BEGAN.set(Some(Instant::now()));
        simulation::begin(seed, elapsed);
        let mut world = World::new(&directory, Scene::new(seed, fault, keeps_trace)).await;
        world.live_roughly().await;
        world.settle().await;
        let state = world.scene.state.lock();
        Outcome {
            steps: state.steps,
            trace: state.trace(),
            broken: state.broken.clone(),
        }
    });
    simulation::end();
    BEGAN.set(None);
    outcome
}

struct World {
    scene: Scene,
    database: Storage,
    /// By the place of the instance. None: it is not running.
    running: [Option<Running>; INSTANCES],
    /// When each instance that is not running starts again.
    starts_at: [Instant; INSTANCES],
    processes: u64,
    /// The database as other programs reach it, whose steps never fail.
    outside: Storage,
    tasks: JoinSet<()>,
    turn: Arc<tokio::sync::Mutex<()>>,
    /// When the endpoint that is disabled is enabled again.
    enables_at: Option<Instant>,
}

/// So long before the world begins that a sync does not read everything again.
fn linked_at() -> Timestamp {
    Timestamp::from_second(BEGIN - 2 * 86_400).expect("a time")
}

/// Links a connection, under the next number.
async fn link(scene: &Scene, database: &Storage, user: UserId, provider: &'static str) {
    let (number, now) = {
        let mut state = scene.state.lock();
        state.consented.push(Consented::new());
        state.connected.push(Connected {
            user,
            provider,
            id: None,
            removed_at: None,
        });
        (state.connected.len() - 1, state.time_of(BEGIN * 1_000_000))
    };
    let (category, account_type) = match provider {
        BROKER => (ConnectionCategory::Brokerage, AccountType::Investment),
        _ => (ConnectionCategory::Banking, AccountType::Transaction),
    };
    let names = provider::accounts(number);
    let accounts = names.each_ref().map(|name| NewAccount {
        provider_account_id: name,
        name,
        account_type,
        number: None,
        currency: None,
        known_as: None,
    });
    let consent = format!("consent-{number}");
    let new = NewConnection {
        user_id: user,
        provider,
        category,
        provider_connection_id: &consent,
        institution_id: "institution",
        institution_name: "Institution",
        institution_logo: None,
        credentials: &SecretString::from(number.to_string()),
        provider_user_id: None,
        consent_expires_at: None,
        repairs: None,
        next_refresh_at: None,
        backfill_ends_at: None,
        next_sync_at: now,
        first_attempt_at: now,
        cause: "imported",
    };
    let id = database
        .connections()
        .import(&new, &accounts, linked_at())
        .await
        .expect("a write")
        .id;
    scene.state.lock().connected[number].id = Some(id);
}

impl World {
    async fn new(directory: &TempDir, scene: Scene) -> Self {
        let database = Storage::open(&url(directory), Sealer::random())
            .await
            .expect("opens");
        let now = Timestamp::from_second(BEGIN).expect("a time");
        let mut users = Vec::new();
        for email in ["one@example.com", "two@example.com"] {
            let new = NewUser {
                email,
                plan: Plan::Professional,
                timezone: None,
                reference: None,
                console_sign_in: true,
            };
            users.push(
                in_tx!(database, user::insert(&new, linked_at()))
                    .await
                    .expect("a user")
                    .id,
            );
        }
        for (user, provider) in CONNECTIONS {
            link(&scene, &database, users[user], provider).await;
        }
        let owners = [
            (users[0], ApiVersion::V2026_11_01),
            (users[0], ApiVersion::V2026_12_01),
        ];
        let others = [
            (users[1], ApiVersion::V2026_12_01),
            (UserId::INSTALLATION, ApiVersion::V2026_12_01),
        ];
        for (number, (user_id, api_version)) in owners.into_iter().chain(others).enumerate() {
            let (secret, url) = (new_secret(), format!("https://hooks.example.com/{number}"));
            let event_types = EventType::SUBSCRIBABLE;
            let new = NewEndpoint {
                user_id,
                url: &url,
                event_types,
                api_version,
                secret: &secret,
            };
            let id = in_tx!(
                database,
                endpoints::insert(database.secrets(), &new, 9, now)
            )
            .await
            .expect("an endpoint")
            .id;
            let signer = Signer::new(&[&secret]).expect("a signer");
            let user = (user_id != UserId::INSTALLATION).then_some(user_id);
            scene
                .state
                .lock()
                .endpoints
                .push(EndpointModel::new(id, user, signer));
        }
        scene.state.lock().claims = database.claims().expect("a read");
        let outside = instance::outside(&scene, &database);
        let (tasks, turn) = (JoinSet::new(), Arc::default());
        let (running, starts_at) = ([const { None }; INSTANCES], [Instant::now(); INSTANCES]);
        Self {
            scene,
            database,
            running,
            starts_at,
            processes: 0,
            outside,
            tasks,
            turn,
            enables_at: None,
        }
    }

    /// Lets the seed decide what happens.
    async fn live_roughly(&mut self) {
        while !self.is_over(ROUGH_STEPS) {
            self.start_due();
            if self.enables_at.is_some_and(|at| at <= Instant::now()) {
                self.enable(false);
            }
            self.change_something();
            self.advance(50, 30_000).await;
        }
    }

    fn is_over(&self, steps: u64) -> bool {
        let state = self.scene.state.lock();
        state.broken.is_some() || state.steps >= steps
    }

    /// Gives leave to a step, or lets time pass: up to `most` milliseconds if nothing waits.
    async fn advance(&mut self, waits_per_mille: u64, most: u64) {
        // Time passes only when everybody waits.
        tokio::time::sleep(Duration::from_millis(1)).await;
        let pause = {
            let mut state = self.scene.state.lock();
            let waits = state.has_gates() && !state.chance.per_mille(waits_per_mille);
            if waits && state.pass_one() {
                return;
            }
            let most = if state.has_gates() { 1_000 } else { most };
            state.chance.millis(most)
        };
        let _ = tokio::time::timeout(pause, self.scene.arrived.notified()).await;
    }

    fn start_due(&mut self) {
        for place in 0..INSTANCES {
            if self.running[place].is_none() && self.starts_at[place] <= Instant::now() {
                self.start(place);
            }
        }
    }

    fn start(&mut self, place: usize) {
        self.processes += 1;
        let (process, clock) = {
            let mut state = self.scene.state.lock();
            let id = Uuid::from_u64_pair(state.chance.number(), state.chance.number());
            let process = Process {
                place,
                number: self.processes,
                id,
            };
            let half = SKEW_MAX.as_micros() as i64 / 2;
            let clock = BEGIN * 1_000_000 + state.chance.below(half as u64 * 2) as i64 - half;
            let (stands_still_until, is_late_until) = (Instant::now(), Instant::now());
            state.living.push(Condition {
                process,
                clock,
                stands_still_until,
                is_late_until,
            });
            state.note(|| format!("{place}.{} starts", process.number));
            (process, Timestamp::from_microsecond(clock).expect("a time"))
        };
        self.running[place] = Some(instance::start(&self.scene, process, &self.database, clock));
    }

    fn kill(&mut self, place: usize) {
        let Some(killed) = self.running[place].take() else {
            return;
        };
        let mut state = self.scene.state.lock();
        state.note(|| format!("{place}.{} is killed", killed.process.number));
        state.forget(killed.process);
        let pause = state.chance.millis(40_000);
        self.starts_at[place] = Instant::now() + pause;
    }

    fn change_something(&mut self) {
        let (dice, place, connection, endpoint) = {
            let mut state = self.scene.state.lock();
            let connections = state.connected.len() as u64;
            let chance = &mut state.chance;
            let connection = chance.below(connections) as usize;
            (
                chance.below(1_000),
                chance.below(INSTANCES as u64) as usize,
                connection,
                chance.below(4) as usize,
            )
        };
        match dice {
            0..4 => self.kill(place),
            4..8 => self.stand_still(place),
            8..40 => self.change_rows(connection),
            40..55 => self.request(job_kinds::SYNC, connection),
            55..60 => {
                let mut state = self.scene.state.lock();
                let pause = state.chance.millis(90_000);
                state.endpoints[endpoint].is_down_until = Instant::now() + pause;
                state.note(|| format!("endpoint {endpoint} is down for {} ms", pause.as_millis()));
            }
            60..68 => self.break_consent(connection),
            68..80 => self.redeliver(endpoint),
            80..82 if self.enables_at.is_none() => self.disable(),
            82 => self.remove(connection),
            _ => {}
        }
    }

    fn stand_still(&self, place: usize) {
        let Some(running) = &self.running[place] else {
            return;
        };
        let mut state = self.scene.state.lock();
        let pause = Duration::from_secs(5) + state.chance.millis(150_000);
        let until = Instant::now() + pause;
        state.note(|| {
            format!(
                "{place}.{} stands still for {} ms",
                running.process.number,
                pause.as_millis()
            )
        });
        if let Some(condition) = state.condition(running.process) {
            (condition.stands_still_until, condition.is_late_until) = (until, until + audit::LATE);
        }
    }

    fn change_rows(&mut self, connection: usize) {
        let gone = {
            let mut state = self.scene.state.lock();
            let state = &mut *state;
            let (now, of) = (BEGIN + elapsed() / 1_000_000, &state.connected[connection]);
            let held = &mut state.consented[connection];
            if of.is_removed() {
                return;
            }
            let at = state.chance.below(held.rows.len() as u64) as usize;
            let mut gone = None;
            let what = match state.chance.below(10) {
                0..5 => (0..1 + state.chance.below(5))
                    .map(|_| held.post(connection, now, &mut state.chance))
                    .collect(),
                5..8 if !held.rows.is_empty() => {
                    held.rows[at].version += 1;
                    format!(
                        "row {} changes",
                        provider::row_id(connection, held.rows[at].number)
                    )
                }
                // Brokers send no events of rows that are gone, and it takes days to notice.
                8 if !held.rows.is_empty() && of.provider != BROKER => {
                    let row = held.rows.remove(at);
                    held.gone.push(row.clone());
                    let what = format!("row {} goes", provider::row_id(connection, row.number));
                    gone = Some(row);
                    what
                }
                9 if !held.rows.is_empty() => {
                    let pause = state.chance.millis(60_000);
                    held.rows[at].is_hidden_until = Instant::now() + pause;
                    format!(
                        "row {} is hidden for {} ms",
                        provider::row_id(connection, held.rows[at].number),
                        pause.as_millis()
                    )
                }
                _ => return,
            };
            state.note(|| format!("provider: {what}"));
            gone
        };
        if let Some(row) = gone {
            self.say_gone(connection, row);
        }
    }

    /// The provider says in an event that a row is gone.
    fn say_gone(&mut self, connection: usize, row: HeldRow) {
        let scene = self.scene.clone();
        self.run_outside(move |database| async move {
            let Some((user, id)) = scene.state.lock().connected[connection].key() else {
                return;
            };
            let accounts = database
                .accounts()
                .list_of_connection(user, id)
                .await
                .expect("a read");
            let account = accounts
                .iter()
                .find(|account| account.provider_account_id == row.account);
            let key = database
                .syncs()
                .fingerprint_key(user, id)
                .await
                .expect("a read");
            let (account, key) = account.zip(key).expect("a connection that is not removed");
            let hasher = RowHasher::new(key.expose_secret().as_bytes());
            // A sync may know it by an earlier id only.
            let digests: Vec<_> = row
                .ids(connection)
                .map(|row| hasher.transaction_id(account.id, &row))
                .collect();
            database
                .syncs()
                .add_removal_hints(user, id, &digests)
                .await
                .expect("a write");
        });
        self.request(job_kinds::SYNC, connection);
    }

    /// Requests a job of a connection.
    fn request(&mut self, kind: &'static str, connection: usize) {
        let scene = self.scene.clone();
        self.run_outside(move |database| async move {
            let Some((user, id)) = scene.state.lock().connected[connection].key() else {
                return;
            };
            let (key, now) = (JobKey::new(kind, user, id), scene.now());
            database
                .jobs()
                .request(&key, now, SignedDuration::ZERO)
                .await
                .expect("a write");
        });
    }

    /// The consent stops working until its user repairs it, of which the provider tells at once or
    /// not at all. A bank may give each row another id with it.
    fn break_consent(&mut self, connection: usize) {
        let is_told = {
            let mut state = self.scene.state.lock();
            // Longer than the time between two pages, so that no read has rows under both ids.
            let pause = Duration::from_secs(10) + state.chance.millis(80_000);
            state.consented[connection].is_broken_until = Instant::now() + pause;
            if state.connected[connection].provider == BANK && state.chance.per_mille(500) {
                state.consented[connection]
                    .rows
                    .iter_mut()
                    .for_each(|row| row.renewals += 1);
                state.note(|| format!("consent {connection} gives its rows other ids"));
            }
            state.note(|| {
                format!(
                    "consent {connection} does not work for {} ms",
                    pause.as_millis()
                )
            });
            state.chance.per_mille(500)
        };
        if is_told {
            self.request(job_kinds::REFRESH, connection);
        }
    }

    /// The user removes a connection, and links another one.
    fn remove(&mut self, connection: usize) {
        let scene = self.scene.clone();
        self.run_outside(move |database| async move {
            let key = {
                let state = scene.state.lock();
                let is_one_more = state.connected.len() < CONNECTIONS.len() + REMOVALS_MAX;
                state.connected[connection].key().filter(|_| is_one_more)
            };
            let Some((user, id)) = key else { return };
            database
                .removals()
                .begin_because("removed", user, id, scene.now(), None)
                .await
                .expect("a write");
            let provider = {
                let removed = &mut scene.state.lock().connected[connection];
                removed.removed_at = Some(Instant::now());
                removed.provider
            };
            link(&scene, &database, user, provider).await;
        });
    }

    /// The user of an endpoint wants an event again that it has taken.
    fn redeliver(&mut self, endpoint: usize) {
        let scene = self.scene.clone();
        self.run_outside(move |database| async move {
            let (id, user, event) = {
                let mut state = scene.state.lock();
                let state = &mut *state;
                let events = &state.endpoints[endpoint].events;
                // One that it has just taken may still be on its way.
                let among = if state.chance.per_mille(500) {
                    3
                } else {
                    events.len()
                };
                let at = state.chance.below(among as u64) as usize;
                let Some((event, connection)) = events.iter().nth_back(at) else {
                    return;
                };
                let (event, user) = (*event, state.connected[*connection].user);
                state.redelivered = Some((endpoint, event));
                (state.endpoints[endpoint].id, user, event)
            };
            let redelivered = in_tx!(
                database,
                redeliveries::redeliver((user, id), event, scene.now())
            )
            .await;
            let is_due = match redelivered {
                Err(StorageError::NotFound(_)) => false,
                other => other.map(|()| true).expect("a write"),
            };
            let mut state = scene.state.lock();
            state.redelivered = None;
            state.note(|| format!("endpoint {endpoint} gets {event} again: {is_due}"));
        });
    }

    fn disable(&mut self) {
        let pause = self.scene.state.lock().chance.millis(120_000);
        self.enables_at = Some(Instant::now() + pause);
        let scene = self.scene.clone();
        self.run_outside(move |database| async move {
            let (user, id) = scene.state.lock().endpoints[UNSTEADY].key();
            in_tx!(
                database,
                endpoints::disable((user, id), "test", scene.now())
            )
            .await
            .expect("a write");
            let mut state = scene.state.lock();
            state.endpoints[UNSTEADY].disabled_at = Some(Instant::now());
            state.note(|| format!("endpoint {UNSTEADY} is disabled"));
        });
    }

    /// The user enables the endpoint, and sends what failed meanwhile, now or later.
    fn enable(&mut self, recovers: bool) {
        self.enables_at = None;
        let scene = self.scene.clone();
        self.run_outside(move |database| async move {
            let (user, id) = {
                let mut state = scene.state.lock();
                state.endpoints[UNSTEADY].disabled_at = None;
                state.endpoints[UNSTEADY].key()
            };
            in_tx!(database, endpoints::enable((user, id), scene.now()))
                .await
                .expect("a write");
            if recovers || scene.state.lock().chance.per_mille(500) {
                let count = in_tx!(
                    database,
                    redeliveries::recover((user, id), linked_at(), scene.now())
                )
                .await
                .expect("a write");
                scene
                    .state
                    .lock()
                    .note(|| format!("endpoint {UNSTEADY} gets {count:?} events that failed"));
            }
        });
    }

    /// Runs what another program than the instances does, one at a time.
    fn run_outside<F: Future<Output = ()> + Send + 'static>(
        &mut self,
        work: impl FnOnce(Storage) -> F,
    ) {
        let (work, turn) = (work(self.outside.clone()), Arc::clone(&self.turn));
        self.tasks.spawn(async move {
            let _turn = turn.lock().await;
            work.await;
        });
    }

    /// What is asked again while nothing fails: a provider repeats what was lost.
    fn ask_again(&mut self) {
        self.enable(true);
        let connections = self.scene.state.lock().connected.len();
        for connection in 0..connections {
            let gone = self.scene.state.lock().consented[connection].gone.clone();
            for row in gone {
                self.say_gone(connection, row);
            }
            self.request(job_kinds::SYNC, connection);
        }
    }

    /// Nothing fails any more. In the end, every endpoint must have taken every row, and nothing
    /// may be left to do.
    async fn settle(&mut self) {
        {
            let mut state = self.scene.state.lock();
            state.is_rough = false;
            state.note(|| "nothing fails any more".to_owned());
            let now = Instant::now();
            for living in &mut state.living {
                living.stands_still_until = now;
            }
            for endpoint in &mut state.endpoints {
                endpoint.is_down_until = now;
            }
            for consented in &mut state.consented {
                consented.is_broken_until = now;
                consented
                    .rows
                    .iter_mut()
                    .for_each(|row| row.is_hidden_until = now);
            }
        }
        self.starts_at = [Instant::now(); INSTANCES];
        self.start_due();
        let (ends_at, mut next_look, mut asks_at) =
            (Instant::now() + SETTLE_MAX, Instant::now(), Instant::now());
        while self.scene.state.lock().broken.is_none() {
            if asks_at <= Instant::now() {
                self.ask_again();
                asks_at += Duration::from_secs(120);
            }
            if next_look <= Instant::now() {
                while self.tasks.try_join_next().is_some() {}
                match self.find_missing() {
                    None => return,
                    Some(missing) if Instant::now() >= ends_at => {
                        self.scene.state.lock().break_invariant(missing);
                    }
                    Some(_) => next_look = Instant::now() + Duration::from_secs(5),
                }
            }
            self.advance(20, 5_000).await;
        }
    }

    /// What is still to be done or to be delivered.
    fn find_missing(&self) -> Option<String> {
        let claims = self.database.claims().expect("a read");
        let state = self.scene.state.lock();
        let now = state.time_of(BEGIN * 1_000_000);
        let late = now.minus(Duration::from_secs(60));
        for claim in &claims {
            let is_stuck = match claim.lease_until {
                None => claim.run_at.is_some_and(|at| at < late),
                Some(until) => until < late,
            };
            if claim.open > 0 || is_stuck {
                return Some(format!(
                    "{} {} is stuck: {claim:?}",
                    claim.kind, claim.subject
                ));
            }
        }
        for (number, endpoint) in state.endpoints.iter().enumerate() {
            for (connection, of) in state.connected.iter().enumerate() {
                let missing = match () {
                    () if endpoint.user.is_some_and(|own| own != of.user) => None,
                    () if of.is_removed() => (!endpoint.removals.contains(&connection))
                        .then(|| "not heard of the removal".to_owned()),
                    () => endpoint.find_missing(connection, &state.consented[connection]),
                };
                if let Some(missing) = missing {
                    return Some(format!(
                        "endpoint {number}, connection {connection}: {missing}"
                    ));
                }
            }
            let is_wanted =
                |event: &&EventId| !state.connected[endpoint.events[*event]].is_removed();
            if let Some(event) = endpoint.wanted.keys().find(is_wanted) {
                return Some(format!("endpoint {number} has not got {event} again"));
            }
        }
        for (connection, of) in state.connected.iter().enumerate() {
            let Some(id) = of.id.filter(|_| of.is_removed()) else {
                continue;
            };
            let left = self.database.find_left(of.user, id).expect("a read");
            if !left.is_empty() || !state.consented[connection].is_withdrawn {
                return Some(format!("connection {connection} is not removed: {left:?}"));
            }
        }
        (!self.tasks.is_empty()).then(|| "a request from outside waits".to_owned())
    }
}
