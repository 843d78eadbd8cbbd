//! Random numbers from a seed, so that a run can be repeated.

use std::time::Duration;

/// A new seed, or that of `BELLBIRD_TEST_SEED`, printed.
pub(crate) fn seed() -> u64 {
    let seed = std::env::var("BELLBIRD_TEST_SEED")
        .ok()
        .filter(|text| !text.is_empty());
    let seed = seed.map_or_else(
        || uuid::Uuid::new_v4().as_u64_pair().0,
        |text| text.parse().expect("BELLBIRD_TEST_SEED is a whole number"),
    );
    print_line(&format!("seed {seed}"));
    seed
}

#[expect(
    clippy::print_stdout,
    reason = "a failed test is repeated with its seed, and a soak has figures"
)]
pub(crate) fn print_line(line: &str) {
    println!("{line}");
}

/// SplitMix64.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    pub(crate) fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    pub(crate) fn millis(&mut self, limit: usize) -> Duration {
        Duration::from_millis(self.below(limit).try_into().unwrap())
    }
}
