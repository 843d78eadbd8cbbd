//! Layers around the handlers. The access log is outermost. Inside it, the guard checks the key, the limits and the
//! plan.

pub(crate) mod access_log;
mod auth;
pub(crate) mod guard;
