//! What every request to the API listener shares: the guard with keys, limits and plans, the access log, query
//! parameters and errors.
//!
//! A [`Door`] is a set of paths that speaks one protocol. [`router`] puts the same layers around all doors.

pub mod access;
mod access_log;
mod auth;
pub mod extract;
mod guard;
pub mod json;
pub mod live;
pub mod parameters;
mod parameters_schema;
pub mod problem;
mod router;
pub mod routes;

pub use access::{Access, AccessSettings};
pub use extract::{Admitted, LivePermit};
pub use problem::Problem;
pub use router::router;
pub use routes::{Class, Credentials, Door, Route, route};
