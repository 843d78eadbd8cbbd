//! The program `bellbird`: settings, command line, listeners, logs, metrics and the wiring of all
//! other crates.
//!
//! It is a library so that tests and benchmarks can start the real service. `main` only calls
//! [`cli::run`].

pub mod audit;
pub mod background;
pub mod backup;
pub mod cli;
pub mod config;
pub mod failure;
pub mod first_start;
pub mod instances;
pub mod openapi;
pub mod ops;
pub mod provider_loader;
pub mod public_info;
pub mod roles;
#[cfg(feature = "sandbox")]
pub mod sandbox_beside;
pub mod service;
pub mod telemetry;
pub mod wiring;
