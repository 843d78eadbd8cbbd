//! Tests of the commands of the built program.

mod backup;
mod build;
mod commands;
mod config;
mod doctor;
mod instances;
mod long_running;
mod schema;
mod secrets;
mod webhook;
