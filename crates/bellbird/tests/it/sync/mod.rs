//! Tests of syncs.

mod runs;
