//! Checks every request before its handler, unless its path is open. The order of the checks decides which error a
//! client gets: 401 first, then 404 and 405, then 429, then 403.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bellbird_domain::{Account, Caller, KeyId, Plan};
use bellbird_limits::gcra::{self, Decision};
use bellbird_limits::{InFlight, Permit, RateLimiter};
use bellbird_reads::ConnectionContext;
use http::HeaderValue;
use http::header::HeaderName;
use http_body_util::BodyExt as _;
use jiff::Timestamp;

use crate::front::access::Access;
use crate::front::extract::{Admitted, AuthenticatedKey, LivePermit};
use crate::front::live::problem_for_category;
use crate::front::problem::Problem;
use crate::front::routes::{Class, Doors};

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

#[derive(Clone)]
pub(crate) struct Guard {
    pub(crate) access: Access,
    pub(crate) doors: Arc<Doors>,
}

/// Requests to open paths pass unchecked.
pub(crate) async fn guard(State(Guard { access, doors }): State<Guard>, request: Request, next: Next) -> Response {
    let (route, door) = doors.find(request.uri().path());
    let class = route.class;
    if class == Class::Open {
        return next.run(request).await;
    }
    let now = access.inner.clock.now();
    let (head, body) = request.into_parts();
    let caller = match access.authenticate(&head, door.credentials, now).await {
        Ok(caller) => caller,
        Err(problem) => return door.deny(problem),
    };
    let mut request = Request::from_parts(head, body);
    let key_id = caller.key_id;
    tracing::Span::current().record("key_id", tracing::field::display(key_id));
    // 404 and 405 consume the metadata quota but are never replaced by 429.
    let unroutable = class == Class::Unknown || !route.accepts(request.method());
    let limit = if unroutable { Class::Unknown.limit(&access) } else { class.limit(&access) };
    let (decision, mut response) = if unroutable {
        (limit.map(|limit| limit.take(key_id, now)), next.run(request).await)
    } else {
        let (decision, admitted) = admit(class, &caller, limit, &access.inner.live_in_flight, now);
        let response = match admitted {
            Ok(permit) => {
                let permit = permit.map(Arc::new);
                request.extensions_mut().insert(Admitted { caller, now, permit: permit.clone() });
                hold_until_sent(next.run(request).await, permit)
            }
            Err(problem) => door.deny(problem),
        };
        (decision, response)
    };
    if let (Some(limit), Some(decision)) = (limit, decision) {
        let headers = response.headers_mut();
        headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(limit.calls()));
        headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(decision.remaining));
        headers.insert(X_RATELIMIT_RESET, HeaderValue::from(gcra::whole_seconds(decision.wait_us)));
    }
    response.extensions_mut().insert(AuthenticatedKey(key_id));
    response
}

impl Access {
    /// Takes limit, permit and plan of a class, for a door that learns from the body what a request reads.
    pub fn admit(&self, class: Class, caller: &Caller, now: Timestamp) -> Result<LivePermit, Problem> {
        let (_, admitted) = admit(class, caller, class.limit(self), &self.inner.live_in_flight, now);
        admitted.map(|permit| permit.map(Arc::new))
    }
}

impl Access {
    /// Checks again, between two pages of a long answer, what was checked at its start: key, plan and connection.
    /// Returns the caller as of now.
    pub async fn check_again(
        &self,
        class: Class,
        caller: &Caller,
        context: &ConnectionContext,
    ) -> Result<Caller, Problem> {
        let now = self.inner.clock.now();
        let found = self.inner.storage.keys().find_caller_by_id(caller.user_id, caller.key_id, now).await?;
        let found = found.ok_or(Problem::Unauthorized)?.caller;
        class.check_plan(found.plan)?;
        // Not the caller's: an answer of several connections may have begun with an older context than that.
        if found.revision != context.revision() {
            let connection = &context.connection;
            let again = self.reads().connection_context(&found, connection.id).await;
            let again = again.map_err(|error| problem_for_category(&error, "Connection", connection.category))?;
            let is_gone = |account: &Account| !again.accounts.iter().any(|other| other.id == account.id);
            if context.accounts.iter().any(is_gone) {
                return Err(Problem::NotFound("Account"));
            }
        }
        Ok(found)
    }
}

/// Acquires the concurrency permit before it takes from the rate limit, because a request without a permit must not
/// consume quota.
fn admit(
    class: Class,
    caller: &Caller,
    limit: Option<&RateLimiter<KeyId>>,
    permits: &InFlight<KeyId>,
    now: Timestamp,
) -> (Option<Decision>, Result<Option<Permit<KeyId>>, Problem>) {
    let permit = match class.needs_permit().then(|| permits.try_acquire(caller.key_id)) {
        // All permits of this key are in use.
        Some(None) => return (limit.map(|limit| limit.peek(&caller.key_id, now)), Err(Problem::TooManyRequests(1))),
        Some(permit) => permit,
        None => None,
    };
    let decision = limit.map(|limit| limit.take(caller.key_id, now));
    let admitted = match decision {
        Some(rejected) if !rejected.allowed => Err(Problem::TooManyRequests(gcra::whole_seconds(rejected.wait_us))),
        _ => class.check_plan(caller.plan).map(|()| permit),
    };
    (decision, admitted)
}

impl Class {
    fn check_plan(self, plan: Plan) -> Result<(), Problem> {
        match plan {
            Plan::Saver => Err(Problem::PlanRequired),
            Plan::Developer if self == Self::Brokerage => Err(Problem::ProfessionalRequired),
            Plan::Developer | Plan::Professional => Ok(()),
        }
    }

    fn needs_permit(self) -> bool {
        matches!(self, Self::Live | Self::Brokerage | Self::SimpleFin)
    }

    fn limit(self, access: &Access) -> Option<&RateLimiter<KeyId>> {
        match self {
            Self::Open => None,
            Self::Metadata | Self::Unknown => access.inner.metadata_limit.as_ref(),
            Self::Balances => access.inner.balances_limit.as_ref(),
            Self::Live | Self::Brokerage => access.inner.live_limit.as_ref(),
            Self::SimpleFin => access.inner.simplefin_limit.as_ref(),
        }
    }
}

/// Keeps the permit until the response body has been sent.
fn hold_until_sent(response: Response, permit: LivePermit) -> Response {
    match permit {
        // The body is dropped when it has been sent, and its error mapping with it. Unlike other adapters, this one
        // passes the size on, which becomes `Content-Length`.
        Some(permit) => response.map(|body| {
            Body::new(body.map_err(move |error| {
                let _permit = &permit;
                error
            }))
        }),
        None => response,
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::UserId;
    use http_body::Body as _;
    use jiff::tz::TimeZone;

    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;
    const CLASSES: [Class; 5] = [Class::Metadata, Class::Balances, Class::Live, Class::Brokerage, Class::SimpleFin];

    fn caller(plan: Plan) -> Caller {
        Caller { key_id: KeyId::new(), user_id: UserId::new(), plan, timezone: TimeZone::UTC, revision: 1 }
    }

    #[test]
    fn plan_decides_which_classes_are_admitted() {
        let permits = InFlight::new(4);
        let admitted = |class, plan| admit(class, &caller(plan), None, &permits, NOW).1.map(|permit| permit.is_some());
        for class in CLASSES {
            assert_eq!(admitted(class, Plan::Saver), Err(Problem::PlanRequired), "{class:?}");
            let has_permit = !matches!(class, Class::Metadata | Class::Balances);
            assert_eq!(admitted(class, Plan::Professional), Ok(has_permit), "{class:?}");
            let of_developer =
                if class == Class::Brokerage { Err(Problem::ProfessionalRequired) } else { Ok(has_permit) };
            assert_eq!(admitted(class, Plan::Developer), of_developer, "{class:?}");
        }
    }

    #[test]
    fn limit_is_checked_before_the_plan() {
        let (permits, limit) = (InFlight::new(4), RateLimiter::per_minute(2));
        let saver = caller(Plan::Saver);
        let problem = || admit(Class::Metadata, &saver, limit.as_ref(), &permits, NOW).1.err();
        assert_eq!(problem(), Some(Problem::PlanRequired));
        assert_eq!(problem(), Some(Problem::PlanRequired));
        assert_eq!(problem(), Some(Problem::TooManyRequests(30)));
    }

    #[test]
    fn request_without_permit_consumes_no_quota() {
        let (permits, limit) = (InFlight::new(1), RateLimiter::per_minute(10));
        let caller = caller(Plan::Developer);
        let admit = |class| admit(class, &caller, limit.as_ref(), &permits, NOW);
        let (_, held) = admit(Class::Live);
        let (decision, rejected) = admit(Class::Live);
        assert_eq!(rejected.err(), Some(Problem::TooManyRequests(1)));
        assert_eq!(decision.map(|decision| decision.remaining), Some(9));
        assert!(admit(Class::Metadata).1.is_ok_and(|permit| permit.is_none()), "only live requests need a permit");
        drop(held);
        let (decision, admitted) = admit(Class::Live);
        assert!(admitted.is_ok_and(|permit| permit.is_some()));
        assert_eq!(decision.map(|decision| decision.remaining), Some(7));
    }

    #[test]
    fn permit_is_released_with_the_body() {
        let permits = InFlight::new(1);
        let key = KeyId::new();
        let permit = permits.try_acquire(key).map(Arc::new);
        let response = hold_until_sent(Response::new(Body::from("four")), permit);
        assert_eq!(response.body().size_hint().exact(), Some(4));
        assert!(permits.try_acquire(key).is_none());
        drop(response);
        assert!(permits.try_acquire(key).is_some());
    }
}
