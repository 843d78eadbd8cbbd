//! What the commands that remove something share: they say what they remove, and ask before they do it.

use std::io::BufRead as _;

use anyhow::bail;
use clap::Args;

use super::output::{self, JsonFlag, UsageError};
use crate::config::terminal;

/// Flags of commands that remove something.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct RemovalArgs {
    /// Remove without asking. Needed where there is no terminal to ask on, unless --json is set
    #[arg(long)]
    yes: bool,

    /// Show what would be removed, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub(super) dry_run: bool,
}

impl RemovalArgs {
    /// Shows on the terminal what will be removed, and asks. Returns an error unless the answer is yes.
    pub(super) fn confirm(self, format: JsonFlag, description: &str) -> anyhow::Result<()> {
        if self.yes || format.json {
            return Ok(());
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
        Ok(())
    }
}

/// The text of `--dry-run`.
pub(super) fn dry_run_text(description: &str) -> String {
    format!("{description}\n\nNothing was changed.")
}
