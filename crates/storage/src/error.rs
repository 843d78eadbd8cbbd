//! What can go wrong, by what the caller does about it.

use std::error::Error;

use crate::sealed::SealError;

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

    /// Gives a unique violation the name of the thing that exists already.
    pub(crate) fn or_conflict(self, what: &'static str) -> Self {
        match self {
            Self::Conflict(_) => Self::Conflict(what),
            other => other,
        }
    }
}
