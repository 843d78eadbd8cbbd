//! HTTP listeners over hyper. The sandbox drives each connection itself, because a fault may break
//! one in ways that no response can express.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use axum::Router;
use http::Request;
use hyper::body::Incoming;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

/// Limit for a request body, in bytes.
pub(crate) const REQUEST_BYTES_MAX: usize = 1024 * 1024;
/// Connections at once; others wait to be accepted.
const CONNECTIONS_MAX: usize = 4096;
/// Limit for reading a request head, and for an idle connection. Longer than clients keep theirs.
const HEAD_TIMEOUT: Duration = Duration::from_secs(100);
/// How long running calls may take when the sandbox stops.
const STOP_TIMEOUT: Duration = Duration::from_millis(500);

/// Extension of a response that must not be sent: the connection closes instead.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Abort;

/// Lets a handler control the connection under its call.
#[derive(Debug, Default)]
pub(crate) struct ConnectionControl {
    reset: AtomicBool,
    flush: Mutex<Flush>,
}

#[derive(Debug, Default)]
enum Flush {
    #[default]
    NotRequested,
    Waiting(Waker),
    Done,
}

impl ConnectionControl {
    /// The client gets a reset instead of an orderly close.
    pub(crate) fn reset_on_close(&self) {
        self.reset.store(true, Ordering::Release);
    }

    /// Ready once everything written before the first poll has been passed to the system.
    pub(crate) fn poll_flushed(&self, context: &Context<'_>) -> Poll<()> {
        let mut flush = self.flush.lock();
        if matches!(*flush, Flush::Done) {
            return Poll::Ready(());
        }
        *flush = Flush::Waiting(context.waker().clone());
        Poll::Pending
    }

    fn flushed(&self) {
        let mut flush = self.flush.lock();
        if let Flush::Waiting(waker) = &*flush {
            waker.wake_by_ref();
            *flush = Flush::Done;
        }
    }
}

/// A connection that [`ConnectionControl`] can reset, and that reports each flush to it.
struct ControlledStream {
    stream: TcpStream,
    connection_control: Arc<ConnectionControl>,
}

impl Drop for ControlledStream {
    fn drop(&mut self) {
        if self.connection_control.reset.load(Ordering::Acquire) {
            // Without lingering, closing sends a reset. If the system does not support that, the
            // close stays orderly.
            let _ = self.stream.set_zero_linger();
        }
    }
}

impl AsyncRead for ControlledStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for ControlledStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = Pin::new(&mut self.stream).poll_flush(context);
        if done.is_ready() {
            // hyper flushes only when its own buffer is empty.
            self.connection_control.flushed();
        }
        done
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// A running listener. Dropping it stops it.
pub(crate) struct Listener {
    stop: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Serves `router` on a bound socket.
    pub(crate) fn start(socket: TcpListener, router: Router) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self {
            stop,
            task: tokio::spawn(accept(socket, router, stopped)),
        }
    }

    /// Stops the listener and its connections. Running calls get [`STOP_TIMEOUT`].
    pub(crate) async fn stop(self) {
        self.stop.send_replace(true);
        let Self { task, .. } = self;
        let end = task.abort_handle();
        if timeout(STOP_TIMEOUT * 2, task).await.is_err() {
            end.abort();
        }
    }
}

/// Binds a socket and returns its address with port 0 resolved.
pub(crate) async fn bind(address: SocketAddr) -> io::Result<(TcpListener, SocketAddr)> {
    let socket = TcpListener::bind(address).await?;
    let address = socket.local_addr()?;
    Ok((socket, address))
}

async fn accept(socket: TcpListener, router: Router, mut stopped: watch::Receiver<bool>) {
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let (mut connections, graceful) = (JoinSet::new(), GracefulShutdown::new());
    loop {
        let permit = Arc::clone(&permits).acquire_owned();
        let accepted = async { (permit.await, socket.accept().await) };
        tokio::select! {
            () = stop_requested(&mut stopped) => break,
            Some(_) = connections.join_next() => {}
            (Ok(permit), accepted) = accepted => match accepted {
                Ok((stream, _)) => {
                    let serving = connection(stream, router.clone(), graceful.watcher());
                    connections.spawn(async move {
                        serving.await;
                        drop(permit);
                    });
                }
                Err(error) => {
                    tracing::debug!(%error, "could not accept connection");
                    // Most likely out of file descriptors; some become free soon.
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            }
        }
    }
    drop(socket);
    // Dropping the set aborts the connections that are still open then.
    let _ = timeout(STOP_TIMEOUT, graceful.shutdown()).await;
}

/// Waits for the stop signal. A dropped sender (the sandbox was dropped) counts as one.
async fn stop_requested(stopped: &mut watch::Receiver<bool>) {
    let _ = stopped.wait_for(|stop| *stop).await;
}

async fn connection(stream: TcpStream, router: Router, watcher: Watcher) {
    let _ = stream.set_nodelay(true);
    let connection_control = Arc::new(ConnectionControl::default());
    let controlled = ControlledStream {
        stream,
        connection_control: Arc::clone(&connection_control),
    };
    let inner = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        request
            .extensions_mut()
            .insert(Arc::clone(&connection_control));
        let response = inner.call(request);
        async move {
            let Ok(response) = response.await;
            if response.extensions().get::<Abort>().is_some() {
                return Err(io::Error::other("aborted by a fault"));
            }
            Ok(response)
        }
    });
    let serving = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(controlled), service);
    // Errors here are broken connections, some of them broken on purpose.
    let _ = watcher.watch(serving).await;
}
