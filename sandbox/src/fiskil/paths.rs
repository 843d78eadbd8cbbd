//! Paths that other modules than the router name.

/// Issues access tokens, so it needs none.
pub(super) const TOKEN: &str = "/v1/token";
