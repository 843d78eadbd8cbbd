mod accounts;
mod audit;
mod connection;
mod fingerprints;
mod imports;
mod refreshes;
mod removals;
mod syncs;
