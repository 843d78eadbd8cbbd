//! Paths that more than the routes name.

/// Issues access tokens, so it needs none.
pub(super) const TOKEN: &str = "/v1/token";
