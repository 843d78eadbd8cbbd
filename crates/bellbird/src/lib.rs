//! The program `bellbird`: settings, command line, listeners, logs and metrics, and the wiring of all the other crates.
//!
//! A library, so that tests and benchmarks can start the real thing; [`cli::run`] is all that `main` calls.

pub mod background;
pub mod cli;
pub mod config;
pub mod ops;
pub mod serve;
pub mod service;
pub mod telemetry;
pub mod wiring;
