//! Tests that crash the service while it links and syncs.

mod linking;
mod linking_process;
mod sync_random;
mod sync_steps;

/// How many times more often than usual a test crashes the service. Nightly runs set it.
fn kill_factor() -> u32 {
    let factor = std::env::var("BELLBIRD_TEST_KILL_FACTOR").ok().filter(|text| !text.is_empty());
    factor.map_or(1, |text| text.parse().expect("BELLBIRD_TEST_KILL_FACTOR is a whole number"))
}
