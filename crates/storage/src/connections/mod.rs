//! Connections, their accounts, and the results of their refreshes, syncs and removals.

pub(crate) mod account_merge;
pub(crate) mod accounts;
pub(crate) mod audit;
pub(crate) mod connection;
pub(crate) mod consent_notices;
pub(crate) mod events;
pub(crate) mod fingerprints;
pub(crate) mod imports;
pub(crate) mod overview;
pub(crate) mod refreshes;
pub mod removals;
pub mod syncs;
