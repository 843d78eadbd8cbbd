//! Tests of the REST API over the real listener.

mod accounts;
mod akahu;
mod auth;
mod balances;
mod bodies;
mod brokerage;
mod chromium;
mod docs;
mod exact;
mod faults;
mod isolation;
mod openapi;
mod reference_page;
mod serve;
mod shares;
mod transactions;
mod walks;
