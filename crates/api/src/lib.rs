//! The public JSON API: its routes, handlers and OpenAPI document.

mod cache;
mod deprecation;
mod docs_page;
pub mod front;
mod handlers;
mod live;
pub mod openapi;
mod queries;
mod router;
mod routes;
mod state;
pub mod views;

/// Public for benchmarks only.
#[doc(hidden)]
pub use handlers::transactions::TransactionsBody;
pub use router::door;
pub use state::{ApiSettings, AppState};
