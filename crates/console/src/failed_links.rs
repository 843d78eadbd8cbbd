//! Limits requests with unknown tokens of links and sign-in links, and with unknown states, by
//! client address, before they reach the database.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::{Method, StatusCode};

use crate::error_page;
use crate::state::Console;

/// Below these paths anybody may come without a session.
const LIMITED: [&str; 3] = ["/link/", "/sign-in/", "/sandbox/"];

/// Rejects requests below `/link/`, `/sign-in` and `/sandbox/` from an address that has failed, or
/// has begun to sign in or to consent, too often.
pub(crate) async fn limit(
    State(console): State<Console>,
    request: Request,
    next: Next,
) -> Response {
    let address = console.limited_address(request.extensions(), request.headers());
    let (Some(limit), Some(address)) = (&console.failed_auth_limit, address) else {
        return next.run(request).await;
    };
    let path = request.uri().path();
    // The forms after the first one go to `/consent`.
    let begins_consent = path.starts_with("/sandbox/") && !path.ends_with("/consent");
    let begins = request.method() == Method::POST
        && (begins_consent || ["/sign-in", "/sign-in/oidc"].contains(&path));
    if !begins && !LIMITED.iter().any(|prefix| path.starts_with(prefix)) {
        return next.run(request).await;
    }
    let decision = limit.peek(&address, console.clock.now()).await;
    if let Some(seconds) = decision.seconds_to_wait() {
        return error_page::too_many_requests(seconds).response(&console.frame);
    }
    let response = next.run(request).await;
    // The link token or `state` is unknown, has expired or was used up.
    let is_failure = matches!(
        response.status(),
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::GONE
    );
    if begins || is_failure {
        limit.take(address, console.clock.now()).await;
    }
    response
}
