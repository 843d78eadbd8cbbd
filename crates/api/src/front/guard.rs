//! Checks every request before its handler, unless its path is open. The order of the checks
//! decides which error a client gets: 401 first, then 404 and 405, then 429, then 403.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use bellbird_limits::gcra::{self, Decision};
use http::HeaderValue;
use http::header::{ALLOW, HeaderName};
use http_body_util::BodyExt as _;

use crate::front::access::Access;
use crate::front::extract::Authorized;
use crate::front::log;
use crate::front::mount::{Endpoint, EndpointHandler, Unlisted};
use crate::front::operator::Operator;
use crate::front::problem::Problem;
use crate::front::quota::LivePermit;
use crate::front::route::Route;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Checks a request and passes it to the handler of its path, which the access log has found.
pub(crate) async fn guard(State(access): State<Access>, mut request: Request) -> Response {
    let Some(endpoint) = request.extensions_mut().remove::<Arc<Endpoint>>() else {
        return Problem::Internal.into_response();
    };
    let metadata = &access.quotas().metadata;
    let accepts = endpoint.route.accepts(request.method());
    let (quota, call) = match &endpoint.handler {
        EndpointHandler::Open(call) if accepts => return call(request).await,
        EndpointHandler::Open(_) => return method_not_allowed(&endpoint.route),
        EndpointHandler::ForOperators(_) | EndpointHandler::Missing(Unlisted::Operators) => {
            return Box::pin(guard_for_operators(access, &endpoint, request)).await;
        }
        EndpointHandler::Missing(Unlisted::Public) => return Problem::NoSuchPath.into_response(),
        EndpointHandler::Missing(Unlisted::Users) => {
            (metadata, Err(Problem::NoSuchPath.into_response()))
        }
        EndpointHandler::Guarded { .. } if !accepts => {
            (metadata, Err(method_not_allowed(&endpoint.route)))
        }
        EndpointHandler::Guarded { quota, call } => (quota, Ok(call)),
    };
    let now = access.clock().now();
    let (head, body) = request.into_parts();
    let caller = match access.authenticate(&head, endpoint.form.key, now).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    log::set_key(caller.key_id.uuid());
    access.inner.key_reads.count(&caller, &endpoint.route);
    let (decision, mut response) = match call {
        // 404 and 405 consume the metadata quota but are never replaced by 429.
        Err(response) => (quota.take(caller.key_id, now).await, response),
        Ok(call) => {
            let (decision, admitted) = quota
                .admit(&caller, &access.inner.live_in_flight, now)
                .await;
            let response = match admitted {
                Ok(permit) => {
                    let route = Arc::clone(&endpoint.route);
                    let authorized = Authorized {
                        caller,
                        now,
                        permit: permit.clone(),
                        route,
                        quota: quota.clone(),
                    };
                    let request = Request::from_parts(head, body);
                    hold_until_sent(call(request, access.clone(), authorized).await, permit)
                }
                Err(problem) => problem.into_response(),
            };
            (decision, response)
        }
    };
    show_limit(&mut response, quota.calls(), decision);
    response
}

/// As [`guard`], for operators, who have one rate limit for all paths, and no plan. 404 and 405 are
/// never replaced by 429 here either.
async fn guard_for_operators(access: Access, endpoint: &Endpoint, request: Request) -> Response {
    let now = access.clock().now();
    let (head, body) = request.into_parts();
    let key_id = match access.authenticate_operator(&head, now).await {
        Ok(key_id) => key_id,
        Err(problem) => return problem.into_response(),
    };
    log::set_key(key_id.uuid());
    let limit = access.inner.operator_limit.as_ref();
    let decision = match limit {
        Some(limit) => Some(limit.take(key_id, now).await),
        None => None,
    };
    let mut response = match &endpoint.handler {
        EndpointHandler::ForOperators(call) if endpoint.route.accepts(&head.method) => {
            match decision {
                Some(rejected) if !rejected.allowed => {
                    Problem::TooManyRequests(gcra::whole_seconds(rejected.wait_us)).into_response()
                }
                _ => {
                    let operator = Operator {
                        key_id,
                        now,
                        route: Arc::clone(&endpoint.route),
                    };
                    call(Request::from_parts(head, body), operator).await
                }
            }
        }
        EndpointHandler::ForOperators(_) => method_not_allowed(&endpoint.route),
        _ => Problem::NoSuchPath.into_response(),
    };
    show_limit(&mut response, limit.map(|limit| limit.calls()), decision);
    response
}

fn show_limit(response: &mut Response, calls: Option<u32>, decision: Option<Decision>) {
    if let (Some(calls), Some(decision)) = (calls, decision) {
        let headers = response.headers_mut();
        headers.insert(X_RATELIMIT_LIMIT, HeaderValue::from(calls));
        headers.insert(X_RATELIMIT_REMAINING, HeaderValue::from(decision.remaining));
        headers.insert(
            X_RATELIMIT_RESET,
            HeaderValue::from(gcra::whole_seconds(decision.wait_us)),
        );
    }
}

fn method_not_allowed(route: &Route) -> Response {
    let mut response = Problem::MethodNotAllowed.into_response();
    if let Ok(allow) = HeaderValue::from_str(&route.allow) {
        response.headers_mut().insert(ALLOW, allow);
    }
    response
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
