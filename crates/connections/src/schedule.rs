//! When a removal is tried again. Pure.

use std::time::Duration;

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
}
