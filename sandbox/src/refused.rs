//! The error of everything that a test or a demo changes.

use std::fmt;

/// Why a change was not made.
#[derive(Debug)]
pub struct Refused(String);

impl Refused {
    pub(crate) fn unknown(what: &str, id: &str) -> Self {
        Self(format!("there is no {what} {id:?}"))
    }
}

impl<T: Into<String>> From<T> for Refused {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}
