//! TCP stream of a connection. It counts reads and writes, replaces hyper's own error responses with JSON ones, and
//! closes in a way that lets the client receive the last response.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};
use uuid::Uuid;

use super::activity::Activity;
use super::early;

/// After the last response, unread request bytes are read and discarded within these limits. If the socket closed at
/// once instead, the system would reset the connection, and the client could lose the error response.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(super) struct CountedStream {
    stream: TcpStream,
    activity: Arc<Activity>,
    read_before: bool,
    early: Option<Pending>,
    /// Starts when the write side is closed.
    linger: Option<Pin<Box<Sleep>>>,
    discarded: usize,
}

/// A replacement response, partly written.
struct Pending {
    bytes: Vec<u8>,
    written: usize,
}

impl CountedStream {
    pub(super) fn new(stream: TcpStream, activity: Arc<Activity>) -> Self {
        Self { stream, activity, read_before: false, early: None, linger: None, discarded: 0 }
    }

    fn received(&mut self, bytes: &[u8]) {
        if !self.read_before && bytes.starts_with(b"PRI") {
            self.activity.note_http2();
        }
        self.read_before = true;
        self.activity.note_read();
    }

    /// Writes `bytes`, with hyper's own response in them replaced.
    fn poll_write_one(&mut self, bytes: &[u8], context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        match early::find(bytes) {
            None => Pin::new(&mut self.stream).poll_write(context, bytes),
            Some(early) if early.at.start > 0 => {
                Pin::new(&mut self.stream).poll_write(context, &bytes[..early.at.start])
            }
            Some(early) => {
                let request_id = Uuid::new_v4();
                tracing::info!(%request_id, status = early.status, "invalid HTTP request rejected");
                self.early = Some(Pending { bytes: early::replacement(&early, request_id), written: 0 });
                Poll::Ready(Ok(bytes.len()))
            }
        }
    }

    fn poll_early(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(pending) = &mut self.early else { return Poll::Ready(Ok(())) };
        while pending.written < pending.bytes.len() {
            let rest = &pending.bytes[pending.written..];
            match Pin::new(&mut self.stream).poll_write(context, rest) {
                Poll::Ready(Ok(count)) => pending.written += count,
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Pending => {
                    self.activity.note_write(true);
                    return Poll::Pending;
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads and discards until the client closes its side, or until a linger limit is reached.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.linger.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        let mut scratch = [0; 8 * 1024];
        while self.discarded < LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut scratch);
            match Pin::new(&mut self.stream).poll_read(context, &mut buffer) {
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => self.discarded += buffer.filled().len(),
                Poll::Ready(_) => return Poll::Ready(()),
                // No unread bytes and no replacement response: a reset cannot lose anything.
                Poll::Pending if self.early.is_none() && self.discarded == 0 => return Poll::Ready(()),
                Poll::Pending => return timer.as_mut().poll(context),
            }
        }
        Poll::Ready(())
    }
}

impl AsyncRead for CountedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        match Pin::new(&mut self.stream).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                self.received(&buffer.filled()[before..]);
                Poll::Ready(Ok(()))
            }
            other => other,
        }
    }
}

impl AsyncWrite for CountedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.poll_write_one(bytes, context);
        self.activity.note_write(written.is_pending());
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // hyper's own response has no body, so it is a single part.
        let written = match parts {
            [only] => self.poll_write_one(only, context),
            _ => Pin::new(&mut self.stream).poll_write_vectored(context, parts),
        };
        self.activity.note_write(written.is_pending());
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_early(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_early(context))?;
        if self.linger.is_none() {
            ready!(Pin::new(&mut self.stream).poll_shutdown(context))?;
        }
        ready!(self.poll_linger(context));
        Poll::Ready(Ok(()))
    }
}
