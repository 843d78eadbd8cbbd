//! Random parts of waiting times, so that what was planned together does not run together.

use std::time::Duration;

/// Between `least` and `least + most_more`, by a random number. 0 gives the least, and 1,000 the
/// middle.
#[must_use]
pub fn jittered(least: Duration, most_more: Duration, random: u64) -> Duration {
    const PARTS: u32 = 2_000;
    let part = u32::try_from(random % u64::from(PARTS + 1)).unwrap_or_default();
    least.saturating_add((most_more / PARTS).saturating_mul(part))
}

#[must_use]
pub fn random() -> u64 {
    bellbird_domain::random::number()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn stays_within_its_bounds(least: Duration, most_more: Duration, random: u64) {
            let wait = jittered(least, most_more, random);
            prop_assert!(wait >= least && wait <= least.saturating_add(most_more));
        }
    }

    #[test]
    fn middle_is_the_mean_of_both_ends() {
        let (least, more) = (Duration::from_secs(90), Duration::from_secs(20));
        let ends = [0, 1_000, 2_000].map(|random| jittered(least, more, random).as_secs());
        assert_eq!(ends, [90, 100, 110]);
    }
}
