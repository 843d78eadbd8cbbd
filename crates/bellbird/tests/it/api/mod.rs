//! Tests of the REST API over the real listener.

mod accounts;
mod akahu;
mod auth;
mod balances;
mod brokerage;
mod docs;
mod exact;
mod faults;
mod isolation;
mod openapi;
mod serve;
mod shares;
mod transactions;
