//! The faults that tests set through `/__control/faults`, and how each call takes the one that
//! matches it.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
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

/// A fault in the format of `POST /__control/faults`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Fault {
    /// Prefix of path and query string; empty matches every call.
    #[serde(rename = "match", default)]
    path_prefix: String,
    pub(crate) kind: Kind,
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

/// Delay of `delay` without `delayMs`.
const DELAY_DEFAULT_MS: u64 = 1000;
/// Pause of `drip` without `delayMs`.
const DRIP_DEFAULT_MS: u64 = 100;

impl Fault {
    fn validation_error(&self) -> Option<String> {
        if self.kind == Kind::Status
            && !self
                .status
                .is_some_and(|status| (200..=599).contains(&status))
        {
            return Some("kind \"status\" needs \"status\", a number from 200 to 599".to_owned());
        }
        if self.times == Some(0) {
            return Some(
                "\"times\" must be at least 1; leave it out for a fault that stays".to_owned(),
            );
        }
        match &self.retry_after {
            None | Some(serde_json::Value::String(_)) => None,
            Some(value) if value.is_u64() => None,
            Some(_) => {
                Some("\"retryAfter\" must be whole seconds or the text of the header".to_owned())
            }
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        let status = self
            .status
            .and_then(|status| StatusCode::from_u16(status).ok());
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    pub(crate) fn delay(&self) -> Option<Duration> {
        match (self.kind, self.delay_ms) {
            (Kind::Drip, _) => None,
            (Kind::Delay, ms) => Some(Duration::from_millis(ms.unwrap_or(DELAY_DEFAULT_MS))),
            (_, ms) => ms.map(Duration::from_millis),
        }
    }

    pub(crate) fn drip(&self) -> Duration {
        Duration::from_millis(self.delay_ms.unwrap_or(DRIP_DEFAULT_MS))
    }
}

/// Oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Adds a fault, or returns what is wrong with it.
    pub(crate) fn add(&self, fault: Fault) -> Result<(), String> {
        if let Some(error) = fault.validation_error() {
            return Err(error);
        }
        self.0.lock().push(fault);
        Ok(())
    }

    pub(crate) fn list(&self) -> Vec<Fault> {
        self.0.lock().clone()
    }

    pub(crate) fn clear(&self) {
        self.0.lock().clear();
    }

    /// Returns the oldest fault that matches, and counts it as used once.
    pub(crate) fn take_match(&self, path_and_query: &str) -> Option<Fault> {
        let mut faults = self.0.lock();
        let index = faults
            .iter()
            .position(|fault| path_and_query.starts_with(&fault.path_prefix))?;
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
