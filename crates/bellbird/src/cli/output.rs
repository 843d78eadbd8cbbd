//! What commands print: results to standard output, everything else to standard error.

use std::io::{self, Write};
use std::process::ExitCode;

use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;

use crate::config::terminal;

/// The flag of every command that prints data.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct JsonFlag {
    /// Print one JSON value on standard output, and nothing else there
    #[arg(long)]
    pub(super) json: bool,
}

/// Prints the value as one line of JSON, or else what `text` makes of it.
pub(super) fn print<T: Serialize>(format: JsonFlag, value: &T, text: impl FnOnce(&T) -> String) -> anyhow::Result<()> {
    let text = if format.json { serde_json::to_string(value)? } else { text(value) };
    print_text(&text)
}

/// Prints text and the end of its last line. A reader that has gone away is no error: it has had enough.
pub(super) fn print_text(text: &str) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// A remark for the person at the terminal.
pub(super) fn note(text: &str) {
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// How far something is, on a terminal and nowhere else: one line that is written over, and gone in the end.
pub(super) struct Progress {
    what: &'static str,
    done: u64,
    total: u64,
    shown: bool,
}

impl Progress {
    pub(super) fn new(what: &'static str, total: u64) -> Self {
        Self { what, done: 0, total, shown: terminal::stderr_is_terminal() }
    }

    pub(super) fn add(&mut self, done: u64) {
        self.done += done;
        if self.shown {
            let _ = write!(io::stderr().lock(), "\r{} of {} {}", self.done, self.total.max(self.done), self.what);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            // Back to the start of the line, which is cleared.
            let _ = write!(io::stderr().lock(), "\r\x1b[K");
        }
    }
}

/// Tells the error, its causes behind it, in one sentence; one line for each wrong setting.
pub(super) fn failed(error: &anyhow::Error) -> ExitCode {
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

/// A table without lines, which a terminal shows well and `awk` splits.
pub(super) fn table<const N: usize>(head: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.map(str::to_uppercase));
    table.add_rows(rows);
    let text = table.to_string();
    let lines: Vec<_> = text.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n")
}

/// Names and values, one a line.
pub(super) fn details(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    let lines: Vec<_> = pairs.iter().map(|(name, value)| format!("{name:width$}{value}")).collect();
    lines.join("\n")
}

/// An instant for people: to the second.
pub(super) fn when(instant: Option<Timestamp>) -> String {
    instant.map_or_else(|| "-".to_owned(), |instant| format!("{instant:.0}"))
}
