//! Where events may be sent: rules for endpoint URLs, and the resolver that keeps to them.

pub mod resolver;
mod rules;

pub(crate) use rules::request_uri;
pub use rules::{Rules, TargetError, check_url, is_allowed};
