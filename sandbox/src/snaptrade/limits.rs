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
use super::{Key, SnapTrade, SnapTradeOptions};
use crate::query::Query;

const PERIOD_SECONDS: i64 = 60;

/// The calls of the last minute, by second.
#[derive(Debug, Default)]
struct RateCounter(VecDeque<(i64, u64)>);

/// What remains of a limit.
#[derive(Debug, Clone, Copy)]
struct Quota {
    limit: u64,
    remaining: u64,
    /// Seconds until calls are possible again.
    reset: i64,
}

impl RateCounter {
    fn quota(&mut self, limit: u64, now: i64) -> Quota {
        // Seconds ahead of now exist after the clock was set back.
        self.0
            .retain(|(second, _)| *second <= now && now - second < PERIOD_SECONDS);
        let used: u64 = self.0.iter().map(|(_, calls)| calls).sum();
        let oldest = self.0.front().map_or(now, |(second, _)| *second);
        Quota {
            limit,
            remaining: limit.saturating_sub(used),
            reset: oldest + PERIOD_SECONDS - now,
        }
    }

    fn count(&mut self, now: i64) {
        match self.0.back_mut() {
            Some((second, calls)) if *second == now => *calls += 1,
            _ => self.0.push_back((now, 1)),
        }
    }
}

#[derive(Default)]
pub(super) struct Limits(Mutex<Counts>);

#[derive(Default)]
struct Counts {
    /// Calls without a known key are not counted.
    keys: BTreeMap<Option<Key>, RateCounter>,
    /// By account of a personal key.
    accounts: BTreeMap<String, RateCounter>,
}

/// The key and account whose limits apply to a call.
struct Caller {
    key: Option<Key>,
    account: Option<String>,
}

impl Caller {
    fn of(request: &Request, snaptrade: &SnapTrade) -> Self {
        let uri = original_uri(request);
        let key = Query::parse(uri.query())
            .get("clientId")
            .and_then(|id| snaptrade.key_of(id));
        let path = uri
            .path()
            .strip_prefix(PREFIX)
            .unwrap_or_else(|| uri.path());
        let account = path
            .strip_prefix("/accounts/")
            .and_then(|rest| rest.split('/').next());
        let account = account.filter(|account| key == Some(Key::Personal) && *account != "all");
        Self {
            key,
            account: account.map(str::to_owned),
        }
    }
}

impl Limits {
    pub(super) fn reset(&self) {
        *self.0.lock() = Counts::default();
    }

    /// Counts a call, or returns the seconds until it can be repeated. A throttled call does not
    /// count, which is a sandbox choice.
    fn take(&self, caller: &Caller, limits: &SnapTradeOptions, now: Timestamp) -> Result<(), i64> {
        if caller.key.is_none() {
            return Ok(());
        }
        let (now, mut counts) = (now.as_second(), self.0.lock());
        let mut counters = counts.of(caller, limits);
        for (counter, limit, _) in &mut counters {
            let quota = counter.quota(*limit, now);
            if quota.remaining == 0 {
                return Err(quota.reset);
            }
        }
        for (counter, ..) in counters {
            counter.count(now);
        }
        Ok(())
    }

    /// Adds the rate limit headers.
    fn add_headers(
        &self,
        caller: &Caller,
        limits: &SnapTradeOptions,
        now: Timestamp,
        headers: &mut HeaderMap,
    ) {
        let (now, mut counts) = (now.as_second(), self.0.lock());
        for (counter, limit, names) in counts.of(caller, limits) {
            write(headers, names, counter.quota(limit, now));
        }
    }
}

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

impl Counts {
    /// The counters that apply to a call, each with its limit and headers.
    fn of(
        &mut self,
        caller: &Caller,
        limits: &SnapTradeOptions,
    ) -> Vec<(&mut RateCounter, u64, [&'static str; 3])> {
        let whole = self.keys.entry(caller.key).or_default();
        let mut counters = vec![(whole, limits.per_minute, KEY_HEADERS)];
        if let Some(account) = &caller.account {
            let counter = self.accounts.entry(account.clone()).or_default();
            counters.push((counter, limits.per_account_per_minute, ACCOUNT_HEADERS));
        }
        counters
    }
}

fn write(headers: &mut HeaderMap, names: [&'static str; 3], quota: Quota) {
    let [limit, remaining, reset] = names;
    headers.insert(limit, HeaderValue::from(quota.limit));
    headers.insert(remaining, HeaderValue::from(quota.remaining));
    headers.insert(reset, HeaderValue::from(quota.reset));
}

/// Rejects calls over the limits.
pub(super) async fn throttle(
    State(snaptrade): State<Arc<SnapTrade>>,
    request: Request,
    next: Next,
) -> Response {
    let caller = Caller::of(&request, &snaptrade);
    let (limits, now) = (*snaptrade.options.lock(), snaptrade.clock.now());
    match snaptrade.limits.take(&caller, &limits, now) {
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
    let caller = Caller::of(&request, &snaptrade);
    let old = request.uri().path().starts_with(PREFIX);
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    let id = uuid::Uuid::new_v4().simple().to_string();
    headers.insert(
        "x-request-id",
        HeaderValue::from_str(&id).expect("hexadecimal digits are a header"),
    );
    let (limits, now) = (*snaptrade.options.lock(), snaptrade.clock.now());
    snaptrade.limits.add_headers(&caller, &limits, now, headers);
    if old {
        headers.insert("deprecation", HeaderValue::from_static("@1781222400"));
    }
    response
}
