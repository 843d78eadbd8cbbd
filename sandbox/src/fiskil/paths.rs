//! Paths that modules besides the router use.

/// Issues access tokens, so it needs none.
pub(super) const TOKEN: &str = "/v1/token";
