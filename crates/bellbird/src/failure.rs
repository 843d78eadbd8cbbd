//! Failures of commands with a code for scripts.

use std::fmt;

/// A failure with a code, which `--json` prints.
#[derive(Debug)]
pub struct Failure {
    pub code: &'static str,
    message: String,
}

impl Failure {
    /// A user, key, connection, endpoint or event that does not exist.
    #[must_use]
    pub fn not_found(message: String) -> anyhow::Error {
        Self {
            code: "not_found",
            message,
        }
        .into()
    }

    /// The database does not open, or is not set up.
    #[must_use]
    pub fn database(message: String) -> anyhow::Error {
        Self {
            code: "database_unavailable",
            message,
        }
        .into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}
