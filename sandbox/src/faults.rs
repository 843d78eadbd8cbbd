//! The faults that tests set, and how each call takes the one that matches it.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::refused::Refused;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Responds with the error `status`, without making the call.
    Status,
    /// Responds as usual, after a delay.
    Delay,
    /// Sends `afterBytes` of the real body and closes the connection, although `Content-Length`
    /// declared more.
    Cut,
    /// Responds with 200 and half a JSON text.
    Malformed,
    /// Responds with 200 and a page of HTML, without making the call.
    ContentType,
    /// Sends the real body one byte every `delayMs`.
    Drip,
    /// Pads the real body to 50 MB.
    Huge,
    /// Resets the connection, without making the call.
    Reset,
}

/// A fault of the calls to a provider. Without [`Fault::times`] it stays.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// Prefix of path and query string; empty matches every call.
    #[serde(rename = "match", default)]
    path: String,
    pub kind: Kind,
    /// For `status`: from 200 to 599, because 1xx does not end a request.
    status: Option<u16>,
    /// For `status`: the `Retry-After` header, in seconds or as a date.
    pub(crate) retry_after: Option<serde_json::Value>,
    /// Delays any kind before anything else. For `drip` it is the pause between two bytes.
    delay_ms: Option<u64>,
    pub(crate) after_bytes: Option<usize>,
    /// How many calls the fault applies to; without it, all.
    times: Option<u64>,
}

impl Fault {
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self {
            path: String::new(),
            kind,
            status: None,
            retry_after: None,
            delay_ms: None,
            after_bytes: None,
            times: None,
        }
    }

    /// Responds with an error, without making the call.
    #[must_use]
    pub const fn status(status: u16) -> Self {
        let mut fault = Self::new(Kind::Status);
        fault.status = Some(status);
        fault
    }

    /// Makes the call after so many milliseconds.
    #[must_use]
    pub const fn delay_ms(by: u64) -> Self {
        Self::new(Kind::Delay).delayed_ms(by)
    }

    /// Applies only to calls whose path and query string begin with this.
    #[must_use]
    pub fn at(mut self, path: impl Into<String>) -> Self {
        self.path = path.into();
        self
    }

    /// Applies to so many calls.
    #[must_use]
    pub const fn times(mut self, times: u64) -> Self {
        self.times = Some(times);
        self
    }

    /// Sends `Retry-After` with the status: seconds, or the text of the header.
    #[must_use]
    pub fn retry_after(mut self, value: impl Into<serde_json::Value>) -> Self {
        self.retry_after = Some(value.into());
        self
    }

    /// Delays any kind before anything else; for `drip` it is the pause between two bytes.
    #[must_use]
    pub const fn delayed_ms(mut self, by: u64) -> Self {
        self.delay_ms = Some(by);
        self
    }

    /// How much of the body `cut` sends.
    #[must_use]
    pub const fn after_bytes(mut self, bytes: usize) -> Self {
        self.after_bytes = Some(bytes);
        self
    }

    /// Refuses what cannot be injected.
    pub(crate) fn check(&self) -> Result<(), Refused> {
        let status = self.status.unwrap_or_default();
        if self.kind == Kind::Status && !(200..=599).contains(&status) {
            return Err("kind \"status\" needs \"status\", a number from 200 to 599".into());
        }
        if self.times == Some(0) {
            return Err("\"times\" must be at least 1; leave it out for a fault that stays".into());
        }
        Ok(())
    }

    pub(crate) fn status_code(&self) -> StatusCode {
        let status = self
            .status
            .and_then(|status| StatusCode::from_u16(status).ok());
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The delay before anything else.
    pub(crate) fn first_delay(&self) -> Duration {
        match self.kind {
            Kind::Drip => Duration::ZERO,
            Kind::Delay => Duration::from_millis(self.delay_ms.unwrap_or(1000)),
            _ => Duration::from_millis(self.delay_ms.unwrap_or_default()),
        }
    }

    pub(crate) fn drip(&self) -> Duration {
        Duration::from_millis(self.delay_ms.unwrap_or(100))
    }
}

/// Oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    all: Mutex<Vec<Fault>>,
    /// Ends the delays of the calls that wait.
    released: Notify,
}

impl Faults {
    pub(crate) fn add(&self, fault: Fault) {
        self.all.lock().push(fault);
    }

    pub(crate) fn list(&self) -> Vec<Fault> {
        self.all.lock().clone()
    }

    pub(crate) fn clear(&self) {
        self.all.lock().clear();
    }

    /// Clears the faults, and lets the calls go on that one delays.
    pub(crate) fn release(&self) {
        self.clear();
        self.released.notify_waiters();
    }

    /// Ends with the next [`Self::release`] after this is called.
    pub(crate) fn released(&self) -> impl Future<Output = ()> {
        self.released.notified()
    }

    /// Returns the oldest fault that matches, and counts it as used once.
    pub(crate) fn take_match(&self, path_and_query: &str) -> Option<Fault> {
        let mut faults = self.all.lock();
        let index = faults
            .iter()
            .position(|fault| path_and_query.starts_with(&fault.path))?;
        let fault = faults[index].clone();
        if let Some(times) = &mut faults[index].times {
            *times -= 1;
            if *times == 0 {
                faults.remove(index);
            }
        }
        Some(fault)
    }
}
