//! Tests that crash the service while it links, syncs, removes, and changes what an operator asks
//! for.

mod admin_process;
mod changes_process;
mod dead_leases;
mod linking;
mod linking_process;
mod removal;
mod removal_process;
mod status_steps;
mod sync_random;
mod sync_steps;

use std::num::NonZeroU32;

/// How many times more often than usual a test crashes the service. Nightly runs set it.
fn kill_factor() -> u32 {
    let factor = std::env::var("BELLBIRD_TEST_KILL_FACTOR")
        .ok()
        .filter(|text| !text.is_empty());
    let parse = |text: String| {
        text.parse::<NonZeroU32>()
            .expect("BELLBIRD_TEST_KILL_FACTOR is 1 or more")
            .get()
    };
    factor.map_or(1, parse)
}
