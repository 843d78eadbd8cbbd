use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use bellbird_domain::{Clock, ConnectionCategory, UserId};
use bellbird_providers::simulated::Simulated;
use bellbird_providers::{Provider, Registry};
use bellbird_storage::{ClaimedJob, Sealer, Storage};
use jiff::SignedDuration;
use tempfile::TempDir;
use tokio::sync::Semaphore;

use super::*;
use crate::jobs::Work;
use crate::state::{Lanes, State};
use crate::sync_settings::ProviderSyncs;

const LEASE: Duration = Duration::from_secs(60);

/// A database with the runner of one instance. Time stands still until [`World::advance`].
struct World {
    state: Arc<State>,
    clock: Clock,
    stop: CancellationToken,
    _directory: TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with(Registry::default()).await
    }

    async fn with(providers: Registry) -> Self {
        let directory = TempDir::new().unwrap();
        let url = format!("sqlite:{}", directory.path().join("test.db").display());
        let storage = Storage::open(&url, Sealer::random()).await.unwrap();
        storage.migrate().await.unwrap();
        let clock = Clock::manual("2026-11-20T00:00:00Z".parse().unwrap());
        let state = State::new(storage, providers, clock.clone(), Lanes::new(lanes()));
        Self {
            state: Arc::new(state),
            clock,
            stop: CancellationToken::new(),
            _directory: directory,
        }
    }

    async fn add(&self, kind: &JobKind, provider: &str, subject: &str) -> JobKey {
        let key = JobKey::new(kind.name, UserId::new(), subject);
        let (jobs, now) = (self.state.storage.jobs(), self.clock.now());
        jobs.insert(&key, provider, now).await.unwrap();
        key
    }

    /// The errors of the failing jobs, and how often each was tried.
    async fn failing(&self) -> Vec<(String, u32)> {
        let jobs = self.state.storage.jobs().list_failing(9).await.unwrap();
        let jobs = jobs.into_iter();
        jobs.map(|job| (job.last_error, job.attempts)).collect()
    }

    fn start(&self, kind: &'static JobKind, provider: &'static str) -> tokio::task::JoinHandle<()> {
        let (state, stop) = (Arc::clone(&self.state), self.stop.clone());
        tokio::spawn(async move { Jobs(&state).run_lane(kind, provider, stop).await })
    }

    fn advance(&self, time: Duration) {
        let time = SignedDuration::try_from(time).unwrap();
        self.clock.set(self.clock.now() + time);
    }

    /// Stops all that has started.
    async fn stop(&self, lanes: impl IntoIterator<Item = tokio::task::JoinHandle<()>>) {
        self.stop.cancel();
        for lane in lanes {
            lane.await.unwrap();
        }
    }
}

const fn kind(
    name: &'static str,
    run: for<'a> fn(&'a Arc<State>, &'a ClaimedJob) -> Work<'a>,
) -> JobKind {
    JobKind {
        concurrency_max: |_, _| 2,
        ..JobKind::new(name, LEASE, run)
    }
}

/// Waits in paused time, which passes when all tasks wait.
async fn until(condition: impl Fn() -> bool) {
    let reached = async {
        while !condition() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(600), reached)
        .await
        .expect("the condition is met");
}

#[tokio::test(start_paused = true)]
async fn panicking_job_fails_and_delays_no_other() {
    static PANICS: AtomicBool = AtomicBool::new(true);
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static KIND: JobKind = kind("test", |state, claim| {
        Box::pin(async move {
            RUNS.fetch_add(1, Ordering::SeqCst);
            assert!(
                claim.key.subject != "bad" || !PANICS.load(Ordering::SeqCst),
                "as a bug would"
            );
            state.finish_job(claim, None).await
        })
    });
    let world = World::new().await;
    world.add(&KIND, "fiskil", "bad").await;
    world.add(&KIND, "fiskil", "good").await;
    let lane = world.start(&KIND, "fiskil");
    until(|| RUNS.load(Ordering::SeqCst) == 2).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.failing().await, [("panicked".to_owned(), 1)]);
    assert_eq!(RUNS.load(Ordering::SeqCst), 2, "not due yet");
    PANICS.store(false, Ordering::SeqCst);
    world.advance(Duration::from_secs(40));
    until(|| RUNS.load(Ordering::SeqCst) == 3).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    world.advance(LEASE);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(RUNS.load(Ordering::SeqCst), 3, "finished");
    world.stop([lane]).await;
}

#[tokio::test(start_paused = true)]
async fn job_that_kills_its_process_backs_off_from_the_second_time_on() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static KIND: JobKind = kind("test", |state, claim| {
        Box::pin(async move {
            RUNS.fetch_add(1, Ordering::SeqCst);
            state.finish_job(claim, None).await
        })
    });
    let world = World::new().await;
    world.add(&KIND, "fiskil", "poison").await;
    let jobs = world.state.storage.jobs();
    // Nobody finishes these two runs.
    for killed in 0..2 {
        let (now, lease) = world.state.lease(LEASE);
        let claim = jobs.claim_due("test", "fiskil", now, lease).await;
        let claim = claim.unwrap().expect("due");
        let runs = (claim.attempts, claim.was_interrupted);
        assert_eq!(runs, (killed, killed > 0));
        world.advance(LEASE);
    }
    let lane = world.start(&KIND, "fiskil");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.failing().await, [("interrupted".to_owned(), 2)]);
    assert_eq!(RUNS.load(Ordering::SeqCst), 0, "delayed");
    world.advance(Duration::from_secs(72));
    until(|| RUNS.load(Ordering::SeqCst) == 1).await;
    world.stop([lane]).await;
    assert!(world.failing().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn due_syncs_wait_and_run_at_once_as_the_provider_says() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    const OTHER: JobKind = kind("test", |state, claim| {
        Box::pin(async move {
            RUNS.fetch_add(1, Ordering::SeqCst);
            state.finish_job(claim, None).await
        })
    });
    static SYNC: JobKind = JobKind {
        yields_when_limited: true,
        ..OTHER
    };
    let brokerage = ConnectionCategory::Brokerage;
    let broker = Arc::new(Simulated::new("snaptrade", brokerage, 100, Vec::new()));
    broker.syncs_wait.store(true, Ordering::SeqCst);
    let world = World::with(Registry::of(vec![Arc::clone(&broker) as Arc<dyn Provider>])).await;
    world.add(&SYNC, "snaptrade", "waits").await;
    let unknown = "of a provider that is not configured";
    world.add(&SYNC, "fiskil", unknown).await;
    let lanes = ["snaptrade", "fiskil"].map(|provider| world.start(&SYNC, provider));
    until(|| RUNS.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    // Waiting is no failure.
    assert!(world.failing().await.is_empty());
    broker.syncs_wait.store(false, Ordering::SeqCst);
    until(|| RUNS.load(Ordering::SeqCst) == 2).await;
    world.stop(lanes).await;

    let mut state = (*world.state).clone();
    let syncs = ProviderSyncs {
        at_once: 9,
        ..ProviderSyncs::default()
    };
    state.syncs_by_provider.insert("akahu", syncs);
    let at_once = |provider| (sync::KIND.concurrency_max)(&state, provider);
    let expected = [9, 4];
    assert_eq!(["akahu", "fiskil"].map(at_once), expected, "syncs at once");
}

#[tokio::test(start_paused = true)]
async fn slow_provider_has_its_own_limit() {
    static RUNNING: AtomicU32 = AtomicU32::new(0);
    static DONE: AtomicU32 = AtomicU32::new(0);
    static ANSWERS: Semaphore = Semaphore::const_new(0);
    static KIND: JobKind = kind("test", |state, claim| {
        Box::pin(async move {
            if claim.provider == "fiskil" {
                RUNNING.fetch_add(1, Ordering::SeqCst);
                drop(ANSWERS.acquire().await.unwrap());
                RUNNING.fetch_sub(1, Ordering::SeqCst);
            }
            DONE.fetch_add(1, Ordering::SeqCst);
            state.finish_job(claim, None).await
        })
    });
    let world = World::new().await;
    for subject in ["1", "2", "3"] {
        world.add(&KIND, "fiskil", subject).await;
        world.add(&KIND, "akahu", subject).await;
    }
    let lanes = [world.start(&KIND, "fiskil"), world.start(&KIND, "akahu")];
    until(|| DONE.load(Ordering::SeqCst) == 3).await;
    until(|| RUNNING.load(Ordering::SeqCst) == 2).await;
    // Leases are renewed meanwhile, so no job runs twice.
    for _ in 0..4 {
        tokio::time::sleep(LEASE / 2).await;
        world.advance(LEASE / 2);
    }
    assert_eq!(RUNNING.load(Ordering::SeqCst), 2);
    ANSWERS.add_permits(3);
    until(|| DONE.load(Ordering::SeqCst) == 6).await;
    world.stop(lanes).await;
}

#[tokio::test(start_paused = true)]
async fn stop_waits_for_running_jobs_and_starts_no_other() {
    static STARTED: AtomicU32 = AtomicU32::new(0);
    static ANSWERS: Semaphore = Semaphore::const_new(0);
    static KIND: JobKind = kind("test", |state, claim| {
        Box::pin(async move {
            STARTED.fetch_add(1, Ordering::SeqCst);
            drop(ANSWERS.acquire().await.unwrap());
            state.finish_job(claim, None).await
        })
    });
    let world = World::new().await;
    for subject in ["1", "2", "3"] {
        world.add(&KIND, "fiskil", subject).await;
    }
    let lane = world.start(&KIND, "fiskil");
    until(|| STARTED.load(Ordering::SeqCst) == 2).await;
    world.stop.cancel();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert!(!lane.is_finished());
    ANSWERS.add_permits(2);
    lane.await.unwrap();
    assert_eq!(STARTED.load(Ordering::SeqCst), 2);
    let now = world.clock.now();
    let jobs = world.state.storage.jobs();
    let left = jobs.claim_due("test", "fiskil", now, now).await.unwrap();
    let attempts = left.map(|claim| claim.attempts);
    assert_eq!(attempts, Some(0), "one job is left, for the next start");
}

#[tokio::test(start_paused = true)]
async fn failed_job_is_retried_with_backoff_and_its_error_is_kept() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static KIND: JobKind = kind("test", |state, claim| {
        Box::pin(async move {
            match RUNS.fetch_add(1, Ordering::SeqCst) {
                0 => Err(ConnectionsError::NotConfigured("fiskil".to_owned())),
                _ => state.finish_job(claim, None).await,
            }
        })
    });
    let world = World::new().await;
    world.add(&KIND, "fiskil", "1").await;
    let lane = world.start(&KIND, "fiskil");
    until(|| RUNS.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    let failing = world.failing().await;
    assert_eq!(failing.len(), 1);
    assert!(failing[0].0.contains("fiskil"), "{failing:?}");
    assert_eq!(RUNS.load(Ordering::SeqCst), 1, "not due yet");
    world.advance(Duration::from_secs(2 * 3_600));
    until(|| RUNS.load(Ordering::SeqCst) == 2).await;
    world.stop([lane]).await;
    assert!(world.failing().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn periodic_job_is_added_once_by_all_instances() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    static KIND: JobKind = JobKind {
        is_periodic: true,
        has_provider: false,
        ..kind("test", |state, claim| {
            Box::pin(async move {
                RUNS.fetch_add(1, Ordering::SeqCst);
                let next = state.clock.now() + SignedDuration::from_hours(1);
                state.finish_job(claim, Some(next)).await
            })
        })
    };
    let world = Arc::new(World::new().await);
    let lanes = [world.start(&KIND, ""), world.start(&KIND, "")];
    until(|| RUNS.load(Ordering::SeqCst) == 1).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(RUNS.load(Ordering::SeqCst), 1);
    world.advance(Duration::from_secs(3_600));
    until(|| RUNS.load(Ordering::SeqCst) == 2).await;
    world.stop(lanes).await;
}
