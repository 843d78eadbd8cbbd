//! What all tests share that draw lots: one generator, one way to repeat a seed, and one measure of
//! how long they run.
//!
//! * `BELLBIRD_TEST_SEED` makes such a test run this seed only, and print all that happens.
//! * `BELLBIRD_TEST_PERCENT` says how long it runs: 1000 is ten times as long as usual.

use std::time::Duration;

/// SplitMix64.
#[derive(Debug)]
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end.max(1)
    }

    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or_default()
    }

    pub fn one_in(&mut self, number: u64) -> bool {
        self.below(number) == 0
    }

    /// Whether something happens that happens `times` in a thousand.
    pub fn per_mille(&mut self, times: u64) -> bool {
        self.below(1_000) < times
    }

    pub fn millis(&mut self, end: u64) -> Duration {
        Duration::from_millis(self.below(end))
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long a test runs is no setting of the service"
)]
fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is a whole number")),
    )
}

#[must_use]
pub fn seed() -> Option<u64> {
    number("BELLBIRD_TEST_SEED")
}

/// How often something happens that usually happens `usual` times. At least once.
#[must_use]
pub fn times(usual: u64) -> u64 {
    let percent = number("BELLBIRD_TEST_PERCENT").unwrap_or(100);
    (usual * percent / 100).max(1)
}

/// What became of a seed.
#[derive(Debug)]
pub struct Outcome {
    pub steps: u64,
    /// The first broken invariant.
    pub broken: Option<String>,
    /// What happened, without the beginning unless all was to be kept.
    pub trace: String,
}

/// Seeds of a lab, and what one of them is: `run(seed, keeps_trace)`.
pub struct Lab<'l> {
    pub seeds: u64,
    pub run: &'l dyn Fn(u64, bool) -> Outcome,
}

impl Lab<'_> {
    /// Runs one of several shares of the seeds, which run beside each other. Nothing may break.
    pub fn assert_whole(&self, share: u64, shares: u64) {
        if let Some(seed) = seed() {
            return assert_none_broken(seed, &(self.run)(seed, true));
        }
        let seeds = times(self.seeds);
        let mut steps = 0;
        for seed in (share..seeds).step_by(usize::try_from(shares).unwrap_or(1)) {
            let named = Named(seed);
            let outcome = (self.run)(seed, false);
            drop(named);
            assert_none_broken(seed, &outcome);
            steps += outcome.steps;
        }
        print(&format!("{} seeds, {steps} steps", seeds.div_ceil(shares)));
    }

    /// Tries the seeds from `first` on and then those before it. Returns the first one that breaks
    /// an invariant, the steps that it took to find it, and what is broken.
    pub fn find_broken(&self, first: u64) -> Option<(u64, u64, String)> {
        let mut steps = 0;
        (first..self.seeds).chain(0..first).find_map(|seed| {
            let outcome = (self.run)(seed, false);
            steps += outcome.steps;
            Some((seed, steps, outcome.broken?))
        })
    }
}

fn assert_none_broken(seed: u64, outcome: &Outcome) {
    if let Some(broken) = &outcome.broken {
        print(&outcome.trace);
        panic!("{broken}\nto repeat it, run this test with BELLBIRD_TEST_SEED={seed}");
    }
    if self::seed().is_some() {
        print(&outcome.trace);
    }
}

/// Names the seed of a run that panics.
struct Named(u64);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            print(&format!("to repeat it: BELLBIRD_TEST_SEED={}", self.0));
        }
    }
}

#[expect(
    clippy::print_stdout,
    reason = "a failed test is repeated with its seed"
)]
pub fn print(text: &str) {
    println!("{text}");
}
