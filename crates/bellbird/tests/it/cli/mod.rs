//! Tests of the commands of the built program.

mod backup;
mod build;
mod commands;
mod config;
mod demo;
mod doctor;
mod instances;
mod sandbox;
mod schema;
mod secrets;
mod serve;
mod webhook;
