//! Paths that more than the routes name.

/// Exchanges and revokes tokens; its errors have a shape of their own.
pub(super) const TOKEN: &str = "/v1/token";
