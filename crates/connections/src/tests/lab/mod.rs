//! The lab: tests in which a seed decides what happens, in simulated time, so that a failure can be
//! repeated. `BELLBIRD_TEST_SEED` and `BELLBIRD_TEST_PERCENT` are those of `bellbird_domain::lab`.
//!
//! * **Histories** ([`history`]): any history of a provider's list, and clients that follow it.
//!   Quick, because they have no database: a hundred thousand of them in seconds.
//! * **Worlds** ([`world`]): several instances of the service over one database, with their syncs,
//!   refreshes, removals and deliveries.
//! * **The schedule** ([`schedule`]): what a provider's limit and an outage do to the syncs of
//!   thousands of connections within days.
//!
//! [`faults`] has the faults that a test plants to see that histories and worlds find them. Of the
//! storage alone are two more: the queue of jobs against a model
//! (`crates/storage/src/tests/jobs/queue.rs`), and transactions that are stepped on PostgreSQL
//! (`crates/storage/src/tests/postgres_steps`), which has planted faults of its own.
//!
//! `every_fault_is_found` prints the seed that finds each of them, and the steps until then:
//!
//! | fault | found by | seed | steps |
//! |---|---|---:|---:|
//! | `EarlyRemoval` | history | 4 | 110 |
//! | `LostPage` | history | 2 | 63 |
//! | `ChangedKey` | history | 0 | 20 |
//! | `SwappedKeys` | history | 0 | 20 |
//! | `ForeignCursor` | history | 14 | 405 |
//! | `Restore` | history | 452 | 17,718 |
//! | `SameMark` | history | 11,994 | 54 |
//! | `NothingPending` | history | 0 | 20 |
//! | `UnfencedSync` | world | 2 | 3,768 |
//! | `UnfencedRenewal` | world | 2 | 3,743 |
//! | `UnfencedFingerprints` | world | 5 | 9,714 |
//! | `ClaimOfRunningJob` | world | 0 | 24 |
//! | `UnfencedResults` | world | 168 | 564 |
//! | `ChunksAtOnce` | world | 0 | 569 |
//! | `NoOverlap` | world | 1 | 29,617 |
//! | `ForeignEvents` | world | 0 | 731 |
//! | `LeaseWithoutEnd` | world | 0 | 26,050 |
//! | `FailureCountsAsSuccess` | world | 1 | 29,819 |
//! | `ForgottenEvents` | world | 0 | 27,311 |
//! | `UnfencedStatus` | world | 5 | 37,504 |
//! | `SecretsOutliveConnection` | world | 0 | 28,033 |
//! | `UndoneRedelivery` | world | 175 | 28,548 |
//! | `NoRecovery` | world | 0 | 27,951 |
//! | `MissingRowIsGone` | world | 6 | 37,739 |

mod faults;
mod history;
mod schedule;
mod world;

use bellbird_domain::lab::{Lab, Outcome, print};

use faults::{Experiment, FAULTS, Fault};

/// Runs one seed. Returns the first broken invariant, if there is one.
type Run = Box<dyn Fn(u64, bool) -> Outcome>;

fn run_of(experiment: Experiment, fault: Option<Fault>) -> Run {
    match experiment {
        Experiment::History => Box::new(move |seed, _| history::run(seed, fault)),
        Experiment::World => {
            let template = world::template();
            Box::new(move |seed, keeps_trace| world::run(&template, seed, fault, keeps_trace))
        }
    }
}

fn run_share(experiment: Experiment, share: u64, shares: u64) {
    let seeds = match experiment {
        Experiment::History => 100_000,
        Experiment::World => 120,
    };
    let run = run_of(experiment, None);
    Lab { seeds, run: &*run }.assert_whole(share, shares);
}

#[test]
fn tables_equal_the_list_after_any_history_1() {
    run_share(Experiment::History, 0, 4);
}

#[test]
fn tables_equal_the_list_after_any_history_2() {
    run_share(Experiment::History, 1, 4);
}

#[test]
fn tables_equal_the_list_after_any_history_3() {
    run_share(Experiment::History, 2, 4);
}

#[test]
fn tables_equal_the_list_after_any_history_4() {
    run_share(Experiment::History, 3, 4);
}

#[test]
fn invariants_hold_in_any_world_1() {
    run_share(Experiment::World, 0, 2);
}

#[test]
fn invariants_hold_in_any_world_2() {
    run_share(Experiment::World, 1, 2);
}

#[test]
fn every_fault_is_found() {
    let mut missed = Vec::new();
    for (fault, experiment) in FAULTS {
        let seeds = match experiment {
            Experiment::History => 100_000,
            Experiment::World => 200,
        };
        let run = run_of(*experiment, Some(*fault));
        match (Lab { seeds, run: &*run }).find_broken(fault.first_seed()) {
            Some((seed, steps, broken)) => print(&format!(
                "| `{fault:?}` | {experiment:?} | {seed} | {steps} | {broken}"
            )),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}

#[test]
fn seed_is_repeated_step_by_step() {
    let run = run_of(Experiment::World, None);
    for seed in 0..10 {
        let (one, other) = (run(seed, true).trace, run(seed, true).trace);
        let difference = one
            .lines()
            .zip(other.lines())
            .find(|(one, other)| one != other);
        assert!(one == other, "seed {seed}: {difference:?}");
    }
}
