//! Runs the same SQL on SQLite and PostgreSQL, with one way to bind parameters and one way to read
//! rows.
//!
//! These rules keep one SQL text valid on both:
//!
//! * Placeholders are `$1`, `$2` and so on. A statement with many has names instead: `:user`.
//! * Ids are UUID on PostgreSQL and TEXT on SQLite. Words are TEXT, times and counts are BIGINT,
//!   secrets and digests are bytes.
//! * No cast with `::`, and no function that only one of them has.

pub(crate) mod database;
pub(crate) mod file_user;
pub(crate) mod open_error;
pub(crate) mod opened_file;
pub(crate) mod postgres;
pub(crate) mod postgres_url;
pub(crate) mod row;
pub(crate) mod service_lock;
pub(crate) mod simulated_link;
pub(crate) mod sqlite;
pub(crate) mod statement;

pub(crate) use database::Db;
pub use database::Tx;
pub(crate) use row::{Column, ReadRow, Row, as_stored, from_row, pair, scalar};
pub(crate) use statement::{Bound, Param, Sql, named, params, statements, strip_nul};
