//! Limits requests with unknown tokens of links and sign-in links, and with unknown states, by client address, before
//! they reach the database.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::middleware::Next;
use axum::response::Response;
use bellbird_limits::client_address::{client_address, rate_limit_key};
use bellbird_limits::gcra;
use http::{Method, StatusCode};

use crate::error_page;
use crate::state::Console;

/// Rejects requests below `/link/` and `/sign-in` from an address that has failed, or has asked for links, too often.
pub(crate) async fn limit(State(console): State<Console>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|peer| peer.0);
    let (Some(limit), Some(peer)) = (&console.inner.failed_auth_limit, peer) else { return next.run(request).await };
    let path = request.uri().path();
    let asks_for_link = path == "/sign-in" && request.method() == Method::POST;
    if !asks_for_link && !["/link/", "/sign-in/"].iter().any(|prefix| path.starts_with(prefix)) {
        return next.run(request).await;
    }
    let address = rate_limit_key(client_address(peer, request.headers(), &console.inner.settings.trusted_proxies));
    let decision = limit.peek(&address, console.inner.clock.now()).await;
    if !decision.allowed {
        return error_page::too_many_requests(&console, gcra::whole_seconds(decision.wait_us));
    }
    let response = next.run(request).await;
    if asks_for_link || is_failure(response.status()) {
        limit.take(address, console.inner.clock.now()).await;
    }
    response
}

/// Whether the link token or `state` is unknown, has expired or was used up.
fn is_failure(status: StatusCode) -> bool {
    matches!(status, StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::CONFLICT | StatusCode::GONE)
}
