//! The faults a test has asked for.

use std::time::Duration;

use http::StatusCode;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// An error answer with `status`; the call is not made.
    Status,
    /// The real answer, later.
    Delay,
    /// The first `afterBytes` of the real body, then the connection closes, though the length promised more.
    Cut,
    /// 200 with half a JSON text.
    Malformed,
    /// 200 with a page of HTML; the call is not made.
    ContentType,
    /// The real body, one byte every `delayMs`.
    Drip,
    /// The real body made 50 MB long.
    Huge,
    /// The connection is reset instead of an answer; the call is not made.
    Reset,
}

/// One fault, as `POST /__control/faults` takes it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Fault {
    /// Start of the path (with the query string behind it); empty for every call.
    #[serde(rename = "match", default)]
    path_prefix: String,
    pub(crate) kind: Kind,
    /// With `status`: 100 is no answer, so 200 to 599.
    status: Option<u16>,
    /// With `status`: the header `Retry-After`, seconds or a date.
    pub(crate) retry_after: Option<serde_json::Value>,
    /// Waits before anything else, whatever the kind; between two bytes with `drip`.
    delay_ms: Option<u64>,
    pub(crate) after_bytes: Option<usize>,
    /// How many calls it meets; for ever when absent.
    times: Option<u64>,
}

/// Before a delayed answer, when nothing is said.
const DELAY_DEFAULT_MS: u64 = 1000;
/// Between two bytes, when nothing is said.
const DRIP_DEFAULT_MS: u64 = 100;

impl Fault {
    /// What is wrong with it, in words for the test's author.
    fn validation_error(&self) -> Option<String> {
        if self.kind == Kind::Status && !self.status.is_some_and(|status| (200..=599).contains(&status)) {
            return Some("kind \"status\" needs \"status\", a number from 200 to 599".to_owned());
        }
        if self.times == Some(0) {
            return Some("\"times\" must be at least 1; leave it out for a fault that stays".to_owned());
        }
        match &self.retry_after {
            None | Some(serde_json::Value::String(_)) => None,
            Some(value) if value.is_u64() => None,
            Some(_) => Some("\"retryAfter\" must be whole seconds or the text of the header".to_owned()),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        let status = self.status.and_then(|status| StatusCode::from_u16(status).ok());
        status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The wait before the answer.
    pub(crate) fn delay(&self) -> Option<Duration> {
        match (self.kind, self.delay_ms) {
            (Kind::Drip, _) => None,
            (Kind::Delay, ms) => Some(Duration::from_millis(ms.unwrap_or(DELAY_DEFAULT_MS))),
            (_, ms) => ms.map(Duration::from_millis),
        }
    }

    /// The wait between two bytes of a dripping body.
    pub(crate) fn drip(&self) -> Duration {
        Duration::from_millis(self.delay_ms.unwrap_or(DRIP_DEFAULT_MS))
    }
}

/// The faults in force, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Faults(Mutex<Vec<Fault>>);

impl Faults {
    /// Adds a fault, or says what is wrong with it.
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

    /// The oldest fault that matches, used up by one.
    pub(crate) fn take_match(&self, path_and_query: &str) -> Option<Fault> {
        let mut faults = self.0.lock();
        let index = faults.iter().position(|fault| path_and_query.starts_with(&fault.path_prefix))?;
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
