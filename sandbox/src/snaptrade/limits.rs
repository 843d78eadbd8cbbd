//! Rate limits (docs/providers/snaptrade.md#rate-limits). They count the last 60 seconds on the
//! sandbox's clock, per key and per account of a personal key.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;
use parking_lot::Mutex;

use super::call::original_uri;
use super::errors::Failure;
use super::sign::PREFIX;
use super::{Key, SnapTrade};
use crate::query::Query;

const PERIOD_SECONDS: i64 = 60;

/// The calls of the last minute, by second.
#[derive(Debug, Default)]
struct RateCounter(VecDeque<(i64, u64)>);

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

/// What a limit is counted for: a key, or an account of a personal key. Calls without a known key
/// are not limited.
type Counted = (Option<Key>, Option<String>);

const KEY_HEADERS: [&str; 3] = [
    "x-ratelimit-limit",
    "x-ratelimit-remaining",
    "x-ratelimit-reset",
];
const ACCOUNT_HEADERS: [&str; 3] = [
    "x-ratelimit-account-limit",
    "x-ratelimit-account-remaining",
    "x-ratelimit-account-reset",
];

/// A limit that applies to a call.
struct Limit {
    counted: Counted,
    calls: u64,
    headers: [&'static str; 3],
}

impl Limit {
    fn of(request: &Request, snaptrade: &SnapTrade) -> Vec<Self> {
        let uri = original_uri(request);
        let query = Query::parse(uri.query());
        let key = query.get("clientId").and_then(|id| snaptrade.key_of(id));
        let path = uri.path();
        let path = path.strip_prefix(PREFIX).unwrap_or(path);
        let account = path
            .strip_prefix("/accounts/")
            .and_then(|rest| rest.split('/').next())
            .filter(|account| key == Some(Key::Personal) && *account != "all");
        let options = *snaptrade.options.lock();
        let of_key = Self {
            counted: (key, None),
            calls: options.per_minute,
            headers: KEY_HEADERS,
        };
        let of_account = account.map(|account| Self {
            counted: (key, Some(account.to_owned())),
            calls: options.per_account_per_minute,
            headers: ACCOUNT_HEADERS,
        });
        [of_key].into_iter().chain(of_account).collect()
    }
}

#[derive(Default)]
pub(super) struct Limits(Mutex<BTreeMap<Counted, RateCounter>>);

impl Limits {
    pub(super) fn reset(&self) {
        self.0.lock().clear();
    }

    /// Counts a call, or returns the seconds until it can be repeated. A throttled call does not
    /// count, which is a sandbox choice.
    fn take(&self, limits: Vec<Limit>, now: Timestamp) -> Result<(), i64> {
        let (now, mut counters) = (now.as_second(), self.0.lock());
        for limit in &limits {
            let counter = counters.entry(limit.counted.clone()).or_default();
            let (remaining, reset) = counter.remaining(limit.calls, now);
            if remaining == 0 && limit.counted.0.is_some() {
                return Err(reset);
            }
        }
        for limit in limits.into_iter().filter(|limit| limit.counted.0.is_some()) {
            counters.entry(limit.counted).or_default().count(now);
        }
        Ok(())
    }

    /// Adds the rate limit headers.
    fn add_headers(&self, limits: Vec<Limit>, now: Timestamp, headers: &mut HeaderMap) {
        let (now, mut counters) = (now.as_second(), self.0.lock());
        for limit in limits {
            let counter = counters.entry(limit.counted).or_default();
            let (remaining, reset) = counter.remaining(limit.calls, now);
            let [all_name, remaining_name, reset_name] = limit.headers;
            headers.insert(all_name, HeaderValue::from(limit.calls));
            headers.insert(remaining_name, HeaderValue::from(remaining));
            headers.insert(reset_name, HeaderValue::from(reset));
        }
    }
}

/// Rejects calls over the limits.
pub(super) async fn throttle(
    State(snaptrade): State<Arc<SnapTrade>>,
    request: Request,
    next: Next,
) -> Response {
    let limits = Limit::of(&request, &snaptrade);
    match snaptrade.limits.take(limits, snaptrade.clock.now()) {
        Ok(()) => next.run(request).await,
        Err(seconds) => Failure::throttled(seconds).into_response(),
    }
}

/// Adds the headers of every response: a request id, the rate limits, and a deprecation below the
/// old prefix (docs/providers/snaptrade.md#transport and #rate-limits).
pub(super) async fn add_headers(
    State(snaptrade): State<Arc<SnapTrade>>,
    request: Request,
    next: Next,
) -> Response {
    let limits = Limit::of(&request, &snaptrade);
    let is_old = request.uri().path().starts_with(PREFIX);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let id = uuid::Uuid::new_v4().simple().to_string();
    headers.insert(
        "x-request-id",
        HeaderValue::from_str(&id).expect("hexadecimal digits are a header"),
    );
    let now = snaptrade.clock.now();
    snaptrade.limits.add_headers(limits, now, headers);
    if is_old {
        headers.insert("deprecation", HeaderValue::from_static("@1781222400"));
    }
    response
}
