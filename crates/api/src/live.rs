//! Helpers of the handlers that read from providers: one provider read for equal concurrent requests, the cache
//! headers, and the mapping of read errors to HTTP.

use std::hash::Hash;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bellbird_domain::{AccountId, Caller, ConnectionCategory, ConnectionId};
use bellbird_reads::{ConnectionContext, ReadError};
use bellbird_shared_state::SingleFlight;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{AGE, HeaderName};
use jiff::SignedDuration;

use crate::cache::{LiveOutcome, SharedOutcome};
use crate::extract::{ProviderCalls, REQUEST_ID, SharedRead};
use crate::json::json_bytes;
use crate::params::Id;
use crate::problem::{Problem, problem_from_read};
use crate::state::AppState;

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

/// Maps a failed read to an HTTP error. `category` is the category that the endpoint needs.
pub(crate) fn problem_for_category(error: &ReadError, resource: &'static str, category: ConnectionCategory) -> Problem {
    let wrong_category = match category {
        ConnectionCategory::Banking => "The connection must be a banking connection",
        ConnectionCategory::Brokerage => "The connection must be a brokerage connection",
    };
    problem_from_read(error, resource, wrong_category)
}

impl AppState {
    /// Finds the caller's connection and checks its category, and that it has the requested account. Text that is not
    /// an id is not found, like an unknown id. The category is checked before the account.
    pub(crate) async fn connection_context(
        &self,
        caller: &Caller,
        Id(connection_id): Id<ConnectionId>,
        account_id: Option<Id<AccountId>>,
        category: ConnectionCategory,
    ) -> Result<(Arc<ConnectionContext>, Option<AccountId>), Problem> {
        let problem = |error: ReadError| problem_for_category(&error, "Connection", category);
        let connection_id = connection_id.ok_or(Problem::NotFound("Connection"))?;
        let context = self.inner.reads.connection_context(caller, connection_id).await.map_err(problem)?;
        context.require_category(category).map_err(problem)?;
        let account_id = account_id.map(|Id(id)| id.ok_or(Problem::NotFound("Account"))).transpose()?;
        context.accounts_of(account_id).map_err(|error| problem_for_category(&error, "Account", category))?;
        Ok((context, account_id))
    }

    /// Maps a failed read to an HTTP error.
    ///
    /// If the provider reports that the consent is gone, the connection may have been removed meanwhile: that is a 404.
    /// Otherwise the user must reconnect: that is a 503, and a background refresh updates the status.
    pub(crate) async fn problem_for_failed_read(
        &self,
        caller: &Caller,
        context: &ConnectionContext,
        error: &ReadError,
    ) -> Problem {
        let ReadError::Reconnect(status) = error else {
            return problem_for_category(error, "Account", context.connection.category);
        };
        let id = context.connection.id;
        match self.inner.storage.find_connection(caller.user_id, id).await {
            Ok(Some(_)) => {
                self.inner.connections.refresh_in_background(caller.user_id, id);
                Problem::Reconnect(*status)
            }
            Ok(None) => Problem::NotFound("Connection"),
            Err(error) => Problem::from(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    #[test]
    fn wrong_category_names_the_category_that_the_endpoint_needs() {
        let message = |category| problem_for_category(&ReadError::WrongCategory, "Account", category);
        let bad = |text: &'static str| Problem::BadRequest { message: text.into(), details: Vec::new() };
        assert_eq!(message(ConnectionCategory::Banking), bad("The connection must be a banking connection"));
        assert_eq!(message(ConnectionCategory::Brokerage), bad("The connection must be a brokerage connection"));
        let not_found = problem_for_category(&ReadError::NotFound, "Account", ConnectionCategory::Banking);
        assert_eq!(not_found, Problem::NotFound("Account"));
        let unavailable = ReadError::Unavailable { retry_after: Duration::from_millis(1_500) };
        let unavailable = problem_for_category(&unavailable, "Account", ConnectionCategory::Banking);
        assert_eq!(unavailable, Problem::ProviderUnavailable(2));
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
