//! When jobs run next: retries of removals and syncs, refreshes of connections, polls of link sessions. Pure.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use jiff::Timestamp;

/// Delay after the first failure. Each further failure doubles it.
const BACKOFF_MIN: Duration = Duration::from_secs(30);
/// Upper bound of the delay, before jitter.
const BACKOFF_MAX: Duration = Duration::from_secs(6 * 3_600);
/// First delay after a failure that only the operator can fix, so retries are rare from the beginning.
const PERMANENT_BACKOFF_MIN: Duration = Duration::from_secs(3_600);

/// Whether a retry can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The same call may succeed soon, but not before the provider's `Retry-After` if it sent one.
    Transient(Option<Duration>),
    /// Something must change first: the provider's credentials here, the master key, or the provider's answer.
    Permanent,
}

/// Returns the delay after `failures` failures in a row; 0 counts as 1.
///
/// `jitter` is any number that differs from job to job. It adds up to a fifth of the delay, so that jobs that failed
/// together are not retried together.
#[must_use]
pub fn backoff(failures: u32, failure: Failure, jitter: u64) -> Duration {
    let doubled = 2_u32.saturating_pow(failures.saturating_sub(1).min(31));
    let grown = BACKOFF_MIN.saturating_mul(doubled);
    let minimum = match failure {
        Failure::Transient(retry_after) => retry_after.unwrap_or_default(),
        Failure::Permanent => PERMANENT_BACKOFF_MIN,
    };
    let wait = grown.max(minimum).min(BACKOFF_MAX);
    let part = u32::try_from(jitter % 1_001).unwrap_or_default();
    wait + wait / 5 * part / 1_000
}

/// Backfill window of accounts: for this long after linking, the provider may still add some.
pub const BACKFILL_SECONDS: i64 = 600;
/// Refreshes during that time, in seconds after linking.
const BACKFILL_REFRESHES: [i64; 4] = [4, 34, 154, BACKFILL_SECONDS];
/// Retries of a failed refresh: after 30 s, doubling to 16 minutes, which is half an hour in all. After that, the next
/// provider event or read requests a refresh.
const REFRESH_RETRIES_MAX: u32 = 6;

/// Returns the time of the first refresh of a connection linked at `now`, and the end of its backfill window.
#[must_use]
pub fn first_refresh_at(now: Timestamp) -> (Timestamp, Timestamp) {
    (later(now, BACKFILL_REFRESHES[0]), later(now, BACKFILL_SECONDS))
}

/// Returns the time of the first sync of a connection linked at `now`, unless one is requested earlier. By then, its
/// rows have had time to appear.
#[must_use]
pub fn first_sync_at(now: Timestamp) -> Timestamp {
    later(now, BACKFILL_SECONDS)
}

/// Returns the time of the next refresh if none is requested earlier, or `None` if none is needed.
///
/// `attempts` counts the refreshes since the last request, without this one. `failed` means that the provider did not
/// answer. `backfill_ends_at` is the time until which accounts may be late.
#[must_use]
pub fn next_refresh_at(
    attempts: u32,
    failed: bool,
    now: Timestamp,
    backfill_ends_at: Option<Timestamp>,
) -> Option<Timestamp> {
    match backfill_ends_at {
        Some(until) if now < until => {
            let refreshes = BACKFILL_REFRESHES.iter().map(|after| later(until, after - BACKFILL_SECONDS));
            refreshes.into_iter().find(|refresh| now < *refresh)
        }
        // The backfill window ends only with a successful refresh.
        Some(_) if failed => Some(later(now, 30 << attempts.min(7))),
        _ if failed && attempts < REFRESH_RETRIES_MAX => Some(later(now, 30 << attempts.min(5))),
        _ => None,
    }
}

/// Returns the time of the next poll of a link session: after 5 s, doubling up to 320 s.
#[must_use]
pub fn next_session_poll_at(attempts: u32, now: Timestamp, expires_at: Timestamp) -> Timestamp {
    let next = later(now, 5 << attempts.min(6));
    // A poll that would come after the expiry moves to the expiry, where the outcome is decided.
    if now < expires_at { next.min(expires_at) } else { next }
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
        let seconds: Vec<u64> = (0..14).map(|failed| backoff(failed, TRANSIENT, 0).as_secs()).collect();
        assert_eq!(seconds, [30, 30, 60, 120, 240, 480, 960, 1_920, 3_840, 7_680, 15_360, 21_600, 21_600, 21_600]);
        assert_eq!(backoff(u32::MAX, TRANSIENT, 0), BACKOFF_MAX);
    }

    #[test]
    fn jitter_adds_at_most_a_fifth() {
        for failed in 1..20 {
            let least = backoff(failed, TRANSIENT, 0);
            assert_eq!(backoff(failed, TRANSIENT, 1_000), least + least / 5);
            for jitter in [1, 7, 999, 1_001, u64::MAX] {
                let wait = backoff(failed, TRANSIENT, jitter);
                assert!(least <= wait && wait <= least + least / 5, "{failed} {jitter}: {wait:?}");
            }
        }
        assert_ne!(backoff(1, TRANSIENT, 1), backoff(1, TRANSIENT, 2));
    }

    #[test]
    fn retry_after_is_honoured_up_to_the_maximum() {
        let retry_after = |seconds| Failure::Transient(Some(Duration::from_secs(seconds)));
        assert_eq!(backoff(1, retry_after(5), 0), BACKOFF_MIN, "never sooner than without it");
        assert_eq!(backoff(1, retry_after(600), 0), Duration::from_secs(600));
        assert_eq!(backoff(9, retry_after(600), 0), backoff(9, TRANSIENT, 0));
        assert_eq!(backoff(1, retry_after(u64::MAX), 0), BACKOFF_MAX);
    }

    #[test]
    fn permanent_failures_retry_rarely_forever() {
        assert_eq!(backoff(1, Failure::Permanent, 0), PERMANENT_BACKOFF_MIN);
        assert_eq!(backoff(9, Failure::Permanent, 0), Duration::from_secs(7_680));
        assert_eq!(backoff(99, Failure::Permanent, 0), BACKOFF_MAX);
    }

    #[test]
    fn refreshes_follow_linking_and_failures() {
        let start: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| later(start, seconds);
        let until = Some(at(600));
        assert_eq!(first_refresh_at(start), (at(4), at(600)));
        assert_eq!(next_refresh_at(0, false, at(4), until), Some(at(34)));
        assert_eq!(next_refresh_at(9, true, at(5), until), Some(at(34)), "whatever the attempts and the result");
        assert_eq!(next_refresh_at(2, false, at(154), until), Some(at(600)), "a last refresh at the end");
        assert_eq!(next_refresh_at(3, false, at(600), until), None);
        assert_eq!(
            next_refresh_at(3, true, at(600), until),
            Some(at(840)),
            "the backfill ends only with a successful refresh"
        );
        assert_eq!(next_refresh_at(0, false, start, None), None, "no further refresh without a request");
        let waits: Vec<_> = (0..8).map(|failed| next_refresh_at(failed, true, start, None)).collect();
        let expected = [30, 60, 120, 240, 480, 960].map(|seconds| Some(at(seconds)));
        assert_eq!(waits[..6], expected);
        assert_eq!(waits[6..], [None, None], "given up");
    }

    #[test]
    fn link_sessions_are_polled_until_they_expire() {
        let start: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
        let end = later(start, 1_800);
        assert_eq!(next_session_poll_at(0, start, end), later(start, 5));
        assert_eq!(next_session_poll_at(99, start, end), later(start, 320));
        assert_eq!(next_session_poll_at(99, later(start, 1_700), end), end, "at the expiry in any case");
        assert!(next_session_poll_at(0, end, end) > end);
    }
}
