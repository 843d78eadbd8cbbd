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
    use std::cell::Cell;

    use uuid::{Builder, Uuid};

    #[derive(Clone, Copy)]
    struct Simulation {
        state: u64,
        elapsed: fn() -> i64,
    }

    thread_local!(static SIMULATION: Cell<Option<Simulation>> = const { Cell::new(None) });

    /// From now on, random numbers of this thread follow from `seed`, and its manual clocks go on
    /// by the microseconds that `elapsed` returns.
    pub fn begin(seed: u64, elapsed: fn() -> i64) {
        SIMULATION.set(Some(Simulation {
            state: seed,
            elapsed,
        }));
    }

    pub fn end() {
        SIMULATION.set(None);
    }

    pub fn is_running() -> bool {
        SIMULATION.get().is_some()
    }

    /// None outside of a simulation. The generator is SplitMix64.
    pub fn number() -> Option<u64> {
        let mut simulation = SIMULATION.get()?;
        simulation.state = simulation.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        SIMULATION.set(Some(simulation));
        let mixed =
            (simulation.state ^ (simulation.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(mixed ^ (mixed >> 31))
    }

    pub(crate) fn elapsed() -> i64 {
        SIMULATION
            .get()
            .map_or(0, |simulation| (simulation.elapsed)())
    }

    pub(super) fn time_ordered_id() -> Option<Uuid> {
        let (high, low) = (number()?.to_be_bytes(), number()?.to_be_bytes());
        let millis = u64::try_from(elapsed() / 1_000).unwrap_or_default();
        let random = std::array::from_fn(|at| if at < 8 { high[at] } else { low[at - 8] });
        Some(Builder::from_unix_timestamp_millis(millis, &random).into_uuid())
    }
}
