//! The source of a setting's value, as error messages name it.

use std::fmt;
use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The settings file and a line number.
    File(PathBuf, usize),
    /// An environment variable.
    Variable(String),
    Flag(&'static str),
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path, line) => write!(out, "{}, line {line}", path.display()),
            Self::Variable(name) => write!(out, "the environment variable {name}"),
            Self::Flag(name) => write!(out, "the flag {name}"),
        }
    }
}
