//! What bounds and shares work between requests, in memory: rate limits, concurrency limits, single flight, expiring
//! maps, and jitter. A restart may lose all of it.

pub mod client_address;
pub mod expiring;
pub mod gcra;
pub mod in_flight;
pub mod jitter;
pub mod rate_limit;
pub mod single_flight;

pub use expiring::Expiring;
pub use in_flight::{InFlight, Permit};
pub use rate_limit::{Buckets, RateLimiter};
pub use single_flight::SingleFlight;
