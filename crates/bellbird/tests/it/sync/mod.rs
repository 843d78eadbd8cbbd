//! Tests of syncs.

mod missing_accounts;
mod runs;
