//! The chaos suite: services that are killed, paused and cut off while they work, and servers that
//! fail them. `support/deployment.rs` describes what runs and how it breaks; rows
//! (`support/known_rows.rs`), endpoints (`support/checked_endpoint.rs`) and clients that follow
//! changes (`support/follower.rs`) know what must arrive in spite of that.
//!
//! * `kills`: the service is killed at chosen and at random moments, in process or with `kill -9`.
//! * `instances`: several services over one PostgreSQL, with and without Valkey.
//! * `full_disk`: a service whose disk fills while it runs.
//! * `soak`: everything at once, for 40 seconds or an hour, and at the end nothing is left over.
//!
//! `BELLBIRD_TEST_SEED` repeats a run, and `BELLBIRD_TEST_PERCENT` makes it longer.

mod full_disk;
mod instances;
mod kills;
mod soak;
