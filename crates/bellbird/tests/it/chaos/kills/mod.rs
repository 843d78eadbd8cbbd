//! Tests that crash the service while it links, syncs, removes, and changes what an operator asks
//! for.

mod admin_process;
mod changes_process;
mod dead_leases;
mod linking;
mod linking_process;
mod removal_process;
mod sync_random;

/// How many times more often than usual a test crashes the service: `BELLBIRD_TEST_PERCENT`.
fn kill_factor() -> u32 {
    bellbird_domain::lab::times(1).try_into().unwrap()
}
