//! Declares SQL statements and converts values for their placeholders.

use std::borrow::Cow;

use bellbird_domain::{AccountId, ConnectionId, Currency, EndpointId, EventId, KeyId, SyncRunId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

/// A statement from the list of its module. A test prepares each listed statement on both databases.
///
/// Only [`statements!`] makes one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    /// The constant's name, for messages of that test.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test that prepares every statement"))]
    pub(crate) name: &'static str,
    /// The text for SQLite, and for PostgreSQL unless [`Self::on_postgres`] replaces it.
    pub(crate) text: &'static str,
    pub(crate) postgres: &'static str,
}

impl Sql {
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self { name, text, postgres: text }
    }

    /// Replaces the text for PostgreSQL, to add row locks, which SQLite does not have. A statement with an empty first
    /// text is for PostgreSQL only.
    pub(crate) const fn on_postgres(self, postgres: &'static str) -> Self {
        Self { postgres, ..self }
    }
}

/// Declares the statements of a module, and the list of them.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr $(, on_postgres = $postgres:expr)?;)*) => {
        $($(#[$doc])* const $name: $crate::db::Sql =
            $crate::db::Sql::new(stringify!($name), $text)$(.on_postgres($postgres))?;)*

        #[cfg(test)]
        pub(crate) const STATEMENTS: &[$crate::db::Sql] = &[$($name),*];
    };
}
pub(crate) use statements;

/// A value for a placeholder: in `params![user, name]`, `user` is `$1` and `name` is `$2`.
#[derive(Clone, Copy)]
pub(crate) enum Param<'a> {
    Null,
    Int(i64),
    Text(&'a str),
    Blob(&'a [u8]),
    /// Written as lower-case text with hyphens, without allocating a string.
    Id(Uuid),
    /// An array of values of one type, for PostgreSQL only.
    List(&'a [Param<'a>]),
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

impl<'a> From<&'a [Param<'a>]> for Param<'a> {
    fn from(values: &'a [Self]) -> Self {
        Self::List(values)
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

/// Removes U+0000 from a provider's text, because PostgreSQL rejects that character.
pub(crate) fn strip_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}
