//! Helpers that several folders of tests share.

pub(crate) mod browser;
pub(crate) mod checked_endpoint;
pub(crate) mod chromium;
pub(crate) mod client;
pub(crate) mod crash;
pub(crate) mod database;
pub(crate) mod deployment;
pub(crate) mod fields;
pub(crate) mod follower;
pub(crate) mod harness;
pub(crate) mod known_rows;
pub(crate) mod mcp;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod provider_spec;
pub(crate) mod random;
pub(crate) mod reads;
pub(crate) mod receiver;
pub(crate) mod redact;
pub(crate) mod rows;
pub(crate) mod schema;
pub(crate) mod servers;
pub(crate) mod small_disk;
pub(crate) mod stored;
pub(crate) mod transcript;
pub(crate) mod words;
