//! `bellbird completions`: prints shell completion scripts.

use clap::Args;
use clap_complete::Shell;

use super::output;

/// Print a shell completion script.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird completions bash > ~/.local/share/bash-completion/completions/bellbird")]
pub(super) struct CompletionsArgs {
    /// Shell to generate the script for
    shell: Shell,
}

pub(super) fn run(args: &CompletionsArgs, command: &mut clap::Command) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, command, "bellbird", &mut script);
    output::print(&String::from_utf8_lossy(&script), ToString::to_string)
}
