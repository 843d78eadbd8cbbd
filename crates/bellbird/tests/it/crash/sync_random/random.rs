//! Random numbers from a seed, so that a run can be repeated.

use std::time::Duration;

/// SplitMix64.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(limit).unwrap()).unwrap()
    }

    pub(super) fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    pub(super) fn millis(&mut self, limit: usize) -> Duration {
        Duration::from_millis(self.below(limit).try_into().unwrap())
    }
}
