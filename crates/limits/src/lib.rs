//! What bounds and shares work between requests: rate limits, concurrency limits, single flight,
//! expiring maps, and jitter. A restart may lose all of it. Limits may be shared with other
//! instances, in a store.

pub mod admission;
pub mod call_budget;
pub mod call_window;
pub mod client_address;
pub mod expiring;
pub mod gcra;
pub mod in_flight;
pub mod jitter;
pub mod rate_limit;
pub mod single_flight;
pub mod store;

pub use admission::{Admission, admit};
pub use call_budget::CallBudgets;
pub use call_window::{CallKind, CallWindow};
pub use expiring::Expiring;
pub use in_flight::{InFlight, Permit};
pub use rate_limit::RateLimiter;
pub use single_flight::SingleFlight;
pub use store::{SharedStore, StoreSettings};
