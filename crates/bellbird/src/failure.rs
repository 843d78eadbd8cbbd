//! Failures of commands with a code for scripts.

use std::fmt::Display;

/// A failure with a code, which `--json` prints.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    pub code: &'static str,
    message: String,
}

impl Failure {
    /// A user, key, connection, endpoint or event that does not exist.
    pub fn not_found(message: String) -> anyhow::Error {
        Self {
            code: "not_found",
            message,
        }
        .into()
    }

    /// As [`Self::not_found`], for an id. `list` is the command that shows those that exist.
    pub fn unknown_id(noun: &str, id: impl Display, list: &str) -> anyhow::Error {
        Self::not_found(format!(
            "there is no {noun} {id}: `bellbird {list}` shows the ids"
        ))
    }

    /// The database does not open, or is not set up.
    pub fn database(message: String) -> anyhow::Error {
        Self {
            code: "database_unavailable",
            message,
        }
        .into()
    }
}
