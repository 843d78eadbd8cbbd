//! What the console listener serves: the pages for linking in the browser, and the endpoint for providers' events.
//!
//! The pages need no script, and nothing from elsewhere. There is no cookie: who holds the address of a page may use it.

mod assets;
mod body;
mod callback;
mod link;
mod pages;
mod refusal;
mod seal;
#[cfg(test)]
mod tests;
mod webhooks;

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::middleware::map_response;
use axum::response::Response;
use axum::routing::{get, post};
use bellbird_connections::Connections;
use http::StatusCode;
use tokio::sync::Semaphore;
use tower_http::catch_panic::CatchPanicLayer;

use crate::assets::Assets;
use crate::pages::{Home, answer};

/// Events that are read and taken at the same time.
const EVENTS_AT_ONCE: usize = 64;

/// What the pages say of the service's addresses.
#[derive(Debug, Clone)]
pub struct ConsoleSettings {
    /// The API, as clients see it.
    pub api_url: String,
    /// The console itself, as browsers see it.
    pub console_url: String,
}

/// What the handlers share.
#[derive(Clone)]
struct Console {
    inner: Arc<Inner>,
}

struct Inner {
    connections: Connections,
    settings: ConsoleSettings,
    assets: Assets,
    events: Semaphore,
    large_events: Semaphore,
}

/// Everything that the console serves.
pub fn router(connections: Connections, settings: ConsoleSettings) -> Router {
    let assets = Assets::new(&settings.console_url);
    let (events, large_events) = (Semaphore::new(EVENTS_AT_ONCE), Semaphore::new(EVENTS_AT_ONCE));
    let console = Console { inner: Arc::new(Inner { connections, settings, assets, events, large_events }) };
    Router::new()
        .route("/", get(home))
        .route("/link/callback", get(callback::come_back).head(callback::refuse).fallback(callback::refuse))
        .route("/link/{token}", get(link::open).post(link::choose))
        .route("/webhooks/{provider}", post(webhooks::take))
        .route(assets::STYLE.path(), get(|| async { assets::STYLE.answer() }))
        .route(assets::MARK.path(), get(|| async { assets::MARK.answer() }))
        .fallback(nothing_here)
        .method_not_allowed_fallback(wrong_method)
        .layer(CatchPanicLayer::custom(|_| refusal::panicked()))
        .layer(map_response(seal::seal))
        .with_state(console)
}

/// `GET /`
async fn home(State(console): State<Console>) -> Response {
    let Inner { assets, settings, .. } = &*console.inner;
    answer(StatusCode::OK, &Home { assets, settings })
}

async fn nothing_here(State(console): State<Console>, headers: HeaderMap) -> Response {
    refusal::nothing_here(&console, &headers)
}

/// Axum adds `Allow`.
async fn wrong_method(State(console): State<Console>, headers: HeaderMap) -> Response {
    refusal::wrong_method(&console, &headers)
}
