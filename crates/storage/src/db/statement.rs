//! SQL statements and the values for their placeholders.

use std::borrow::Cow;

use bellbird_domain::{AccountId, ConnectionId, Currency, EndpointId, EventId, KeyId, SyncRunId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

/// A statement that is on its module's list, and so is prepared on both databases by a test.
///
/// Made by [`statements!`] only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    /// The constant's name, for the messages of that test.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test that prepares every statement"))]
    pub(crate) name: &'static str,
    /// The text, for both databases unless [`Self::on_postgres`] said otherwise.
    pub(crate) text: &'static str,
    /// The text for PostgreSQL.
    pub(crate) postgres: &'static str,
}

impl Sql {
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, postgres: text }
    }

    /// The same statement as PostgreSQL needs it: with row locks, which SQLite has no words for.
    pub(crate) const fn on_postgres(self, postgres: &'static str) -> Self {
        Self { postgres, ..self }
    }
}

/// Declares the statements of a module, and the list of them all.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr $(, on_postgres = $postgres:expr)?;)*) => {
        $($(#[$doc])* const $name: $crate::db::Sql =
            $crate::db::Sql::new(stringify!($name), $text)$(.on_postgres($postgres))?;)*

        /// Every statement of this module.
        #[cfg(test)]
        pub(crate) const STATEMENTS: &[$crate::db::Sql] = &[$($name),*];
    };
}
pub(crate) use statements;

/// A value for a placeholder: `params![user, name]` is what `$1` and `$2` stand for.
#[derive(Clone, Copy)]
pub(crate) enum Param<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Blob(&'a [u8]),
    /// Written as text, in lower case with hyphens, without a string on the heap.
    Id(Uuid),
}

macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Param::from($value)),*] };
}
pub(crate) use params;

impl From<i64> for Param<'_> {
    fn from(value: i64) -> Self {
        Self::Int(value)
    }
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(value: &'a str) -> Self {
        Self::Text(value)
    }
}

impl<'a> From<&'a [u8]> for Param<'a> {
    fn from(value: &'a [u8]) -> Self {
        Self::Blob(value)
    }
}

impl From<Timestamp> for Param<'_> {
    fn from(value: Timestamp) -> Self {
        Self::Int(value.as_microsecond())
    }
}

impl<'a, T: Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

impl<'a> From<&'a Currency> for Param<'a> {
    fn from(value: &'a Currency) -> Self {
        Self::Text(value.as_str())
    }
}

macro_rules! param_ids {
    ($($id:ty),*) => {$(
        impl From<$id> for Param<'_> {
            fn from(value: $id) -> Self {
                Self::Id(value.uuid())
            }
        }
    )*};
}
param_ids!(UserId, KeyId, ConnectionId, AccountId, EndpointId, EventId, SyncRunId);

/// A provider's text as both databases can hold it: PostgreSQL refuses the character U+0000.
pub(crate) fn strip_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}
