//! What operators, commands and users may change, once for all of them: users, keys, setup tokens,
//! links, connections, webhook endpoints and deliveries. And when something needs an operator:
//! [`health`]. No HTTP, and no text but that of a [`Refusal`].
//!
//! An operation is one function. It takes the [`ManagementChange`] in which it writes, which knows
//! who makes it, and what it is about. It checks the rules, writes, and adds the row of the audit,
//! or it returns a [`Refusal`], and the change is dropped. The caller commits.
//!
//! A change by a user reaches only what is theirs: see [`ManagementChange::owner`].

mod change;
pub mod connections;
pub mod deliveries;
pub mod endpoints;
pub mod first_start;
pub mod health;
pub mod keys;
pub mod links;
pub mod operator_keys;
pub mod provider_settings;
pub mod refusal;
pub mod setup_tokens;
pub mod sign_in;
#[cfg(test)]
mod tests;
pub mod users;
pub mod values;

pub use bellbird_storage::ManagementChange;
pub use refusal::Refusal;
