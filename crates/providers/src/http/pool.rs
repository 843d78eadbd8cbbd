//! What the HTTP clients of adapters and of webhook delivery share: HTTP/1.1 with or without TLS, the system's trust
//! store, no redirects and no proxies. Resolver, limits and errors are the client's own.

use std::fmt::Display;
use std::time::Duration;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Builder, Client};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::header::HeaderValue;
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt;
use tower::BoxError;

pub const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("Bellbird/", env!("CARGO_PKG_VERSION")));
/// The connection is closed if sent data stays unacknowledged for this long.
const TCP_TIMEOUT: Duration = Duration::from_secs(30);

/// Fails with an error message for the operator. `peers` are what the client calls.
pub fn tls_config(peers: impl Display) -> Result<ClientConfig, String> {
    ClientConfig::with_platform_verifier()
        .map_err(|error| format!("could not set up the HTTP client for {peers}: {error}"))
}

/// Opens TCP connections to the addresses that `resolver` returns, for both http and https.
pub fn tcp_connector<R>(resolver: R) -> HttpConnector<R> {
    let mut connector = HttpConnector::new_with_resolver(resolver);
    connector.enforce_http(false);
    connector.set_nodelay(true);
    // Keepalive probes detect a dead peer on idle connections too.
    connector.set_keepalive(Some(TCP_TIMEOUT / 2));
    connector.set_keepalive_interval(Some(TCP_TIMEOUT / 6));
    connector.set_keepalive_retries(Some(3));
    connector.set_tcp_user_timeout(Some(TCP_TIMEOUT));
    connector
}

/// HTTP/1.1 only. Its connections share nothing, so a response that waits does not block others.
pub fn https_connector<T>(tcp: T, tls: ClientConfig) -> HttpsConnector<T> {
    HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp)
}

/// A pool that keeps idle connections for `idle_timeout`, at most `idle_max` for one host. The read buffer limits the
/// head of a response.
pub fn builder(idle_timeout: Duration, idle_max: usize, read_buffer_bytes: usize) -> Builder {
    let mut builder = Client::builder(TokioExecutor::new());
    builder
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(idle_timeout)
        .pool_max_idle_per_host(idle_max)
        .http1_max_buf_size(read_buffer_bytes);
    builder
}

/// Limits the time for opening a connection, TLS included. A call has its own deadline, but the pool keeps connecting
/// after the call timed out or got another connection.
pub async fn connect_within<S>(
    limit: Duration,
    connecting: impl Future<Output = Result<S, BoxError>>,
) -> Result<S, BoxError> {
    tokio::time::timeout(limit, connecting).await?
}
