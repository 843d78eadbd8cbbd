//! Connections, their accounts, and their refresh, sync and removal jobs.

pub(crate) mod account_merge;
pub(crate) mod accounts;
pub(crate) mod audit;
pub(crate) mod connection;
pub(crate) mod fingerprints;
pub(crate) mod imports;
pub(crate) mod refreshes;
pub(crate) mod removals;
pub(crate) mod sync_overview;
pub(crate) mod syncs;
