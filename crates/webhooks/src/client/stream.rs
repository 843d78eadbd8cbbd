//! A connection that is dropped without waiting for the other side.

use std::io::{Error, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// A connection with TLS, or without.
///
/// TLS ends with a last message, after all that is still unsent. An endpoint that reads slowly or not at all could keep a
/// connection for ever that way, and its memory. It is ended when there is nothing left to hear, so nobody misses anything.
pub(super) struct Stream<S = MaybeHttpsStream<TokioIo<TcpStream>>>(S);

impl<S> Stream<S> {
    pub(super) fn new(inner: S) -> Self {
        Self(inner)
    }
}

impl<S: Connection> Connection for Stream<S> {
    fn connected(&self) -> Connected {
        self.0.connected()
    }
}

impl<S: Read + Unpin> Read for Stream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl<S: Write + Unpin> Write for Stream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize, Error>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let _ = Pin::new(&mut self.0).poll_shutdown(context);
        Poll::Ready(Ok(()))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<usize, Error>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
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
