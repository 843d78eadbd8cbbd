//! The clock of a connection. It is asked after every step of the connection, not by its reads: hyper does not read
//! again after an answer when an earlier read is still waiting.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep};

use super::ServeOptions;
use super::activity::{Activity, State};

/// One timer, for whatever the connection waits for.
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

    /// Ready when the connection has waited for too long; says for what.
    pub(super) fn poll_timeout(&mut self, context: &mut Context<'_>) -> Poll<State> {
        let state = self.activity.state();
        let Some(length) = self.length(state) else {
            self.state = state;
            return Poll::Pending;
        };
        if state != self.state {
            self.state = state;
            self.timer.as_mut().reset(Instant::now() + length);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(state)
    }

    fn length(&self, state: State) -> Option<Duration> {
        match state {
            State::Busy => None,
            State::Opening | State::Head(_) => Some(self.options.head_timeout),
            State::Idle(_) => Some(self.options.idle_timeout),
            State::Writing(_) => Some(self.options.write_timeout),
        }
    }
}
