//! Quota classes: how often an API key may call a path, how many of its requests may run at once, and which plan it
//! needs.

use std::sync::Arc;

use bellbird_domain::{Caller, KeyId, Plan};
use bellbird_limits::gcra::{self, Decision};
use bellbird_limits::{InFlight, Permit, RateLimiter};
use jiff::Timestamp;

use crate::front::problem::Problem;

/// A permit for one concurrent live request of an API key, if the path needs one. The provider read holds it too, so a
/// client that disconnects cannot start another read before its first one has ended.
pub type LivePermit = Option<Arc<Permit<KeyId>>>;

/// What a path costs its caller. Clones share the rate limit.
#[derive(Clone)]
pub struct QuotaClass {
    limit: Option<Arc<RateLimiter<KeyId>>>,
    needs_permit: bool,
    needs_access: bool,
    needs_professional: bool,
}

/// The classes of `/v1`. Other interfaces that read the same data share them.
pub struct Quotas {
    /// Served from the database.
    pub metadata: QuotaClass,
    /// As `metadata`, with the same limit; also for a plan without API access.
    pub every_plan: QuotaClass,
    /// As `metadata`, with the same limit; needs the Professional plan.
    pub brokerage_metadata: QuotaClass,
    /// Read from providers, cached.
    pub balances: QuotaClass,
    /// Read from providers, row by row.
    pub live: QuotaClass,
    /// As `live`, with the same limit; needs the Professional plan.
    pub brokerage: QuotaClass,
}

impl QuotaClass {
    /// A class with a rate limit of its own for each key; 0 means no limit.
    #[must_use]
    pub fn per_minute(calls: u32) -> Self {
        let limit = RateLimiter::per_minute(calls).map(Arc::new);
        Self { limit, needs_permit: false, needs_access: true, needs_professional: false }
    }

    /// Each request is one of the concurrent requests of its key until the response has been sent.
    #[must_use]
    pub fn with_permit(self) -> Self {
        Self { needs_permit: true, ..self }
    }

    /// Also for a plan without API access.
    #[must_use]
    pub fn for_every_plan(self) -> Self {
        Self { needs_access: false, ..self }
    }

    /// Needs the Professional plan.
    #[must_use]
    pub fn for_professionals(self) -> Self {
        Self { needs_professional: true, ..self }
    }

    /// Calls a minute. `None` if there is no limit.
    #[must_use]
    pub fn calls(&self) -> Option<u32> {
        self.limit.as_ref().map(|limit| limit.calls())
    }

    /// Takes one call, whether or not it is allowed.
    pub(crate) fn take(&self, key: KeyId, now: Timestamp) -> Option<Decision> {
        self.limit.as_ref().map(|limit| limit.take(key, now))
    }

    /// Checks permit, limit and plan, in this order.
    ///
    /// The permit comes before the rate limit, because a request without a permit must not consume quota.
    pub(crate) fn admit(
        &self,
        caller: &Caller,
        permits: &InFlight<KeyId>,
        now: Timestamp,
    ) -> (Option<Decision>, Result<LivePermit, Problem>) {
        let permit = match self.needs_permit.then(|| permits.try_acquire(caller.key_id)) {
            // All permits of this key are in use.
            Some(None) => {
                let decision = self.limit.as_ref().map(|limit| limit.peek(&caller.key_id, now));
                return (decision, Err(Problem::TooManyAtOnce));
            }
            Some(Some(permit)) => Some(Arc::new(permit)),
            None => None,
        };
        let decision = self.take(caller.key_id, now);
        let admitted = match decision {
            Some(rejected) if !rejected.allowed => Err(Problem::TooManyRequests(gcra::whole_seconds(rejected.wait_us))),
            _ => self.check_plan(caller.plan).map(|()| permit),
        };
        (decision, admitted)
    }

    pub(crate) fn check_plan(&self, plan: Plan) -> Result<(), Problem> {
        match plan {
            Plan::Saver if self.needs_access => Err(Problem::PlanRequired),
            Plan::Developer if self.needs_professional => Err(Problem::ProfessionalRequired),
            Plan::Saver | Plan::Developer | Plan::Professional => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::UserId;
    use jiff::tz::TimeZone;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn caller(plan: Plan) -> Caller {
        Caller { key_id: KeyId::new(), user_id: UserId::new(), plan, timezone: TimeZone::UTC, revision: 1 }
    }

    #[test]
    fn plan_decides_which_classes_are_admitted() {
        let permits = InFlight::new(4);
        let metadata = QuotaClass::per_minute(0);
        let live = metadata.clone().with_permit();
        let brokerage = live.clone().for_professionals();
        let admitted =
            |class: &QuotaClass, plan| class.admit(&caller(plan), &permits, NOW).1.map(|permit| permit.is_some());
        assert_eq!(admitted(&metadata.clone().for_every_plan(), Plan::Saver), Ok(false));
        for (class, has_permit) in [(&metadata, false), (&live, true), (&brokerage, true)] {
            assert_eq!(admitted(class, Plan::Saver), Err(Problem::PlanRequired));
            assert_eq!(admitted(class, Plan::Professional), Ok(has_permit));
        }
        assert_eq!(admitted(&metadata, Plan::Developer), Ok(false));
        assert_eq!(admitted(&live, Plan::Developer), Ok(true));
        assert_eq!(admitted(&brokerage, Plan::Developer), Err(Problem::ProfessionalRequired));
    }

    #[test]
    fn limit_is_checked_before_the_plan() {
        let (permits, class) = (InFlight::new(4), QuotaClass::per_minute(2));
        let saver = caller(Plan::Saver);
        let problem = || class.admit(&saver, &permits, NOW).1.err();
        assert_eq!(problem(), Some(Problem::PlanRequired));
        assert_eq!(problem(), Some(Problem::PlanRequired));
        assert_eq!(problem(), Some(Problem::TooManyRequests(30)));
    }

    #[test]
    fn request_without_permit_consumes_no_quota() {
        let (permits, metadata) = (InFlight::new(1), QuotaClass::per_minute(10));
        let live = metadata.clone().with_permit();
        let caller = caller(Plan::Developer);
        let admit = |class: &QuotaClass| class.admit(&caller, &permits, NOW);
        let (_, held) = admit(&live);
        let (decision, rejected) = admit(&live);
        assert_eq!(rejected.err(), Some(Problem::TooManyAtOnce));
        assert_eq!(decision.map(|decision| decision.remaining), Some(9));
        assert!(admit(&metadata).1.is_ok_and(|permit| permit.is_none()), "only live requests need a permit");
        drop(held);
        let (decision, admitted) = admit(&live);
        assert!(admitted.is_ok_and(|permit| permit.is_some()));
        assert_eq!(decision.map(|decision| decision.remaining), Some(7));
    }
}
