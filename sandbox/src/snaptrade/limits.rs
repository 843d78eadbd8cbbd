//! The rate limit (docs/providers/snaptrade.md#rate-limits). It counts the last 60 seconds on the
//! sandbox's clock.

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::HeaderValue;

use super::SnapTrade;
use super::errors::Failure;
use super::sign::PREFIX;
use crate::query::Query;

const PERIOD_SECONDS: i64 = 60;

/// The calls of the last minute, by second.
#[derive(Debug, Default)]
pub(super) struct RateCounter(VecDeque<(i64, u64)>);

impl RateCounter {
    /// The calls that remain of a limit, and the seconds until more are possible.
    fn remaining(&mut self, limit: u64, now: i64) -> (u64, i64) {
        // Seconds ahead of now exist after the clock was set back.
        self.0
            .retain(|(second, _)| *second <= now && now - second < PERIOD_SECONDS);
        let used: u64 = self.0.iter().map(|(_, calls)| calls).sum();
        let oldest = self.0.front().map_or(now, |(second, _)| *second);
        (limit.saturating_sub(used), oldest + PERIOD_SECONDS - now)
    }

    fn count(&mut self, now: i64) {
        match self.0.back_mut() {
            Some((second, calls)) if *second == now => *calls += 1,
            _ => self.0.push_back((now, 1)),
        }
    }
}

/// Rejects calls over the limit. Calls without the key do not count, nor do rejected ones, which is
/// a sandbox choice.
pub(super) async fn throttle(
    State(snaptrade): State<Arc<SnapTrade>>,
    request: Request,
    next: Next,
) -> Response {
    let query = Query::parse(request.uri().query());
    if query.get("clientId") == Some(snaptrade.access.client_id.as_str()) {
        let limit = snaptrade.options.lock().per_minute;
        let now = snaptrade.clock.now().as_second();
        let mut counter = snaptrade.rate_counter.lock();
        let (remaining, reset) = counter.remaining(limit, now);
        if remaining == 0 {
            return Failure::throttled(reset).into_response();
        }
        counter.count(now);
    }
    next.run(request).await
}

/// Adds the headers of every response: a request id, the rate limit, and a deprecation below the
/// old prefix (docs/providers/snaptrade.md#transport and #rate-limits).
pub(super) async fn add_headers(
    State(snaptrade): State<Arc<SnapTrade>>,
    request: Request,
    next: Next,
) -> Response {
    let is_old = request.uri().path().starts_with(PREFIX);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let id = uuid::Uuid::new_v4().simple().to_string();
    headers.insert(
        "x-request-id",
        HeaderValue::from_str(&id).expect("hexadecimal digits are a header"),
    );
    let limit = snaptrade.options.lock().per_minute;
    let now = snaptrade.clock.now().as_second();
    let (remaining, reset) = snaptrade.rate_counter.lock().remaining(limit, now);
    headers.insert("x-ratelimit-limit", HeaderValue::from(limit));
    headers.insert("x-ratelimit-remaining", HeaderValue::from(remaining));
    headers.insert("x-ratelimit-reset", HeaderValue::from(reset));
    if is_old {
        headers.insert("deprecation", HeaderValue::from_static("@1781222400"));
    }
    response
}
