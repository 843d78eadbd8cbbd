//! What can go wrong, by what the caller does about it.

use std::error::Error;

pub(crate) type Result<T> = std::result::Result<T, StorageError>;

/// A failed call to the database.
///
/// No text of it holds a secret, a URL or the content of a row: all of them may be logged.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// Something of that kind exists already, or is still in use. Says what.
    #[error("conflict: {0}")]
    Conflict(&'static str),
    /// The row to change is not there, or is another user's. Says what kind of row.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The database cannot be reached, is busy for too long, or refuses to work. Trying again later may help.
    #[error("the database is not available")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// The tables are not those of this version: to migrate, newer than this program, or changed by hand.
    #[error("{0}")]
    Schema(String),
    /// A secret cannot be sealed or opened.
    #[error(transparent)]
    Sealed(#[from] SealError),
    /// The database URL cannot be used. The text never repeats the URL.
    #[error("{0}")]
    BadUrl(String),
    /// A row holds something that this program never writes. Says which part.
    #[error("the database holds an invalid value: {0}")]
    Corrupt(&'static str),
}

impl StorageError {
    /// For errors of the machinery around the database: pools, threads, clocks.
    pub(crate) fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }

    /// For tables or columns that are not there.
    pub(crate) fn migration_needed() -> Self {
        Self::Schema("the database is not set up for this version: run `bellbird migrate`".to_owned())
    }

    /// Gives a unique violation the name of the thing that exists already.
    pub(crate) fn or_conflict(self, what: &'static str) -> Self {
        match self {
            Self::Conflict(_) => Self::Conflict(what),
            other => other,
        }
    }
}

/// Why a key list is refused, or a value does not open. No text holds key material.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The configured text holds no key.
    #[error("no sealing key: expected id:base64, for example main:<base64 of 32 random bytes>")]
    NoKey,
    /// An entry has no `id:` before it.
    #[error("sealing key number {0} has no id: expected id:base64, for example main:<base64 of 32 random bytes>")]
    NoKeyId(usize),
    /// An id has characters other than the allowed ones, or too many.
    #[error("the id of sealing key number {0} must be 1 to 32 of the characters A-Z a-z 0-9 . _ -")]
    BadKeyId(usize),
    /// The part after the id is not base64 of 32 bytes.
    #[error("sealing key number {0} must be base64 of exactly 32 bytes after its id")]
    BadKey(usize),
    /// Two entries have one id.
    #[error("sealing key number {0} has the id of an earlier one")]
    DuplicateKeyId(usize),
    /// Too short, or of another version: not made by this program.
    #[error("not a sealed value")]
    NotSealed,
    /// The value was sealed with a key that is not configured.
    #[error("sealed with the key {0:?}, which is not configured")]
    UnknownKeyId(String),
    /// Another key of the same id, a damaged value, or a value of another row.
    #[error("a sealed value does not open: it is damaged, or its key is another one of the same id")]
    DoesNotOpen,
    /// The library refused to seal; it does so only when it has no random numbers.
    #[error("a value could not be sealed")]
    DoesNotSeal,
}
