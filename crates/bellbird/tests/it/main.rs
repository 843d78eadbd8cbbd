//! Everything about the program as a whole, in one test binary.
#![allow(clippy::unwrap_used, reason = "in a test, a panic is the answer")]

mod accounts;
mod auth;
mod balances;
mod brokerage;
mod chromium;
mod cli;
mod config;
mod contract;
mod docs;
mod events;
mod exact;
mod faults;
mod harness;
mod inbound;
mod isolation;
mod link_kills;
mod linking;
mod newzealand;
mod openapi;
mod processes;
mod receiver;
mod receivers;
mod removal;
mod secrecy;
mod secrets;
mod serve;
mod sync_kills;
mod syncing;
mod tidy;
mod transactions;
mod waiting;
mod webhook_cli;
