//! `bellbird backup`: copies the SQLite database to a file.

use std::path::{Path, PathBuf};

use anyhow::bail;
use bellbird_storage::{SealedSecrets, Storage};
use clap::Args;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use serde_json::json;

use super::actor;
use super::arguments::SettingArgs;
use super::output::{self, count};
use crate::backup::{self, BackupFolder};
use crate::config::Settings;
use crate::wiring;

/// Copy the SQLite database to a new file, also while the service runs.
///
/// With --keep, PATH is a folder, which is made if needed. The file gets a name with the time, and
/// of the files with such a name there, the newest N stay. `bellbird-backup.timer` of the package
/// runs this every day, and the service does the same if backup.folder is set.
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
    backup::record(storage, actor::of_command(), Timestamp::now()).await?;
    output::print_done(&json!({"recorded": true}), |_| {
        "Recorded a backup that was made elsewhere.".to_owned()
    })
}

async fn back_up(
    settings: &Settings,
    storage: &Storage,
    args: &BackupArgs,
    path: &Path,
) -> anyhow::Result<()> {
    let now = Timestamp::now();
    let folder = args.keep.map(|keep| BackupFolder {
        path: path.to_owned(),
        keep: keep.into(),
    });
    let path = match &folder {
        Some(folder) => folder.file(now),
        None => path.to_owned(),
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
    let by = actor::of_command();
    let made = match &folder {
        Some(folder) => folder.back_up(storage, by, now).await?,
        None => backup::back_up(storage, path, by, now).await?,
    };
    let (contents, deleted) = (made.contents, made.deleted);
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
