//! Runs instances of the service in process and crashes them at a chosen point.

use std::sync::atomic::{AtomicU32, Ordering};

use bellbird_connections::Connections;
use bellbird_sandbox::{Fault, FaultKind};
use jiff::SignedDuration;
use tokio::sync::oneshot;

use crate::support::database::execute;
use crate::support::harness::{App, eventually};

/// Longer than every lease.
pub(crate) const PAST_EVERY_LEASE: SignedDuration = SignedDuration::from_mins(3);

/// Where an instance crashes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CrashPoint {
    Never,
    /// While it waits for a response, after `after` calls got a response. With `applied`, the
    /// provider has carried out the call.
    AtCall {
        after: u64,
        applied: bool,
    },
    /// After so many polls of its runtime.
    AfterPolls(u32),
    /// When the connection is stored, but the consent session has not ended.
    BeforeSessionEnds,
}

pub(crate) struct RunOutcome {
    pub(crate) finished: bool,
    /// How often its runtime was polled.
    pub(crate) polls: u32,
    pub(crate) calls: u64,
}

impl RunOutcome {
    /// The ends of so many equal parts of the run, and its start.
    pub(crate) fn parts(&self, parts: u32) -> impl Iterator<Item = CrashPoint> {
        let polls = u64::from(self.polls);
        (0..=parts).map(move |part| {
            let polls = polls * u64::from(part) / u64::from(parts);
            CrashPoint::AfterPolls(polls.try_into().unwrap())
        })
    }
}

impl App {
    /// Runs `work` on an instance of its own. At the crash point the instance's runtime is dropped,
    /// which stops every task where it is.
    pub(crate) async fn run_until_crash<F>(
        &self,
        provider: &str,
        crash_point: CrashPoint,
        work: impl FnOnce(Connections) -> F + Send + 'static,
    ) -> RunOutcome
    where
        F: Future<Output = ()>,
    {
        self.reset_calls();
        let (kill, killed) = oneshot::channel::<()>();
        let limit = match crash_point {
            CrashPoint::AfterPolls(polls) => Some(polls),
            CrashPoint::Never | CrashPoint::BeforeSessionEnds => Some(u32::MAX),
            CrashPoint::AtCall { .. } => None,
        };
        if let CrashPoint::AtCall { after, applied } = crash_point {
            let bank = self.bank(provider);
            if after > 0 {
                bank.add_fault(Fault::delay_ms(0).times(after));
            }
            let kind = if applied {
                FaultKind::Drip
            } else {
                FaultKind::Delay
            };
            bank.add_fault(Fault::new(kind).delayed_ms(60_000));
        }
        if matches!(crash_point, CrashPoint::BeforeSessionEnds) {
            self.block_session_end().await;
        }
        let shared = self.shared.clone();
        let instance = tokio::task::spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .event_interval(1)
                .enable_all()
                .build()
                .unwrap();
            let polls = AtomicU32::new(0);
            let crash = async {
                match limit {
                    None => killed.await.unwrap_or_default(),
                    Some(limit) => {
                        while polls.load(Ordering::Relaxed) < limit {
                            tokio::task::yield_now().await;
                            polls.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            };
            let finished = runtime.block_on(async {
                let connections = shared.new_instance().await;
                tokio::select! {
                    biased;
                    () = crash => false,
                    () = work(connections) => true,
                }
            });
            (finished, polls.load(Ordering::Relaxed))
        });
        if let CrashPoint::AtCall { after, .. } = crash_point {
            eventually(async || {
                instance.is_finished() || self.bank(provider).total_calls() > after
            })
            .await;
        }
        let _ = kill.send(());
        let (finished, polls) = instance.await.unwrap();
        let calls = self.bank(provider).total_calls();
        self.clear_faults();
        if matches!(crash_point, CrashPoint::BeforeSessionEnds) {
            let (drop, on_postgres) = ("DROP TRIGGER session_end_blocked", " ON consent_sessions");
            execute(&self.shared.database, drop, on_postgres).await;
        }
        RunOutcome {
            finished,
            polls,
            calls,
        }
    }

    /// Makes every update that ends a consent session fail, as if the instance crashed there.
    async fn block_session_end(&self) {
        let database = &self.shared.database;
        if database.starts_with("sqlite:") {
            let when = "CREATE TRIGGER session_end_blocked BEFORE UPDATE ON consent_sessions WHEN NEW.phase = 'ended'
                BEGIN SELECT RAISE(ABORT, 'no end'); END";
            return execute(database, when, "").await;
        }
        let reject_update =
            "CREATE OR REPLACE FUNCTION reject_update() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'no end'; END $$";
        execute(database, reject_update, "").await;
        let when =
            "CREATE TRIGGER session_end_blocked BEFORE UPDATE ON consent_sessions FOR EACH ROW
            WHEN (NEW.phase = 'ended') EXECUTE FUNCTION reject_update()";
        execute(database, when, "").await;
    }
}
