//! Random numbers from a seed, so that a run can be repeated.

use std::time::Duration;

use bellbird_domain::lab::{self, Chance};

pub(crate) use bellbird_domain::lab::print as print_line;

/// What a part of a path or of a query may be confused with, as a URL has it. The first is empty.
const ODD_TEXTS: &str = " 0 1 -1 3 500 501 4294967296 99999999999999999999 1.5 1e3 NaN null true x \
                         [] {} {id} .. %2F..%2F %00 %FF%FE %F0%9F%90%A6 anna%40example.com \
                         2026-11-01 2026-02-30 0000-00-00 -9999-01-01 9999-12-31 +12345-01-01 \
                         2026-11-20T09:30:00Z 2026-11-20T09:30:00.123456789Z \
                         2026-11-20T09:30:00%2B14:00 2026-11-20T09:30:00-23:59 \
                         0191e7a0-7c3b-7def-8000-00aabbccddee 0191e7a07c3b7def800000aabbccddee";

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

    pub(crate) fn odd_text(&mut self) -> &'static str {
        let texts: Vec<&str> = ODD_TEXTS.split(' ').collect();
        texts[self.below(texts.len())]
    }

    pub(crate) fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }

    pub(crate) fn millis(&mut self, limit: usize) -> Duration {
        Duration::from_millis(self.below(limit).try_into().unwrap())
    }
}
