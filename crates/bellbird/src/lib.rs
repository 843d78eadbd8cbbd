//! The program `bellbird`: settings, command line, listeners, logs, metrics and the wiring of all
//! other crates.
//!
//! It is a library so that tests and benchmarks can start the real service. `main` only calls
//! [`cli::run`].

pub mod audit;
pub mod background;
pub mod cli;
pub mod config;
pub mod failure;
pub mod instances;
pub mod openapi;
pub mod ops;
pub mod roles;
pub mod service;
pub mod telemetry;
pub mod wiring;
