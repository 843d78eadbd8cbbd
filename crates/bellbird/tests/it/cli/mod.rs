//! The commands, run as the built program.

mod commands;
mod config;
mod long_running;
mod secrets;
mod webhook;
