//! Tests of syncs.

mod gaps;
mod large;
mod missing_accounts;
mod runs;
mod scheduled;
mod unreadable;
