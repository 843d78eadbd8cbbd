//! Tests of the whole program, in one test binary.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(
    clippy::disallowed_methods,
    reason = "the environment names the servers and the lengths of tests"
)]

mod admin;
mod api;
mod changes;
mod chaos;
mod cli;
mod clients;
mod console;
mod contract;
mod export;
mod first_start;
mod linking;
mod mcp;
mod privacy;
mod proxies;
mod repository;
mod simplefin;
mod support;
mod sync;
mod telemetry;
mod webhooks;
