//! `bellbird backup`: copies the SQLite database to a file.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bellbird_storage::{AuditAction, SealedSecrets, Storage, StorageError};
use clap::Args;
use jiff::Timestamp;
use jiff::civil::DateTime;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::json;

use super::actor;
use super::arguments::SettingArgs;
use super::output::{self, count};
use crate::config::Settings;
use crate::wiring;

/// The name of a backup in a folder. With milliseconds, so that two of a second have names of their
/// own.
const NAME: &str = "bellbird-%Y%m%dT%H%M%S%.3fZ.db";

/// Copy the SQLite database to a new file, also while the service runs.
///
/// With --keep, PATH is a folder, which is made if needed. The file gets a name with the time, and
/// of the files that the command made there before, the newest N stay. `bellbird-backup.timer` of
/// the package runs this every day.
///
/// The file has mode 0600, and is checked before it gets its name. An existing file is never
/// overwritten. The command prints which master keys a restore needs: keep them for as long as you
/// keep the backup. On PostgreSQL it prints the `pg_dump` command to use instead.
///
/// The metric `bellbird_backup_age_seconds` says how old the last backup is. With --made-elsewhere,
/// another program such as `pg_dump` has made one, and the command only records that.
#[derive(Args)]
#[command(after_long_help = "Examples:
  bellbird backup /backups/bellbird-$(date +%F).db
  bellbird backup --keep 14 /backups
  pg_dump --format=custom --file=bellbird.dump && bellbird backup --made-elsewhere")]
pub(super) struct BackupArgs {
    /// The file to create, or with --keep the folder
    #[arg(required_unless_present = "made_elsewhere")]
    path: Option<PathBuf>,

    /// Keep this many backups in the folder, with the new one
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    keep: Option<u16>,

    /// Only record that another program has made a backup now
    #[arg(long, conflicts_with_all = ["path", "keep"])]
    made_elsewhere: bool,
}

/// A master key that a backup needs.
#[derive(Serialize)]
pub(super) struct NeededKey {
    pub id: String,
    pub secrets: u64,
    /// Whether it is in secrets.key now.
    pub configured: bool,
}

pub(super) async fn run(settings: &SettingArgs, args: &BackupArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = wiring::open_storage(&settings).await?;
    let result = match &args.path {
        Some(path) => back_up(&settings, &storage, args, path).await,
        None => record_elsewhere(&storage).await,
    };
    storage.close().await;
    result
}

async fn record_elsewhere(storage: &Storage) -> anyhow::Result<()> {
    record(storage).await?;
    output::print_done(&json!({"recorded": true}), |_| {
        "Recorded a backup that was made elsewhere.".to_owned()
    })
}

/// The start of `bellbird_backup_age_seconds`.
async fn record(storage: &Storage) -> Result<(), StorageError> {
    actor::record(storage, &AuditAction::of_installation("database.backup")).await
}

async fn back_up(
    settings: &Settings,
    storage: &Storage,
    args: &BackupArgs,
    folder: &Path,
) -> anyhow::Result<()> {
    let path = match args.keep {
        Some(_) => folder.join(Timestamp::now().strftime(NAME).to_string()),
        None => folder.to_owned(),
    };
    let file = path.display().to_string();
    let configured = wiring::key_ids(settings)?;
    if storage.kind() != "sqlite" {
        let flags = Storage::postgres_client_flags(settings.database.url.expose_secret());
        let flags = flags.unwrap_or_else(|| "--host=HOST --username=USER DATABASE".to_owned());
        let keys = needed_keys(&storage.secrets().sealed().await?, &configured);
        bail!(
            "the database is PostgreSQL, which has its own tools. Run: (umask 077 && pg_dump --format=custom \
             --file={file} {flags}). {}",
            describe(&keys)
        );
    }
    if args.keep.is_some() {
        // A container has no other program that could make it.
        let made = DirBuilder::new().recursive(true).mode(0o700).create(folder);
        made.with_context(|| format!("could not make the folder {}", folder.display()))?;
    }
    let contents = storage.back_up(&path).await?;
    record(storage).await?;
    let deleted = match args.keep {
        Some(keep) => delete_older(&path, keep.into()).with_context(|| {
            format!("{file} is complete, but an older one could not be deleted")
        })?,
        None => Vec::new(),
    };
    let (bytes, keys) = (contents.bytes, needed_keys(&contents.secrets, &configured));
    let mut view = json!({
        "file": file,
        "bytes": bytes,
        "users": contents.users,
        "connections": contents.connections,
        "keys": keys,
    });
    let mut prose = format!(
        "Backed up {} and {} ({bytes} bytes).",
        count(contents.users, "user", "users"),
        count(contents.connections, "connection", "connections"),
    );
    if !deleted.is_empty() {
        let older = count(deleted.len() as u64, "older backup", "older backups");
        prose.push_str(&format!(" Deleted {older}."));
        view["deleted"] = json!(deleted);
    }
    prose.push_str(&format!("\n{}", describe(&keys)));
    output::print_with_note(&view, &file, &prose)
}

/// Deletes all but the newest backups that this command made in the folder of `new`, which stays.
/// Another file stays too. Their names sort by time. Names later than that of `new` are from a wrong
/// clock, then or now, and go first, again the earliest of them before the others.
fn delete_older(new: &Path, keep: usize) -> io::Result<Vec<String>> {
    let (Some(folder), Some(new)) = (new.parent(), new.file_name().and_then(OsStr::to_str)) else {
        return Ok(Vec::new());
    };
    let mut own = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_file()
            && let Ok(name) = entry.file_name().into_string()
            && name != new
            && is_own(&name)
        {
            own.push(name);
        }
    }
    own.sort_by_cached_key(|name| (name.as_str() < new, name.clone()));
    own.truncate((own.len() + 1).saturating_sub(keep));
    for name in &own {
        fs::remove_file(folder.join(name))?;
    }
    Ok(own)
}

/// Whether [`NAME`] makes this name.
fn is_own(name: &str) -> bool {
    DateTime::strptime(NAME, name).is_ok_and(|time| time.strftime(NAME).to_string() == name)
}

pub(super) fn needed_keys(secrets: &SealedSecrets, configured: &[String]) -> Vec<NeededKey> {
    let keys = secrets.by_key.iter();
    keys.map(|(id, secrets)| NeededKey {
        id: id.clone(),
        secrets: *secrets,
        configured: configured.contains(id),
    })
    .collect()
}

fn describe(keys: &[NeededKey]) -> String {
    if keys.is_empty() {
        return "A restore needs no master key, because no secret is stored.".to_owned();
    }
    let (noun, them) = match keys {
        [_] => ("key", "it"),
        _ => ("keys", "them"),
    };
    let described = keys.iter().map(|key| {
        let secrets = count(key.secrets, "secret", "secrets");
        let missing = if key.configured {
            ""
        } else {
            ", NOT in secrets.key now"
        };
        format!("`{}` ({secrets}{missing})", key.id)
    });
    format!(
        "A restore needs the master {noun}: {}. Keep {them} for as long as you keep the backup, in another place.",
        described.collect::<Vec<_>>().join(", ")
    )
}
