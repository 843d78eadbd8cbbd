//! Answers read live: equal questions of a key at the same time are asked once, and the log learns what they cost.

use std::hash::Hash;

use axum::response::{IntoResponse, Response};
use bellbird_shared_state::SingleFlight;
use bytes::Bytes;

use crate::observe::ProviderCalls;
use crate::problem::Problem;

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
pub(crate) type LiveOutcome = (Result<LiveAnswer, Problem>, u32);

/// Asks, or waits for the same question under way, and makes a response of the answer.
pub(crate) async fn ask<K, F>(
    flights: &SingleFlight<K, LiveOutcome>,
    question: K,
    work: impl FnOnce() -> F,
    respond: impl FnOnce(LiveAnswer) -> Response,
) -> Response
where
    K: Hash + Eq + Clone + Send + Sync + 'static,
    F: Future<Output = LiveOutcome> + Send + 'static,
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
