//! Timeouts of a connection. The watch is polled after every poll of the connection rather than by the stream's reads:
//! after a response, hyper does not read again while an earlier read is still pending.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::ServeOptions;
use super::activity::{Activity, State};

/// One timer, reset whenever the connection's state changes.
pub(super) struct Watch {
    activity: Arc<Activity>,
    options: ServeOptions,
    state: State,
    timer: Pin<Box<Sleep>>,
}

impl Watch {
    pub(super) fn new(activity: Arc<Activity>, options: ServeOptions) -> Self {
        Self { activity, options, state: State::Opening, timer: Box::pin(sleep(options.head_timeout)) }
    }

    /// Ready with the current state when its timeout has passed.
    pub(super) fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<State> {
        let state = self.activity.state();
        let Some(timeout) = self.timeout(state) else {
            self.state = state;
            return Poll::Pending;
        };
        if state != self.state {
            self.state = state;
            self.timer.as_mut().reset(Instant::now() + timeout);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(state)
    }

    fn timeout(&self, state: State) -> Option<Duration> {
        match state {
            State::Busy => None,
            State::Opening | State::Head(_) => Some(self.options.head_timeout),
            State::Idle(_) => Some(self.options.idle_timeout),
            State::Writing(_) => Some(self.options.write_timeout),
        }
    }
}
