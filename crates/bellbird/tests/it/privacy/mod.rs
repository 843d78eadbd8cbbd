//! Tests that the service stores and logs no row, no secret, and nothing of a removed connection.

mod answers;
mod audit;
mod erasure;
mod memory;
mod pending_events;
mod record;

use std::path::Path;

/// Shorter texts occur in times and ids by chance.
const LENGTH_MIN: usize = 6;

/// Every file below a folder, with its content.
pub(crate) fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
        }
    }
    found
}

pub(crate) fn contains(bytes: &[u8], text: &str) -> bool {
    memchr::memmem::find(bytes, text.as_bytes()).is_some()
}
