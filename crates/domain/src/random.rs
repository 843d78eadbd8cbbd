//! Random ids and numbers of all crates, from one place, so that a simulation can repeat them.

use uuid::Uuid;

/// A time-ordered id (UUID version 7).
#[must_use]
pub fn time_ordered_id() -> Uuid {
    #[cfg(feature = "test-support")]
    if let Some(id) = simulation::time_ordered_id() {
        return id;
    }
    Uuid::now_v7()
}

/// A random number. Not for secrets.
#[must_use]
pub fn number() -> u64 {
    #[cfg(feature = "test-support")]
    if let Some(number) = simulation::number() {
        return number;
    }
    Uuid::new_v4().as_u64_pair().1
}

/// What replaces chance and time on the thread of a simulation.
#[cfg(feature = "test-support")]
pub mod simulation {
    use std::cell::RefCell;

    use uuid::{Builder, Uuid};

    use crate::lab::Chance;

    struct Simulation {
        chance: Chance,
        elapsed: fn() -> i64,
    }

    thread_local!(static SIMULATION: RefCell<Option<Simulation>> = const { RefCell::new(None) });

    /// From now on, random numbers of this thread follow from `seed`, and its manual clocks go on
    /// by the microseconds that `elapsed` returns.
    pub fn begin(seed: u64, elapsed: fn() -> i64) {
        SIMULATION.set(Some(Simulation {
            chance: Chance::new(seed),
            elapsed,
        }));
    }

    pub fn end() {
        SIMULATION.set(None);
    }

    pub fn is_running() -> bool {
        SIMULATION.with_borrow(Option::is_some)
    }

    /// None outside of a simulation.
    pub fn number() -> Option<u64> {
        SIMULATION.with_borrow_mut(|simulation| Some(simulation.as_mut()?.chance.number()))
    }

    pub(crate) fn elapsed() -> i64 {
        let elapsed = SIMULATION.with_borrow(|simulation| Some(simulation.as_ref()?.elapsed));
        elapsed.map_or(0, |elapsed| elapsed())
    }

    pub(super) fn time_ordered_id() -> Option<Uuid> {
        let (high, low) = (number()?.to_be_bytes(), number()?.to_be_bytes());
        let millis = u64::try_from(elapsed() / 1_000).unwrap_or_default();
        let random = std::array::from_fn(|at| if at < 8 { high[at] } else { low[at - 8] });
        Some(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }
}
