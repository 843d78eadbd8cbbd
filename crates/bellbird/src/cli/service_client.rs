//! Requests of commands to a running service.

use std::time::Duration;

use bellbird_domain::ApiKey;
use bellbird_providers::http::pool::{self, GaiResolver, Limits, Pool};
use http::HeaderValue;

/// Longer than a request takes at the service.
pub(super) const TIMEOUT: Duration = Duration::from_secs(120);
const LIMITS: Limits = Limits {
    connect_timeout: TIMEOUT,
    tcp_timeout: None,
    idle_timeout: Duration::from_secs(30),
    idle_max: 4,
    reuse_max: Duration::MAX,
    read_buffer_bytes: 64 * 1024,
    headers_max: 100,
};

/// Connections to the service, and the header with the key. Fails with a message for the user.
pub(super) fn connect(key: &ApiKey) -> Result<(Pool, HeaderValue), String> {
    let pool = Pool::new(pool::tls_config("the service")?, GaiResolver::new(), LIMITS);
    let mut authorization = HeaderValue::from_str(&format!("Bearer {}", key.expose()))
        .map_err(|_| "the key is not a key".to_owned())?;
    authorization.set_sensitive(true);
    Ok((pool, authorization))
}
