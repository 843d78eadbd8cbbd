//! `bellbird backup`: copies the SQLite database to a file.

use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::bail;
use bellbird_storage::{SealedSecrets, Storage};
use clap::Args;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag, count};
use crate::config::Settings;
use crate::wiring;

/// Copy the SQLite database to a new file, also while the service runs.
///
/// The file has mode 0600, and is checked before it gets its name. An existing file is never overwritten. The command
/// prints which master keys a restore needs: keep them for as long as you keep the backup. On PostgreSQL it prints the
/// `pg_dump` command to use instead.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird backup /backups/bellbird-$(date +%F).db")]
pub(super) struct BackupArgs {
    /// The file to create
    file: PathBuf,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `backup --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BackupView {
    file: String,
    bytes: u64,
    users: u64,
    connections: u64,
    keys: Vec<NeededKey>,
}

/// A master key that a backup needs.
#[derive(Serialize)]
pub(super) struct NeededKey {
    pub(super) id: String,
    pub(super) secrets: u64,
    /// Whether it is in secrets.key now.
    pub(super) configured: bool,
}

pub(super) async fn run(settings: &SettingArgs, args: &BackupArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let storage = wiring::open_storage(&settings).await?;
    let result = back_up(&settings, &storage, args).await;
    storage.close().await;
    result
}

async fn back_up(settings: &Settings, storage: &Storage, args: &BackupArgs) -> anyhow::Result<()> {
    let file = args.file.display().to_string();
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
    let contents = storage.back_up(&args.file).await?;
    let keys = needed_keys(&contents.secrets, &configured);
    let (users, connections) = (contents.users, contents.connections);
    let view = BackupView { file, bytes: contents.bytes, users, connections, keys };
    output::print(args.format, &view, |view| {
        format!(
            "Backed up {} and {} to {} ({} bytes).\n{}",
            count(users, "user", "users"),
            count(connections, "connection", "connections"),
            view.file,
            view.bytes,
            describe(&view.keys)
        )
    })
}

pub(super) fn needed_keys(secrets: &SealedSecrets, configured: &[String]) -> Vec<NeededKey> {
    let keys = secrets.by_key.iter();
    keys.map(|(id, secrets)| NeededKey { id: id.clone(), secrets: *secrets, configured: configured.contains(id) })
        .collect()
}

fn describe(keys: &[NeededKey]) -> String {
    if keys.is_empty() {
        return "A restore needs no master key, because no secret is stored.".to_owned();
    }
    let mut text = format!("A restore needs the master {}: ", if keys.len() == 1 { "key" } else { "keys" });
    for (at, NeededKey { id, secrets, configured }) in keys.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        let missing = if *configured { "" } else { ", NOT in secrets.key now" };
        let _ = write!(text, "{separator}`{id}` ({}{missing})", count(*secrets, "secret", "secrets"));
    }
    let them = if keys.len() == 1 { "it" } else { "them" };
    let _ = write!(text, ". Keep {them} for as long as you keep the backup, in another place.");
    text
}
