//! Before every handler under `/v1`: 401, then 404 and 405, then 429, then 403.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bellbird_domain::{Caller, KeyId, Plan};
use bellbird_shared_state::gcra::{self, Decision};
use bellbird_shared_state::{Place, RateLimiter};
use bytes::Bytes;
use http::header::HeaderName;
use http::{HeaderValue, Method};
use http_body::{Frame, SizeHint};
use jiff::Timestamp;

use crate::observe::UsedKey;
use crate::problem::Problem;
use crate::router::{self, Class};
use crate::state::AppState;

const X_RATELIMIT_LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const X_RATELIMIT_REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");
const X_RATELIMIT_RESET: HeaderName = HeaderName::from_static("x-ratelimit-reset");

/// A place among the live requests of a key. A handler's work keeps it too, so that a client that leaves does not get
/// another one while its work goes on.
#[derive(Clone)]
pub(crate) struct LivePlace {
    _place: Option<Arc<Place<KeyId>>>,
}

/// The moment that a request is about, for its handler.
#[derive(Clone, Copy)]
pub(crate) struct RequestTime(pub(crate) Timestamp);

/// The layer around all paths; those outside `/v1` pass.
pub(crate) async fn guard(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let class = router::route_of(request.uri().path()).class;
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
    // What is not there, or cannot be done, counts as metadata but is said whatever is left of the limit.
    let nothing_there = class == Class::Unknown || !matches!(*request.method(), Method::GET | Method::HEAD);
    let limit = if nothing_there { Class::Unknown.limit(&state) } else { class.limit(&state) };
    let (decision, mut response) = if nothing_there {
        (limit.map(|limit| limit.take(key_id, now)), next.run(request).await)
    } else {
        let (decision, admitted) = admit(&state, class, limit, &caller, now);
        let response = match admitted {
            Ok(place) => {
                let place = place.map(Arc::new);
                request.extensions_mut().insert(LivePlace { _place: place.clone() });
                request.extensions_mut().insert(caller);
                request.extensions_mut().insert(RequestTime(now));
                keep_until_sent(next.run(request).await, place)
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
    response.extensions_mut().insert(UsedKey(key_id));
    response
}

type Admitted = Result<Option<Place<KeyId>>, Problem>;

/// A refused call takes nothing out of the limit, so the place among the live ones comes first.
fn admit(
    state: &AppState,
    class: Class,
    limit: Option<&RateLimiter<KeyId>>,
    caller: &Caller,
    now: Timestamp,
) -> (Option<Decision>, Admitted) {
    let place = match matches!(class, Class::Live | Class::Brokerage)
        .then(|| state.inner.live_in_flight.enter(caller.key_id))
    {
        Some(None) => return (limit.map(|limit| limit.look(&caller.key_id, now)), Err(Problem::TooManyRequests(1))),
        Some(place) => place,
        None => None,
    };
    let decision = limit.map(|limit| limit.take(caller.key_id, now));
    let admitted = match decision {
        Some(refused) if !refused.allowed => Err(Problem::TooManyRequests(gcra::whole_seconds(refused.wait_us))),
        _ if caller.plan == Plan::Saver => Err(Problem::PlanRequired),
        _ if class == Class::Brokerage && caller.plan != Plan::Professional => Err(Problem::ProfessionalRequired),
        _ => Ok(place),
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

/// A live request holds its place until its answer has been sent.
fn keep_until_sent(response: Response, place: Option<Arc<Place<KeyId>>>) -> Response {
    match place {
        Some(place) => response.map(|body| Body::new(Kept { body, _place: place })),
        None => response,
    }
}

struct Kept {
    body: Body,
    _place: Arc<Place<KeyId>>,
}

impl HttpBody for Kept {
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
