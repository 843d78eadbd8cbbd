//! Reads columns from a row of either database.

use std::str::FromStr;

use jiff::Timestamp;
use tokio_postgres::types::Type;
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
    pub(crate) fn opt_text(&self, column: usize) -> Result<Option<&str>> {
        match self {
            Self::Sqlite(row) => row
                .get_ref(column)
                .ok()
                .and_then(|value| value.as_str_or_null().ok())
                .ok_or(WRONG_TYPE),
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    pub(crate) fn text(&self, column: usize) -> Result<&str> {
        self.opt_text(column)?.ok_or(WRONG_TYPE)
    }

    pub(crate) fn opt_int(&self, column: usize) -> Result<Option<i64>> {
        match self {
            Self::Sqlite(row) => row
                .get_ref(column)
                .ok()
                .and_then(|value| value.as_i64_or_null().ok())
                .ok_or(WRONG_TYPE),
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    pub(crate) fn int(&self, column: usize) -> Result<i64> {
        self.opt_int(column)?.ok_or(WRONG_TYPE)
    }

    /// Reads an integer of a smaller range. A value outside it is corrupt, and `what` names it.
    pub(crate) fn number<T: TryFrom<i64>>(&self, column: usize, what: &'static str) -> Result<T> {
        T::try_from(self.int(column)?).map_err(|_| StorageError::Corrupt(what))
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

    pub(crate) fn attempts(&self, column: usize) -> Result<u32> {
        self.number(column, "a number of attempts")
    }

    pub(crate) fn blob(&self, column: usize) -> Result<&[u8]> {
        match self {
            Self::Sqlite(row) => row
                .get_ref(column)
                .ok()
                .and_then(|value| value.as_bytes().ok())
                .ok_or(WRONG_TYPE),
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    pub(crate) fn opt_blob(&self, column: usize) -> Result<Option<&[u8]>> {
        match self {
            Self::Sqlite(row) => row
                .get_ref(column)
                .ok()
                .and_then(|value| value.as_bytes_or_null().ok())
                .ok_or(WRONG_TYPE),
            Self::Postgres(row) => row.try_get(column).map_err(|_| WRONG_TYPE),
        }
    }

    pub(crate) fn opt_time(&self, column: usize) -> Result<Option<Timestamp>> {
        self.opt_int(column)?.map(timestamp).transpose()
    }

    pub(crate) fn time(&self, column: usize) -> Result<Timestamp> {
        self.int(column).and_then(timestamp)
    }

    /// Reads an id from a column of ids, or of text.
    pub(crate) fn id<T: From<Uuid>>(&self, column: usize) -> Result<T> {
        self.opt_id(column)?.ok_or(WRONG_TYPE)
    }

    /// As [`Self::id`], for a nullable column.
    pub(crate) fn opt_id<T: From<Uuid>>(&self, column: usize) -> Result<Option<T>> {
        if let Self::Postgres(row) = self
            && row
                .columns()
                .get(column)
                .is_some_and(|column| *column.type_() == Type::UUID)
        {
            return row
                .try_get::<_, Option<Uuid>>(column)
                .map(|id| id.map(T::from))
                .map_err(|_| WRONG_TYPE);
        }
        let read = |text| {
            Uuid::try_parse(text)
                .map(T::from)
                .map_err(|_| StorageError::Corrupt("an id"))
        };
        self.opt_text(column)?.map(read).transpose()
    }

    /// Parses one of a closed set of words. An unknown word is corrupt, and `what` names it.
    pub(crate) fn word<T: FromStr>(&self, column: usize, what: &'static str) -> Result<T> {
        self.text(column)?
            .parse()
            .map_err(|_| StorageError::Corrupt(what))
    }

    /// As [`Self::word`], for a nullable column.
    pub(crate) fn opt_word<T: FromStr>(
        &self,
        column: usize,
        what: &'static str,
    ) -> Result<Option<T>> {
        self.opt_text(column)?
            .map(|word| word.parse().map_err(|_| StorageError::Corrupt(what)))
            .transpose()
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
