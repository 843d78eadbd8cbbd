//! Tests of syncs.

mod gaps;
mod large;
mod runs;
mod unreadable;
