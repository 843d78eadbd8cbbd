//! `bellbird man`: writes the manual pages that packages contain.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;

/// Write a manual page for each command into a folder.
#[derive(Args)]
pub(super) struct ManArgs {
    /// An existing folder
    folder: PathBuf,
}

pub(super) fn run(args: &ManArgs, command: clap::Command) -> anyhow::Result<()> {
    clap_mangen::generate_to(command, &args.folder)
        .with_context(|| format!("could not write into the folder {}", args.folder.display()))
}
