//! When a removal is tried again, and when a connection or a trip is looked at again. Pure.

use std::time::Duration;

use jiff::Timestamp;

/// After the first failure. Each further one doubles it.
const FIRST: Duration = Duration::from_secs(30);
/// It never grows beyond this, but for the spread.
const LONGEST: Duration = Duration::from_secs(6 * 3_600);
/// What only the person who hosts can mend is tried rarely from the beginning.
const HOPELESS: Duration = Duration::from_secs(3_600);

/// How an attempt failed, as far as the next one is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The provider may take the same call soon; not before this, when it says so.
    Passing(Option<Duration>),
    /// Something has to change first: credentials, the master key, the provider's mind.
    Lasting,
}

/// How long to wait after the `failed`th failure, which is at least the first. Up to a fifth is added, decided by
/// `spread`, so that what failed together is not tried together: any number that differs from removal to removal.
#[must_use]
pub fn delay(failed: u32, failure: Failure, spread: u64) -> Duration {
    let doubled = 2_u32.saturating_pow(failed.saturating_sub(1).min(31));
    let grown = FIRST.saturating_mul(doubled);
    let asked = match failure {
        Failure::Passing(asked) => asked.unwrap_or_default(),
        Failure::Lasting => HOPELESS,
    };
    let wait = grown.max(asked).min(LONGEST);
    let part = u32::try_from(spread % 1_001).unwrap_or_default();
    wait + wait / 5 * part / 1_000
}

/// For so many seconds after a connection was linked, its accounts may be late.
pub const SETTLES_AFTER: i64 = 600;
/// When it is looked at meanwhile, in seconds after it was linked.
const SETTLING_LOOKS: [i64; 4] = [4, 34, 154, SETTLES_AFTER];
/// A look that failed is repeated so often. After that the next event or read asks for another.
const LOOKS_REPEATED_MAX: u32 = 6;

/// When a connection is looked at for the first time after it was linked, and when its accounts have settled.
#[must_use]
pub fn looked_at_first(now: Timestamp) -> (Timestamp, Timestamp) {
    (later(now, SETTLING_LOOKS[0]), later(now, SETTLES_AFTER))
}

/// When a connection is synced for the first time: when its rows, too, have had the time to appear, unless somebody asks
/// for it before that.
#[must_use]
pub fn synced_at_first(now: Timestamp) -> Timestamp {
    later(now, SETTLES_AFTER)
}

/// When a connection is looked at again, if nobody asks before that. `attempts` are the looks since somebody asked, this
/// one not counted; `failed` says that the provider did not answer; `settles_at` is until when accounts may be late.
#[must_use]
pub fn looked_at_next(attempts: u32, failed: bool, now: Timestamp, settles_at: Option<Timestamp>) -> Option<Timestamp> {
    match settles_at {
        Some(until) if now < until => {
            let looks = SETTLING_LOOKS.iter().map(|after| later(until, after - SETTLES_AFTER));
            looks.into_iter().find(|look| now < *look)
        }
        // Until one has not failed, its accounts have not settled.
        Some(_) if failed => Some(later(now, 30 << attempts.min(7))),
        _ if failed && attempts < LOOKS_REPEATED_MAX => Some(later(now, 30 << attempts.min(5))),
        _ => None,
    }
}

/// When a trip to a provider is looked into again.
#[must_use]
pub fn trip_looked_at_next(attempts: u32, now: Timestamp, expires_at: Timestamp) -> Timestamp {
    let next = later(now, 5 << attempts.min(6));
    // After its end it is looked into once more, and then no more.
    if now < expires_at { next.min(expires_at) } else { next }
}

fn later(now: Timestamp, seconds: i64) -> Timestamp {
    now.saturating_add(jiff::SignedDuration::from_secs(seconds)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSING: Failure = Failure::Passing(None);

    #[test]
    fn grows_to_a_cap() {
        let seconds: Vec<u64> = (0..14).map(|failed| delay(failed, PASSING, 0).as_secs()).collect();
        assert_eq!(seconds, [30, 30, 60, 120, 240, 480, 960, 1_920, 3_840, 7_680, 15_360, 21_600, 21_600, 21_600]);
        assert_eq!(delay(u32::MAX, PASSING, 0), LONGEST);
    }

    #[test]
    fn is_spread_by_a_fifth_at_most() {
        for failed in 1..20 {
            let least = delay(failed, PASSING, 0);
            assert_eq!(delay(failed, PASSING, 1_000), least + least / 5);
            for spread in [1, 7, 999, 1_001, u64::MAX] {
                let wait = delay(failed, PASSING, spread);
                assert!(least <= wait && wait <= least + least / 5, "{failed} {spread}: {wait:?}");
            }
        }
        assert_ne!(delay(1, PASSING, 1), delay(1, PASSING, 2));
    }

    #[test]
    fn waits_as_long_as_it_is_asked_to_within_the_cap() {
        let asked = |seconds| Failure::Passing(Some(Duration::from_secs(seconds)));
        assert_eq!(delay(1, asked(5), 0), FIRST, "never sooner than otherwise");
        assert_eq!(delay(1, asked(600), 0), Duration::from_secs(600));
        assert_eq!(delay(9, asked(600), 0), delay(9, PASSING, 0));
        assert_eq!(delay(1, asked(u64::MAX), 0), LONGEST);
    }

    #[test]
    fn what_needs_a_person_is_tried_rarely_but_for_ever() {
        assert_eq!(delay(1, Failure::Lasting, 0), HOPELESS);
        assert_eq!(delay(9, Failure::Lasting, 0), Duration::from_secs(7_680));
        assert_eq!(delay(99, Failure::Lasting, 0), LONGEST);
    }

    #[test]
    fn looks_after_linking_and_after_failures() {
        let start: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
        let at = |seconds: i64| later(start, seconds);
        let until = Some(at(600));
        assert_eq!(looked_at_first(start), (at(4), at(600)));
        assert_eq!(looked_at_next(0, false, at(4), until), Some(at(34)));
        assert_eq!(looked_at_next(9, true, at(5), until), Some(at(34)), "however many asked, and whatever came of it");
        assert_eq!(looked_at_next(2, false, at(154), until), Some(at(600)), "once more at the end");
        assert_eq!(looked_at_next(3, false, at(600), until), None);
        assert_eq!(looked_at_next(3, true, at(600), until), Some(at(840)), "not settled before a look has seen it");
        assert_eq!(looked_at_next(0, false, start, None), None, "nobody asked for more");
        let waits: Vec<_> = (0..8).map(|failed| looked_at_next(failed, true, start, None)).collect();
        let expected = [30, 60, 120, 240, 480, 960].map(|seconds| Some(at(seconds)));
        assert_eq!(waits[..6], expected);
        assert_eq!(waits[6..], [None, None], "given up");
    }

    #[test]
    fn trips_are_looked_into_until_they_end() {
        let start: Timestamp = "2026-11-20T00:00:00Z".parse().unwrap();
        let end = later(start, 1_800);
        assert_eq!(trip_looked_at_next(0, start, end), later(start, 5));
        assert_eq!(trip_looked_at_next(99, start, end), later(start, 320));
        assert_eq!(trip_looked_at_next(99, later(start, 1_700), end), end, "at the end in any case");
        assert!(trip_looked_at_next(0, end, end) > end);
    }
}
