//! A connection of the pool. It knows when it was opened, limits how long a write may stall, and
//! closes without waiting for the peer.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// The pool adds it to each response of the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenedAt(pub(super) Instant);

/// A connection with or without TLS.
///
/// A peer that reads slowly or never could hold a connection and its memory forever. So a write
/// that does not finish within [`WRITE_TIMEOUT`] fails the connection. Closing does not wait until
/// the peer takes the last TLS message, because nothing is left to receive.
pub(super) struct Stream<S = MaybeHttpsStream<TokioIo<TcpStream>>> {
    inner: S,
    opened_at: OpenedAt,
    /// Set while data is unsent.
    write_deadline: Option<Pin<Box<Sleep>>>,
}

/// Equals the default timeout of an exchange with an endpoint. An exchange may end earlier and
/// leave a message half sent.
const WRITE_TIMEOUT: Duration = Duration::from_secs(15);

impl<S> Stream<S> {
    pub(super) fn new(inner: S) -> Self {
        Self {
            inner,
            opened_at: OpenedAt(Instant::now()),
            write_deadline: None,
        }
    }

    /// Passes the result of a write on, and fails a write that has been pending for too long.
    fn with_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<Result<T, Error>>,
    ) -> Poll<Result<T, Error>> {
        if written.is_pending() {
            let write_deadline = self
                .write_deadline
                .get_or_insert_with(|| Box::pin(tokio::time::sleep(WRITE_TIMEOUT)));
            if write_deadline.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<S: Connection> Connection for Stream<S> {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.opened_at)
    }
}

impl<S: Read + Unpin> Read for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.inner).poll_read(context, into)
    }
}

impl<S: Write + Unpin> Write for Stream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.with_timeout(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        if flushed.is_ready() {
            self.write_deadline = None;
        }
        self.with_timeout(context, flushed)
    }

    fn poll_shutdown(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Error>> {
        let _ = Pin::new(&mut self.inner).poll_shutdown(context);
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.with_timeout(context, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The peer never takes the last message.
    struct StuckPeer;

    impl Write for StuckPeer {
        fn poll_write(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: &[u8],
        ) -> Poll<Result<usize, Error>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            Poll::Pending
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
            Poll::Pending
        }
    }

    #[tokio::test]
    async fn shutdown_does_not_wait_for_the_peer() {
        let mut stream = Stream::new(StuckPeer);
        std::future::poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context))
            .await
            .unwrap();
    }
}
