//! Output of commands: results go to standard output, everything else to standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;

use crate::config::terminal;

/// The `--json` flag of every command that prints data.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct JsonFlag {
    /// Print a single JSON value on standard output
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints the value as one line of JSON, or as the text that `text` returns.
pub(super) fn print<T: Serialize>(format: JsonFlag, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
    let text = if format.json { serde_json::to_string(value)? } else { text(value) };
    print_text(&text)
}

/// Prints text with a final newline. A closed pipe is not an error: the reader has read enough.
pub(super) fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Prints a remark on standard error.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Progress line on standard error, shown only on a terminal. It is overwritten by each update and erased at the end.
pub(super) struct Progress {
    label: &'static str,
    done: u64,
    total: u64,
    shown: bool,
}

impl Progress {
    pub(super) fn new(label: &'static str, total: u64) -> Self {
        Self { label, done: 0, total, shown: terminal::stderr_is_terminal() }
    }

    pub(super) fn add(&mut self, done: u64) {
        self.done += done;
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r{} of {} {}", self.done, self.total.max(self.done), self.label);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            // Return to the start of the line and clear it.
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Prints the error and its causes on one line. Errors of several settings get a line each.
pub(super) fn report_failure(error: &anyhow::Error) -> ExitCode {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors repeat their cause in their own text.
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    for line in text.lines() {
        note(&format!("error: {line}"));
    }
    ExitCode::FAILURE
}

/// Formats a table without borders, readable on a terminal and easy to split with `awk`.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.map(str::to_uppercase));
    table.add_rows(rows);
    let text = table.to_string();
    let lines: Vec<_> = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n")
}

/// Formats names and values, one pair per line.
pub(super) fn details(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    let lines: Vec<_> = pairs.iter().map(|(name, value)| format!("{name:width$}{value}")).collect();
    lines.join("\n")
}

/// Formats an instant to the second; `None` is a dash.
pub(super) fn format_instant(instant: Option<Timestamp>) -> String {
    instant.map_or_else(|| "-".to_owned(), |instant| format!("{instant:.0}"))
}
