//! Activity counters of one HTTP connection. The service counts requests and the stream counts reads and writes; the
//! watch reads both to find the connection's state and its timeout.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

#[derive(Debug, Default)]
pub(super) struct Activity {
    /// Requests so far.
    started: AtomicU64,
    /// Requests whose response is not yet sent completely.
    in_flight: AtomicU32,
    /// No request is in flight, and part of the next one's head has been read.
    head_begun: AtomicBool,
    /// The send buffer was full at the last write.
    write_blocked: AtomicBool,
    /// Writes that were not blocked.
    writes: AtomicU64,
    http2: AtomicBool,
}

impl Activity {
    pub(super) fn start_request(self: &Arc<Self>) -> InFlightRequest {
        self.started.fetch_add(1, Relaxed);
        self.in_flight.fetch_add(1, Relaxed);
        self.head_begun.store(false, Relaxed);
        InFlightRequest(Arc::clone(self))
    }

    pub(super) fn note_http2(&self) {
        self.http2.store(true, Relaxed);
    }

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

/// What a connection waits for. The counter distinguishes one wait from the next, so that each has its own timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// Accepted; the headers of the first request are not complete.
    Opening,
    /// A handler is running or its response is being sent.
    Busy,
    /// No request is in flight.
    Idle(u64),
    /// Part of a request's head has been read.
    Head(u64),
    /// The client is not reading the response.
    Writing(u64),
}

/// Counts one request as in flight until its response body is dropped.
#[derive(Debug)]
pub(super) struct InFlightRequest(Arc<Activity>);

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Relaxed);
    }
}
