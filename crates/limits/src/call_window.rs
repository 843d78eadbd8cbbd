//! The calls of the last minute to a provider that limits those of all users together: at one
//! instance, or at all that share a store.

use std::collections::VecDeque;
use std::ops::{AddAssign, SubAssign};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use crate::store::SharedStore;
use crate::store::calls::{Addition, CallClass, CallList, CountedCall};

const MINUTE: Duration = Duration::from_secs(60);
/// Tenths of what the provider allows that requests leave to jobs. Syncs always get as many.
const JOB_TENTHS: u64 = 3;
/// Tenths that syncs leave to requests. Within these, a sync gets only what is its own.
const REQUEST_TENTHS: u64 = 4;
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
    pub by: RefusedBy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    /// The share of this user is used up.
    User,
    /// The calls of all are used up.
    All,
    /// The store is down, so the calls of other instances are not known.
    Store,
}

/// A user may hold as many calls as are left for requests, so at most half of what the others
/// leave. What one user may hold shrinks as the whole runs out, and some of it stays for a user who
/// comes later, however many are greedy. A request begins only below three quarters of that,
/// because one that fails halfway has wasted its calls.
///
/// With a store, all instances count there. An instance decides by the calls that it knows, and the
/// store counts the call only if these are all that there are. While the store is down, each
/// instance counts for itself, and syncs wait, because the instances together could take several
/// times what the provider allows.
pub struct CallWindow {
    name: &'static str,
    store: Option<SharedStore>,
    calls: Mutex<Calls>,
    /// Who asks the store. The calls of an instance do so one after the other, because each changes
    /// what the next one has to know.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Calls {
    per_minute: u64,
    /// Soonest to end first. With a store, those of all instances when `newest` was the newest.
    counted: VecDeque<CountedCall>,
    /// The id of the newest call in the store.
    newest: String,
    /// What the provider has counted, and until when it does, if that was not yet compared with
    /// what is counted here.
    provider_count: Option<(u64, Instant)>,
}

impl CallWindow {
    #[must_use]
    pub fn new(name: &'static str, per_minute: u32, store: Option<&SharedStore>) -> Self {
        let calls = Calls {
            per_minute: per_minute.into(),
            ..Calls::default()
        };
        Self {
            name,
            store: store.cloned(),
            calls: Mutex::new(calls),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Whether syncs have to wait because the calls of other instances are not known.
    #[must_use]
    pub fn syncs_wait(&self) -> bool {
        self.store.as_ref().is_some_and(SharedStore::is_down)
    }

    /// Counts a call in the share of a user, unless it must wait.
    ///
    /// # Errors
    /// The time to wait.
    pub async fn take(&self, kind: CallKind, user: Option<Uuid>) -> Result<(), Refused> {
        let user = self.user(user);
        let Some(store) = &self.store else {
            return self.calls.lock().take(kind, user);
        };
        let _turn = self.turn.lock().await;
        loop {
            let (next, newest) = {
                let mut calls = self.calls.lock();
                (calls.next(kind, user), calls.newest.clone())
            };
            let call = match &next {
                Next::Correction(call) | Next::Call(call) => Some(call),
                // It is true if nothing was added that this instance does not know.
                Next::Refused(_) => None,
            };
            let addition = store.add_call(self.name, &newest, call).await;
            let mut calls = self.calls.lock();
            match (addition, next) {
                (Some(Addition::Outdated(list)), _) => calls.replace(list),
                (Some(Addition::Added(newest)), Next::Correction(call)) => {
                    calls.add(call);
                    calls.newest = newest;
                }
                (Some(Addition::Added(newest)), Next::Call(call)) => {
                    calls.add(call);
                    calls.newest = newest;
                    return Ok(());
                }
                (Some(Addition::Added(_)), Next::Refused(refused)) => return Err(refused),
                (None, _) if kind == CallKind::Sync => {
                    return Err(Refused {
                        wait: STORE_AWAY_WAIT,
                        by: RefusedBy::Store,
                    });
                }
                (None, _) => return calls.take(kind, user),
            }
        }
    }

    /// How a call would be refused now, by the calls that this instance knows.
    #[must_use]
    pub fn known_refusal(&self, kind: CallKind, user: Option<Uuid>) -> Option<Refused> {
        let user = self.user(user);
        let mut calls = self.calls.lock();
        let now = Instant::now();
        calls.forget(now);
        calls.check(now, kind, user).err()
    }

    /// Follows the provider's count, which includes calls of others.
    pub fn correct(&self, per_minute: u32, remaining: u32, reset: Duration) {
        let mut calls = self.calls.lock();
        let now = Instant::now();
        calls.per_minute = per_minute.into();
        let count = per_minute.saturating_sub(remaining);
        calls.provider_count = Some((count.into(), now + reset.min(MINUTE)));
        // With a store, the next call compares it with the calls of all instances.
        if self.store.is_none() {
            calls.forget(now);
            calls.correct(now);
        }
    }

    fn user(&self, user: Option<Uuid>) -> Option<u128> {
        user.map(|user| match &self.store {
            Some(store) => store.call_user(user),
            None => user.as_u128(),
        })
    }
}

/// What to ask the store.
enum Next {
    /// To count the calls that only the provider has counted.
    Correction(CountedCall),
    Call(CountedCall),
    Refused(Refused),
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
    /// Adds or subtracts a call.
    fn apply(&mut self, call: &CountedCall, user: Option<u128>, change: impl Fn(&mut u64, u64)) {
        change(&mut self.all, call.count);
        match call.class {
            CallClass::Job => {}
            CallClass::Sync => change(&mut self.of_syncs, call.count),
            CallClass::Request => change(&mut self.of_requests, call.count),
        }
        if user.is_some() && call.user == user {
            change(&mut self.of_user, call.count);
        }
    }

    /// Whether one more call is allowed.
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

impl CountedCall {
    fn new(now: Instant, kind: CallKind, user: Option<u128>) -> Self {
        let class = match kind {
            CallKind::Job => CallClass::Job,
            CallKind::Sync | CallKind::SyncRefresh => CallClass::Sync,
            CallKind::Request { .. } => CallClass::Request,
        };
        Self {
            end: now + MINUTE,
            class,
            user,
            count: 1,
        }
    }
}

impl Calls {
    /// As an instance that counts for itself.
    fn take(&mut self, kind: CallKind, user: Option<u128>) -> Result<(), Refused> {
        let now = Instant::now();
        self.forget(now);
        self.correct(now);
        self.check(now, kind, user)?;
        self.add(CountedCall::new(now, kind, user));
        Ok(())
    }

    fn next(&mut self, kind: CallKind, user: Option<u128>) -> Next {
        let now = Instant::now();
        self.forget(now);
        if let Some(correction) = self.correction(now) {
            return Next::Correction(correction);
        }
        match self.check(now, kind, user) {
            Ok(()) => Next::Call(CountedCall::new(now, kind, user)),
            Err(refused) => Next::Refused(refused),
        }
    }

    fn replace(&mut self, list: CallList) {
        self.counted = list.calls;
        self.newest = list.newest;
    }

    fn add(&mut self, call: CountedCall) {
        let at = self.counted.partition_point(|other| other.end <= call.end);
        self.counted.insert(at, call);
    }

    fn correct(&mut self, now: Instant) {
        if let Some(correction) = self.correction(now) {
            self.add(correction);
            self.provider_count = None;
        }
    }

    /// The calls that the provider has counted beyond those here, which may be of requests.
    fn correction(&mut self, now: Instant) -> Option<CountedCall> {
        let (count, end) = self.provider_count?;
        let here: u64 = self.counted.iter().map(|call| call.count).sum();
        if count <= here || end <= now {
            self.provider_count = None;
            return None;
        }
        Some(CountedCall {
            end,
            class: CallClass::Request,
            user: None,
            count: count - here,
        })
    }

    fn check(&self, now: Instant, kind: CallKind, user: Option<u128>) -> Result<(), Refused> {
        let mut counts = Counts::default();
        for call in &self.counted {
            counts.apply(call, user, u64::add_assign);
        }
        if counts.allow(self.per_minute, kind) {
            return Ok(());
        }
        let unshared = CallKind::Request {
            begins: false,
            has_share: false,
        };
        let by_all = kind == CallKind::Sync || !counts.allow(self.per_minute, unshared);
        let freeing = self.counted.iter().find(|call| {
            counts.apply(call, user, u64::sub_assign);
            counts.allow(self.per_minute, kind)
        });
        Err(Refused {
            wait: freeing.map_or(MINUTE, |call| call.end - now),
            by: if by_all {
                RefusedBy::All
            } else {
                RefusedBy::User
            },
        })
    }

    fn forget(&mut self, now: Instant) {
        let ended = self.counted.partition_point(|call| call.end <= now);
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

    fn refused(wait: Duration, by: RefusedBy) -> Result<(), Refused> {
        Err(Refused { wait, by })
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
        let began = use_up(&window, BEGINS, greedy[0]).await;
        assert_eq!(began, 75, "a request may begin");
        let continued = use_up(&window, CONTINUES, greedy[0]).await;
        assert_eq!(continued, 13, "one that has begun may continue");
        let mut held = Vec::new();
        for user in &greedy[1..] {
            held.push(use_up(&window, CONTINUES, *user).await);
        }
        assert_eq!(held, [44, 22, 11], "half of what the others leave");
        let left = use_up(&window, UNSHARED, Uuid::new_v4()).await;
        assert_eq!(left, 10, "up to the part of jobs");
        let taken = window.take(BEGINS, Some(Uuid::new_v4())).await;
        assert_eq!(taken, refused(MINUTE, RefusedBy::All));
    }

    #[tokio::test(start_paused = true)]
    async fn refusal_says_when_the_share_is_enough_again() {
        let (window, greedy) = (window(250), Uuid::new_v4());
        for _ in 0..60 {
            window.take(BEGINS, Some(greedy)).await.unwrap();
            tokio::time::advance(SECOND / 4).await;
        }
        assert_eq!(use_up(&window, BEGINS, greedy).await, 15);
        let taken = window.take(BEGINS, Some(greedy)).await;
        assert_eq!(taken, refused(45 * SECOND, RefusedBy::User));
        tokio::time::advance(45 * SECOND).await;
        assert_eq!(use_up(&window, BEGINS, greedy).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn syncs_leave_calls_to_requests_and_get_their_own() {
        let (window_of_syncs, user) = (window(250), Uuid::new_v4());
        let by_syncs = use_up(&window_of_syncs, CallKind::Sync, user).await;
        assert_eq!(by_syncs, 150, "six tenths");
        let by_requests = use_up(&window_of_syncs, UNSHARED, Uuid::new_v4()).await;
        assert_eq!(by_requests, 100, "the other four");
        let taken = window_of_syncs.take(CallKind::Sync, None).await;
        assert_eq!(taken, refused(MINUTE, RefusedBy::All));
        let taken = window_of_syncs.take(CallKind::Job, None).await;
        assert_eq!(taken, Ok(()), "another job");

        let window_of_requests = window(250);
        assert_eq!(use_up(&window_of_requests, UNSHARED, user).await, 175);
        for _ in 0..50 {
            let taken = window_of_requests.take(CallKind::SyncRefresh, None).await;
            taken.unwrap();
        }
        let by_syncs = use_up(&window_of_requests, CallKind::Sync, user).await;
        assert_eq!(by_syncs, 25, "three tenths with their refreshes");

        let smallest = window(1);
        assert_eq!(use_up(&smallest, CallKind::Sync, user).await, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn window_follows_the_count_of_the_provider() {
        let window = window(250);
        window.take(CallKind::Job, None).await.unwrap();
        let wait = || {
            window
                .known_refusal(BEGINS, None)
                .map(|refused| refused.wait)
        };
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
