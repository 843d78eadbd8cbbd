//! Output of commands: data and secrets go to standard output, prose to standard error.

use std::fmt::Display;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::ErrorKind;
use comfy_table::presets::NOTHING;
use comfy_table::{ContentArrangement, Table};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::config::terminal;
use crate::failure::Failure;

/// Where help shows `--json`: after the options of a command, before `--help`.
pub(super) const JSON_POSITION: usize = 900;

/// Whether results are printed as JSON: the flag `--json` of every command.
static IS_JSON: AtomicBool = AtomicBool::new(false);

/// ` --data-dir FOLDER`, if the command has it.
static DATA_DIR_FLAG: OnceLock<String> = OnceLock::new();

/// Before a command runs, so that the commands which it names find the same installation.
pub(super) fn set_data_dir_flag(flag: String) {
    let _ = DATA_DIR_FLAG.set(flag);
}

/// The text, in which each command in backticks has the flag `--data-dir` of this one. Names in the
/// text may have backticks too.
pub(super) fn with_data_dir(text: &str) -> String {
    with_flag(text, DATA_DIR_FLAG.get().map_or("", String::as_str))
}

fn with_flag(text: &str, flag: &str) -> String {
    const BEGIN: &str = "`bellbird ";
    let mut parts = text.split(BEGIN);
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part.split_once('`') {
            Some((command, rest)) => shown.extend([BEGIN, command, flag, "`", rest]),
            None => shown.extend([BEGIN, part]),
        }
    }
    shown
}

/// Before a command runs.
pub(super) fn set_json(is_json: bool) {
    IS_JSON.store(is_json, Ordering::Relaxed);
}

pub(super) fn is_json() -> bool {
    IS_JSON.load(Ordering::Relaxed)
}

/// Why a command failed: the member `error` of what it prints with `--json`.
#[derive(Debug, Serialize)]
pub(super) struct ErrorView {
    message: String,
    /// `not_found` or `database_unavailable`; omitted for every other failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    code: Option<&'static str>,
    /// All of several reasons. The message is the first one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    details: Vec<String>,
}

impl ErrorView {
    /// With the code of the error, if it has one.
    pub(super) fn with_code(reasons: &[String], error: &anyhow::Error) -> Option<Self> {
        let code = error.downcast_ref::<Failure>().map(|failure| failure.code);
        Self::of(reasons).map(|view| Self { code, ..view })
    }

    /// `None` if there is no reason.
    pub(super) fn of(reasons: &[String]) -> Option<Self> {
        let (first, more) = reasons.split_first()?;
        let details = if more.is_empty() {
            Vec::new()
        } else {
            reasons.to_vec()
        };
        Some(Self {
            message: first.clone(),
            code: None,
            details,
        })
    }
}

/// What a command without a result of its own prints with `--json` if it fails.
#[derive(Serialize)]
struct FailureView {
    error: Option<ErrorView>,
}

/// A wrong use of a command that the argument parser does not find. Exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct UsageError(pub String);

/// A failure that the command itself has printed.
#[derive(Debug, thiserror::Error)]
#[error("the command failed")]
pub(super) struct AlreadyPrinted;

/// A record with further members, for `--json`.
#[derive(Serialize)]
pub(super) struct WithMembers<R> {
    #[serde(flatten)]
    record: R,
    #[serde(flatten)]
    more: Value,
}

/// `more`: an object.
pub(super) fn with_members<R: Serialize>(record: R, more: Value) -> WithMembers<R> {
    WithMembers { record, more }
}

/// Prints the value as one line of JSON, or as the data that `text` returns.
pub(super) fn print<T: Serialize>(
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    let text = if is_json() {
        serde_json::to_string(value)?
    } else {
        text(value)
    };
    print_text(&text)
}

/// As [`print`], and prose about the data on standard error after it. Either may be empty. A secret
/// is alone on standard output, where a script can keep it.
pub(super) fn print_with_note(
    value: &impl Serialize,
    data: &str,
    prose: &str,
) -> anyhow::Result<()> {
    if is_json() || !data.is_empty() {
        print(value, |_| data.to_owned())?;
    }
    if !is_json() && !prose.is_empty() {
        note(prose);
    }
    Ok(())
}

/// Says on standard error what was done. With `--json`, prints the value instead.
pub(super) fn print_done<T: Serialize>(
    value: &T,
    prose: impl FnOnce(&T) -> String,
) -> anyhow::Result<()> {
    print_with_note(value, "", &prose(value))
}

/// Prints a list as a table, and prose about its rows on standard error. An empty list is prose.
pub(super) fn print_list<T: Serialize, const N: usize>(
    items: &[T],
    none: &str,
    head: [&str; N],
    row: impl Fn(&T) -> [String; N],
    prose: &[String],
) -> anyhow::Result<()> {
    let (data, none) = if items.is_empty() {
        (String::new(), Some(none))
    } else {
        (table(head, items.iter().map(row)), None)
    };
    let prose: Vec<_> = none
        .into_iter()
        .chain(prose.iter().map(String::as_str))
        .collect();
    print_with_note(&items, &data, &prose.join("\n"))
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
    let _ = writeln!(io::stderr().lock(), "{}", with_data_dir(text));
}

/// Prints errors on standard error, after the result. Fails if there are any.
pub(super) fn finish(errors: &[String]) -> anyhow::Result<()> {
    print_errors(errors);
    if errors.is_empty() {
        Ok(())
    } else {
        Err(AlreadyPrinted.into())
    }
}

fn print_errors(errors: &[String]) {
    for error in errors {
        note(&format!("error: {error}"));
    }
}

/// Progress line on standard error, shown only on a terminal. It is overwritten by each update and
/// erased at the end.
pub(super) struct Progress {
    label: &'static str,
    done: u64,
    total: u64,
    shown: bool,
}

impl Progress {
    /// A `total` of 0 is unknown.
    pub(super) fn new(label: &'static str, total: u64) -> Self {
        Self {
            label,
            done: 0,
            total,
            shown: terminal::stderr_is_terminal(),
        }
    }

    pub(super) fn add(&mut self, done: u64) {
        self.done += done;
        if self.shown {
            let total = match self.total {
                0 => String::new(),
                total => format!(" of {}", total.max(self.done)),
            };
            let _ = write!(io::stderr().lock(), "\r{}{total} {}", self.done, self.label);
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

/// Prints help on standard output, or a wrong usage on standard error.
pub(super) fn report_usage(error: &clap::Error) -> ExitCode {
    let _ = error.print();
    if error.use_stderr() {
        let text = match error.kind() {
            ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
                let text = error.to_string();
                let usage = text
                    .lines()
                    .find_map(|line| line.strip_prefix("Usage: "))
                    .unwrap_or("bellbird");
                let is_name = |word: &&str| !word.starts_with(['<', '[']);
                let command: Vec<_> = usage.split(' ').take_while(is_name).collect();
                format!("a command is missing: see `{} --help`", command.join(" "))
            }
            _ => error.to_string(),
        };
        let message = text
            .split("\n\n")
            .next()
            .unwrap_or_default()
            .trim_start_matches("error: ");
        let words: Vec<_> = message.split_whitespace().collect();
        print_failure(ErrorView::of(&[words.join(" ")]));
    }
    u8::try_from(error.exit_code()).map_or(ExitCode::FAILURE, ExitCode::from)
}

fn print_failure(error: Option<ErrorView>) {
    if is_json() {
        // If standard output is gone, the exit status still shows the failure.
        let _ = print(&FailureView { error }, |_| String::new());
    }
}

/// Prints the error and its causes on one line. Errors of several settings get a line each.
pub(super) fn report_failure(error: &anyhow::Error) -> ExitCode {
    if error.is::<AlreadyPrinted>() {
        return ExitCode::FAILURE;
    }
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        // Some errors repeat their cause in their own text.
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    let lines: Vec<_> = text.lines().map(str::to_owned).collect();
    print_failure(ErrorView::with_code(&lines, error));
    print_errors(&lines);
    if error.is::<UsageError>() {
        ExitCode::from(2)
    } else {
        ExitCode::FAILURE
    }
}

/// The cells of a row of a table.
macro_rules! row {
    ($($cell:expr),+ $(,)?) => {
        [$($cell.to_string()),+]
    };
}
pub(super) use row;

/// Formats a table without borders, readable on a terminal and easy to split with `awk`.
pub(super) fn table<const N: usize>(
    head: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(head.map(str::to_uppercase));
    table.add_rows(rows);
    let text = table.to_string();
    let lines: Vec<_> = text
        .lines()
        .map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end())
        .collect();
    lines.join("\n")
}

/// Formats names and values, one pair per line.
pub(super) fn details(pairs: &[(&str, &dyn Display)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0) + 2;
    let lines: Vec<_> = pairs
        .iter()
        .map(|(name, value)| format!("{name:width$}{value}"))
        .collect();
    lines.join("\n")
}

/// Formats a number of things: `1 key`, `2 keys`.
pub(super) fn count(number: u64, one: &str, several: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { several })
}

/// Formats a list that may be empty.
pub(super) fn or_none(list: String) -> String {
    if list.is_empty() {
        "none".to_owned()
    } else {
        list
    }
}

/// Formats how often something was tried.
pub(super) fn times(attempts: u32) -> String {
    if attempts == 1 {
        "once".to_owned()
    } else {
        format!("{attempts} times")
    }
}

/// Formats an instant to the second; `None` is a dash.
pub(super) fn format_instant(instant: impl Into<Option<Timestamp>>) -> String {
    or_dash(instant.into().map(|instant| format!("{instant:.0}")))
}

/// Formats a value that may be absent.
pub(super) fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_in_backticks_get_the_flag() {
        let text = "run `bellbird user list` or `systemctl start bellbird`, see `bellbird key";
        assert_eq!(with_flag(text, ""), text);
        let shown = with_flag(
            "a`b: `bellbird init`: run `x`, then `bellbird user list`.",
            " -d y",
        );
        let expected = "a`b: `bellbird init -d y`: run `x`, then `bellbird user list -d y`.";
        assert_eq!(shown, expected);
    }
}
