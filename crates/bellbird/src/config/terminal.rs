//! Detects a terminal and its colours. Only this module and the settings read environment variables.

use std::io::IsTerminal as _;

#[must_use]
pub fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

#[must_use]
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// True if standard error is a terminal and `NO_COLOR` is unset or empty.
#[must_use]
pub fn stderr_wants_colour() -> bool {
    stderr_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
