//! What happens on a connection, counted where it happens: the service counts requests, the stream counts bytes, and
//! the watch that closes silent connections looks at both.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

/// The counters of one connection.
#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests so far.
    started: AtomicU64,
    /// Requests not yet answered to the last byte.
    in_flight: AtomicU32,
    /// Between requests, some bytes of the next one have come.
    head_begun: AtomicBool,
    /// The last write found no room.
    write_blocked: AtomicBool,
    /// Writes that got on.
    writes: AtomicU64,
    /// Spoken since the first byte.
    http2: AtomicBool,
}

impl Activity {
    pub(super) fn start_call(self: &Arc<Self>) -> Call {
        self.started.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        self.head_begun.store(false, Relaxed);
        Call(Arc::clone(self))
    }

    pub(super) fn note_http2(&self) {
        self.http2.store(true, Relaxed);
    }

    /// Bytes have come.
    pub(super) fn note_read(&self) {
        if self.in_flight.load(Relaxed) == 0 && !self.http2.load(Relaxed) {
            self.head_begun.store(true, Relaxed);
        }
    }

    pub(super) fn note_write(&self, blocked: bool) {
        if !blocked {
            self.writes.fetch_add(1, Relaxed);
        }
        if self.write_blocked.load(Relaxed) != blocked {
            self.write_blocked.store(blocked, Relaxed);
        }
    }

    /// What the connection waits for just now.
    pub(super) fn state(&self) -> State {
        let started = self.started.load(Relaxed);
        if self.write_blocked.load(Relaxed) {
            State::Writing(self.writes.load(Relaxed))
        } else if self.in_flight.load(Relaxed) > 0 {
            State::Busy
        } else if started == 0 {
            State::Opening
        } else if self.head_begun.load(Relaxed) {
            State::Head(started)
        } else {
            State::Idle(started)
        }
    }
}

/// What a connection waits for. The number tells one time of waiting from the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Accepted; no request has been read to the end of its headers.
    Opening,
    /// A request is being answered.
    Busy,
    /// No request on the connection.
    Idle(u64),
    /// Part of a request's head has come.
    Head(u64),
    /// The client has to take what was written.
    Writing(u64),
}

/// One request; dropped with its answer's body.
#[derive(Debug)]
pub(super) struct Call(Arc<Activity>);

impl Drop for Call {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}
