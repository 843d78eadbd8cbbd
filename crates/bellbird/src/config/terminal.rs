//! Detects a terminal and its colours. Only this module and the settings read environment
//! variables.

use std::io::IsTerminal as _;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

pub fn stdin_is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

pub fn stdout_is_terminal() -> bool {
    std::io::stdout().is_terminal()
}

pub fn stderr_is_terminal() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether somebody sits here who would see a browser open.
pub fn has_browser() -> bool {
    let is_set = |name| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    stderr_is_terminal()
        && (cfg!(target_os = "macos") || is_set("DISPLAY") || is_set("WAYLAND_DISPLAY"))
}

/// True if standard error is a terminal and `NO_COLOR` is unset or empty.
pub fn stderr_wants_colour() -> bool {
    stderr_is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Stops the terminal from showing what is typed, until it is dropped. `None` without a terminal.
pub fn hide_input() -> Option<HiddenInput> {
    let shown = tcgetattr(std::io::stdin()).ok()?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(std::io::stdin(), OptionalActions::Flush, &hidden).ok()?;
    Some(HiddenInput(shown))
}

/// The terminal's settings to go back to.
pub struct HiddenInput(Termios);

impl Drop for HiddenInput {
    fn drop(&mut self) {
        let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, &self.0);
    }
}
