//! Declares SQL statements and converts values for their placeholders.

use std::borrow::Cow;
use std::fmt::Write as _;

use aws_lc_rs::digest::Digest;
use bellbird_domain::{
    AccountId, AccountType, ActorKind, ApiVersion, Confirmation, ConnectionCategory, ConnectionId,
    ConnectionStatus, Currency, DeliveryState, EmailKind, EndpointId, EndpointStatus, EventId,
    EventType, KeyId, LinkPhase, MaskedNumber, OperatorKeyId, Plan, SyncRunId, UserId,
};
use jiff::Timestamp;
use uuid::Uuid;

use crate::db::row::{Column, Row, stored_microseconds};
use crate::error::Result;

/// A statement from the list of its module. A test prepares each listed statement on both
/// databases.
///
/// Only [`statements!`] makes one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sql {
    /// The constant's name, for messages of that test.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "read by the test that prepares every statement")
    )]
    pub(crate) name: &'static str,
    /// The text for SQLite, and for PostgreSQL unless [`Self::on_postgres`] replaces it.
    pub(crate) text: &'static str,
    pub(crate) postgres: &'static str,
}

impl Sql {
    pub(crate) const fn new(name: &'static str, text: &'static str) -> Self {
        Self {
            name,
            text,
            postgres: text,
        }
    }

    /// Replaces the text for PostgreSQL, to add row locks, which SQLite does not have. A statement
    /// with an empty first text is for PostgreSQL only.
    pub(crate) const fn on_postgres(self, postgres: &'static str) -> Self {
        Self { postgres, ..self }
    }

    /// The statement with a value for each of its names: `SAVE.with(named![user = user, at =
    /// now])`.
    pub(crate) fn with<'a>(self, values: &[(&str, Param<'a>)]) -> Bound<'a> {
        let names = names(self.text);
        let value_of = |name: &&str| {
            values
                .iter()
                .find(|(given, _)| given == name)
                .map(|(_, value)| *value)
        };
        let bound: Vec<_> = names.iter().filter_map(value_of).collect();
        assert!(
            bound.len() == names.len() && bound.len() == values.len(),
            "names and values of {}",
            self.text
        );
        (self, bound)
    }
}

/// A statement with its values.
pub(crate) type Bound<'a> = (Sql, Vec<Param<'a>>);

/// The names in a text (`:user`), in the order in which they first appear. SQLite numbers them in
/// this order.
pub(crate) fn names(text: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for (name, _) in text.split(':').skip(1).map(split_name) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The text with numbers in place of names, for PostgreSQL, which knows no names.
pub(crate) fn numbered(text: &'static str) -> Cow<'static, str> {
    let names = names(text);
    if names.is_empty() {
        return Cow::Borrowed(text);
    }
    let mut parts = text.split(':');
    let mut numbered = parts.next().unwrap_or_default().to_owned();
    for (name, rest) in parts.map(split_name) {
        let number = 1 + names.iter().take_while(|other| **other != name).count();
        let _ = write!(numbered, "${number}{rest}");
    }
    Cow::Owned(numbered)
}

fn split_name(text: &str) -> (&str, &str) {
    text.split_at(
        text.find(|c: char| c != '_' && !c.is_ascii_lowercase())
            .unwrap_or(text.len()),
    )
}

/// Declares the statements of a module, and the list of them. `lock` is added at the end on
/// PostgreSQL.
macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident = $text:expr
        $(, lock = $lock:literal)? $(, on_postgres = $postgres:expr)?;)*) => {
        $($(#[$doc])* const $name: $crate::db::Sql = $crate::db::Sql::new(stringify!($name), $text)
            $(.on_postgres(concat!($text, $lock)))? $(.on_postgres($postgres))?;)*

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
    /// Sent as lower-case text with hyphens, without allocating a string. Where PostgreSQL has a
    /// column of ids, it rejects [`Self::Text`].
    Id(Uuid),
    /// For `= ANY($n)` on PostgreSQL. SQLite has no arrays.
    Blobs(&'a [&'a [u8]]),
}

impl Param<'_> {
    /// For a list that begins after an id, at its start. No row has this id.
    pub(crate) const BEFORE_ALL_IDS: Self = Self::Id(Uuid::nil());
}

macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Param::from($value)),*] };
}
pub(crate) use params;

/// Values for the names of a statement: see [`Sql::with`].
macro_rules! named {
    ($($name:ident = $value:expr),* $(,)?) => { &[$((stringify!($name), $crate::db::Param::from($value))),*] };
}
pub(crate) use named;

/// How values become parameters: `Type: |value| parameter;`.
macro_rules! values {
    ($($Type:ty: |$value:ident| $param:expr;)*) => {$(
        impl<'a> From<$Type> for Param<'a> {
            fn from($value: $Type) -> Self {
                $param
            }
        }
    )*};
}

values! {
    Uuid: |value| Self::Id(value);
    i64: |value| Self::Int(value);
    u32: |value| Self::Int(value.into());
    u16: |value| Self::Int(value.into());
    bool: |value| Self::Int(value.into());
    Timestamp: |value| Self::Int(stored_microseconds(value));
    &'a str: |value| Self::Text(value);
    &'a String: |value| Self::Text(value);
    &'a Currency: |value| Self::Text(value.as_str());
    &'a MaskedNumber: |value| Self::Text(value.as_str());
    &'a [u8]: |value| Self::Blob(value);
    &'a Vec<u8>: |value| Self::Blob(value);
    &'a Digest: |value| Self::Blob(value.as_ref());
}

impl<'a, T: Into<Param<'a>>> From<Option<T>> for Param<'a> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// Ids of one kind each, as values and as columns.
macro_rules! ids {
    ($($id:ty),*) => {$(
        impl From<$id> for Param<'_> {
            fn from(value: $id) -> Self {
                Self::Id(value.uuid())
            }
        }

        impl Column for $id {
            fn read(row: &Row<'_>, column: usize) -> Result<Option<Self>> {
                Ok(Uuid::read(row, column)?.map(Self::from))
            }
        }
    )*};
}
ids!(
    UserId,
    KeyId,
    OperatorKeyId,
    ConnectionId,
    AccountId,
    EndpointId,
    EventId,
    SyncRunId
);

/// Closed sets of words, as values and as columns, with the name of a column whose word is unknown.
macro_rules! words {
    ($($Word:ident $what:literal,)*) => {$(
        impl From<$Word> for Param<'_> {
            fn from(value: $Word) -> Self {
                Self::Text(value.as_str())
            }
        }

        impl Column for $Word {
            fn read(row: &Row<'_>, column: usize) -> Result<Option<Self>> {
                row.opt_word(column, $what)
            }
        }
    )*};
}
words! {
    AccountType "an account type",
    ActorKind "a kind of actor",
    ApiVersion "an API version",
    Confirmation "the confirmation of a consent session",
    ConnectionCategory "a connection category",
    ConnectionStatus "a connection status",
    DeliveryState "the state of a delivery",
    EmailKind "a kind of e-mail",
    EndpointStatus "the status of an endpoint",
    EventType "the type of an event",
    LinkPhase "the phase of a consent session",
    Plan "a plan",
}

/// Removes U+0000 from a provider's text, because PostgreSQL rejects that character.
pub(crate) fn strip_nul(text: &str) -> Cow<'_, str> {
    if text.contains('\0') {
        Cow::Owned(text.replace('\0', ""))
    } else {
        Cow::Borrowed(text)
    }
}
