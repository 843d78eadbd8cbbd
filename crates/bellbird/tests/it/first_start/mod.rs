//! A service that starts where there are neither settings nor a key nor a database, and
//! `bellbird init`.

mod folder;
mod init;
mod interrupted;
mod sandbox;

use std::path::{Path, PathBuf};

use crate::support::process::Workdir;

/// The files of a whole installation.
const FILES: [&str; 3] = ["master.key", "bellbird.db", "bellbird.toml"];

fn key(workdir: &Workdir) -> String {
    std::fs::read_to_string(workdir.data_folder().join("master.key")).unwrap()
}

/// The names in a folder that no complete installation has.
fn leftovers(folder: &Path) -> Vec<PathBuf> {
    let is_leftover = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_string_lossy();
        name == "first-start" || name.starts_with('.')
    };
    let entries = std::fs::read_dir(folder).unwrap();
    entries
        .map(|entry| entry.unwrap().path())
        .filter(is_leftover)
        .collect()
}
