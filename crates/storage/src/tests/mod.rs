//! Tests of the crate.

mod backups;
mod concurrency;
mod connections;
mod contents;
mod db;
mod fixtures;
mod instances;
mod jobs;
mod linking;
mod lists;
mod management;
mod migrate;
mod outdated;
pub(crate) mod postgres_steps;
mod secrets;
mod stolen_file;
pub(crate) mod support;
mod users;
mod webhooks;
