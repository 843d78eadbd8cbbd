//! What an event says, and how: its rows as digests, its JSON body, cut into chunks, kept in memory
//! until it is sent.

pub mod buffer;
pub mod chunk;
pub mod digest;
#[cfg(test)]
mod fixtures;
pub mod payload;
pub mod row_kind;
pub mod row_locator;
