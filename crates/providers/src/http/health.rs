//! How the calls of this process to a provider went.

use hyper::header::{DATE, HeaderMap};
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::{SignedDuration, Timestamp};

use crate::error::Error;

/// How the calls of this process to a provider went, since its start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProviderHealth {
    /// Whether calls are rejected for a moment, because nearly all have failed.
    pub is_breaker_open: bool,
    pub calls: u64,
    /// Calls that have failed, by the fault of the provider or of the operator's settings.
    pub failed: u64,
    pub succeeded_at: Option<Timestamp>,
    /// Those that have failed since then.
    pub failures: u64,
    /// The last one, and why it failed.
    pub last_failure: Option<(Timestamp, String)>,
    /// By how much this machine's clock is ahead of the provider's, to a second. None: no response
    /// had a date.
    pub clock_ahead: Option<SignedDuration>,
}

impl ProviderHealth {
    /// Compares the clock at `now` with the date of a response.
    pub(super) fn compare_clock(&mut self, now: Timestamp, headers: &HeaderMap) {
        let date = headers.get(DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|text| DateTimeParser::new().parse_timestamp(text).ok());
        self.clock_ahead = date
            .map(|date| now.duration_since(date))
            .or(self.clock_ahead);
    }

    /// Records the end of a call.
    pub(super) fn record(&mut self, now: Timestamp, error: Option<&Error>) {
        self.calls += 1;
        match error {
            None => (self.succeeded_at, self.failures) = (Some(now), 0),
            Some(error) if error.concerns_user() => {}
            Some(error) => {
                self.failed += 1;
                self.failures += 1;
                self.last_failure = Some((now, error.to_string()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bellbird_domain::ConnectionStatus;

    use super::*;

    #[test]
    fn failures_count_since_the_last_success() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let (failed, ended) = (
            Error::unavailable("timed out"),
            Error::ReconnectNeeded(ConnectionStatus::Revoked),
        );
        let mut health = ProviderHealth::default();
        for (second, error) in [
            (1, Some(&failed)),
            (2, None),
            (3, Some(&failed)),
            (4, Some(&failed)),
            (5, Some(&ended)),
        ] {
            health.record(at(second), error);
        }
        let expected = ProviderHealth {
            is_breaker_open: false,
            calls: 5,
            failed: 3,
            succeeded_at: Some(at(2)),
            failures: 2,
            last_failure: Some((at(4), "the provider is unavailable: timed out".to_owned())),
            clock_ahead: None,
        };
        assert_eq!(health, expected);
    }
}
