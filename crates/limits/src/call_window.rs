//! The calls of the last minute to a provider that limits those of all users together: at one
//! instance, or at all that share a store.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::store::SharedStore;

pub(crate) const MINUTE: Duration = Duration::from_secs(60);
/// Tenths of what the provider allows that requests leave to jobs. Syncs always get as many.
pub(crate) const JOB_TENTHS: u64 = 3;
/// Tenths that syncs leave to requests. Within these, a sync gets only what is its own.
pub(crate) const REQUEST_TENTHS: u64 = 4;
/// A sync that cannot be counted with those of other instances asks again after this time.
const STORE_AWAY_WAIT: Duration = Duration::from_secs(5);

/// Who makes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallKind {
    /// Counted, and never refused: the key of a provider event, a check by the operator.
    Job,
    /// As [`Self::Job`], but counts as a call of syncs.
    SyncRefresh,
    /// Reads rows in the background, so it leaves calls to requests.
    Sync,
    /// What a user's request causes. One that has made no call yet `begins`. Without a `share` it
    /// may have all that is left.
    Request { begins: bool, has_share: bool },
}

/// Why a call must not be made now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refused {
    /// Time until it may be made, if nobody else makes one.
    pub wait: Duration,
    /// Whether the calls of all are used up, rather than the share of this user.
    pub by_all: bool,
}

/// A user may hold as many calls as are left for requests, so at most half of what the others
/// leave. What one user may hold shrinks as the whole runs out, and some of it stays for a user who
/// comes later, however many are greedy. A request begins only below three quarters of that,
/// because one that fails halfway has wasted its calls.
///
/// With a store, all instances count there. While it is down, each counts for itself, and syncs
/// wait, because the instances together could take several times what the provider allows.
pub struct CallWindow {
    /// The name of the provider, in the store.
    name: &'static str,
    store: Option<SharedStore>,
    calls: Mutex<Calls>,
}

struct Calls {
    per_minute: u64,
    /// Soonest to end first.
    counted: VecDeque<Counted>,
    /// What the provider counted beyond ours, with the time until which it does. The next call
    /// tells the store.
    correction: Option<Correction>,
}

struct Counted {
    /// When they no longer count.
    end: Instant,
    /// None for calls that only the provider's count shows.
    by: Option<(CallKind, Option<Uuid>)>,
    count: u64,
}

/// The provider's own count.
#[derive(Clone, Copy)]
pub(crate) struct Correction {
    pub(crate) count: u64,
    pub(crate) until: Instant,
}

impl CallWindow {
    #[must_use]
    pub fn new(name: &'static str, per_minute: u32, store: Option<&SharedStore>) -> Self {
        let calls = Calls {
            per_minute: per_minute.into(),
            counted: VecDeque::new(),
            correction: None,
        };
        Self {
            name,
            store: store.cloned(),
            calls: Mutex::new(calls),
        }
    }

    /// Whether syncs have to wait because the calls of other instances are not known.
    #[must_use]
    pub fn syncs_wait(&self) -> bool {
        self.store.as_ref().is_some_and(SharedStore::is_away)
    }

    /// Counts a call in the share of a user, unless it must wait.
    ///
    /// # Errors
    /// The time to wait.
    pub async fn take(&self, kind: CallKind, user: Option<Uuid>) -> Result<(), Refused> {
        if let Some(store) = &self.store {
            let (per_minute, correction) = {
                let mut calls = self.calls.lock();
                (calls.per_minute, calls.correction.take())
            };
            match store
                .take_call(self.name, per_minute, kind, user, correction)
                .await
            {
                Some(Ok(())) => {
                    self.calls.lock().count(Instant::now(), kind, user);
                    return Ok(());
                }
                Some(Err(refused)) => return Err(refused),
                None if kind == CallKind::Sync => {
                    return Err(Refused {
                        wait: STORE_AWAY_WAIT,
                        by_all: true,
                    });
                }
                None => {}
            }
        }
        let mut calls = self.calls.lock();
        let now = Instant::now();
        calls.check(now, kind, user)?;
        calls.count(now, kind, user);
        Ok(())
    }

    /// How a call would be refused now, by the calls of this instance and the last count of the
    /// provider.
    #[must_use]
    pub fn known_refusal(&self, kind: CallKind, user: Option<Uuid>) -> Option<Refused> {
        self.calls.lock().check(Instant::now(), kind, user).err()
    }

    /// Follows the provider's count, which includes calls of others.
    pub fn correct(&self, per_minute: u32, remaining: u32, reset: Duration) {
        let now = Instant::now();
        let mut calls = self.calls.lock();
        calls.forget(now);
        calls.per_minute = per_minute.into();
        let (count, until) = (
            u64::from(per_minute.saturating_sub(remaining)),
            now + reset.min(MINUTE),
        );
        calls.correction = self.store.as_ref().map(|_| Correction { count, until });
        let beyond = count.saturating_sub(calls.counted.iter().map(|calls| calls.count).sum());
        if beyond > 0 {
            let at = calls.counted.partition_point(|calls| calls.end <= until);
            calls.counted.insert(
                at,
                Counted {
                    end: until,
                    by: None,
                    count: beyond,
                },
            );
        }
    }
}

/// How many calls count.
#[derive(Default)]
struct Counts {
    all: u64,
    of_syncs: u64,
    /// Calls that only the provider's count shows may be of requests.
    of_requests: u64,
    of_user: u64,
}

impl Counts {
    /// Whether one more call is allowed. `take_call.lua` decides the same.
    fn allow(&self, per_minute: u64, kind: CallKind) -> bool {
        let for_jobs = per_minute * JOB_TENTHS / 10;
        match kind {
            CallKind::Job | CallKind::SyncRefresh => true,
            CallKind::Sync => {
                let is_own = self.of_syncs < for_jobs.max(1) && self.all < per_minute;
                is_own || self.all < per_minute - per_minute * REQUEST_TENTHS / 10
            }
            CallKind::Request { begins, has_share } => {
                let for_requests = (per_minute - for_jobs).saturating_sub(self.of_requests);
                let left = for_requests.min(per_minute.saturating_sub(self.all));
                let is_within_share = if begins {
                    self.of_user * 4 < left * 3
                } else {
                    self.of_user < left
                };
                left > 0 && (!has_share || is_within_share)
            }
        }
    }
}

impl Calls {
    fn count(&mut self, now: Instant, kind: CallKind, user: Option<Uuid>) {
        self.forget(now);
        self.counted.push_back(Counted {
            end: now + MINUTE,
            by: Some((kind, user)),
            count: 1,
        });
    }

    fn check(&mut self, now: Instant, kind: CallKind, user: Option<Uuid>) -> Result<(), Refused> {
        self.forget(now);
        let of = |calls: &Counted| {
            let kind = calls.by.map(|(kind, _)| kind);
            let if_so = |is_so| if is_so { calls.count } else { 0 };
            Counts {
                all: calls.count,
                of_syncs: if_so(matches!(kind, Some(CallKind::Sync | CallKind::SyncRefresh))),
                of_requests: if_so(matches!(kind, None | Some(CallKind::Request { .. }))),
                of_user: if_so(user.is_some() && calls.by.is_some_and(|(_, by)| by == user)),
            }
        };
        let mut counts = Counts::default();
        for Counts {
            all,
            of_syncs,
            of_requests,
            of_user,
        } in self.counted.iter().map(of)
        {
            counts.all += all;
            counts.of_syncs += of_syncs;
            counts.of_requests += of_requests;
            counts.of_user += of_user;
        }
        if counts.allow(self.per_minute, kind) {
            return Ok(());
        }
        let unshared = CallKind::Request {
            begins: false,
            has_share: false,
        };
        let by_all = kind == CallKind::Sync || !counts.allow(self.per_minute, unshared);
        let freeing = self.counted.iter().find(|calls| {
            let Counts {
                all,
                of_syncs,
                of_requests,
                of_user,
            } = of(calls);
            counts.all -= all;
            counts.of_syncs -= of_syncs;
            counts.of_requests -= of_requests;
            counts.of_user -= of_user;
            counts.allow(self.per_minute, kind)
        });
        Err(Refused {
            wait: freeing.map_or(MINUTE, |calls| calls.end - now),
            by_all,
        })
    }

    fn forget(&mut self, now: Instant) {
        let ended = self.counted.partition_point(|calls| calls.end <= now);
        self.counted.drain(..ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const BEGINS: CallKind = CallKind::Request {
        begins: true,
        has_share: true,
    };
    const CONTINUES: CallKind = CallKind::Request {
        begins: false,
        has_share: true,
    };
    const UNSHARED: CallKind = CallKind::Request {
        begins: true,
        has_share: false,
    };

    fn window(per_minute: u32) -> CallWindow {
        CallWindow::new("test", per_minute, None)
    }

    /// Makes calls until one is refused. Returns how many were made.
    async fn use_up(window: &CallWindow, kind: CallKind, user: Uuid) -> usize {
        let mut made = 0;
        while window.take(kind, Some(user)).await.is_ok() {
            made += 1;
        }
        made
    }

    #[tokio::test(start_paused = true)]
    async fn share_of_a_user_shrinks_as_the_minute_runs_out() {
        let window = window(250);
        let greedy: Vec<Uuid> = std::iter::repeat_with(Uuid::new_v4).take(4).collect();
        assert_eq!(
            use_up(&window, BEGINS, greedy[0]).await,
            75,
            "a request may begin"
        );
        assert_eq!(
            use_up(&window, CONTINUES, greedy[0]).await,
            13,
            "one that has begun may continue"
        );
        let mut held = Vec::new();
        for user in &greedy[1..] {
            held.push(use_up(&window, CONTINUES, *user).await);
        }
        assert_eq!(held, [44, 22, 11], "half of what the others leave");
        assert_eq!(
            use_up(&window, UNSHARED, Uuid::new_v4()).await,
            10,
            "up to the part of jobs"
        );
        let refused = window.take(BEGINS, Some(Uuid::new_v4())).await;
        assert_eq!(
            refused,
            Err(Refused {
                wait: MINUTE,
                by_all: true
            })
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_says_when_the_share_is_enough_again() {
        let (window, greedy) = (window(250), Uuid::new_v4());
        for _ in 0..60 {
            window.take(BEGINS, Some(greedy)).await.unwrap();
            tokio::time::advance(SECOND / 4).await;
        }
        assert_eq!(use_up(&window, BEGINS, greedy).await, 15);
        assert_eq!(
            window.take(BEGINS, Some(greedy)).await,
            Err(Refused {
                wait: 45 * SECOND,
                by_all: false
            })
        );
        tokio::time::advance(45 * SECOND).await;
        assert_eq!(use_up(&window, BEGINS, greedy).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn syncs_leave_calls_to_requests_and_get_their_own() {
        let (window_of_syncs, user) = (window(250), Uuid::new_v4());
        assert_eq!(
            use_up(&window_of_syncs, CallKind::Sync, user).await,
            150,
            "six tenths"
        );
        assert_eq!(
            use_up(&window_of_syncs, UNSHARED, Uuid::new_v4()).await,
            100,
            "the other four"
        );
        let refused = window_of_syncs.take(CallKind::Sync, None).await;
        assert_eq!(
            refused,
            Err(Refused {
                wait: MINUTE,
                by_all: true
            })
        );
        assert_eq!(
            window_of_syncs.take(CallKind::Job, None).await,
            Ok(()),
            "another job"
        );

        let window_of_requests = window(250);
        assert_eq!(use_up(&window_of_requests, UNSHARED, user).await, 175);
        for _ in 0..50 {
            window_of_requests
                .take(CallKind::SyncRefresh, None)
                .await
                .unwrap();
        }
        assert_eq!(
            use_up(&window_of_requests, CallKind::Sync, user).await,
            25,
            "three tenths with their refreshes"
        );

        let smallest = window(1);
        assert_eq!(use_up(&smallest, CallKind::Sync, user).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn window_follows_the_count_of_the_provider() {
        let window = window(250);
        window.take(CallKind::Job, None).await.unwrap();
        let check = || window.calls.lock().check(Instant::now(), BEGINS, None);
        let wait = || check().err().map(|refused| refused.wait);
        window.correct(250, 249, 5 * SECOND);
        assert_eq!(wait(), None, "it has counted the same call");
        window.correct(250, 74, 5 * SECOND);
        assert_eq!(wait(), Some(5 * SECOND), "others have used it up");
        window.correct(300, 74, 3600 * SECOND);
        assert_eq!(
            wait(),
            Some(5 * SECOND),
            "50 more are no reason to wait longer"
        );
        window.correct(u32::MAX, 0, 3600 * SECOND);
        assert_eq!(wait(), Some(MINUTE), "no reset is later");
        tokio::time::advance(MINUTE).await;
        window.correct(1, 1, SECOND);
        assert_eq!(wait(), None, "the smallest limit leaves a call to requests");
    }
}
