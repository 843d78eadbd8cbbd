//! Questions on a terminal, such as the one before something is removed.

use std::io::{self, BufRead as _, Write as _};

use anyhow::bail;
use clap::Args;
use secrecy::SecretString;
use serde::Serialize;

use super::output::{self, UsageError};
use crate::config::terminal;

/// What is typed, with the end of the line. Empty at the end of standard input.
fn read(question: &str) -> io::Result<String> {
    let mut out = io::stderr();
    let _ = write!(out, "{question}").and_then(|()| out.flush());
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    Ok(line)
}

/// The line that is typed, without the spaces around it. The end of standard input is an error.
pub(super) fn line(question: &str) -> anyhow::Result<String> {
    let line = read(question)?;
    if line.is_empty() {
        bail!("no answer, so nothing was made");
    }
    Ok(line.trim().to_owned())
}

/// As [`line`], without showing what is typed.
pub(super) fn secret(question: &str) -> anyhow::Result<SecretString> {
    let hidden = terminal::hide_input();
    let text = line(question);
    drop(hidden);
    output::note("");
    text.map(SecretString::from)
}

/// Asks until there is an answer that can be parsed. The error completes "that".
pub(super) fn until<T>(
    question: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> anyhow::Result<T> {
    loop {
        match parse(&line(question)?) {
            Ok(value) => return Ok(value),
            Err(error) => output::note(&format!("That {error}.")),
        }
    }
}

/// What is asked on a terminal before something is lost.
pub(super) struct Question {
    pub text: &'static str,
    /// How to say it without a terminal.
    pub flags: &'static str,
    /// What happened if the answer is not yes.
    pub declined: &'static str,
}

impl Question {
    /// Shows on the terminal what will be done, and asks, unless `--yes` or `--json` is the answer.
    /// Any answer but yes is an error.
    pub(super) fn ask(&self, yes: bool, description: &str) -> anyhow::Result<()> {
        if yes || output::is_json() {
            return Ok(());
        }
        if !terminal::stdin_is_terminal() {
            bail!(UsageError(self.flags.to_owned()));
        }
        output::note(description);
        let answer = read(&format!("\n{} [y/N] ", self.text))?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            bail!(self.declined);
        }
        Ok(())
    }
}

const REMOVAL: Question = Question {
    text: "Remove this?",
    flags: "removing needs a confirmation, and standard input is no terminal: pass --yes to remove, or --dry-run to \
            see what would be removed",
    declined: "nothing was removed",
};

/// Flags of commands that remove something.
#[derive(Clone, Copy, Args)]
pub(super) struct RemovalArgs {
    /// Remove without asking. Needed where there is no terminal to ask on, unless --json is set
    #[arg(long)]
    yes: bool,

    /// Show what would be removed, and change nothing
    #[arg(long, conflicts_with = "yes")]
    dry_run: bool,
}

impl RemovalArgs {
    pub(super) fn is_dry_run(self) -> bool {
        self.dry_run
    }

    /// Whether to remove it now: with `--dry-run`, only prints the plan, else asks.
    pub(super) fn confirm(self, plan: &impl Serialize, description: &str) -> anyhow::Result<bool> {
        if self.dry_run {
            output::print_with_note(plan, description, "Nothing was changed.")?;
            return Ok(false);
        }
        REMOVAL.ask(self.yes, description).map(|()| true)
    }
}
