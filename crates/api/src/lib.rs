//! The public JSON API: its routes, authentication, rate limits, handlers and response bodies.

mod cache;
mod deprecation;
mod docs_page;
mod extract;
mod handlers;
mod json;
mod live;
mod middleware;
pub mod openapi;
pub mod params;
pub mod problem;
mod queries;
mod router;
mod routes;
mod state;
pub mod views;

/// Public for benchmarks only.
#[doc(hidden)]
pub use handlers::transactions::TransactionsBody;
pub use router::router;
pub use state::{ApiSettings, AppState};
