//! Paths that other modules than the router name.

/// Exchanges and revokes tokens. Its errors have their own shape.
pub(super) const TOKEN: &str = "/v1/token";
