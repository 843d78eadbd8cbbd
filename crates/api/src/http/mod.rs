//! What all interfaces of the API listener share: mounting, keys, quotas and plans, the access log,
//! parameters, errors.
//!
//! An interface is [`Routes`] below a prefix, each documented at its handler. [`listener`] serves
//! several with the same layers around all routes, in which axum has found the route already: error
//! form, access log, CORS, and, for routes that need a key, the guard.

mod auth;
pub mod body;
pub mod context;
mod cors;
pub mod documented;
pub mod extract;
mod guard;
mod interface;
pub mod json;
mod key_reads;
pub mod log;
mod operator;
pub mod parameters;
mod parameters_schema;
pub mod problem;
pub mod quota;
mod route_metrics;
pub mod sealed_cursor;
mod trace;

pub(crate) use auth::sha256;
pub use auth::{NotBefore, SignedInCaller, authorization};
pub use context::{ApiContext, ApiContextSettings};
pub use extract::{Authorized, BankingConnection, BrokerageConnection, NoParams, Query, UserState};
pub use interface::{DocumentedRoutes, Interface, Routes, UnknownPath, WireStyle, listener};
pub(crate) use operator::{JsonBody, Operator, OperatorState, PathId, PathIds, Resource};
pub use problem::Problem;
pub(crate) use quota::Refused;
pub use quota::{LivePermit, QuotaClass, Quotas};
