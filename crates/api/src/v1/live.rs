//! Reads from providers: one read for equal concurrent requests, and the cache headers of its
//! response.

use std::hash::Hash;

use axum::response::Response;
use bellbird_limits::SingleFlight;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{AGE, HeaderName};
use jiff::SignedDuration;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use crate::http::json::json_bytes;
use crate::http::log;
use crate::http::problem::Problem;

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
const X_SERVICE_TRUNCATED: HeaderName = HeaderName::from_static("x-service-truncated");

/// The body of a finished read.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct LiveBody {
    pub json: JsonText,
    /// Whether counting stopped before the end of the provider's list.
    pub truncated: bool,
    /// Whether every account was read. An incomplete response is never cached.
    pub complete: bool,
}

/// JSON, which another instance gets as text.
#[derive(Clone)]
pub(crate) struct JsonText(pub Bytes);

impl From<Vec<u8>> for JsonText {
    fn from(json: Vec<u8>) -> Self {
        Self(json.into())
    }
}

impl Serialize for JsonText {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(std::str::from_utf8(&self.0).map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for JsonText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Self(String::deserialize(from)?.into()))
    }
}

/// The result of a read, and the number of provider calls it took.
pub(crate) type LiveOutcome<T = LiveBody> = (Result<T, Problem>, u32);

/// Reads that run now, each for all requests with the same key at the same revision of the user:
/// after a change of the user's data, a request joins no read that began before it.
pub(crate) struct LiveFlights<K, T = LiveBody>(SingleFlight<(K, i64), (LiveOutcome<T>, Uuid)>);

impl<K, T> LiveFlights<K, T>
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub(crate) fn new(tasks: &TaskTracker) -> Self {
        Self(SingleFlight::tracked(tasks.clone()))
    }

    /// Runs the read, or waits for that of a concurrent request with the same key. The access line
    /// of the request that called the provider has the number of calls; those of the others have
    /// its id.
    pub(crate) async fn join(
        &self,
        key: K,
        revision: i64,
        read: impl Future<Output = LiveOutcome<T>> + Send + 'static,
    ) -> Result<T, Problem> {
        let request_id = log::request_id();
        let joined = self
            .0
            .join((key, revision), || async move { (read.await, request_id) })
            .await;
        // Fails only if the read panicked.
        let (((outcome, calls), leader_id), is_leader) = joined.map_err(|_| Problem::Internal)?;
        if is_leader {
            log::add_provider_calls(calls);
        } else {
            log::set_read_by(leader_id);
        }
        outcome
    }
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

impl LiveBody {
    pub(crate) fn response(&self, cache_status: CacheStatus) -> Response {
        let mut response = json_bytes(self.json.0.clone());
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
        if self.truncated {
            headers.insert(X_SERVICE_TRUNCATED, HeaderValue::from_static("true"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(cache_status: CacheStatus, truncated: bool) -> [Option<String>; 3] {
        let body = LiveBody {
            json: JsonText(b"{}"[..].into()),
            truncated,
            complete: true,
        };
        let response = body.response(cache_status);
        assert_eq!(response.headers()["content-type"], "application/json");
        [X_CACHE, AGE, X_SERVICE_TRUNCATED].map(|name| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        })
    }

    #[test]
    fn headers_show_cache_status_age_and_truncation() {
        let expected = |headers: [Option<&str>; 3]| headers.map(|header| header.map(str::to_owned));
        let hit = CacheStatus::Hit(SignedDuration::from_millis(42_999));
        assert_eq!(
            headers(hit, false),
            expected([Some("HIT"), Some("42"), None])
        );
        assert_eq!(
            headers(CacheStatus::Miss, true),
            expected([Some("MISS"), None, Some("true")])
        );
        assert_eq!(
            headers(CacheStatus::Bypass, false),
            expected([Some("BYPASS"), None, None])
        );
    }

    #[tokio::test]
    async fn panic_of_the_read_is_an_internal_error() {
        let reads: LiveFlights<u8, ()> = LiveFlights::new(&TaskTracker::new());
        assert_eq!(
            reads.join(1, 1, async { panic!("as a bug would") }).await,
            Err(Problem::Internal)
        );
    }

    #[tokio::test]
    async fn joined_request_names_the_request_that_called_the_provider() {
        let reads: LiveFlights<u8, u8> = LiveFlights::new(&TaskTracker::new());
        let request = || async {
            let read = reads.join(1, 1, async { (Ok(7), 3) }).await;
            assert_eq!(read, Ok(7));
        };
        let ids = [Uuid::from_u128(1), Uuid::from_u128(2)];
        let (one, other) = tokio::join!(
            log::recorded(ids[0], request()),
            log::recorded(ids[1], request())
        );
        assert_eq!([one, other], [(3, None), (0, Some(ids[0]))]);
    }
}
