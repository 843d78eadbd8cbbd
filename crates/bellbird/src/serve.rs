//! Opens listeners and serves a router on the connections that they accept, with HTTP/1.1.
//!
//! This replaces `axum::serve`, which limits neither connections, nor the time that a client takes to send its headers
//! or to read its response. There is no HTTP/2: it needs TLS in practice, and proxies speak HTTP/1.1 to what is behind
//! them.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use http::StatusCode;
use http::header::ALLOW;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

/// Pause after an accept error such as "too many open files"; an immediate retry would only fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Size of a request's head beyond which hyper rejects it. The API's own limits are lower and checked later.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Header fields of a request beyond which hyper rejects it. hyper allocates all of them before it parses: 256 fields
/// cost a request 0.2 µs more than the default of 100; 1,000 fields cost 1.1 µs more.
const HEADERS_MAX: usize = 256;

/// A bound socket. The system queues connections until [`serve`] accepts them.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// The bound address. If port 0 was requested, it has the port that the system chose.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// Limits of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ServeOptions {
    /// Concurrent connections. Beyond this limit, new ones wait in the system's queue.
    pub connections_max: usize,
    /// Limit from the connection, or from the end of a response, to the end of the next request's headers. hyper has
    /// one timer for idle connections and slow headers. Proxies usually keep idle connections for 60 s. This limit is
    /// longer, so that the proxy closes first.
    pub head_timeout: Duration,
    /// A client that reads nothing of its response for this long is disconnected.
    pub write_timeout: Duration,
    /// How long requests in flight may continue after a stop.
    pub stop_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            head_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(30),
        }
    }
}

pub async fn listen(address: SocketAddr) -> io::Result<Listener> {
    let socket = TcpListener::bind(address).await?;
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

/// Serves the router until `stop` is cancelled. Requests in flight may then finish within `stop_timeout`.
pub async fn serve(listener: Listener, router: Router, options: ServeOptions, stop: CancellationToken) {
    let permits = Arc::new(Semaphore::new(options.connections_max));
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let mut connections = JoinSet::new();
    while let Some((stream, peer, permit)) = next_connection(&listener, &permits, &stop).await {
        while connections.try_join_next().is_some() {}
        let (http, router, watcher) = (http.clone(), router.clone(), graceful.watcher());
        connections.spawn(async move {
            serve_connection(http, stream, peer, router, options, watcher).await;
            drop(permit);
        });
    }
    drop(listener);
    if tokio::time::timeout(options.stop_timeout, graceful.shutdown()).await.is_err() {
        tracing::warn!("connections aborted: they did not close within the shutdown timeout");
    }
    connections.shutdown().await;
}

async fn serve_connection(
    http: http1::Builder,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    options: ServeOptions,
    watcher: Watcher,
) {
    // Without it, Nagle's algorithm may hold back a small response until the previous one is acknowledged.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream.as_mut().set_write_timeout_pinned(Some(options.write_timeout));
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        let answer = router.clone().call(request);
        async {
            let mut response = answer.await?;
            if response.status() == StatusCode::UNAUTHORIZED {
                // The router adds `Allow` outside of all layers. A rejected key must not learn the methods of a path.
                response.headers_mut().remove(ALLOW);
            }
            Ok::<_, std::convert::Infallible>(response)
        }
    });
    if let Err(error) = watcher.watch(http.serve_connection(TokioIo::new(stream), service)).await {
        tracing::debug!(%error, "connection failed");
    }
}

/// Accepts the next connection and its permit. Returns `None` when the service stops.
async fn next_connection(
    listener: &Listener,
    permits: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let permit = stop.run_until_cancelled(Arc::clone(permits).acquire_owned()).await?.ok()?;
    loop {
        match stop.run_until_cancelled(listener.socket.accept()).await? {
            Ok((stream, peer)) => return Some((stream, peer, permit)),
            Err(error) if is_client_abort(&error) => {}
            Err(error) => {
                tracing::warn!(%error, address = %listener.address, "could not accept connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// True if the client closed the connection before it was accepted; the loop need not pause then.
fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
