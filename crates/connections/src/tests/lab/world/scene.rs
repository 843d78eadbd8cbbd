//! What all parts of a world share: chance, the steps that wait for leave, the trace, and the first
//! broken invariant.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bellbird_domain::EventId;
use bellbird_domain::lab::Chance;
use bellbird_storage::ClaimState;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use uuid::Uuid;

use super::provider::Consented;
use super::receiver::{Connected, EndpointModel};
use crate::tests::lab::faults::Fault;

/// Lines of the trace that a failure shows.
const SHOWN_LINES: usize = 120;

/// Who an instance is. Another start of it is another process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    /// From 0. The place among the instances.
    pub(super) place: usize,
    /// Unique.
    pub(super) number: u64,
    pub(super) id: Uuid,
}

/// Another program than the instances: it is never killed, and its steps never fail.
pub(super) const OUTSIDE: Process = Process {
    place: 9,
    number: 0,
    id: Uuid::nil(),
};

/// A step of a process that waits for leave.
struct Gate {
    process: Process,
    what: &'static str,
    since: Instant,
    leave: oneshot::Sender<bool>,
}

/// How a process is doing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Condition {
    pub(super) process: Process,
    /// Its clock is the simulated time and this much more.
    pub(super) clock: i64,
    /// None of its steps gets leave before.
    pub(super) stands_still_until: Instant,
    /// It may have lost a lease without knowing, until then: it stood still, or was taken for dead.
    pub(super) is_late_until: Instant,
}

pub(super) struct State {
    pub(super) chance: Chance,
    gates: Vec<Gate>,
    lines: VecDeque<String>,
    keeps_all_lines: bool,
    pub(super) steps: u64,
    pub(super) broken: Option<String>,
    /// Whether steps, calls and messages may still fail.
    pub(super) is_rough: bool,
    pub(super) living: Vec<Condition>,
    pub(super) claims: Vec<ClaimState>,
    /// The connections by their number, as their providers have them.
    pub(super) consented: Vec<Consented>,
    /// The connections by their number, as the service has them.
    pub(super) connected: Vec<Connected>,
    pub(super) endpoints: Vec<EndpointModel>,
    /// The endpoint and the event of a redelivery that is being requested.
    pub(super) redelivered: Option<(usize, EventId)>,
    pub(super) fault: Option<Fault>,
    pub(super) began: Instant,
}

/// Cheap to clone.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) state: Arc<Mutex<State>>,
    pub(super) arrived: Arc<Notify>,
}

impl Scene {
    pub(super) fn new(seed: u64, fault: Option<Fault>, keeps_all_lines: bool) -> Self {
        let state = State {
            chance: Chance::new(seed),
            gates: Vec::new(),
            lines: VecDeque::new(),
            keeps_all_lines,
            steps: 0,
            broken: None,
            is_rough: true,
            living: Vec::new(),
            claims: Vec::new(),
            consented: Vec::new(),
            connected: Vec::new(),
            endpoints: Vec::new(),
            redelivered: None,
            fault,
            began: Instant::now(),
        };
        Self {
            state: Arc::new(Mutex::new(state)),
            arrived: Arc::default(),
        }
    }

    /// The time of other programs than the instances.
    pub(super) fn now(&self) -> Timestamp {
        self.state.lock().time_of(super::BEGIN * 1_000_000)
    }

    /// Waits until the step may happen. False: it fails.
    pub(super) fn wait(&self, process: Process, what: &'static str) -> BoxFuture<'static, bool> {
        let (leave, waiting) = oneshot::channel();
        self.state.lock().gates.push(Gate {
            process,
            what,
            since: Instant::now(),
            leave,
        });
        self.arrived.notify_one();
        // A process that was killed gets no leave.
        async move {
            match waiting.await {
                Ok(leave) => leave,
                Err(_) => std::future::pending().await,
            }
        }
        .boxed()
    }
}

impl State {
    pub(super) fn note(&mut self, line: impl FnOnce() -> String) {
        if !self.keeps_all_lines && self.lines.len() >= SHOWN_LINES {
            self.lines.pop_front();
        }
        let millis = self.began.elapsed().as_millis();
        self.lines.push_back(format!("{millis:>8} {}", line()));
    }

    /// Only the first one counts.
    pub(super) fn break_invariant(&mut self, what: String) {
        self.note(|| format!("BROKEN: {what}"));
        self.broken.get_or_insert(what);
    }

    pub(super) fn trace(&self) -> String {
        self.lines.iter().map(|line| format!("{line}\n")).collect()
    }

    pub(super) fn condition(&mut self, process: Process) -> Option<&mut Condition> {
        self.living
            .iter_mut()
            .find(|condition| condition.process == process)
    }

    /// A process may have lost a lease without knowing, for this long.
    pub(super) fn excuse(&mut self, holder: Uuid, time: Duration) {
        if let Some(holder) = self
            .living
            .iter_mut()
            .find(|living| living.process.id == holder)
        {
            holder.is_late_until = holder.is_late_until.max(Instant::now() + time);
        }
    }

    /// From this commit on, an endpoint has to get an event again, if that was requested.
    pub(super) fn want_again(&mut self) {
        if let Some((endpoint, event)) = self.redelivered.take() {
            self.endpoints[endpoint].wanted.insert(event, self.steps);
        }
    }

    /// The time on the clock of a process.
    pub(super) fn time_of(&self, clock: i64) -> Timestamp {
        let elapsed = i64::try_from(self.began.elapsed().as_micros()).unwrap_or(i64::MAX);
        Timestamp::from_microsecond(clock + elapsed).expect("a time")
    }

    /// The steps of a process that is gone get no leave.
    pub(super) fn forget(&mut self, process: Process) {
        self.gates.retain(|gate| gate.process != process);
        self.living.retain(|condition| condition.process != process);
    }

    pub(super) fn has_gates(&self) -> bool {
        let now = Instant::now();
        self.gates.iter().any(|gate| self.may_pass(gate, now))
    }

    fn may_pass(&self, gate: &Gate, now: Instant) -> bool {
        self.living.iter().any(|condition| {
            condition.process == gate.process && condition.stands_still_until <= now
        })
    }

    /// Gives leave to one of the steps that wait. Returns false if there is none.
    pub(super) fn pass_one(&mut self) -> bool {
        const WAIT_MAX: Duration = Duration::from_secs(2);
        let now = Instant::now();
        let ready: Vec<usize> = (0..self.gates.len())
            .filter(|at| self.may_pass(&self.gates[*at], now))
            .collect();
        if ready.is_empty() {
            return false;
        }
        // None waits for long, because leases allow for a slow database only to some extent.
        let waits_longest = ready
            .iter()
            .copied()
            .find(|at| now - self.gates[*at].since >= WAIT_MAX);
        let chosen = self.chance.below(ready.len() as u64) as usize;
        let gate = self.gates.remove(waits_longest.unwrap_or(ready[chosen]));
        let fails_per_mille = match gate.what {
            _ if !self.is_rough || gate.process == OUTSIDE => 0,
            "commits" => 15,
            "hears of its commit" => 25,
            "reads" | "begins" => 4,
            "calls the provider" => 20,
            _ => 0,
        };
        let succeeds = !self.chance.per_mille(fails_per_mille);
        self.steps += 1;
        let Process { place, number, .. } = gate.process;
        self.note(|| {
            format!(
                "{place}.{number} {}{}",
                gate.what,
                if succeeds { "" } else { ": fails" }
            )
        });
        let _ = gate.leave.send(succeeds);
        true
    }
}
