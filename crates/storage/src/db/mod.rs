//! Two databases behind one interface: one SQL text, one way to bind, one way to read a row.
//!
//! Rules that keep one text valid on both: `$1` placeholders; ids and words are TEXT, times and counts are BIGINT,
//! secrets and hashes are bytes; no casts by `::`, no function that only one of the two has.

pub(crate) mod database;
pub(crate) mod postgres;
pub(crate) mod row;
pub(crate) mod sqlite;
pub(crate) mod statement;

pub(crate) use database::{Db, Tx};
pub(crate) use row::{Row, stored};
pub(crate) use statement::{Param, Sql, params, statements, strip_nul};
