//! Listening, and serving a router on what is accepted.
//!
//! Own loop rather than `axum::serve`, which has no time-out for a client that sends its headers slowly or not at all,
//! no bound on connections, and plain-text answers to what is not HTTP.

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

/// How long the loop waits after an error such as "too many open files", which more haste would only repeat.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A socket that listens; nothing is accepted yet.
#[derive(Debug)]
pub struct Listener {
    socket: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// The address, with the port that the system chose if it was asked to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

/// The bounds of a listener.
#[derive(Debug, Clone, Copy)]
pub struct ServeOptions {
    /// Connections at once. When all are taken, new ones wait in the system's queue.
    pub connections_max: usize,
    /// From the first byte of a request to the end of its headers; also from the connection to its first request.
    pub head_timeout: Duration,
    /// A connection without a request is closed after it. Longer than the 60 s that proxies usually keep theirs, so
    /// that it is the proxy that closes.
    pub idle_timeout: Duration,
    /// A client that takes nothing of its answer for so long is cut off.
    pub write_timeout: Duration,
    /// What requests in flight get when the service stops.
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

/// Starts to listen. Connections wait until [`serve`] takes them.
///
/// # Errors
/// What the system says: the port is taken, the address is not ours.
pub async fn listen(address: SocketAddr) -> io::Result<Listener> {
    let socket = TcpListener::bind(address).await?;
    let address = socket.local_addr()?;
    Ok(Listener { socket, address })
}

/// Serves the router until `stop` is cancelled, then lets what is in flight end within its bound, and returns.
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

/// The next connection and its place; none when the service stops.
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
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                tracing::warn!(%error, address = %listener.address, "no connection can be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// The connection ended before it was taken: nothing to wait for.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}
