//! A connection that knows when it was opened.

use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::Instant;

type Inner = MaybeHttpsStream<TokioIo<TcpStream>>;

/// The pool adds it to each response of the connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenedAt(pub(super) Instant);

pub(super) struct Stream {
    inner: Inner,
    opened_at: OpenedAt,
}

impl Stream {
    pub(super) fn new(inner: Inner) -> Self {
        Self { inner, opened_at: OpenedAt(Instant::now()) }
    }

    fn inner(self: Pin<&mut Self>) -> Pin<&mut Inner> {
        Pin::new(&mut self.get_mut().inner)
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        self.inner.connected().extra(self.opened_at)
    }
}

impl Read for Stream {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: ReadBufCursor<'_>) -> Poll<Result<()>> {
        self.inner().poll_read(context, buffer)
    }
}

impl Write for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        self.inner().poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        self.inner().poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<()>> {
        self.inner().poll_shutdown(context)
    }
}
