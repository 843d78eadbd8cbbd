//! Helpers that several folders of tests share.

pub(crate) mod browser;
pub(crate) mod crash;
pub(crate) mod database;
pub(crate) mod harness;
pub(crate) mod process;
pub(crate) mod receiver;
pub(crate) mod rows;
