//! Checks every request under `/v1` before its handler. The order of the checks decides which error a client gets: 401
//! first, then 404 and 405, then 429, then 403.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bellbird_domain::{Caller, KeyId, Plan};
use bellbird_shared_state::gcra::{self, Decision};
use bellbird_shared_state::{Permit, RateLimiter};
use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, Method};
use http_body::{Frame, SizeHint};
use jiff::Timestamp;

use crate::extract::{AuthenticatedKey, LivePermit, RequestTime};
use crate::problem::Problem;
use crate::routes::{self, Class};
use crate::state::AppState;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// Requests outside `/v1` pass unchecked.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let class = routes::route_of(request.uri().path()).class;
    if class == Class::Open {
        return next.run(request).await;
    }
    let now = state.inner.clock.now();
    let (head, body) = request.into_parts();
    let caller = match state.authenticate(&head, now).await {
        Ok(caller) => caller,
        Err(problem) => return problem.into_response(),
    };
    let mut request = Request::from_parts(head, body);
    let key_id = caller.key_id;
    tracing::Span::current().record("key_id", tracing::field::display(key_id));
    // 404 and 405 consume the metadata quota but are never replaced by 429.
    let unroutable = class == Class::Unknown || !matches!(*request.method(), Method::GET | Method::HEAD);
    let limit = if unroutable { Class::Unknown.limit(&state) } else { class.limit(&state) };
    let (decision, mut response) = if unroutable {
        (limit.map(|limit| limit.take(key_id, now)), next.run(request).await)
    } else {
        let (decision, admitted) = admit(&state, class, limit, &caller, now);
        let response = match admitted {
            Ok(permit) => {
                let permit = permit.map(Arc::new);
                request.extensions_mut().insert(LivePermit::new(permit.clone()));
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(RequestTime(now));
                hold_until_sent(next.run(request).await, permit)
            }
            Err(problem) => problem.into_response(),
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

type Admitted = Result<Option<Permit<KeyId>>, Problem>;

/// Acquires the concurrency permit before it takes from the rate limit, because a request without a permit must not
/// consume quota.
fn admit(
    state: &AppState,
    class: Class,
    limit: Option<&RateLimiter<KeyId>>,
    caller: &Caller,
    now: Timestamp,
) -> (Option<Decision>, Admitted) {
    let permit = match matches!(class, Class::Live | Class::Brokerage)
        .then(|| state.inner.live_in_flight.try_acquire(caller.key_id))
    {
        // All permits of this key are in use.
        Some(None) => return (limit.map(|limit| limit.peek(&caller.key_id, now)), Err(Problem::TooManyRequests(1))),
        Some(permit) => permit,
        None => None,
    };
    let decision = limit.map(|limit| limit.take(caller.key_id, now));
    let admitted = match decision {
        Some(rejected) if !rejected.allowed => Err(Problem::TooManyRequests(gcra::whole_seconds(rejected.wait_us))),
        _ if caller.plan == Plan::Saver => Err(Problem::PlanRequired),
        _ if class == Class::Brokerage && caller.plan != Plan::Professional => Err(Problem::ProfessionalRequired),
        _ => Ok(permit),
    };
    (decision, admitted)
}

impl Class {
    fn limit(self, state: &AppState) -> Option<&RateLimiter<KeyId>> {
        match self {
            Self::Open => None,
            Self::Metadata | Self::Unknown => state.inner.metadata_limit.as_ref(),
            Self::Balances => state.inner.balances_limit.as_ref(),
            Self::Live | Self::Brokerage => state.inner.live_limit.as_ref(),
        }
    }
}

/// Keeps the permit until the response body has been sent.
fn hold_until_sent(response: Response, permit: Option<Arc<Permit<KeyId>>>) -> Response {
    match permit {
        Some(permit) => response.map(|body| Body::new(PermitBody { body, _permit: permit })),
        None => response,
    }
}

struct PermitBody {
    body: Body,
    _permit: Arc<Permit<KeyId>>,
}

impl HttpBody for PermitBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
