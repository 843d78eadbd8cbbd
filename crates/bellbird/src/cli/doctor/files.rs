//! Checks who may open the files that hold secrets: the database, the settings and key files.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use bellbird_storage::Storage;
use secrecy::ExposeSecret as _;

use super::Checks;
use crate::config::{Origin, Settings};

const NAME: &str = "files";

/// Users to whom the file does not belong, nor to their group. A group may be the operator's
/// choice.
const OTHERS: u32 = 0o007;

pub(super) fn check(checks: &mut Checks, settings: &Settings) {
    let mut files = database_files(settings);
    files.extend(secret_files(settings));
    let mut all_closed = true;
    for path in files {
        let Ok(metadata) = std::fs::metadata(&path) else {
            continue;
        };
        let mode = metadata.permissions().mode() & 0o777;
        if mode & OTHERS != 0 {
            all_closed = false;
            let path = path.display();
            let detail = format!(
                "every user of this machine may open {path} (mode {mode:04o}): run `chmod o= {path}`"
            );
            checks.note(NAME, detail);
        }
    }
    if all_closed {
        checks.ok(
            NAME,
            "database, settings and keys are closed to other users of this machine",
        );
    }
}

/// The files of SQLite.
pub(in crate::cli) fn database_files(settings: &Settings) -> BTreeSet<PathBuf> {
    let Some(path) = Storage::sqlite_path(settings.database.url.expose_secret()) else {
        return BTreeSet::new();
    };
    let with_end = |end: &&str| {
        let mut path = path.clone().into_os_string();
        path.push(end);
        PathBuf::from(path)
    };
    ["", "-wal", "-shm"].iter().map(with_end).collect()
}

/// Settings files with a secret in them, and files of one secret.
fn secret_files(settings: &Settings) -> BTreeSet<PathBuf> {
    let has_password = !settings.database.url.expose_secret().starts_with("sqlite:");
    let names = Settings::secret_names()
        .into_iter()
        .filter(|name| has_password || name != "database.url");
    let origins = names.filter_map(|name| settings.origin(&name).cloned());
    let files = origins.filter_map(|origin| match origin {
        Origin::File(path, _) | Origin::SecretFile(path) => Some(path),
        Origin::Variable(_) | Origin::Flag(_) => None,
    });
    files.collect()
}
