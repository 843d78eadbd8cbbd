//! Helpers of the handlers that read from providers: one provider read for equal concurrent requests, and the cache
//! headers.

use std::hash::Hash;

use axum::response::{IntoResponse, Response};
use bellbird_limits::SingleFlight;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{AGE, HeaderName};
use jiff::SignedDuration;

use crate::cache::{LiveOutcome, SharedOutcome};
use crate::front::extract::{ProviderCalls, REQUEST_ID, SharedRead};
use crate::front::json::json_bytes;
use crate::front::problem::Problem;

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
const X_SERVICE_TRUNCATED: HeaderName = HeaderName::from_static("x-service-truncated");

/// Runs `work`, or joins the same work of a concurrent request, and passes its answer to `respond`.
pub(crate) async fn coalesce<K, T, F>(
    flights: &SingleFlight<K, SharedOutcome<T>>,
    flight_key: K,
    work: impl FnOnce() -> F,
    respond: impl FnOnce(T) -> Response,
) -> Response
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    F: Future<Output = LiveOutcome<T>> + Send + 'static,
{
    let request_id = REQUEST_ID.try_with(|id| *id).unwrap_or_default();
    let work = || {
        let work = work();
        async move { (work.await, request_id) }
    };
    // Fails only if the work panicked.
    let Ok((((outcome, calls), leader_id), is_leader)) = flights.join(flight_key, work).await else {
        return Problem::Internal.into_response();
    };
    let mut response = match outcome {
        Ok(answer) => respond(answer),
        Err(problem) => problem.into_response(),
    };
    // Only the request that made the provider calls reports them. The others name it.
    if is_leader {
        response.extensions_mut().insert(ProviderCalls(calls));
    } else {
        response.extensions_mut().insert(SharedRead(leader_id));
    }
    response
}

/// The value of the `X-Cache` header.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CacheStatus {
    /// Served from the cache, with its age.
    Hit(SignedDuration),
    /// Read now, and cached.
    Miss,
    /// Read now, and not cached.
    Bypass,
}

/// `truncated` says that counting stopped before the end of the provider's list.
pub(crate) fn response(body: Bytes, cache_status: CacheStatus, truncated: bool) -> Response {
    let mut response = json_bytes(body);
    let headers = response.headers_mut();
    let status = match cache_status {
        CacheStatus::Hit(_) => "HIT",
        CacheStatus::Miss => "MISS",
        CacheStatus::Bypass => "BYPASS",
    };
    headers.insert(X_CACHE, HeaderValue::from_static(status));
    if let CacheStatus::Hit(age) = cache_status {
        headers.insert(AGE, HeaderValue::from(age.as_secs()));
    }
    if truncated {
        headers.insert(X_SERVICE_TRUNCATED, HeaderValue::from_static("true"));
    }
    response
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    fn headers(cache_status: CacheStatus, truncated: bool) -> [Option<String>; 3] {
        let response = response(Bytes::from_static(b"{}"), cache_status, truncated);
        assert_eq!(response.headers()["content-type"], "application/json");
        [X_CACHE, AGE, X_SERVICE_TRUNCATED]
            .map(|name| response.headers().get(name).map(|value| value.to_str().unwrap().to_owned()))
    }

    #[test]
    fn headers_show_cache_status_age_and_truncation() {
        let expected = |headers: [Option<&str>; 3]| headers.map(|header| header.map(str::to_owned));
        let hit = CacheStatus::Hit(SignedDuration::from_millis(42_999));
        assert_eq!(headers(hit, false), expected([Some("HIT"), Some("42"), None]));
        assert_eq!(headers(CacheStatus::Miss, true), expected([Some("MISS"), None, Some("true")]));
        assert_eq!(headers(CacheStatus::Bypass, false), expected([Some("BYPASS"), None, None]));
    }

    #[tokio::test]
    async fn joined_request_names_the_request_that_called_the_provider() {
        let flights: SingleFlight<u8, SharedOutcome<Bytes>> = SingleFlight::default();
        let request = || {
            let work = || async { (Ok(Bytes::from_static(b"[]")), 3) };
            coalesce(&flights, 1, work, |body| response(body, CacheStatus::Miss, false))
        };
        let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let (one, other) = tokio::join!(REQUEST_ID.scope(ids[0], request()), REQUEST_ID.scope(ids[1], request()));
        let calls = |response: &Response| response.extensions().get::<ProviderCalls>().map(|calls| calls.0);
        let read_by = |response: &Response| response.extensions().get::<SharedRead>().map(|read| read.0);
        assert_eq!([calls(&one), calls(&other)], [Some(3), None]);
        assert_eq!([read_by(&one), read_by(&other)], [None, Some(ids[0])]);
    }

    #[tokio::test]
    async fn panic_of_the_work_is_an_internal_error() {
        let flights: SingleFlight<u8, SharedOutcome<Bytes>> = SingleFlight::default();
        let work = || async { panic!("as a bug would") };
        let answer = coalesce(&flights, 1, work, |body| response(body, CacheStatus::Miss, false)).await;
        assert_eq!(answer.status(), http::StatusCode::INTERNAL_SERVER_ERROR);
    }
}
