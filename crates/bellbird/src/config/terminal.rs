//! What the terminal can show. The only other place, beside the settings, that looks at the environment.

use std::io::IsTerminal as _;

/// Standard error is a terminal.
#[must_use]
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Colour may be written to standard error: it is a terminal, and `NO_COLOR` is unset or empty.
#[must_use]
pub fn stderr_wants_colour() -> bool {
    stderr_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
