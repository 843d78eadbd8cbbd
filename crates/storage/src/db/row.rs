//! Reads columns from a row of either database.

use std::str::FromStr;

use bellbird_domain::{Currency, MaskedNumber};
use jiff::Timestamp;
use rusqlite::types::{FromSqlResult, ValueRef};
use tokio_postgres::types::{FromSql, Type};
use uuid::Uuid;

use crate::error::{Result, StorageError};

pub(crate) type ReadRow<T> = fn(&Row<'_>) -> Result<T>;

/// Columns count from 0.
pub(crate) enum Row<'a> {
    Sqlite(&'a rusqlite::Row<'a>),
    Postgres(&'a tokio_postgres::Row),
}

const WRONG_TYPE: StorageError = StorageError::Corrupt("a column of an unexpected type");

impl Row<'_> {
    /// Reads a column of any type that a statement returns. NULL is a value of an [`Option`] only.
    pub(crate) fn get<T: Column>(&self, column: usize) -> Result<T> {
        T::read(self, column)?.ok_or(WRONG_TYPE)
    }

    /// As [`Self::get`], without a copy.
    pub(crate) fn text(&self, column: usize) -> Result<&str> {
        self.opt_text(column)?.ok_or(WRONG_TYPE)
    }

    pub(crate) fn opt_text(&self, column: usize) -> Result<Option<&str>> {
        self.read(column, ValueRef::as_str_or_null)
    }

    pub(crate) fn opt_int(&self, column: usize) -> Result<Option<i64>> {
        self.read(column, ValueRef::as_i64_or_null)
    }

    /// Reads an integer of a smaller range. A value outside it is corrupt, and `what` names it.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize, what: &'static str) -> Result<T> {
        self.opt_number(column, what)?.ok_or(WRONG_TYPE)
    }

    /// As [`Self::number`], for a nullable column.
    pub(crate) fn opt_number<T: TryFrom<i64>>(
        &self,
        column: usize,
        what: &'static str,
    ) -> Result<Option<T>> {
        let read = |value| T::try_from(value).map_err(|_| StorageError::Corrupt(what));
        self.opt_int(column)?.map(read).transpose()
    }

    /// As [`Self::get`], without a copy.
    pub(crate) fn blob(&self, column: usize) -> Result<&[u8]> {
        self.opt_blob(column)?.ok_or(WRONG_TYPE)
    }

    fn opt_blob(&self, column: usize) -> Result<Option<&[u8]>> {
        self.read(column, ValueRef::as_bytes_or_null)
    }

    /// Reads a nullable column by the function that fits on SQLite.
    fn read<'r, T: FromSql<'r>>(
        &'r self,
        column: usize,
        of_sqlite: impl FnOnce(&ValueRef<'r>) -> FromSqlResult<Option<T>>,
    ) -> Result<Option<T>> {
        match self {
            Self::Sqlite(row) => {
                let value = row.get_ref(column).ok();
                value
                    .and_then(|value| of_sqlite(&value).ok())
                    .ok_or(WRONG_TYPE)
            }
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    /// Parses one of a closed set of words. An unknown word is corrupt, and `what` names it.
    pub(super) fn opt_word<T: FromStr>(
        &self,
        column: usize,
        what: &'static str,
    ) -> Result<Option<T>> {
        self.opt_text(column)?
            .map(|word| word.parse().map_err(|_| StorageError::Corrupt(what)))
            .transpose()
    }
}

/// Reads the only column of a row.
pub(crate) fn scalar<T: Column>(row: &Row<'_>) -> Result<T> {
    row.get(0)
}

/// Reads two columns.
pub(crate) fn pair<A: Column, B: Column>(row: &Row<'_>) -> Result<(A, B)> {
    Ok((row.get(0)?, row.get(1)?))
}

/// What a column may hold.
pub(crate) trait Column: Sized {
    /// None: NULL.
    fn read(row: &Row<'_>, column: usize) -> Result<Option<Self>>;
}

impl<T: Column> Column for Option<T> {
    fn read(row: &Row<'_>, column: usize) -> Result<Option<Self>> {
        T::read(row, column).map(Some)
    }
}

/// Says how columns of a type are read: `Type: |row, column| reads an option;`.
macro_rules! columns {
    ($($Type:ty: |$row:ident, $column:ident| $read:expr;)*) => {$(
        impl Column for $Type {
            fn read($row: &Row<'_>, $column: usize) -> Result<Option<Self>> {
                $read
            }
        }
    )*};
}

columns! {
    String: |row, column| Ok(row.opt_text(column)?.map(str::to_owned));
    Vec<u8>: |row, column| Ok(row.opt_blob(column)?.map(<[u8]>::to_vec));
    i64: |row, column| row.opt_int(column);
    u64: |row, column| row.opt_number(column, "a count");
    u16: |row, column| row.opt_number(column, "an HTTP status");
    bool: |row, column| Ok(row.opt_int(column)?.map(|number| number != 0));
    Timestamp: |row, column| row.opt_int(column)?.map(timestamp).transpose();
    Uuid: |row, column| opt_uuid(row, column);
    Currency: |row, column| row
        .opt_text(column)?
        .map(|text| Currency::parse(text).ok_or(StorageError::Corrupt("a currency")))
        .transpose();
    MaskedNumber: |row, column| row
        .opt_text(column)?
        .map(|text| MaskedNumber::mask(text).ok_or(StorageError::Corrupt("an account number")))
        .transpose();
}

/// Ids lie in columns of ids on PostgreSQL, or of text.
fn opt_uuid(row: &Row<'_>, column: usize) -> Result<Option<Uuid>> {
    if let Row::Postgres(row) = row
        && row
            .columns()
            .get(column)
            .is_some_and(|column| *column.type_() == Type::UUID)
    {
        return row.try_get(column).map_err(|_| WRONG_TYPE);
    }
    let read = |text| Uuid::try_parse(text).map_err(|_| StorageError::Corrupt("an id"));
    row.opt_text(column)?.map(read).transpose()
}

/// Declares how a row becomes a struct. Its fields are the columns in their order. A number whose
/// range is smaller than that of its column has a name for errors (`chunk: "the number of a
/// chunk"`). An expression takes the place of one column, whose number it repeats
/// (`is_hidden = row.get::<Option<Timestamp>>(7)?.is_some()`). A field without a column comes last.
macro_rules! from_row {
    (@ $columns:ident) => { $columns.get()? };
    (@ $columns:ident $what:literal) => { $columns.number($what)? };
    (@ $columns:ident = $value:expr) => { $columns.skip($value) };
    ($(#[$doc:meta])* $vis:vis fn $name:ident($row:ident) -> $Type:ident {
        $($field:ident $(: $what:literal)? $(= $value:expr)?),* $(,)?
    }) => {
        $(#[$doc])*
        $vis fn $name($row: &$crate::db::Row<'_>) -> $crate::error::Result<$Type> {
            let mut columns = $crate::db::row::Columns::of($row);
            Ok($Type {
                $($field: $crate::db::from_row!(@ columns $($what)? $(= $value)?)),*
            })
        }
    };
}
pub(crate) use from_row;

/// The columns of a row that [`from_row!`] has not read yet.
pub(crate) struct Columns<'r, 'a> {
    row: &'r Row<'a>,
    next: usize,
}

impl<'r, 'a> Columns<'r, 'a> {
    pub(crate) fn of(row: &'r Row<'a>) -> Self {
        Self { row, next: 0 }
    }

    pub(crate) fn get<T: Column>(&mut self) -> Result<T> {
        let value = self.row.get(self.next)?;
        Ok(self.skip(value))
    }

    pub(crate) fn number<T: TryFrom<i64>>(&mut self, what: &'static str) -> Result<T> {
        let value = self.row.number(self.next, what)?;
        Ok(self.skip(value))
    }

    /// Leaves out a column, of which a caller has made this value.
    pub(crate) fn skip<T>(&mut self, value: T) -> T {
        self.next += 1;
        value
    }
}

fn timestamp(microseconds: i64) -> Result<Timestamp> {
    Timestamp::from_microsecond(microseconds).map_err(|_| StorageError::Corrupt("a time"))
}

/// Rounds a time to whole microseconds, as a later read returns it.
pub(crate) fn as_stored(at: Timestamp) -> Timestamp {
    Timestamp::from_microsecond(stored_microseconds(at)).unwrap_or(at)
}

/// At most 9999-12-30T22:00:00Z, because not every later microsecond can be read as a time.
pub(crate) fn stored_microseconds(at: Timestamp) -> i64 {
    at.as_microsecond().min(253_402_207_200_000_000)
}
