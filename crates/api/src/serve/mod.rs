//! Opens listeners and serves a router on the connections that they accept, with HTTP/1.1.
//!
//! This replaces `axum::serve`, which limits neither connections, nor the time that a client takes
//! to send its headers or to read its response. There is no HTTP/2: it needs TLS in practice, and
//! proxies speak HTTP/1.1 to what is behind them. A connection handles one request at a time, so
//! the limit of connections is also that of requests.

mod slots;

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use bellbird_limits::client_address::Network;
use http::StatusCode;
use http::header::ALLOW;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use slots::{Slot, Slots};

/// Pause after an accept error such as "too many open files"; an immediate retry would only fail
/// again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// Size of a request's head beyond which hyper rejects it: more than the API's own limits of 16 KiB
/// for the path and 64 KiB for the headers, so that it can respond with its error object. A full
/// listener holds 96 MiB of unfinished heads.
const HEAD_BYTES_MAX: usize = 96 * 1024;
/// Header fields of a request beyond which hyper rejects it. hyper allocates all of them before it
/// parses: 256 fields cost a request 0.2 µs more than the default of 100; 1,000 fields cost 1.1 µs
/// more.
const HEADERS_MAX: usize = 256;

/// When the service stops, a client has this long to send the rest of a request's head, and to take
/// a response that was complete when it began.
const STOP_IDLE_MAX: Duration = Duration::from_secs(3);
/// How often a new connection without a slot looks for an idle one to replace.
const SLOT_INTERVAL: Duration = Duration::from_secs(1);
/// The open files that the process asks for: three full listeners, and as many again for everything
/// else.
const OPEN_FILES: u64 = 8_192;
/// The response to a connection above the limit of its address. It is sent without reading the
/// request.
const TOO_MANY_CONNECTIONS: &str = "HTTP/1.1 429 Too Many Requests\r\ncontent-type: application/json\r\n\
    content-length: 91\r\nretry-after: 1\r\nbellbird-error: rate_limited\r\nconnection: close\r\n\r\n\
    {\"error\":{\"message\":\"Too many connections from this address: close some, then try again\"}}\n";

/// How long a response may take, from its head to its end. The listener closes the connection then,
/// because a client that takes a few bytes now and then would hold what the response holds forever.
/// An extension of a response.
#[derive(Debug, Clone, Copy)]
pub struct ResponseTimeout(pub Duration);

/// A bound socket. The system queues connections until [`serve`] accepts them.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// The bound address. If port 0 was requested, it has the port that the system chose.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Concurrent connections. A new one beyond this limit replaces the one that has been idle
    /// longest, or waits.
    pub connections_max: usize,
    /// Concurrent connections of one client address (of an IPv6 client: of its /64). A new one
    /// beyond this limit replaces the address's own that has been idle longest, or is rejected.
    pub connections_per_address_max: usize,
    /// A connection can be replaced once it has waited for a request, or for its client to read the
    /// response, for this long.
    pub idle_min: Duration,
    /// Proxies, which open connections for many clients and have no limit by address.
    pub trusted_proxies: Vec<Network>,
    /// Limit from the connection, or from the end of a response, to the end of the next request's
    /// headers. hyper has one timer for idle connections and slow headers. Proxies usually keep
    /// idle connections for 60 s. This limit is longer, so that the proxy closes first.
    pub head_timeout: Duration,
    /// A client that reads nothing of its response for this long is disconnected.
    pub write_timeout: Duration,
    /// For how long after a stop an open connection takes one more request, its last. A proxy may
    /// be sending it at that moment, and could not repeat a POST.
    pub drain: Duration,
    /// How long requests in flight may continue after a stop.
    pub stop_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            connections_per_address_max: 256,
            idle_min: Duration::from_secs(1),
            trusted_proxies: Vec::new(),
            head_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            drain: Duration::from_millis(250),
            stop_timeout: Duration::from_secs(30),
        }
    }
}

pub async fn listen(address: SocketAddr) -> io::Result<Listener> {
    let socket = TcpListener::bind(address).await?;
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

/// Serves the router until `stop` is cancelled. Requests in flight may then finish within
/// `stop_timeout`.
pub async fn serve(
    listener: Listener,
    router: Router,
    options: ServeOptions,
    stop: CancellationToken,
) {
    let (permits, slots) = (
        Arc::new(Semaphore::new(options.connections_max)),
        Slots::default(),
    );
    let graceful = GracefulShutdown::new();
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(options.head_timeout)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX);
    let (mut connections, mut incoming) =
        (JoinSet::new(), IncomingConnections::Listening(listener));
    while let Some((stream, peer)) = incoming.next(&stop).await {
        while connections.try_join_next().is_some() {}
        let slot = slots.open(
            peer.ip(),
            &options.trusted_proxies,
            options.connections_per_address_max,
            options.idle_min,
            Instant::now(),
        );
        let Some(slot) = slot else {
            reject(stream);
            continue;
        };
        let Some(permit) = acquire_permit(&permits, &slots, &slot, &options, &stop).await else {
            break;
        };
        let (http, router, watcher) = (http.clone(), router.clone(), graceful.watcher());
        let write_timeout = options.write_timeout;
        connections.spawn(async move {
            tokio::select! {
                () = serve_connection(http, stream, peer, router, write_timeout, &slot, watcher) => {}
                () = slot.closed() => tracing::debug!("connection closed"),
            }
            drop(permit);
        });
    }
    drop(incoming);
    slots.stop();
    let shutdown = async {
        let closed = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(options.drain, closed).await;
        tokio::select! {
            () = graceful.shutdown() => {}
            () = close_waiting(&slots) => {}
        }
    };
    if tokio::time::timeout(options.stop_timeout, shutdown)
        .await
        .is_err()
    {
        tracing::warn!("connections aborted: they did not close within the shutdown timeout");
    }
    connections.shutdown().await;
}

/// Closes the connections that would otherwise hold up the stop until their head times out. hyper
/// closes those that wait between two requests, but not those with a part of one.
async fn close_waiting(slots: &Slots) {
    loop {
        tokio::time::sleep(STOP_IDLE_MAX).await;
        slots.close_waiting(STOP_IDLE_MAX, Instant::now());
    }
}

async fn serve_connection(
    http: http1::Builder,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    write_timeout: Duration,
    slot: &Slot,
    watcher: Watcher,
) {
    // Without it, Nagle's algorithm may hold back a small response until the previous one is
    // acknowledged.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
    }
    let mut stream = Box::pin(TimeoutStream::new(stream));
    stream
        .as_mut()
        .set_write_timeout_pinned(Some(write_timeout));
    let service = service_fn(|mut request: http::Request<Incoming>| {
        request.extensions_mut().insert(ConnectInfo(peer));
        slot.set_busy();
        let response = router.clone().call(request);
        async {
            let Ok(mut response) = response.await;
            // Axum names the methods of a path in the response to a wrong one, also without a key.
            if response.status() != StatusCode::METHOD_NOT_ALLOWED {
                response.headers_mut().remove(ALLOW);
            }
            slot.set_idle(Instant::now());
            Ok::<_, Infallible>(slot.watch(response))
        }
    });
    if let Err(error) = watcher
        .watch(http.serve_connection(TokioIo::new(stream), service))
        .await
    {
        tracing::debug!(%error, "connection failed");
    }
}

/// The connections that the listener accepts, and after a stop those that the system has accepted
/// for it already.
enum IncomingConnections {
    Listening(Listener),
    Queued(Vec<(TcpStream, SocketAddr)>),
}

impl IncomingConnections {
    /// When the service stops, the socket closes at once, so that a proxy turns to another
    /// instance. What would break then comes next, and `None` at the end.
    async fn next(&mut self, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
        if let Self::Listening(listener) = self {
            if let Some(accepted) = accept(listener, stop).await {
                return Some(accepted);
            }
            let Self::Listening(listener) = std::mem::replace(self, Self::Queued(Vec::new()))
            else {
                return None;
            };
            *self = Self::Queued(queued(listener));
        }
        match self {
            Self::Queued(connections) => connections.pop(),
            Self::Listening(_) => None,
        }
    }
}

/// Closes the socket, and returns the connections that the system had accepted for it.
fn queued(listener: Listener) -> Vec<(TcpStream, SocketAddr)> {
    let Ok(socket) = listener.socket.into_std() else {
        return Vec::new();
    };
    let accepted = std::iter::from_fn(|| socket.accept().ok());
    let usable = accepted.filter_map(|(stream, peer)| {
        stream.set_nonblocking(true).ok()?;
        Some((TcpStream::from_std(stream).ok()?, peer))
    });
    usable.collect()
}

/// Accepts the next connection. Returns `None` when the service stops.
async fn accept(listener: &Listener, stop: &CancellationToken) -> Option<(TcpStream, SocketAddr)> {
    loop {
        match stop.run_until_cancelled(listener.socket.accept()).await? {
            Ok(accepted) => return Some(accepted),
            Err(error) if is_client_abort(&error) => {}
            Err(error) => {
                tracing::warn!(%error, address = %listener.address, "could not accept connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Waits until the listener has room, and makes room if a connection is idle. Returns `None` when
/// the service stops.
async fn acquire_permit(
    permits: &Arc<Semaphore>,
    slots: &Slots,
    slot: &Slot,
    options: &ServeOptions,
    stop: &CancellationToken,
) -> Option<OwnedSemaphorePermit> {
    loop {
        if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
            return Some(permit);
        }
        slots.close_longest_idle(slot, options.idle_min, Instant::now());
        let free = tokio::time::timeout(SLOT_INTERVAL, Arc::clone(permits).acquire_owned());
        if let Ok(permit) = stop.run_until_cancelled(free).await? {
            return permit.ok();
        }
    }
}

/// Responds without waiting: the socket's buffer has room for these few bytes.
fn reject(stream: TcpStream) {
    tracing::debug!("connection rejected: too many from its address");
    if let Ok(mut stream) = stream.into_std() {
        let _ = stream.write(TOO_MANY_CONNECTIONS.as_bytes());
    }
}

/// Raises the limit of open files as far as the system allows, up to what full listeners need. Many
/// systems start a process with 1,024.
pub fn raise_open_files_limit() {
    let limit = getrlimit(Resource::Nofile);
    let wanted = limit.maximum.unwrap_or(OPEN_FILES).min(OPEN_FILES);
    if limit.current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(
            Resource::Nofile,
            Rlimit {
                current: Some(wanted),
                ..limit
            },
        )
    {
        tracing::warn!(%error, "could not raise the limit of open files");
    }
    if wanted < OPEN_FILES {
        tracing::warn!(
            limit = wanted,
            wanted = OPEN_FILES,
            "the limit of open files is low: set LimitNOFILE"
        );
    }
}

/// True if the client closed the connection before it was accepted; the loop need not pause then.
fn is_client_abort(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(
        error.kind(),
        ConnectionAborted | ConnectionRefused | ConnectionReset
    )
}
