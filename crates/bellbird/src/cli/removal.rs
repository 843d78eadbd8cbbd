//! What the commands that remove something share: they say what they remove, and ask before they do
//! it.

use std::io::BufRead as _;

use anyhow::bail;
use clap::Args;
use serde::Serialize;

use super::output::{self, UsageError};
use crate::config::terminal;

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
    /// Whether to remove it now: with `--dry-run`, only prints the plan, else shows on the terminal
    /// what will be removed, and asks. Any answer but yes is an error.
    pub(super) fn confirm(self, plan: &impl Serialize, description: &str) -> anyhow::Result<bool> {
        if self.dry_run {
            return output::print(plan, |_| format!("{description}\n\nNothing was changed."))
                .map(|()| false);
        }
        if self.yes || output::is_json() {
            return Ok(true);
        }
        if !terminal::stdin_is_terminal() {
            let text = "removing needs a confirmation, and standard input is no terminal: pass --yes to remove, or \
                        --dry-run to see what would be removed";
            bail!(UsageError(text.to_owned()));
        }
        output::note(description);
        output::ask("\nRemove this? [y/N] ");
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        if !matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
            bail!("nothing was removed");
        }
        Ok(true)
    }
}
