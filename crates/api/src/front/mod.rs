//! What all interfaces of the API listener share: mounting, keys, quotas and plans, the access log,
//! parameters, errors.
//!
//! An interface is a [`Mount`]: paths below a prefix, each written once as a [`Path`] with its
//! handler, quota class and description. [`router`] puts the same layers around all of them.
//!
//! Axum's router finds no path. It has one handler, its fallback, which is the guard. The access
//! log has to know the path first, so it searches the mounts, once, and passes the endpoint to the
//! guard as an extension of the request.

pub mod access;
mod auth;
pub mod body;
pub mod extract;
mod guard;
pub mod json;
mod key_reads;
mod layers;
pub mod log;
pub mod mount;
pub mod operation;
mod operator;
pub mod parameters;
mod parameters_schema;
pub mod problem;
pub mod quota;
mod route;
mod trace;

pub use access::{Access, AccessSettings};
pub use auth::{SignedInCaller, authorization};
pub use extract::{Authorized, BankingConnection, BrokerageConnection, Guarded, NoParams, Query};
pub use layers::{ResponseTimeout, router};
pub use mount::{Mount, Path};
pub use operation::{Operation, ProviderSchema};
pub use operator::{ForOperators, JsonBody, Operator, PathId, PathIds, Resource};
pub use problem::Problem;
pub use quota::{LivePermit, QuotaClass};
pub use route::{Route, RouteMethod};
