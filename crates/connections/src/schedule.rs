//! When jobs run next: retries, refreshes of connections, polls of consent sessions. Pure.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use bellbird_limits::jitter::jittered;
use jiff::Timestamp;

/// Delay after the first failure. Each further failure doubles it.
const BACKOFF_MIN: Duration = Duration::from_secs(30);
/// Upper bound of the delay, before jitter.
const BACKOFF_MAX: Duration = Duration::from_secs(6 * 3_600);
/// First delay after a failure that only the operator can fix, so retries are rare from the
/// beginning.
const PERMANENT_BACKOFF_MIN: Duration = Duration::from_secs(3_600);

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The same call may succeed soon, but not before the provider's `Retry-After` if it sent one.
    Transient(Option<Duration>),
    /// Something must change first: the provider's credentials here, the master key, or the
    /// provider's response.
    Permanent,
}

/// Returns the delay after `failures` failures in a row; 0 counts as 1.
///
/// `jitter` is any number that differs from job to job. It adds up to a fifth of the delay, so that
/// jobs that failed together are not retried together.
pub fn backoff(failures: u32, failure: Failure, jitter: u64) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(31));
    let grown = BACKOFF_MIN.saturating_mul(doubled);
    let minimum = match failure {
        Failure::Transient(retry_after) => retry_after.unwrap_or_default(),
        Failure::Permanent => PERMANENT_BACKOFF_MIN,
    };
    let wait = grown.max(minimum).min(BACKOFF_MAX);
    jittered(wait, wait / 5, jitter)
}

/// Backfill window of accounts: for this long after linking, the provider may still add some.
pub const BACKFILL_SECONDS: i64 = 600;
/// Refreshes during that time, in seconds after linking.
const BACKFILL_REFRESHES: [i64; 4] = [4, 34, 154, BACKFILL_SECONDS];

/// Returns the time of the first refresh of a connection linked at `now`, and the end of its
/// backfill window.
pub fn first_refresh_at(now: Timestamp) -> (Timestamp, Timestamp) {
    (
        later(now, BACKFILL_REFRESHES[0]),
        later(now, BACKFILL_SECONDS),
    )
}

/// Returns the time of the first sync of a connection linked at `now`, unless one is requested
/// earlier. By then, its rows have had time to appear.
pub fn first_sync_at(now: Timestamp) -> Timestamp {
    later(now, BACKFILL_SECONDS)
}

/// Returns the time of the next refresh while accounts may be late, if none is requested earlier.
pub fn next_refresh_at(now: Timestamp, backfill_ends_at: Timestamp) -> Option<Timestamp> {
    let refreshes = BACKFILL_REFRESHES
        .iter()
        .map(|after| later(backfill_ends_at, after - BACKFILL_SECONDS));
    refreshes.into_iter().find(|refresh| now < *refresh)
}

/// Returns the time of the next poll of a consent session: after 5 s, doubling up to 320 s.
pub fn next_session_poll_at(attempts: u32, now: Timestamp, expires_at: Timestamp) -> Timestamp {
    let next = later(now, 5 << attempts.min(6));
    // A poll that would come after the expiry moves to the expiry, where the outcome is decided.
    if now < expires_at {
        next.min(expires_at)
    } else {
        next
    }
}

fn later(now: Timestamp, seconds: i64) -> Timestamp {
    now.plus(jiff::SignedDuration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRANSIENT: Failure = Failure::Transient(None);

    #[test]
    fn backoff_doubles_up_to_the_maximum() {
        let seconds: Vec<u64> = (0..14)
            .map(|failed| backoff(failed, TRANSIENT, 0).as_secs())
            .collect();
        assert_eq!(
            seconds,
            [
                30, 30, 60, 120, 240, 480, 960, 1_920, 3_840, 7_680, 15_360, 21_600, 21_600, 21_600
            ]
        );
        assert_eq!(backoff(u32::MAX, TRANSIENT, 0), BACKOFF_MAX);
    }

    #[test]
    fn jitter_adds_at_most_a_fifth() {
        for failed in 1..20 {
            let least = backoff(failed, TRANSIENT, 0);
            assert_eq!(backoff(failed, TRANSIENT, 2_000), least + least / 5);
            for jitter in [1, 7, 999, 1_001, u64::MAX] {
                let wait = backoff(failed, TRANSIENT, jitter);
                assert!(
                    least <= wait && wait <= least + least / 5,
                    "{failed} {jitter}: {wait:?}"
                );
            }
        }
        assert_ne!(backoff(1, TRANSIENT, 1), backoff(1, TRANSIENT, 2));
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_maximum() {
        let retry_after = |seconds| Failure::Transient(Some(Duration::from_secs(seconds)));
        let wait = backoff(1, retry_after(5), 0);
        assert_eq!(wait, BACKOFF_MIN, "never sooner than without it");
        assert_eq!(backoff(1, retry_after(600), 0), Duration::from_secs(600));
        assert_eq!(backoff(9, retry_after(600), 0), backoff(9, TRANSIENT, 0));
        assert_eq!(backoff(1, retry_after(u64::MAX), 0), BACKOFF_MAX);
    }

    #[test]
    fn permanent_failures_retry_rarely_forever() {
        assert_eq!(backoff(1, Failure::Permanent, 0), PERMANENT_BACKOFF_MIN);
        let wait = backoff(9, Failure::Permanent, 0);
        assert_eq!(wait, Duration::from_secs(7_680));
        assert_eq!(backoff(99, Failure::Permanent, 0), BACKOFF_MAX);
    }

    #[test]
    fn refreshes_follow_linking() {
        let start: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| later(start, seconds);
        assert_eq!(first_refresh_at(start), (at(4), at(600)));
        for (now, next) in [
            (4, Some(34)),
            (5, Some(34)),
            (34, Some(154)),
            (154, Some(600)),
            (600, None),
        ] {
            assert_eq!(next_refresh_at(at(now), at(600)), next.map(at), "{now}");
        }
    }

    #[test]
    fn consent_sessions_are_polled_until_they_expire() {
        let start: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
        let end = later(start, 1_800);
        assert_eq!(next_session_poll_at(0, start, end), later(start, 5));
        assert_eq!(next_session_poll_at(99, start, end), later(start, 320));
        let next = next_session_poll_at(99, later(start, 1_700), end);
        assert_eq!(next, end, "at the expiry in any case");
        assert!(next_session_poll_at(0, end, end) > end);
    }
}
