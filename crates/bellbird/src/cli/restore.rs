//! `bellbird restore`: puts a backup in the place of the SQLite database, and decides about a restored database.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow, bail};
use bellbird_storage::{
    CarriedOver, INSTANCE_TIMEOUT, LostSince, PostgresOptions, SealError, SealedSecrets, Sealer, ServiceLock,
    StagedBackup, Storage, StorageError,
};
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Serialize;
use serde_json::{Value, json};

use super::arguments::{self, SettingArgs};
use super::backup::needed_keys;
use super::output::{self, JsonFlag, count};
use crate::config::Settings;
use crate::{instances, wiring};

/// Enough for the few statements of a comparison.
const CONNECTIONS: u32 = 2;

/// Put a backup in the place of the SQLite database.
///
/// Stop the service first. A restore revives nothing. `restore FILE` reads from the present database which keys were
/// revoked since the backup, and which connections, users and endpoints were removed or disabled, and repeats that. The
/// present database is kept beside the new one.
///
/// Where the present database is gone, or if you restored with other tools such as `pg_restore`, Bellbird cannot know.
/// The service does not start then until you decide with one of the options.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["file", "previous", "revoke_keys", "keep_keys"])))]
#[command(override_usage = "bellbird restore <FILE>
       bellbird restore <--previous <FILE> [--yes]|--revoke-keys|--keep-keys>")]
#[command(after_long_help = "Examples:
  bellbird restore /backups/bellbird-2026-11-20.db
  echo postgres://user:password@host/old | bellbird restore --previous -
  bellbird restore --revoke-keys")]
pub(super) struct RestoreArgs {
    /// The backup to restore, made by `bellbird backup`
    file: Option<PathBuf>,

    /// Decide: repeat what the previous database knows to be revoked or removed. FILE holds the URL of that database;
    /// `-` reads it from standard input
    #[arg(long, value_name = "FILE")]
    previous: Option<String>,

    /// With --previous: go on although the database is not known to be restored, as a physical copy is not
    #[arg(long, requires = "previous")]
    yes: bool,

    /// Decide: revoke all keys of users and operators, because some may have been revoked since the backup
    #[arg(long)]
    revoke_keys: bool,

    /// Decide: keep all keys, because none was revoked since the backup
    #[arg(long)]
    keep_keys: bool,

    #[command(flatten)]
    format: JsonFlag,
}

/// What `restore FILE --json` and `restore --previous FILE --json` print.
#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct RestoredView {
    /// Where the replaced database is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<String>,
    decision_needed: bool,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    carried_over: Option<CarriedOver>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<LostSince>,
}

pub(super) async fn run(settings: &SettingArgs, args: &RestoreArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    match &args.file {
        Some(file) => restore(&settings, file, args.format).await,
        None => decide(&settings, args).await,
    }
}

async fn restore(settings: &Settings, file: &Path, format: JsonFlag) -> anyhow::Result<()> {
    let Some(lock) = ServiceLock::acquire(settings.database.url.expose_secret())? else {
        bail!(
            "the database is PostgreSQL, which has its own tools: restore with `pg_restore` into a new database, as in \
             docs/backup.md, then run `bellbird restore --previous FILE`"
        );
    };
    let sealer = wiring::optional_sealer(settings)?;
    let staged = StagedBackup::new(file, lock, sealer).await.context("nothing was restored")?;
    check_keys(settings, staged.storage(), file).await?;
    let (now, mut view) = (Timestamp::now(), RestoredView::default());
    let present = staged.open_present().await;
    let state = match &present {
        Ok(Some(present)) => present.backups().state_for(staged.storage().backups()).await.map_err(|e| unusable(&e)),
        Ok(None) => Err("there was no database before".to_owned()),
        Err(error) => Err(unusable(error)),
    };
    match state {
        Ok(state) => {
            let (done, lost) = staged.storage().backups().carry_over(&state, now).await?;
            (view.carried_over, view.lost) = (Some(done), Some(lost));
        }
        Err(reason) => (view.decision_needed, view.reason) = (true, Some(reason)),
    }
    let replaced = staged.put_in_place(present.ok().flatten(), !view.decision_needed, now).await?;
    view.replaced = replaced.map(|path| path.display().to_string());
    output::print(format, &view, |view| restored_text(file, view))
}

fn unusable(error: &StorageError) -> String {
    format!("the replaced database could not be compared: {error}")
}

/// Rejects a backup whose secrets do not open.
async fn check_keys(settings: &Settings, storage: &Storage, file: &Path) -> anyhow::Result<()> {
    let file = file.display();
    let secrets = storage.secrets().sealed().await?;
    if let Some(missing) = missing_keys(settings, &secrets)? {
        bail!(
            "nothing was restored: {file} needs a master key that is not in secrets.key: {missing}. Add it after the \
             first key, and run this command again"
        );
    }
    let damaged = secrets.unopenable.iter().filter(|secret| !matches!(secret.why, SealError::UnknownKeyId(_))).count();
    if damaged > 0 {
        bail!(
            "nothing was restored: secrets of {file} do not open with the key of their id: {damaged}. Another key in \
             secrets.key has the same id, or the file is damaged"
        );
    }
    Ok(())
}

/// Decides about a restored database, which is in its place already.
async fn decide(settings: &Settings, args: &RestoreArgs) -> anyhow::Result<()> {
    let read_url = |from| arguments::read_secret(from, "the URL");
    let previous_url = args.previous.as_deref().map(read_url).transpose()?;
    let storage = wiring::open_storage(settings).await?;
    let awaits_decision = storage.backups().awaits_restore_decision().await?;
    if args.previous.is_some() && !args.yes && !awaits_decision {
        bail!(
            "the {} is not known to be restored from a backup. If it is a physical copy, add `--yes`: what the \
             previous database lacks is then removed from it",
            wiring::database_location(settings)
        );
    }
    let lock = ServiceLock::acquire(settings.database.url.expose_secret())?;
    let (mut view, mut revoked) = (RestoredView::default(), (0, 0));
    if let (Some(from), Some(url)) = (&args.previous, previous_url) {
        let options = PostgresOptions { pool_size: CONNECTIONS, ..settings.database.postgres };
        let (done, lost) = compare_with_previous(&storage, from, &url, options).await?;
        (view.carried_over, view.lost) = (Some(done), Some(lost));
    } else if args.revoke_keys {
        revoked = storage.backups().revoke_all_keys(Timestamp::now()).await?;
    } else if !awaits_decision {
        storage.close().await;
        let nothing = "Nothing to decide: the database is not known to be restored from a backup.";
        return output::print(args.format, &revoked_view(revoked), |_| nothing.to_owned());
    }
    storage.backups().set_restore_decided().await?;
    // Only a warning: they may be lost for good.
    if let Some(missing) = missing_keys(settings, &storage.secrets().sealed().await?)? {
        output::note(&format!("warning: the database needs a master key that is not in secrets.key: {missing}"));
    }
    storage.close().await;
    drop(lock);
    if args.previous.is_some() {
        return output::print(args.format, &view, |view| {
            format!("Compared with the previous database.\n{}\nStart the service now.", carried_over_text(view))
        });
    }
    output::print(args.format, &revoked_view(revoked), |_| match (args.revoke_keys, revoked) {
        (false, _) => format!("Kept all keys.\n{REVIVED}\nStart the service now."),
        (true, (keys, operator_keys)) => format!(
            "Revoked {} and {}. Create new ones with `bellbird key create` and `bellbird operator-key create`.\n\
             {REVIVED}\nStart the service now.",
            count(keys, "API key", "API keys"),
            count(operator_keys, "operator key", "operator keys")
        ),
    })
}

/// The numbers of API keys and operator keys.
fn revoked_view((keys, operator_keys): (u64, u64)) -> Value {
    json!({"keysRevoked": keys, "operatorKeysRevoked": operator_keys})
}

/// Repeats in the restored database what the one at `url`, which was read from `from`, knows to be revoked or removed.
async fn compare_with_previous(
    restored: &Storage,
    from: &str,
    url: &SecretString,
    options: PostgresOptions,
) -> anyhow::Result<(CarriedOver, LostSince)> {
    let source = arguments::source_name(from);
    let opened = Storage::open_existing(url.expose_secret(), Sealer::random(), options).await;
    let previous = opened.map_err(|error| match error {
        // Its advice is about database.url.
        StorageError::Open(text) => {
            let reason = text.rsplit_once(": ").map_or(text.as_str(), |(reason, _)| reason);
            anyhow!("{reason}: correct the URL in {source}, or make the previous database available")
        }
        error => anyhow!("the URL in {source}: {error}"),
    })?;
    let state = previous.backups().state_for(restored.backups()).await;
    let state = state.context("the previous database cannot be used")?;
    // What is revoked there after the comparison would be revived. On SQLite too, an instance has a row.
    if let Some(instance) = instances::running(&previous).await?.first() {
        bail!(
            "{instance} still runs on the previous database: stop it, and run this command again. An instance that was \
             killed counts as running for {} seconds",
            INSTANCE_TIMEOUT.as_secs()
        );
    }
    previous.close().await;
    Ok(restored.backups().carry_over(&state, Timestamp::now()).await?)
}

/// The keys of these secrets that are not configured.
fn missing_keys(settings: &Settings, secrets: &SealedSecrets) -> anyhow::Result<Option<String>> {
    let missing: Vec<_> = needed_keys(secrets, &wiring::key_ids(settings)?)
        .into_iter()
        .filter(|key| !key.configured)
        .map(|key| format!("`{}` ({})", key.id, count(key.secrets, "secret", "secrets")))
        .collect();
    Ok((!missing.is_empty()).then(|| missing.join(", ")))
}

const REVIVED: &str = "\
Connections, users and endpoints that were removed since the backup are back: remove them again, see `bellbird \
connection list`, `bellbird user list` and `bellbird webhook list`. A connection whose consent was withdrawn shows as \
revoked after its next refresh.";

fn restored_text(file: &Path, view: &RestoredView) -> String {
    let mut text = format!("Restored {}.", file.display());
    if let Some(replaced) = &view.replaced {
        text = format!("{text} The replaced database is {replaced}.");
    }
    if view.decision_needed {
        let reason = view.reason.as_deref().unwrap_or_default();
        return format!("{text}\n\nThe service does not start yet: {reason}, and {}.", wiring::RESTORE_DECISION);
    }
    format!("{text}\n{}\nStart the service now.", carried_over_text(view))
}

fn carried_over_text(RestoredView { carried_over, lost, .. }: &RestoredView) -> String {
    let (done, lost) = (carried_over.clone().unwrap_or_default(), lost.clone().unwrap_or_default());
    let done = list(&[
        (done.keys_revoked, "API key revoked", "API keys revoked"),
        (done.keys_shortened, "API key expires earlier", "API keys expire earlier"),
        (done.operator_keys_revoked, "operator key revoked", "operator keys revoked"),
        (done.operator_keys_shortened, "operator key expires earlier", "operator keys expire earlier"),
        (done.connections_removed, "connection removed", "connections removed"),
        (done.removals_continued, "removal to be completed by the service", "removals to be completed by the service"),
        (done.users_removed, "user removed", "users removed"),
        (done.plans_changed, "plan changed", "plans changed"),
        (done.operators_removed, "user no longer an operator", "users no longer operators"),
        (done.endpoints_removed, "endpoint removed", "endpoints removed"),
        (done.endpoints_disabled, "endpoint disabled", "endpoints disabled"),
        (done.endpoints_changed, "endpoint changed", "endpoints changed"),
        (done.registrations_removed, "registration at a provider removed", "registrations at providers removed"),
    ]);
    let has_connections = lost.connections > 0;
    let lost = list(&[
        (lost.users, "user", "users"),
        (lost.keys, "API key", "API keys"),
        (lost.operator_keys, "operator key", "operator keys"),
        (lost.connections, "connection", "connections"),
        (lost.endpoints, "endpoint", "endpoints"),
    ]);
    let mut text = match done {
        None => "Nothing was revoked or removed since the backup.".to_owned(),
        Some(done) => format!("Done again, as since the backup: {done}."),
    };
    if let Some(lost) = lost {
        text = format!("{text}\nNewer than the backup, so lost here: {lost}.");
    }
    if has_connections {
        text.push_str(" The consents of lost connections stay valid until their users withdraw them at the provider.");
    }
    text
}

/// Lists the counts that are not 0. None if all are.
fn list(counts: &[(u64, &str, &str)]) -> Option<String> {
    let some = counts.iter().filter(|(number, ..)| *number > 0);
    let texts: Vec<_> = some.map(|(number, one, several)| count(*number, one, several)).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}
