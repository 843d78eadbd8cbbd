//! Explains why a database does not open: names the file or the server, says why, and what to do.
//! Never shows a user's password.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf, absolute};

use rusqlite::ErrorCode;

use crate::db::postgres::{NO_RESPONSE, ServerError};
use crate::db::postgres_url;
use crate::error::StorageError;

/// The path of a SQLite file as a URL names it: the text after `sqlite:`. Two slashes before it are
/// skipped, because other programs write them.
pub(crate) fn sqlite_path(url: &str) -> Option<PathBuf> {
    let text = url.strip_prefix("sqlite:")?;
    Some(PathBuf::from(text.strip_prefix("//").unwrap_or(text)))
}

/// As [`sqlite_path`]. A path that names no file is an error.
pub(crate) fn sqlite_file(url: &str) -> Result<Option<PathBuf>, StorageError> {
    match sqlite_path(url) {
        Some(path)
            if path.as_os_str().is_empty()
                || path.as_os_str().as_encoded_bytes().starts_with(b":memory:") =>
        {
            Err(StorageError::BadUrl(
                "sqlite: needs the path of a file, as in sqlite:bellbird.db".to_owned(),
            ))
        }
        path => Ok(path),
    }
}

/// Names the database of a URL, without user and password: `SQLite database /var/lib/bellbird.db`.
pub(crate) fn location(url: &str) -> String {
    match sqlite_path(url) {
        Some(path) => format!(
            "SQLite database {}",
            absolute(&path).unwrap_or(path).display()
        ),
        None => postgres_url::location(url).unwrap_or_else(|| "database".to_owned()),
    }
}

/// Adds to an error of opening what the operator has to know. Each text ends with the setting to
/// correct.
pub(crate) fn explain(url: &str, error: StorageError) -> StorageError {
    let StorageError::Unavailable(source) = &error else {
        return error;
    };
    let (reason, advice) = match sqlite_path(url) {
        Some(path) => match sqlite_reason(&absolute(&path).unwrap_or(path), source.as_ref()) {
            Some(found) => found,
            None => return StorageError::Missing(location(url)),
        },
        None => postgres_reason(source.as_ref()),
    };
    StorageError::Open(format!(
        "could not open the {} ({reason}): {advice}, or correct database.url",
        location(url)
    ))
}

/// Returns the reason, and what to do. `None` if the file does not exist.
fn sqlite_reason(
    path: &Path,
    source: &(dyn Error + Send + Sync + 'static),
) -> Option<(String, &'static str)> {
    let folder = path.parent().unwrap_or(Path::new("/"));
    if !folder.is_dir() {
        return Some((
            format!("the folder {} does not exist", folder.display()),
            "create the folder",
        ));
    }
    if path.is_dir() {
        return Some(("it is a folder".to_owned(), "name a file in it"));
    }
    let code = source
        .downcast_ref::<rusqlite::Error>()
        .and_then(rusqlite::Error::sqlite_error_code);
    let kind = source.downcast_ref::<io::Error>().map(io::Error::kind);
    Some(match (code, kind) {
        (_, Some(ErrorKind::NotFound)) => return None,
        (Some(ErrorCode::NotADatabase), _) => (
            "the file is not a SQLite database".to_owned(),
            "name another file",
        ),
        (_, Some(ErrorKind::ReadOnlyFilesystem)) => (
            "the file system is read-only".to_owned(),
            "mount it writable",
        ),
        (Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied | ErrorCode::ReadOnly), _)
        | (_, Some(ErrorKind::PermissionDenied)) => (
            "permission denied".to_owned(),
            "run the command as the user of the service, who can write to the file and its folder",
        ),
        (Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked), _) => (
            "another process keeps it locked".to_owned(),
            "end that process",
        ),
        (_, Some(ErrorKind::StorageFull)) => ("the disk is full".to_owned(), "make space"),
        (Some(ErrorCode::DatabaseCorrupt), _) => (
            chain(source),
            "check the disk, and restore a backup with `bellbird restore`",
        ),
        _ => (chain(source), "check the disk and its free space"),
    })
}

/// Returns the reason, and what to do.
fn postgres_reason(source: &(dyn Error + Send + Sync + 'static)) -> (String, &'static str) {
    if let Some(server) = source.downcast_ref::<ServerError>() {
        let advice = match server.code.as_str() {
            "28P01" | "28000" => "correct user and password",
            "3D000" => "create the database with `createdb`",
            "53300" => "lower database.pool_size or raise max_connections",
            "57P03" => "wait until the server has started",
            _ => "see the server's log",
        };
        return (server.to_string(), advice);
    }
    let text = chain(source);
    match io_error(source).map(io::Error::kind) {
        Some(ErrorKind::ConnectionRefused) => {
            return ("connection refused".to_owned(), "start the server");
        }
        Some(ErrorKind::NotFound) => {
            return ("no server has this socket".to_owned(), "start the server");
        }
        Some(ErrorKind::TimedOut) => {
            return (
                NO_RESPONSE.to_owned(),
                "check the network and its firewalls",
            );
        }
        Some(ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable) => {
            return (
                "the network does not reach the host".to_owned(),
                "check the network",
            );
        }
        _ => {}
    }
    let advice = if text.contains("server does not support TLS") {
        "enable TLS at the server, allow plain text with `sslmode=disable`"
    } else if text.contains("TLS") || text.contains("certificate") {
        "give the server a certificate for this host name that the system trusts"
    } else if text.contains("password missing") {
        "add the password"
    } else if text.contains("lookup address") {
        "check the host name and the DNS"
    } else if text == NO_RESPONSE {
        "check the network and its firewalls"
    } else {
        "check the server"
    };
    (text, advice)
}

fn io_error<'e>(source: &'e (dyn Error + 'static)) -> Option<&'e io::Error> {
    causes(source).find_map(|error| error.downcast_ref())
}

/// The error and its causes. Some repeat their cause in their own text.
fn chain(source: &(dyn Error + 'static)) -> String {
    let texts = causes(source).map(ToString::to_string);
    texts
        .reduce(|text, cause| {
            if text.contains(&cause) {
                text
            } else {
                format!("{text}: {cause}")
            }
        })
        .unwrap_or_default()
}

fn causes<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    std::iter::successors(Some(error), |&error| error.source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Chain;

    #[test]
    fn disk_is_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("b.db");
        // Already of the locks.
        let error = io::Error::from(ErrorKind::ReadOnlyFilesystem);
        let (reason, advice) = sqlite_reason(&path, &error).unwrap();
        let expected = ("the file system is read-only", "mount it writable");
        assert_eq!((&*reason, advice), expected);
        // As SQLite reports it.
        let database = rusqlite::Connection::open(&path).unwrap();
        database
            .execute_batch("PRAGMA max_page_count = 2; CREATE TABLE one (text TEXT)")
            .unwrap();
        let error = database
            .execute_batch("INSERT INTO one VALUES (hex(zeroblob(100000)))")
            .unwrap_err();
        let error = StorageError::from(error);
        let shown = "the database is not available: the disk is full: make space";
        assert_eq!(Chain(&error).to_string(), shown);
        let StorageError::Unavailable(source) = error else {
            unreachable!("it is not a conflict");
        };
        let (reason, advice) = sqlite_reason(&path, source.as_ref()).unwrap();
        assert_eq!((&*reason, advice), ("the disk is full", "make space"));
    }
}
