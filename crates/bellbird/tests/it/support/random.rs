//! Random numbers from a seed, so that a run can be repeated.

use std::time::Duration;

use bellbird_domain::lab::{self, Chance};

pub(crate) use bellbird_domain::lab::print as print_line;

/// A new seed, or that of `BELLBIRD_TEST_SEED`, printed.
pub(crate) fn seed() -> u64 {
    let seed = lab::seed().unwrap_or_else(|| uuid::Uuid::new_v4().as_u64_pair().0);
    print_line(&format!("seed {seed}"));
    seed
}

/// The generator of the lab, for places in lists.
pub(crate) struct Random(Chance);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(Chance::new(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.number()
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.index(limit)
    }

    pub(crate) fn one_of<'l, T>(&mut self, list: &'l [T]) -> &'l T {
        &list[self.below(list.len())]
    }

    pub(crate) fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    pub(crate) fn millis(&mut self, limit: usize) -> Duration {
        Duration::from_millis(self.below(limit).try_into().unwrap())
    }
}
