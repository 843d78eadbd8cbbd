//! Defines the errors of this crate, one variant for each reaction of a caller.

use std::error::Error;
use std::fmt;
use std::path::PathBuf;

pub(crate) type Result<T> = std::result::Result<T, StorageError>;

/// A failed database call.
///
/// No message contains a secret, a URL or the content of a row, so each may be logged.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// The row already exists, or is still in use. The text names it.
    #[error("conflict: {0}")]
    Conflict(&'static str),
    /// The user has as many of these rows as a user may have. The text says so, and what to do.
    #[error("{0}")]
    TooMany(&'static str),
    /// The row to change does not exist, or belongs to another user. The text names its kind.
    #[error("there is no such {0}")]
    NotFound(&'static str),
    /// The database cannot be reached, is busy for too long, or fails. A retry may help.
    #[error("the database is not available")]
    Unavailable(#[source] Box<dyn Error + Send + Sync>),
    /// Another process holds the [`crate::ServiceLock`] of this SQLite file.
    #[error("a Bellbird service runs on {}: stop it first", .0.display())]
    InUse(PathBuf),
    /// The schema has pending migrations, was made by a newer version, or is not known.
    #[error("{0}")]
    Schema(String),
    /// A backup cannot be made or used. The text says why.
    #[error("{0}")]
    Backup(String),
    #[error(transparent)]
    Sealed(#[from] SealError),
    /// The message never repeats the URL.
    #[error("{0}")]
    BadUrl(String),
    /// The database could not be opened, or its server denies what a migration needs. The text
    /// names the file, the server or the role, and says what to do, without a password.
    #[error("{0}")]
    Open(String),
    /// The file of a SQLite database does not exist. Holds how messages name it.
    #[error("there is no {0}")]
    Missing(String),
    /// The file of the running database was deleted or replaced, or its disk is full. The text says
    /// what to do.
    #[error("{0}")]
    File(String),
    /// A column holds a value that this program never writes. The text names the column.
    #[error("the database holds an invalid value: {0}")]
    Corrupt(&'static str),
}

impl StorageError {
    /// Wraps errors of pools, threads and clocks.
    pub(crate) fn unavailable(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Unavailable(source.into())
    }

    /// For another caller that the same failure concerns.
    pub(crate) fn repeated(&self) -> Self {
        match self {
            Self::Corrupt(what) => Self::Corrupt(what),
            Self::Schema(text) => Self::Schema(text.clone()),
            Self::Unavailable(source) => Self::unavailable(source.to_string()),
            other => Self::unavailable(other.to_string()),
        }
    }

    /// What the log says about a call that failed for this reason.
    pub fn log_message(&self) -> &'static str {
        match self {
            Self::Sealed(_) => "could not open stored secret",
            _ => "database failed",
        }
    }

    /// For missing tables or columns. Whoever checks the migrations first reads this only if the
    /// schema changed since, or was changed by hand.
    pub(crate) fn migration_needed() -> Self {
        Self::Schema(
            "the database lacks a table or column of this version: run `bellbird migrate`, and if that finds nothing \
             to do, restore a backup"
                .to_owned(),
        )
    }

    /// Names the row of a unique violation.
    pub(crate) fn or_conflict(self, what: &'static str) -> Self {
        match self {
            Self::Conflict(_) => Self::Conflict(what),
            other => other,
        }
    }
}

/// Displays an error with all its sources, for log messages.
pub struct Chain<'a>(pub &'a StorageError);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}", self.0)?;
        let mut cause = Error::source(self.0);
        while let Some(error) = cause {
            write!(out, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

/// How something that is tried again and again went last, so that a failure that lasts is logged
/// once.
#[derive(Default)]
pub struct LastFailure(Option<String>);

impl LastFailure {
    /// Returns the text of a failure that the last outcome was not.
    pub fn news<T>(&mut self, outcome: &Result<T>) -> Option<String> {
        let failure = outcome.as_ref().err();
        let failure = failure.map(|error| Chain(error).to_string());
        let is_news = failure != self.0;
        self.0.clone_from(&failure);
        failure.filter(|_| is_news)
    }
}

/// Why a list of keys is rejected, or a value cannot be sealed or opened. No message contains key
/// material.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    #[error("no master key: expected id:base64, for example main:<base64 of 32 random bytes>")]
    NoKey,
    #[error(
        "master key number {0} has no id: expected id:base64, for example main:<base64 of 32 random bytes>"
    )]
    NoKeyId(usize),
    #[error("the id of master key number {0} must be 1 to 32 of the characters A-Z a-z 0-9 . _ -")]
    BadKeyId(usize),
    #[error("master key number {0} must be base64 of exactly 32 bytes after its id")]
    BadKey(usize),
    #[error("master key number {0} has the id of an earlier one")]
    DuplicateKeyId(usize),
    /// The value is too short or has an unknown version byte, so this program did not seal it.
    #[error("not a sealed value")]
    NotSealed,
    #[error(
        "sealed with the master key `{0}`, which is not in secrets.key: add it after the first key, and restart"
    )]
    UnknownKeyId(String),
    /// The value is damaged, belongs to another row, or was sealed with a different key of the same
    /// id.
    #[error(
        "a sealed value cannot be opened: it is damaged, or was sealed with another key of the same id"
    )]
    DoesNotOpen,
    /// The first master key has the id of the one that sealed what is stored, and is another one.
    /// `affected` names the purposes of these secrets, with their numbers if they were counted.
    #[error(
        "the master key `{id}` of secrets.key is not the one that sealed what the database holds ({affected}), so \
         nothing is sealed with it: find the old key. If it is lost, give the new key another id, such as `{id}-2`, \
         and follow docs/secrets.md#if-the-key-is-lost"
    )]
    OtherKey { id: String, affected: String },
    /// The library fails only if the operating system has no random numbers.
    #[error("could not seal a value: the operating system has no random numbers")]
    DoesNotSeal,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failure_that_lasts_is_news_once() {
        let mut last = LastFailure::default();
        let outcomes = ["refused", "refused", "", "refused", "timed out"].map(|why| match why {
            "" => Ok(()),
            why => Err(StorageError::unavailable(why)),
        });
        let news: Vec<_> = outcomes.iter().map(|outcome| last.news(outcome)).collect();
        let text = |why: &str| Some(format!("the database is not available: {why}"));
        let expected = [
            text("refused"),
            None,
            None,
            text("refused"),
            text("timed out"),
        ];
        assert_eq!(news, expected);
    }
}
