//! Quota classes: how often an API key may call a path, how many of its requests may run at once,
//! and which plan it needs.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bellbird_domain::{Caller, KeyId, Plan};
use bellbird_limits::gcra::{self, Decision};
use bellbird_limits::{Admission, InFlight, Permit, RateLimiter, SharedStore, admit};
use http::header::{HeaderName, HeaderValue};
use jiff::Timestamp;

use crate::http::problem::Problem;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// A permit for one concurrent live request of an API key, if the path needs one. The provider read
/// holds it too, so a client that disconnects cannot start another read before its first one has
/// ended.
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
    /// A class with a rate limit of its own for each key; 0 means no limit. Instances that share
    /// the store share the limit, under its name.
    pub fn per_minute(name: &'static str, calls: u32, store: Option<&SharedStore>) -> Self {
        let limit = RateLimiter::per_minute(calls).map(|limit| Arc::new(limit.shared(store, name)));
        Self {
            limit,
            needs_permit: false,
            needs_access: true,
            needs_professional: false,
        }
    }

    /// Each request is one of the concurrent requests of its key until the response has been sent.
    #[must_use]
    pub fn with_permit(self) -> Self {
        Self {
            needs_permit: true,
            ..self
        }
    }

    /// Also for a plan without API access.
    #[must_use]
    pub fn for_every_plan(self) -> Self {
        Self {
            needs_access: false,
            ..self
        }
    }

    /// Needs the Professional plan.
    #[must_use]
    pub fn for_professionals(self) -> Self {
        Self {
            needs_professional: true,
            ..self
        }
    }

    /// Calls a minute. `None` if there is no limit.
    pub fn calls(&self) -> Option<u32> {
        self.limit.as_ref().map(|limit| limit.calls())
    }

    /// Takes one call, whether or not it is allowed.
    pub(crate) async fn take(&self, key: KeyId, now: Timestamp) -> Option<Decision> {
        match &self.limit {
            Some(limit) => Some(limit.take(key, now).await),
            None => None,
        }
    }

    /// Checks permit, limit and plan, in this order.
    pub(crate) async fn admit(
        &self,
        caller: &Caller,
        permits: &InFlight<KeyId>,
        now: Timestamp,
    ) -> (Option<Decision>, Result<LivePermit, Problem>) {
        let permits = self.needs_permit.then_some(permits);
        let Admission {
            decision,
            has_permit,
            permit,
        } = admit(self.limit.as_deref(), permits, caller.key_id, now).await;
        let seconds_to_wait = decision.and_then(|decision| decision.seconds_to_wait());
        let admitted = match seconds_to_wait {
            _ if !has_permit => Err(Problem::TooManyAtOnce),
            Some(seconds) => Err(Problem::TooManyRequests(seconds)),
            None => self.check_plan(caller.plan).map(|()| permit.map(Arc::new)),
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

/// Why a request failed that the guard has let in, and the calls a minute and the decision of the
/// limit that refused it, if that is another one than the guard's.
pub(crate) struct Refused {
    pub problem: Problem,
    pub limit: Option<(u32, Decision)>,
}

impl From<Problem> for Refused {
    fn from(problem: Problem) -> Self {
        let limit = None;
        Self { problem, limit }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let mut response = self.problem.into_response();
        show_limit(&mut response, self.limit);
        response
    }
}

/// Adds the headers of a limit, unless the response has those of the one that refused it.
pub(crate) fn show_limit(response: &mut Response, limit: Option<(u32, Decision)>) {
    let headers = response.headers_mut();
    if let Some((calls, decision)) = limit
        && !headers.contains_key(X_RATELIMIT_LIMIT)
    {
        headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(calls));
        headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(decision.remaining));
        headers.insert(
            X_RATELIMIT_RESET,
            HeaderValue::from(gcra::whole_seconds(decision.wait_us)),
        );
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::UserId;
    use jiff::tz::TimeZone;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn per_minute(calls: u32) -> QuotaClass {
        QuotaClass::per_minute("test", calls, None)
    }

    fn caller(plan: Plan) -> Caller {
        Caller {
            key_id: KeyId::new(),
            user_id: UserId::new(),
            plan,
            timezone: TimeZone::UTC,
            revision: 1,
        }
    }

    #[tokio::test]
    async fn plan_decides_which_classes_are_admitted() {
        let permits = InFlight::new(4);
        let metadata = per_minute(0);
        let live = metadata.clone().with_permit();
        let brokerage = live.clone().for_professionals();
        let admitted = async |class: &QuotaClass, plan| {
            class
                .admit(&caller(plan), &permits, NOW)
                .await
                .1
                .map(|permit| permit.is_some())
        };
        assert_eq!(
            admitted(&metadata.clone().for_every_plan(), Plan::Saver).await,
            Ok(false)
        );
        for (class, has_permit) in [(&metadata, false), (&live, true), (&brokerage, true)] {
            assert_eq!(
                admitted(class, Plan::Saver).await,
                Err(Problem::PlanRequired)
            );
            assert_eq!(admitted(class, Plan::Professional).await, Ok(has_permit));
        }
        assert_eq!(admitted(&metadata, Plan::Developer).await, Ok(false));
        assert_eq!(admitted(&live, Plan::Developer).await, Ok(true));
        assert_eq!(
            admitted(&brokerage, Plan::Developer).await,
            Err(Problem::ProfessionalRequired)
        );
    }

    #[tokio::test]
    async fn limit_is_checked_before_the_plan() {
        let (permits, class) = (InFlight::new(4), per_minute(2));
        let saver = caller(Plan::Saver);
        let problem = async || class.admit(&saver, &permits, NOW).await.1.err();
        assert_eq!(problem().await, Some(Problem::PlanRequired));
        assert_eq!(problem().await, Some(Problem::PlanRequired));
        assert_eq!(problem().await, Some(Problem::TooManyRequests(30)));
    }

    #[tokio::test]
    async fn request_without_permit_consumes_no_quota() {
        let (permits, metadata) = (InFlight::new(1), per_minute(10));
        let live = metadata.clone().with_permit();
        let caller = caller(Plan::Developer);
        let admit = async |class: &QuotaClass| class.admit(&caller, &permits, NOW).await;
        let (_, held) = admit(&live).await;
        let (decision, rejected) = admit(&live).await;
        assert_eq!(rejected.err(), Some(Problem::TooManyAtOnce));
        assert_eq!(decision.map(|decision| decision.remaining), Some(9));
        assert!(
            admit(&metadata)
                .await
                .1
                .is_ok_and(|permit| permit.is_none()),
            "only live requests need a permit"
        );
        drop(held);
        let (decision, admitted) = admit(&live).await;
        assert!(admitted.is_ok_and(|permit| permit.is_some()));
        assert_eq!(decision.map(|decision| decision.remaining), Some(7));
    }
}
