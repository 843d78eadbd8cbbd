//! The one HTTP client: HTTP/1.1 with or without TLS, over pooled connections. Adapters, webhook
//! delivery and `bellbird mcp` send with it, each with its own limits. It follows no redirects and
//! ignores proxies of the environment.

use std::fmt::Display;
use std::sync::{LazyLock, OnceLock};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{HeaderValue, USER_AGENT};
use hyper::{Request, Response, Uri};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls_platform_verifier::ConfigVerifierExt as _;
use tokio::net::TcpStream;
use tower::util::{BoxCloneSyncService, ServiceExt as _};
use tower::{BoxError, Service};

use super::stream::{OpenedAt, Stream};

/// For a program that has no build to tell apart, such as a benchmark.
const DEFAULT_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("Bellbird/", env!("CARGO_PKG_VERSION")));
static AGENT: OnceLock<HeaderValue> = OnceLock::new();
/// The connection is closed if sent data stays unacknowledged for this long.
const TCP_TIMEOUT: Duration = Duration::from_secs(30);

pub use hyper_util::client::legacy::Error as SendError;
pub use hyper_util::client::legacy::connect::dns::GaiResolver;

/// The error of a name resolution or TCP connection. TLS fails with other errors.
pub type TcpError = <HttpConnector as Service<Uri>>::Error;

type Connector = BoxCloneSyncService<Uri, Stream, BoxError>;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The time for opening a connection: name resolution, TCP and TLS. The pool keeps connecting
    /// after the call that asked for it has timed out or got another connection.
    pub connect_timeout: Duration,
    /// The part of it for TCP. It is divided among the addresses of a name, so a dead address
    /// leaves time for the others.
    pub tcp_timeout: Option<Duration>,
    /// The pool closes a connection that has been idle for one to two times this.
    pub idle_timeout: Duration,
    /// Idle connections that are kept for one host.
    pub idle_max: usize,
    /// A connection that has been open for this long is closed after its next response.
    pub reuse_max: Duration,
    /// The most that is read at once. It limits the head of a response.
    pub read_buffer_bytes: usize,
    /// The most headers of a response.
    pub headers_max: usize,
}

/// Connections to any number of hosts. Cheap to clone; clones share the connections.
#[derive(Clone)]
pub struct Pool {
    connector: Connector,
    client: Client<Connector, Full<Bytes>>,
    reuse_max: Duration,
}

/// Why the body of a response could not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadError {
    TooLarge,
    /// The connection ended too early.
    CutOff,
}

/// TLS with the system's trust store, which is read once. Fails with an error message for the
/// operator. `peers` are what the client calls.
pub fn tls_config(peers: impl Display) -> Result<ClientConfig, String> {
    static CONFIG: LazyLock<Result<ClientConfig, String>> =
        LazyLock::new(|| ClientConfig::with_platform_verifier().map_err(|error| error.to_string()));
    CONFIG
        .clone()
        .map_err(|error| format!("could not set up the HTTP client for {peers}: {error}"))
}

impl Pool {
    /// `resolver` finds the addresses of a host name. IP literals never reach it.
    pub fn new<R>(tls: ClientConfig, resolver: R, limits: Limits) -> Self
    where
        HttpConnector<R>: Service<Uri, Response = TokioIo<TcpStream>, Error = TcpError>
            + Clone
            + Send
            + Sync
            + 'static,
        <HttpConnector<R> as Service<Uri>>::Future: Send,
    {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_connect_timeout(limits.tcp_timeout);
        tcp.set_nodelay(true);
        // Keepalive probes detect a dead peer on idle connections too.
        tcp.set_keepalive(Some(TCP_TIMEOUT / 2));
        tcp.set_keepalive_interval(Some(TCP_TIMEOUT / 6));
        tcp.set_keepalive_retries(Some(3));
        tcp.set_tcp_user_timeout(Some(TCP_TIMEOUT));
        // HTTP/1.1 connections share nothing, so a response that waits does not block others.
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let within = limits.connect_timeout;
        let connector = Connector::new(https.map_future(move |connecting| async move {
            Ok(Stream::new(
                tokio::time::timeout(within, connecting).await??,
            ))
        }));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(limits.idle_timeout)
            .pool_max_idle_per_host(limits.idle_max)
            .http1_max_buf_size(limits.read_buffer_bytes)
            .http1_max_headers(limits.headers_max)
            .build(connector.clone());
        Self {
            connector,
            client,
            reuse_max: limits.reuse_max,
        }
    }

    /// Opens a connection as [`Self::send`] does, and closes it.
    pub async fn connect(&self, uri: Uri) -> Result<(), BoxError> {
        self.connector.clone().oneshot(uri).await.map(drop)
    }

    /// Sends a request and returns once the head of the response is there. The caller has the
    /// deadline.
    pub async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, SendError> {
        request
            .headers_mut()
            .insert(USER_AGENT, AGENT.get().cloned().unwrap_or(DEFAULT_AGENT));
        let connection = capture_connection(&mut request);
        let response = self.client.request(request).await?;
        if response
            .extensions()
            .get::<OpenedAt>()
            .is_some_and(|opened| opened.0.elapsed() >= self.reuse_max)
            && let Some(connected) = connection.connection_metadata().as_ref()
        {
            connected.poison();
        }
        Ok(response)
    }
}

/// Why a request could not be sent, without the host, which may be a client's.
#[must_use]
pub fn reason(error: &SendError) -> &'static str {
    if !error.is_connect() {
        return "connection lost";
    }
    let causes =
        std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| {
            error.source()
        });
    for cause in causes {
        if cause.is::<rustls::Error>() || cause.downcast_ref::<std::io::Error>().is_some_and(is_tls)
        {
            return "could not connect: TLS failed, so check the host's certificate and this machine's clock";
        }
        if let Some(error) = cause.downcast_ref::<std::io::Error>()
            && error.kind() == std::io::ErrorKind::ConnectionRefused
        {
            return "could not connect: connection refused";
        }
        if cause.to_string().starts_with("dns error") {
            return "could not connect: the host name is not known";
        }
    }
    "could not connect"
}

/// rustls passes its errors on inside of an I/O error.
fn is_tls(error: &std::io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|inner| inner.is::<rustls::Error>())
}

/// Sets the version that every call of this process has in `User-Agent`, once. It includes the
/// commit: the sources are public, so a version alone says as much about open flaws, and whoever is
/// called can tell which build to report.
pub fn set_version(version: &str) {
    if let Ok(agent) = HeaderValue::try_from(format!("Bellbird/{version}")) {
        let _ = AGENT.set(agent);
    }
}

/// Reads a body of at most `bytes_max` to its end.
pub async fn read(mut body: Incoming, bytes_max: usize) -> Result<Bytes, ReadError> {
    let expected = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if expected > bytes_max {
        return Err(ReadError::TooLarge);
    }
    // Each chunk is copied and dropped, so that hyper reuses its buffer.
    let mut bytes = BytesMut::with_capacity(expected);
    while let Some(frame) = body.frame().await {
        let Ok(chunk) = frame.map_err(|_| ReadError::CutOff)?.into_data() else {
            continue;
        };
        if bytes.len() + chunk.len() > bytes_max {
            return Err(ReadError::TooLarge);
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;

    /// Responds to every request with `{}`. Returns its URL and the number of connections.
    async fn server() -> (Uri, Arc<AtomicU32>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap())
            .parse()
            .unwrap();
        let connections = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    // A request without a body is one packet.
                    while stream
                        .read(&mut [0; 4_096])
                        .await
                        .is_ok_and(|bytes| bytes > 0)
                    {
                        stream
                            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")
                            .await
                            .unwrap();
                    }
                });
            }
        });
        (url, connections)
    }

    #[tokio::test]
    async fn connection_is_reused_for_a_limited_time() {
        const CALLS: u32 = 20;
        for (reuse_max, expected) in [
            (Duration::MAX, 1..CALLS),
            (Duration::ZERO, CALLS..CALLS + 1),
        ] {
            let (url, connections) = server().await;
            let limits = Limits {
                reuse_max,
                ..crate::http::LIMITS
            };
            let pool = Pool::new(tls_config("a test").unwrap(), GaiResolver::new(), limits);
            for _ in 0..CALLS {
                let mut request = Request::new(Full::default());
                *request.uri_mut() = url.clone();
                let response = pool.send(request).await.unwrap();
                assert_eq!(
                    read(response.into_body(), 2).await.as_deref(),
                    Ok(&b"{}"[..])
                );
            }
            let opened = connections.load(Ordering::Relaxed);
            assert!(expected.contains(&opened), "{reuse_max:?}: {opened}");
        }
    }

    #[tokio::test]
    async fn longer_body_is_not_read() {
        let (url, _) = server().await;
        let pool = Pool::new(
            tls_config("a test").unwrap(),
            GaiResolver::new(),
            crate::http::LIMITS,
        );
        let mut request = Request::new(Full::default());
        *request.uri_mut() = url;
        let response = pool.send(request).await.unwrap();
        assert_eq!(
            read(response.into_body(), 1).await,
            Err(ReadError::TooLarge)
        );
    }
}
