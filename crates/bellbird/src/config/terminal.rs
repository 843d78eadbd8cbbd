//! Detects a terminal and its colours. Only this module and the settings read environment
//! variables.

use std::io::IsTerminal as _;

#[must_use]
pub fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

#[must_use]
pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether somebody sits here who would see a browser open.
#[must_use]
pub fn has_browser() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stderr_is_terminal()
        && (cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"))
}

/// True if standard error is a terminal and `NO_COLOR` is unset or empty.
#[must_use]
pub fn stderr_wants_colour() -> bool {
    stderr_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
