//! The sandbox from outside: everything over real HTTP.
#![allow(clippy::unwrap_used)]

mod akahu;
mod akahu_client;
mod akahu_control;
mod akahu_data;
mod akahu_rows;
mod client;
mod control;
mod errors;
mod faults;
mod paging;
mod provider;
mod snaptrade;
mod snaptrade_activities;
mod snaptrade_client;
mod snaptrade_control;
mod snaptrade_data;
mod world;
