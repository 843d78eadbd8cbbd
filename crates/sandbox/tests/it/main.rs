//! The sandbox from outside: everything over real HTTP.
#![allow(clippy::unwrap_used)]

mod client;
mod control;
mod errors;
mod faults;
mod paging;
mod provider;
mod world;
