//! Searches for rows of accounts where none may be: tables, files, and the memory of the service.
//!
//! `bellbird audit` and the tests of docs/threat-model.md search with the same code.

pub mod files;
pub mod memory;
pub mod process;
pub mod strings;
pub mod texts;

/// The most that is read and searched at once.
const BLOCK_BYTES: usize = 4 * 1024 * 1024;
