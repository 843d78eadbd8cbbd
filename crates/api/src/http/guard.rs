//! Checks every request before its handler, unless its route is open. The order of the checks
//! decides which error a client gets: 401 first, then 404 and 405, then 429, then 403.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bellbird_domain::{ApiKey, Caller, OperatorKeyId};
use bellbird_limits::RateLimiter;
use bellbird_limits::gcra::Decision;
use http::request::Parts;
use http::{Extensions, HeaderMap};
use http_body_util::BodyExt as _;
use jiff::Timestamp;

use crate::http::context::ApiContext;
use crate::http::extract::Authorized;
use crate::http::log;
use crate::http::operator::Operator;
use crate::http::problem::Problem;
use crate::http::quota::{LivePermit, QuotaClass, show_limit};

pub(crate) struct Guard {
    pub context: ApiContext,
    pub gate: Gate,
}

/// Whom a route lets in, and what it costs them.
pub(crate) enum Gate {
    /// Users. The function finds their key.
    Users(fn(&HeaderMap) -> Option<ApiKey>, QuotaClass),
    /// Operators, who have one rate limit for all routes, and no plan.
    Operators,
}

/// Who calls, and what counts their calls.
enum Authenticated<'g> {
    User(Caller, &'g QuotaClass),
    Operator(OperatorKeyId, Option<&'g RateLimiter<OperatorKeyId>>),
}

/// The layer of routes that need a key.
pub(crate) async fn guard(
    State(guard): State<Arc<Guard>>,
    request: Request,
    next: Next,
) -> Response {
    let now = guard.context.clock().now();
    let (mut head, body) = request.into_parts();
    let caller = match guard.authenticate(&head, now).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let calls = caller.calls();
    let (decision, admitted) = caller.admit(&guard.context, now).await;
    let mut response = match admitted {
        Ok(permit) => {
            caller.introduce(&mut head.extensions, permit.clone(), now);
            hold_until_sent(next.run(Request::from_parts(head, body)).await, permit)
        }
        Err(problem) => problem.into_response(),
    };
    show_limit(&mut response, calls.zip(decision));
    response
}

impl Guard {
    /// Responds to a request for what does not exist. 404 and 405 consume quota, but are never
    /// replaced by 429.
    pub(crate) async fn reject(&self, request: Request, problem: Problem) -> Response {
        let now = self.context.clock().now();
        let (head, _) = request.into_parts();
        let caller = match self.authenticate(&head, now).await {
            Ok(caller) => caller,
            Err(problem) => return problem.into_response(),
        };
        let decision = caller.take(now).await;
        let mut response = problem.into_response();
        show_limit(&mut response, caller.calls().zip(decision));
        response
    }

    async fn authenticate(
        &self,
        head: &Parts,
        now: Timestamp,
    ) -> Result<Authenticated<'_>, Problem> {
        let context = &self.context;
        match &self.gate {
            Gate::Users(key, quota) => {
                let caller = context.authenticate(head, *key, now).await?;
                log::set_key(caller.key_id.uuid());
                let route = head.extensions.get::<MatchedPath>();
                context.inner.key_reads.count(&caller, route);
                Ok(Authenticated::User(caller, quota))
            }
            Gate::Operators => {
                let key_id = context.authenticate_operator(head, now).await?;
                log::set_key(key_id.uuid());
                let limit = context.inner.operator_limit.as_ref();
                Ok(Authenticated::Operator(key_id, limit))
            }
        }
    }
}

impl Authenticated<'_> {
    /// Calls a minute.
    fn calls(&self) -> Option<u32> {
        match self {
            Self::User(_, quota) => quota.calls(),
            Self::Operator(_, limit) => limit.map(RateLimiter::calls),
        }
    }

    /// Takes one call, whether or not it is allowed.
    async fn take(&self, now: Timestamp) -> Option<Decision> {
        match self {
            Self::User(caller, quota) => quota.take(caller.key_id, now).await,
            Self::Operator(key_id, limit) => match limit {
                Some(limit) => Some(limit.take(*key_id, now).await),
                None => None,
            },
        }
    }

    async fn admit(
        &self,
        context: &ApiContext,
        now: Timestamp,
    ) -> (Option<Decision>, Result<LivePermit, Problem>) {
        match self {
            Self::User(caller, quota) => {
                quota
                    .admit(caller, &context.inner.live_in_flight, now)
                    .await
            }
            Self::Operator(..) => {
                let decision = self.take(now).await;
                let seconds_to_wait = decision.and_then(|decision| decision.seconds_to_wait());
                let admitted = match seconds_to_wait {
                    Some(seconds) => Err(Problem::TooManyRequests(seconds)),
                    None => Ok(None),
                };
                (decision, admitted)
            }
        }
    }

    /// Tells the handler who calls.
    fn introduce(self, extensions: &mut Extensions, permit: LivePermit, now: Timestamp) {
        match self {
            Self::User(caller, quota) => {
                extensions.insert(Authorized {
                    caller,
                    now,
                    permit,
                    quota: quota.clone(),
                });
            }
            Self::Operator(key_id, _) => {
                extensions.insert(Operator { key_id, now });
            }
        }
    }
}

/// Keeps the permit until the response body has been sent.
fn hold_until_sent(response: Response, permit: LivePermit) -> Response {
    match permit {
        // The body is dropped when it has been sent, and its error mapping with it. Unlike other
        // adapters, this one passes the size on, which becomes `Content-Length`.
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
    use bellbird_domain::KeyId;
    use bellbird_limits::InFlight;
    use http_body::Body as _;

    use super::*;

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
