//! A connection that is dropped without waiting for the other side.

use std::io::{Error, ErrorKind, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Sleep;

/// A connection with TLS, or without.
///
/// An endpoint that reads slowly or not at all could keep a connection for ever, and its memory: what is begun to be sent
/// is finished within [`SENT_WITHIN`], or the connection breaks. And TLS ends with a last message, which nobody waits for:
/// there is nothing left to hear then.
pub(super) struct Stream<S = MaybeHttpsStream<TokioIo<TcpStream>>> {
    inner: S,
    /// Runs while something is unsent.
    late: Option<Pin<Box<Sleep>>>,
}

/// As long as a whole exchange has by default. No answer is waited for by then, whatever the settings say, but the message
/// may still be on its way.
const SENT_WITHIN: Duration = Duration::from_secs(15);

impl<S> Stream<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner, late: None }
    }

    /// What became of a write: one that has to wait may do so for a while.
    fn in_time<T>(&mut self, context: &mut Context<'_>, written: Poll<Result<T, Error>>) -> Poll<Result<T, Error>> {
        if written.is_pending() {
            let late = self.late.get_or_insert_with(|| Box::pin(tokio::time::sleep(SENT_WITHIN)));
            if late.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(ErrorKind::TimedOut.into()));
            }
        }
        written
    }
}

impl<S: Connection> Connection for Stream<S> {
    fn connected(&self) -> Connected {
        self.inner.connected()
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
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.in_time(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        if flushed.is_ready() {
            self.late = None;
        }
        self.in_time(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
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
        self.in_time(context, written)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The other side never takes the last message.
    struct Stuck;

    impl Write for Stuck {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<Result<usize, Error>> {
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
    async fn nobody_is_waited_for_at_the_end() {
        let mut stream = Stream::new(Stuck);
        std::future::poll_fn(|context| Pin::new(&mut stream).poll_shutdown(context)).await.unwrap();
    }
}
