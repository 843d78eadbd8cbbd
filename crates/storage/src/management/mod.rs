//! Changes of management, their audit, operators' keys, and the responses to repeated requests.

pub(crate) mod audit;
pub(crate) mod changes;
pub mod first_start;
pub mod operator_keys;
pub mod provider_settings;
pub(crate) mod requests;
