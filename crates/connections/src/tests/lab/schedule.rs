//! Many connections' syncs at one provider: the schedule, the lanes and the shares of calls are
//! those of the service, and days pass in seconds. It shows what a provider's limit and an outage
//! do to the syncs of all, and to reads.
//!
//! `BELLBIRD_TEST_PERCENT` makes them more, for the figures in docs/several-instances.md.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::{TimestampExt as _, lab};
use bellbird_limits::{CallKind, CallWindow};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep, sleep_until};
use uuid::Uuid;

use crate::sync_settings::{ProviderSyncs, SyncSettings};

const HOUR: u64 = 3_600;
/// How often an idle lane looks for due jobs.
const POLL: Duration = Duration::from_secs(5);
/// The refresh at the start of a sync, which is never refused.
const REFRESH_CALLS: u32 = 2;
const READ: CallKind = CallKind::Request {
    begins: true,
    has_share: true,
};

#[derive(Clone)]
struct Scenario {
    connections: u64,
    instances: usize,
    /// Calls of a sync after its refresh, and how long each call takes.
    row_calls: u32,
    call_time: Duration,
    /// What the provider allows all users together.
    per_minute: Option<u32>,
    /// Calls of users' requests, each of another user.
    reads_per_minute: u64,
    /// Hours in which nothing runs.
    outage: Range<u64>,
    hours: u64,
}

struct Outcome {
    /// Syncs that began in each hour.
    hours: Vec<u32>,
    /// Seconds from when a sync was due until it began, of those after the outage and its interval.
    lags: Vec<u64>,
    /// How often each connection was synced.
    counts: Vec<u32>,
    reads: u32,
    reads_refused: u32,
}

impl Outcome {
    fn lag(&self, per_mille: usize) -> u64 {
        let mut lags = self.lags.clone();
        lags.sort_unstable();
        lags.get((lags.len() * per_mille / 1_000).min(lags.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    }

    fn print(&self, name: &str, scenario: &Scenario) {
        let days = scenario.hours as u32 / 24;
        let total: u32 = self.hours.iter().sum();
        println!(
            "{name}: {} connections, {} instances: {} syncs a day; late by {} s (median), {} s (99 %), {} s (most); \
             each {} to {} times in {days} days; busiest hour {}, quietest of the last six {}; reads refused {} of {}",
            scenario.connections,
            scenario.instances,
            total / days.max(1),
            self.lag(500),
            self.lag(990),
            self.lag(1_000),
            self.counts.iter().min().unwrap_or(&0),
            self.counts.iter().max().unwrap_or(&0),
            self.hours.iter().max().unwrap_or(&0),
            self.hours.iter().rev().take(6).min().unwrap_or(&0),
            self.reads_refused,
            self.reads,
        );
    }
}

struct World {
    scenario: Scenario,
    settings: SyncSettings,
    window: Option<CallWindow>,
    began: (Instant, Timestamp),
    /// When each connection is due, with its number.
    due: Mutex<BinaryHeap<Reverse<(Timestamp, u64)>>>,
    outcome: Mutex<Outcome>,
}

impl World {
    fn new(scenario: Scenario) -> Self {
        let (settings, began) = (
            SyncSettings::default(),
            (Instant::now(), Timestamp::UNIX_EPOCH),
        );
        let due = (0..scenario.connections)
            .map(|number| Reverse((settings.next_sync_at(began.1, phase(number)), number)))
            .collect();
        let outcome = Outcome {
            hours: vec![0; scenario.hours as usize],
            lags: Vec::new(),
            counts: vec![0; scenario.connections as usize],
            reads: 0,
            reads_refused: 0,
        };
        let window = scenario
            .per_minute
            .map(|calls| CallWindow::new("simulated", calls, None));
        Self {
            scenario,
            settings,
            window,
            began,
            due: Mutex::new(due),
            outcome: Mutex::new(outcome),
        }
    }

    fn now(&self) -> Timestamp {
        self.began.1.plus(self.began.0.elapsed())
    }

    fn hour(&self) -> u64 {
        self.began.0.elapsed().as_secs() / HOUR
    }

    /// One of the syncs that an instance runs at the same time.
    async fn lane(self: Arc<Self>) {
        while self.hour() < self.scenario.hours {
            if self.scenario.outage.contains(&self.hour()) {
                sleep_until(self.began.0 + Duration::from_secs(self.scenario.outage.end * HOUR))
                    .await;
            }
            let now = self.now();
            let first = {
                let mut due = self.due.lock();
                if due.peek().is_some_and(|Reverse((at, _))| *at <= now) {
                    due.pop()
                } else {
                    None
                }
            };
            match first {
                Some(Reverse((at, number))) => self.sync(at, number).await,
                None => sleep(POLL).await,
            }
        }
    }

    async fn sync(&self, due_at: Timestamp, number: u64) {
        let now = self.now();
        let settled = self.scenario.outage.end + self.settings.interval.as_secs() / HOUR;
        {
            let mut outcome = self.outcome.lock();
            let hour = self.hour();
            if let Some(count) = outcome.hours.get_mut(hour as usize) {
                *count += 1;
            }
            outcome.counts[number as usize] += 1;
            if hour >= settled {
                outcome
                    .lags
                    .push(now.duration_since(due_at).as_secs().unsigned_abs());
            }
        }
        match &self.window {
            Some(window) => {
                for call in 0..REFRESH_CALLS + self.scenario.row_calls {
                    let kind = if call < REFRESH_CALLS {
                        CallKind::SyncRefresh
                    } else {
                        CallKind::Sync
                    };
                    while let Err(refused) = window.take(kind, None).await {
                        sleep(refused.wait).await;
                    }
                    sleep(self.scenario.call_time).await;
                }
            }
            None => {
                sleep(self.scenario.call_time * (REFRESH_CALLS + self.scenario.row_calls)).await;
            }
        }
        let next = self.settings.next_sync_at(self.now(), phase(number));
        self.due.lock().push(Reverse((next, number)));
    }

    async fn reads(self: Arc<Self>) {
        let Some(window) = self
            .window
            .as_ref()
            .filter(|_| self.scenario.reads_per_minute > 0)
        else {
            return;
        };
        while self.hour() < self.scenario.hours {
            sleep(Duration::from_secs(60) / u32::try_from(self.scenario.reads_per_minute).unwrap())
                .await;
            let is_refused = window.take(READ, Some(Uuid::new_v4())).await.is_err();
            let mut outcome = self.outcome.lock();
            outcome.reads += 1;
            outcome.reads_refused += u32::from(is_refused);
        }
    }
}

/// As random as the bits of an id, and the same in each run.
fn phase(number: u64) -> u64 {
    let mut mixed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

async fn simulate(name: &str, scenario: Scenario) -> Outcome {
    let world = Arc::new(World::new(scenario.clone()));
    let mut tasks = vec![tokio::spawn(Arc::clone(&world).reads())];
    for _ in 0..scenario.instances * ProviderSyncs::default().at_once {
        tasks.push(tokio::spawn(Arc::clone(&world).lane()));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let world = Arc::try_unwrap(world).ok().unwrap();
    let outcome = world.outcome.into_inner();
    outcome.print(name, &scenario);
    outcome
}

/// A provider whose limit is not known: the lanes of the instances are the limit.
fn unlimited(connections: u64) -> Scenario {
    let (row_calls, call_time) = (2, Duration::from_millis(250));
    // A lane does one sync a second, and a connection needs four of them a day. Half of the lanes
    // are spare.
    let instances =
        (connections * 4 * 2).div_ceil(86_400 * ProviderSyncs::default().at_once as u64) as usize;
    let (per_minute, reads_per_minute) = (None, 0);
    Scenario {
        connections,
        instances,
        row_calls,
        call_time,
        per_minute,
        reads_per_minute,
        outage: 0..0,
        hours: 48,
    }
}

/// SnapTrade with an app's usual limit: two calls of a refresh, and two accounts.
fn broker(connections: u64) -> Scenario {
    Scenario {
        instances: 3,
        per_minute: Some(250),
        reads_per_minute: 40,
        ..unlimited(connections)
    }
}

#[tokio::test(start_paused = true)]
async fn syncs_are_even_again_at_once_after_an_outage() {
    let scenario = Scenario {
        outage: 12..14,
        ..unlimited(lab::times(20_000))
    };
    let outcome = simulate("two hours' outage", scenario.clone()).await;
    let mean = scenario.connections as u32 / 6;
    let settled = &outcome.hours[21..];
    assert!(
        settled
            .iter()
            .all(|hour| (mean * 9 / 10..mean * 11 / 10).contains(hour)),
        "{mean}: {:?}",
        outcome.hours
    );
    assert!(outcome.lag(990) <= POLL.as_secs(), "{}", outcome.lag(990));
}

#[tokio::test(start_paused = true)]
async fn broker_carries_some_thousand_connections() {
    let outcome = simulate("a broker", broker(8_000)).await;
    assert_eq!(outcome.reads_refused, 0);
    assert!(outcome.lag(990) <= 60, "{}", outcome.lag(990));
    assert!(outcome.counts.iter().all(|count| (7..=8).contains(count)));
}

/// Too many connections for the provider: all are synced less often, none of them never, and reads
/// go on.
#[tokio::test(start_paused = true)]
async fn overload_is_shared_by_all_connections() {
    let scenario = broker(40_000);
    let outcome = simulate("an overloaded broker", scenario).await;
    let (least, most) = (
        outcome.counts.iter().min().unwrap(),
        outcome.counts.iter().max().unwrap(),
    );
    assert!(*least >= 1 && most - least <= 1, "{least} to {most}");
    assert_eq!(outcome.reads_refused, 0);
}
