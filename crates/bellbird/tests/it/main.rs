//! Everything about the program as a whole, in one test binary.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the answer")]

mod api;
mod cli;
mod contract;
mod crash;
mod linking;
mod privacy;
mod repository;
mod support;
mod sync;
mod webhooks;
