//! Tests the sandbox from outside, over real HTTP.
#![allow(clippy::unwrap_used)]

mod akahu;
mod akahu_client;
mod akahu_consents;
mod akahu_data;
mod akahu_rows;
mod bank;
mod browser;
mod client;
mod consent_akahu;
mod consent_fiskil;
mod consent_snaptrade;
mod control;
mod errors;
mod faults;
mod odd_rows;
mod paging;
mod provider;
mod receiver;
mod snaptrade;
mod snaptrade_activities;
mod snaptrade_client;
mod snaptrade_consents;
mod snaptrade_data;
mod state;
mod webhooks;
mod webhooks_akahu;
mod webhooks_snaptrade;
mod world;
