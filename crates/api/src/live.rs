//! Answers read live: equal questions of a key at the same time are asked once, and the log learns what they cost.

use std::hash::Hash;
use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use bellbird_domain::{AccountId, Caller, ConnectionCategory, ConnectionId};
use bellbird_reads::{ReadError, Scope};
use bellbird_shared_state::SingleFlight;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{AGE, HeaderName};
use jiff::SignedDuration;

use crate::handlers::json_bytes;
use crate::observe::ProviderCalls;
use crate::problem::{Problem, from_read};
use crate::state::AppState;

const X_CACHE: HeaderName = HeaderName::from_static("x-cache");
const X_SERVICE_TRUNCATED: HeaderName = HeaderName::from_static("x-service-truncated");

/// What a read came to.
#[derive(Clone)]
pub(crate) struct LiveAnswer {
    /// The JSON body.
    pub(crate) body: Bytes,
    /// Whether the provider's end was not reached.
    pub(crate) truncated: bool,
    /// Whether nothing is missing from it.
    pub(crate) whole: bool,
}

/// A read's answer or problem, and how many provider calls it took.
pub(crate) type LiveOutcome<T = LiveAnswer> = (Result<T, Problem>, u32);

/// Asks, or waits for the same question under way, and makes a response of the answer.
pub(crate) async fn ask<K, T, F>(
    flights: &SingleFlight<K, LiveOutcome<T>>,
    question: K,
    work: impl FnOnce() -> F,
    respond: impl FnOnce(T) -> Response,
) -> Response
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    T: Clone + Send + Sync + 'static,
    F: Future<Output = LiveOutcome<T>> + Send + 'static,
{
    let Ok(((outcome, calls), ours)) = flights.join(question, work).await else {
        return Problem::Internal.into_response();
    };
    let mut response = match outcome {
        Ok(answer) => respond(answer),
        Err(problem) => problem.into_response(),
    };
    // Calls are told once, by the request that made them.
    response.extensions_mut().insert(ProviderCalls(if ours { calls } else { 0 }));
    response
}

/// Whether an answer was kept.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Cache {
    /// It was, and is so old.
    Hit(SignedDuration),
    /// It is now.
    Miss,
    /// It must not be.
    Bypass,
}

/// A finished JSON body that says whether it was kept, and whether the provider's end was not reached.
pub(crate) fn answer(body: Bytes, cache: Cache, truncated: bool) -> Response {
    let mut response = json_bytes(body);
    let headers = response.headers_mut();
    let word = match cache {
        Cache::Hit(_) => "HIT",
        Cache::Miss => "MISS",
        Cache::Bypass => "BYPASS",
    };
    headers.insert(X_CACHE, HeaderValue::from_static(word));
    if let Cache::Hit(age) = cache {
        headers.insert(AGE, HeaderValue::from(age.as_secs()));
    }
    if truncated {
        headers.insert(X_SERVICE_TRUNCATED, HeaderValue::from_static("true"));
    }
    response
}

/// Reads an id of a path's parameters; one that is none is an id that does not exist.
pub(crate) fn read_id<T: std::str::FromStr>(text: &str, what: &'static str) -> Result<T, Problem> {
    text.parse().map_err(|_| Problem::NotFound(what))
}

/// Reads an account's id. One that is none is one that nobody has: the connection's category is looked at first.
pub(crate) fn read_account_id(text: &str) -> AccountId {
    text.parse().unwrap_or_else(|_| AccountId::new())
}

/// What a read that failed means for a caller; `category` is the kind of connection that it needed.
pub(crate) fn read_problem(error: &ReadError, what: &'static str, category: ConnectionCategory) -> Problem {
    let needs = match category {
        ConnectionCategory::Banking => "The connection must be a banking connection",
        ConnectionCategory::Brokerage => "The connection must be a brokerage connection",
    };
    from_read(error, what, needs)
}

impl AppState {
    /// The caller's connection, if it is of this category and has the account that is asked for.
    pub(crate) async fn scope(
        &self,
        caller: &Caller,
        connection_id: ConnectionId,
        account_id: Option<AccountId>,
        category: ConnectionCategory,
    ) -> Result<Arc<Scope>, Problem> {
        let problem = |error: ReadError| read_problem(&error, "Connection", category);
        let scope = self.inner.reads.scope(caller, connection_id).await.map_err(problem)?;
        scope.expect(category).map_err(problem)?;
        scope.accounts_of(account_id).map_err(|error| read_problem(&error, "Account", category))?;
        Ok(scope)
    }

    /// What a failed read comes to. Where the provider knows no consent, it is gone because the connection was removed
    /// meanwhile, or the user must reconnect: then its status is looked at soon.
    pub(crate) async fn read_failed(&self, caller: &Caller, scope: &Scope, error: &ReadError) -> Problem {
        let ReadError::Reconnect(status) = error else {
            return read_problem(error, "Account", scope.connection.category);
        };
        let id = scope.connection.id;
        match self.inner.storage.find_connection(caller.user_id, id).await {
            Ok(Some(_)) => {
                self.inner.connections.check_soon(caller.user_id, id);
                Problem::Reconnect(*status)
            }
            Ok(None) => Problem::NotFound("Connection"),
            Err(error) => Problem::from(error),
        }
    }
}
