//! Names the database of a URL. Never shows a user's password.

use std::path::{PathBuf, absolute};

use crate::db::postgres;

/// The path of a SQLite file as a URL names it: the text after `sqlite:`. Two slashes before it are skipped, because
/// other programs write them.
pub(crate) fn sqlite_path(url: &str) -> Option<PathBuf> {
    let text = url.strip_prefix("sqlite:")?;
    Some(PathBuf::from(text.strip_prefix("//").unwrap_or(text)))
}

/// Names the database of a URL, without user and password: `SQLite database /var/lib/bellbird.db`.
pub(crate) fn location(url: &str) -> String {
    match sqlite_path(url) {
        Some(path) => format!("SQLite database {}", absolute(&path).unwrap_or(path).display()),
        None => postgres::location(url).unwrap_or_else(|| "database".to_owned()),
    }
}
