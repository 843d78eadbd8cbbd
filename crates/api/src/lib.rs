//! The public JSON API: routes, who may call them, how often, and what they answer.

mod auth;
pub mod client_address;
mod docs_page;
mod guard;
mod handlers;
mod live;
mod observe;
pub mod openapi;
pub mod params;
pub mod problem;
mod router;
mod state;
pub mod views;

pub use client_address::Network;
/// For benchmarks.
#[doc(hidden)]
pub use handlers::transactions::TransactionsBody;
pub use router::router;
pub use state::{ApiSettings, AppState};
