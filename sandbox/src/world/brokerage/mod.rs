//! Brokers, their investors and years of trades. Everything but coins, currencies and exchanges is
//! invented.

pub(crate) mod deals;
pub(crate) mod investors;
pub(crate) mod securities;
pub(crate) mod trades;

pub(crate) use investors::{
    AccountTemplate, Accounts, BROKERS, Broker, Holding, INVESTORS, Investor, LINKED, Role, SANDBOX,
};

/// Accounts with fixed JSON; `<3>` stands for the day three days before the start.
pub(crate) static MESSY: &str = include_str!("messy.json");
