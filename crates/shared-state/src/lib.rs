//! Small state between requests: expiring entries (cached answers, page maps), rate limits, requests in flight, and the
//! clock. In memory; lost on a restart without harm.

pub mod clock;
pub mod expiring;
pub mod gcra;
pub mod in_flight;
pub mod rate_limit;
pub mod single_flight;

pub use clock::Clock;
pub use expiring::Expiring;
pub use in_flight::{InFlight, Place};
pub use rate_limit::RateLimiter;
pub use single_flight::SingleFlight;
