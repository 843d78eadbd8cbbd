//! Gives leave to one operation at a time, in an order that a caller chooses.

use std::fmt::Write as _;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_local;
use tokio::time::timeout;
use tokio_postgres::{Client, Statement};

use super::gate::{At, Fault, Session};
use super::operations::{BROKEN, Operation, Start};
use super::rows::Rows;
use crate::Storage;
use crate::tests::support::{TestDb, connect};

/// Operations at once. Each has a connection of its own.
pub(super) const PLACES_MAX: usize = 3;
/// How long a statement may run before the scheduler asks whether it waits for a lock.
const BLOCKED_AFTER: Duration = Duration::from_millis(1);
/// Far longer than PostgreSQL takes to find a deadlock.
const HANG: Duration = Duration::from_secs(60);
/// The sessions that wait for a lock that another one holds.
const BLOCKED: &str = "SELECT application_name FROM pg_stat_activity
    WHERE datname = current_database() AND wait_event_type = 'Lock' AND cardinality(pg_blocking_pids(pid)) > 0";

/// A database in its starting state, and connections for the operations.
pub(super) struct World {
    places: Vec<Storage>,
    start: Rc<Start>,
    rows: Rows,
    watch: Client,
    blocked: Statement,
}

/// What one schedule did.
pub(super) struct Played {
    /// The operation and the name of each statement.
    pub(super) steps: Vec<(usize, &'static str)>,
    /// The outcomes in the order of the operations, then the rows that are left.
    pub(super) result: Vec<String>,
    /// What must never be, whatever the order.
    pub(super) broken: Vec<String>,
}

/// An operation that is ready.
pub(super) struct Ready {
    pub(super) place: usize,
    /// Whether it is inside of a transaction that has run a statement.
    pub(super) is_inside: bool,
}

impl World {
    pub(super) async fn new(db: &TestDb) -> Self {
        let start = Rc::new(Start::new(db).await);
        let mut places = Vec::new();
        for place in 0..PLACES_MAX {
            let separator = if db.url.ends_with('?') { "" } else { "&" };
            let url = format!("{}{separator}application_name={}", db.url, name_of(place));
            places.push(TestDb::attach(url, db.sealer.clone()).await.storage());
        }
        let watch = connect(&db.url).await;
        let blocked = watch.prepare(BLOCKED).await.expect("a statement");
        Self {
            places,
            start,
            rows: Rows::save(connect(&db.url).await).await,
            watch,
            blocked,
        }
    }

    /// Runs operations from the starting state. `choose` says which of those that are ready gets
    /// leave.
    pub(super) async fn play(
        &self,
        operations: &[&Operation],
        fault: Option<Fault>,
        choose: &mut dyn FnMut(&[Ready]) -> usize,
    ) -> Played {
        self.rows.restore().await;
        let (sender, mut arrivals) = unbounded_channel();
        let mut leaves = Vec::new();
        for (place, operation) in operations.iter().enumerate() {
            let leave = Arc::new(Notify::new());
            leaves.push(leave.clone());
            let session = Session::new(place, sender.clone(), leave, fault);
            spawn_local(session.run((operation.run)(
                self.places[place].clone(),
                self.start.clone(),
                place,
            )));
        }
        let mut at: Vec<Option<At>> = vec![None; operations.len()];
        let mut waits = vec![false; operations.len()];
        let mut steps = Vec::new();
        loop {
            self.settle(&mut arrivals, &mut at, &mut waits, &steps)
                .await;
            let ready: Vec<_> = (0..at.len())
                .filter_map(|place| match at[place] {
                    Some(At::Statement { is_inside, .. }) => Some(Ready { place, is_inside }),
                    _ => None,
                })
                .collect();
            if ready.is_empty() {
                break;
            }
            let chosen = choose(&ready).min(ready.len() - 1);
            let place = ready[chosen].place;
            if let Some(At::Statement { name, .. }) = at[place].take() {
                steps.push((place, name));
            }
            leaves[place].notify_one();
        }
        let mut result: Vec<String> = at
            .into_iter()
            .map(|at| match at {
                Some(At::End(outcome)) => outcome,
                _ => unreachable!("nothing is ready, and nothing runs"),
            })
            .collect();
        let mut broken: Vec<String> = result
            .iter()
            .filter(|outcome| outcome.starts_with(BROKEN))
            .cloned()
            .collect();
        result.extend(self.rows.list().await);
        for outcome in &mut result {
            *outcome = self.rows.without_new_ids(outcome);
        }
        broken.extend(self.rows.list_broken().await);
        Played {
            steps,
            result,
            broken,
        }
    }

    /// Waits until each operation is ready, has ended, or waits for a lock of one that is ready. It
    /// then waits until a transaction ends.
    async fn settle(
        &self,
        arrivals: &mut UnboundedReceiver<(usize, At)>,
        at: &mut [Option<At>],
        waits: &mut [bool],
        steps: &[(usize, &'static str)],
    ) {
        let since = Instant::now();
        loop {
            let is_ready = at.iter().any(|at| matches!(at, Some(At::Statement { .. })));
            let mut running = (0..at.len())
                .filter(|place| at[*place].is_none())
                .peekable();
            if running.peek().is_none() || is_ready && running.all(|place| waits[place]) {
                return;
            }
            if let Ok(Some((place, arrived))) = timeout(BLOCKED_AFTER, arrivals.recv()).await {
                if !matches!(
                    arrived,
                    At::Statement {
                        is_inside: true,
                        ..
                    }
                ) {
                    waits.fill(false);
                }
                at[place] = Some(arrived);
                continue;
            }
            assert!(since.elapsed() < HANG, "the schedule hangs after {steps:?}");
            let blocked = self
                .watch
                .query(&self.blocked, &[])
                .await
                .expect("the blocked sessions");
            let blocked: Vec<String> = blocked.iter().map(|row| row.get(0)).collect();
            for (place, waits) in waits.iter_mut().enumerate() {
                *waits = at[place].is_none() && blocked.contains(&name_of(place));
            }
        }
    }
}

impl Played {
    /// The steps, one a line, without values.
    pub(super) fn steps(&self, operations: &[&Operation]) -> String {
        let mut text = String::new();
        for (place, statement) in &self.steps {
            let _ = writeln!(
                text,
                "    {}. {}: {statement}",
                place + 1,
                operations[*place].name
            );
        }
        text
    }
}

fn name_of(place: usize) -> String {
    format!("stepped_{place}")
}
