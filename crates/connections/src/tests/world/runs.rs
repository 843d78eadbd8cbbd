//! Many worlds.

use tempfile::TempDir;

use super::{Outcome, faults, run, template};

/// Steps of all worlds without a fault, unless `BELLBIRD_TEST_WORLD_STEPS` says how many.
const STEPS: u64 = 200_000;
/// Worlds in which a fault must be found.
const FAULT_SEEDS: u64 = 200;

#[expect(
    clippy::disallowed_methods,
    reason = "how long a test runs is no setting of the service"
)]
fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.parse().expect("a number"))
}

fn assert_whole(seed: u64, outcome: &Outcome) {
    if let Some(broken) = &outcome.broken {
        println!("{}", outcome.trace);
        panic!(
            "{broken}\nto replay it: BELLBIRD_TEST_WORLD_SEED={seed}, and the test tests::world::runs::replay"
        );
    }
}

/// Every other seed, so that tests run beside each other.
fn run_half(half: u64) {
    let template = template();
    let most = number("BELLBIRD_TEST_WORLD_STEPS").unwrap_or(STEPS) / 2;
    let (mut steps, mut messages, mut seed) = (0, 0, half);
    while steps < most {
        let outcome = run(&template, seed, None, false);
        assert_whole(seed, &outcome);
        (steps, messages, seed) = (steps + outcome.steps, messages + outcome.messages, seed + 2);
    }
    println!(
        "{} worlds, {steps} steps, {messages} messages taken",
        seed / 2
    );
}

#[test]
fn invariants_hold_in_any_world_1() {
    run_half(0);
}

#[test]
fn invariants_hold_in_any_world_2() {
    run_half(1);
}

#[test]
fn every_fault_is_found() {
    let template = template();
    let mut missed = Vec::new();
    for fault in faults::ALL {
        let found = (0..FAULT_SEEDS)
            .find_map(|seed| Some((seed, run(&template, seed, Some(*fault), false).broken?)));
        match found {
            Some((seed, broken)) => println!("{fault:?}: world {}: {broken}", seed + 1),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn seed_is_replayed_step_by_step() {
    let template = template();
    let trace = |template: &TempDir, seed| run(template, seed, None, true).trace;
    for seed in 0..10 {
        let (one, other) = (trace(&template, seed), trace(&template, seed));
        let difference = one
            .lines()
            .zip(other.lines())
            .find(|(one, other)| one != other);
        assert!(one == other, "seed {seed}: {difference:?}");
    }
}

/// Runs the world of `BELLBIRD_TEST_WORLD_SEED` and prints all that happened.
#[test]
fn replay() {
    let Some(seed) = number("BELLBIRD_TEST_WORLD_SEED") else {
        return;
    };
    let outcome = run(&template(), seed, None, true);
    println!("{}", outcome.trace);
    assert!(outcome.broken.is_none(), "{:?}", outcome.broken);
}
