//! Opens listeners and serves a router on the connections that they accept.
//!
//! This replaces `axum::serve`, which lacks three things: a timeout for clients that send their headers slowly or not
//! at all, a limit on connections, and JSON errors for requests that are not valid HTTP.

mod activity;
mod body;
mod connection;
mod early;
mod stream;
mod watch;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// Pause after an accept error such as "too many open files"; an immediate retry would only fail again.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

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
    /// Limit from the first byte of a request to the end of its headers. It also applies from the connection to the
    /// end of its first request's headers.
    pub head_timeout: Duration,
    /// A connection without a request is closed after this time. Proxies usually keep idle connections for 60 s. This
    /// limit is longer, so that the proxy closes first.
    pub idle_timeout: Duration,
    /// A client that reads nothing of its response for this long is disconnected.
    pub write_timeout: Duration,
    /// How long requests in flight may continue after a stop.
    pub stop_timeout: Duration,
}

impl Default for ServeOptions {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            head_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
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
    let slots = Arc::new(Semaphore::new(options.connections_max));
    let server = Arc::new(connection::Server::new(router, options));
    let connections = TaskTracker::new();
    while let Some((stream, peer, slot)) = next_connection(&listener, &slots, &stop).await {
        connections.spawn(connection::run(Arc::clone(&server), stream, peer, stop.clone(), slot));
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

/// Accepts the next connection and its permit. Returns `None` when the service stops.
async fn next_connection(
    listener: &Listener,
    slots: &Arc<Semaphore>,
    stop: &CancellationToken,
) -> Option<(TcpStream, SocketAddr, OwnedSemaphorePermit)> {
    let slot = tokio::select! {
        biased;
        () = stop.cancelled() => return None,
        slot = Arc::clone(slots).acquire_owned() => slot.ok()?,
    };
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return None,
            accepted = listener.socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, peer)) => return Some((stream, peer, slot)),
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
