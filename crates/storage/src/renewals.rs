//! How the renewals of this process's row in `instances` went. They are its regular writes, so they
//! find out first that the database cannot be used.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::error::{Chain, Result, StorageError};

/// Three renewals that failed. One that fails alone may be a fail-over, which requests wait for.
const AGE_MAX: Duration = Duration::from_secs(15);

#[derive(Default)]
pub(crate) struct Renewals {
    /// None until the first renewal, and in a command.
    last: Mutex<Option<LastRenewal>>,
    /// The revision of the providers' settings, as the last renewal read it.
    pub(crate) provider_settings: watch::Sender<i64>,
}

struct LastRenewal {
    succeeded_at: Instant,
    /// Why the last one failed, and whether no later one can succeed by itself.
    failure: Option<(String, bool)>,
}

impl Renewals {
    /// Returns whether the outcome is another than the last one.
    pub(crate) fn record(&self, renewed: &Result<()>) -> bool {
        let is_lasting =
            |error: &StorageError| matches!(error, StorageError::File(_) | StorageError::Schema(_));
        let failure = renewed
            .as_ref()
            .err()
            .map(|error| (Chain(error).to_string(), is_lasting(error)));
        let mut last = self.last.lock();
        let was = last.as_ref().and_then(|last| last.failure.as_ref());
        let is_news = was.map(|(text, _)| text) != failure.as_ref().map(|(text, _)| text);
        let succeeded_at = last
            .as_ref()
            .map(|last| last.succeeded_at)
            .filter(|_| failure.is_some());
        *last = Some(LastRenewal {
            succeeded_at: succeeded_at.unwrap_or_else(Instant::now),
            failure,
        });
        is_news
    }

    pub(crate) fn fault(&self) -> Option<String> {
        self.last
            .lock()
            .as_ref()
            .and_then(|last| last.fault(last.succeeded_at.elapsed()))
    }

    /// Since the last one that succeeded.
    pub(crate) fn age(&self) -> Option<Duration> {
        self.last
            .lock()
            .as_ref()
            .map(|last| last.succeeded_at.elapsed())
    }
}

impl LastRenewal {
    /// Why the instance should get no requests, this long after the last renewal that succeeded.
    fn fault(&self, age: Duration) -> Option<String> {
        let reason = match &self.failure {
            Some((text, true)) => return Some(text.clone()),
            Some((text, false)) => format!(": {text}"),
            None => String::new(),
        };
        (age >= AGE_MAX).then(|| {
            format!(
                "nothing was written to the database for {} s{reason}",
                age.as_secs()
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fail_over_is_no_fault_and_a_lost_file_is_one_at_once() {
        let fault = |failure: Option<(&str, bool)>, seconds| {
            let failure = failure.map(|(text, is_lasting)| (text.to_owned(), is_lasting));
            LastRenewal {
                succeeded_at: Instant::now(),
                failure,
            }
            .fault(Duration::from_secs(seconds))
        };
        assert_eq!(fault(None, 14), None);
        assert_eq!(fault(Some(("connection refused", false)), 14), None);
        let text = "nothing was written to the database for 15 s: connection refused";
        assert_eq!(
            fault(Some(("connection refused", false)), 15).as_deref(),
            Some(text)
        );
        assert_eq!(
            fault(None, 15).as_deref(),
            Some("nothing was written to the database for 15 s")
        );
        assert_eq!(
            fault(Some(("the file was deleted", true)), 0).as_deref(),
            Some("the file was deleted")
        );
    }

    #[test]
    fn outcome_is_news_once() {
        let renewals = Renewals::default();
        assert!(
            renewals.fault().is_none() && renewals.age().is_none(),
            "a command"
        );
        let outcome = |text: &str| Err(StorageError::File(text.to_owned()));
        let news = [
            Ok(()),
            outcome("gone"),
            outcome("gone"),
            outcome("full"),
            Ok(()),
        ]
        .map(|one| renewals.record(&one));
        assert_eq!(news, [false, true, false, true, true]);
        assert_eq!(renewals.fault(), None);
    }
}
