//! Tests of the whole program, in one test binary.
#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod api;
mod cli;
mod contract;
mod crash;
mod export;
mod linking;
mod mcp;
mod privacy;
mod proxies;
mod recipes;
mod repository;
mod simplefin;
mod soak;
mod support;
mod sync;
mod telemetry;
mod webhooks;
