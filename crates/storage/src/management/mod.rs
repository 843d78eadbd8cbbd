//! Changes of management, their audit, operators' keys, and the responses to repeated requests.

pub(crate) mod audit;
pub(crate) mod changes;
pub mod operator_keys;
pub(crate) mod requests;
