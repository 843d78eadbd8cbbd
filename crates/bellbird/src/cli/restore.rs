//! `bellbird restore`: puts a backup in the place of the SQLite database, and decides about a
//! restored database.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use bellbird_storage::{
    AccessCut, INSTANCE_TIMEOUT, SealError, SealedSecrets, ServiceLock, StagedBackup, Storage,
};
use clap::{ArgGroup, Args};
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::Serialize;

use super::actor;
use super::arguments::SettingArgs;
use super::ask::Question;
use super::backup::needed_keys;
use super::output::{self, count};
use crate::config::Settings;
use crate::failure::Failure;
use crate::{instances, wiring};

const QUESTION: Question = Question {
    text: "Replace this?",
    flags: "replacing a database needs a confirmation, and standard input is no terminal: pass --yes to replace it",
    declined: "nothing was restored",
};

/// Put a backup in the place of the SQLite database.
///
/// Stop the service first. The command shows what it replaces, and asks. A restore cuts: no
/// key, session, link, setup token or identity of the backup lets anybody in, and endpoints are
/// paused, because the backup does not know what was revoked since. The command lists what to
/// do then. The present database is kept beside the new one.
///
/// With --keep-access, all of it works as before. Use it only if nothing was revoked, removed or
/// changed since the backup.
///
/// A database that you restored with other tools, such as `pg_restore`, waits for the same
/// decision: the service does not start on it until you run `bellbird restore --decide`, with or
/// without --keep-access.
#[derive(Args)]
#[command(group(ArgGroup::new("what").required(true).args(["file", "decide"])))]
#[command(override_usage = "bellbird restore <FILE> [--keep-access] [--yes]
       bellbird restore --decide [--keep-access] [--yes]")]
#[command(after_long_help = "Examples:
  bellbird restore /backups/bellbird-2026-11-20.db
  bellbird restore --decide")]
pub(super) struct RestoreArgs {
    /// The backup to restore, made by `bellbird backup`
    file: Option<PathBuf>,

    /// Decide about a database that other tools restored
    #[arg(long)]
    decide: bool,

    /// Keep all access, because nothing was revoked, removed or changed since the backup
    #[arg(long)]
    keep_access: bool,

    /// Replace the present database without asking. Needed where there is no terminal to ask on,
    /// unless --json is set. With --decide: go on although the database is not known to be
    /// restored, as a physical copy is not
    #[arg(long)]
    yes: bool,
}

/// What `--json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RestoredView {
    /// The path of the database, which the backup is now. Omitted with `--decide`.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<String>,
    /// Where the replaced database is now.
    #[serde(skip_serializing_if = "Option::is_none")]
    replaced: Option<String>,
    access_kept: bool,
    /// What was cut. Omitted if access is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut: Option<AccessCut>,
}

pub(super) async fn run(settings: &SettingArgs, args: &RestoreArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    match &args.file {
        Some(file) => restore(&settings, file, args).await,
        None => decide(&settings, args).await,
    }
}

async fn restore(settings: &Settings, file: &Path, args: &RestoreArgs) -> anyhow::Result<()> {
    // Nobody would look for the database in the working directory.
    if !has_database(settings) && !wiring::names_installation(settings) {
        let missing = wiring::missing_database(settings, "does not exist");
        return Err(Failure::database(missing));
    }
    let url = settings.database.url.expose_secret();
    let Some(lock) = ServiceLock::acquire_for_restore(url)? else {
        bail!(
            "the database is PostgreSQL, which has its own tools: restore with `pg_restore` into a new database, as in \
             docs/backup.md, then run `bellbird restore --decide`"
        );
    };
    let exists = file.try_exists();
    if !exists.with_context(|| format!("nothing was restored: {}", file.display()))? {
        bail!("nothing was restored: there is no file {}", file.display());
    }
    ask(settings, file, args)?;
    let database = lock.database().display().to_string();
    let sealer = wiring::optional_sealer(settings)?;
    let staged = StagedBackup::new(file, lock, sealer)
        .await
        .context("nothing was restored")?;
    check_keys(settings, staged.storage(), file).await?;
    let mut view = apply(staged.storage(), args).await?;
    let replaced = staged.put_in_place(Timestamp::now()).await?;
    view.replaced = replaced.map(|path| path.display().to_string());
    view.database = Some(database.clone());
    output::print_done(&view, |view| {
        let mut text = format!("Restored {} to {database}.", file.display());
        if let Some(replaced) = &view.replaced {
            text = format!("{text} The replaced database is {replaced}.");
        }
        format!("{text}\n\n{}", next_steps(view))
    })
}

/// Asks before a database is replaced. The backup is copied later, so that Ctrl-C leaves no copy.
fn ask(settings: &Settings, file: &Path, args: &RestoreArgs) -> anyhow::Result<()> {
    if !has_database(settings) {
        return Ok(());
    }
    let description = output::details(&[
        ("replaces", &wiring::database_location(settings)),
        ("with", &file.display()),
        ("keeps", &"the replaced database beside it"),
    ]);
    QUESTION.ask(args.yes, &description)
}

/// Whether there is a SQLite database, also if this user may not see it.
fn has_database(settings: &Settings) -> bool {
    let path = Storage::sqlite_path(settings.database.url.expose_secret());
    path.is_some_and(|path| path.try_exists().unwrap_or(true))
}

/// Cuts the access of a restored database, or keeps it.
async fn apply(storage: &Storage, args: &RestoreArgs) -> anyhow::Result<RestoredView> {
    let (actor, now) = (actor::of_command(), Timestamp::now());
    let cut = if args.keep_access {
        storage.backups().keep_access(&actor, now).await?;
        None
    } else {
        Some(storage.backups().cut_access(&actor, now).await?)
    };
    Ok(RestoredView {
        access_kept: args.keep_access,
        cut,
        replaced: None,
        database: None,
    })
}

/// Rejects a backup whose secrets do not open.
async fn check_keys(settings: &Settings, storage: &Storage, file: &Path) -> anyhow::Result<()> {
    let file = file.display();
    let secrets = storage.secrets().sealed().await?;
    if let Some(missing) = missing_keys(settings, &secrets)? {
        if settings.master_keys.is_none() {
            bail!(
                "nothing was restored: {file} needs a master key, and secrets.key is not set: {missing}. Set \
                 secrets.key_file to the file of your copy, and run this command again"
            );
        }
        bail!(
            "nothing was restored: {file} needs a master key that is not in secrets.key: {missing}. Add it after the \
             first key, and run this command again"
        );
    }
    let damaged = secrets
        .unopenable
        .iter()
        .filter(|secret| !matches!(secret.why, SealError::UnknownKeyId(_)))
        .count();
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
    let storage = wiring::open_storage(settings).await?;
    if !args.yes && !storage.backups().awaits_restore_decision().await? {
        bail!(
            "the {} is not known to be restored from a backup, so there is nothing to decide. If it is a physical \
             copy, add `--yes`",
            wiring::database_location(settings)
        );
    }
    let lock = ServiceLock::acquire(settings.database.url.expose_secret())?;
    // PostgreSQL has no such lock.
    if lock.is_none() && !instances::running(&storage).await?.is_empty() {
        bail!(
            "a Bellbird service runs on the {}: stop it first, or if it was killed, wait {} seconds",
            wiring::database_location(settings),
            INSTANCE_TIMEOUT.as_secs()
        );
    }
    let view = apply(&storage, args).await?;
    // Only a warning: they may be lost for good.
    if let Some(missing) = missing_keys(settings, &storage.secrets().sealed().await?)? {
        output::note(&format!(
            "warning: the database needs a master key that is not in secrets.key: {missing}"
        ));
    }
    storage.close().await;
    drop(lock);
    output::print_done(&view, next_steps)
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

/// What was done, and what the operator has to do now.
fn next_steps(view: &RestoredView) -> String {
    let Some(cut) = &view.cut else {
        return "All access of the backup was kept. Start the service now.".to_owned();
    };
    let mut steps: Vec<_> = [
        (
            cut.keys_revoked,
            "API key revoked",
            "API keys revoked",
            "`bellbird key create --user USER --name NAME`",
        ),
        (
            cut.operator_keys_revoked,
            "operator key revoked",
            "operator keys revoked",
            "`bellbird operator-key create --name NAME`",
        ),
        (
            cut.operators_removed,
            "user no longer an operator",
            "users no longer operators",
            "`bellbird user set USER --operator`",
        ),
        (
            cut.sign_ins_forbidden,
            "e-mail address that signs nobody in",
            "e-mail addresses that sign nobody in",
            "`bellbird user set USER --console-sign-in`, with --email NEW if it has changed",
        ),
        (
            cut.identities_forgotten + cut.sessions_ended,
            "sign-in ended",
            "sign-ins ended",
            "users sign in again, after that",
        ),
        (
            cut.links_deleted,
            "link deleted",
            "links deleted",
            "`bellbird connection link --user USER`",
        ),
        (
            cut.setup_tokens_deleted,
            "setup token deleted",
            "setup tokens deleted",
            "`bellbird simplefin token --user USER`",
        ),
        (
            cut.endpoints_paused,
            "endpoint paused",
            "endpoints paused",
            "`bellbird webhook enable ID` (`bellbird webhook list`)",
        ),
        (
            cut.users,
            "user restored",
            "users restored",
            "`bellbird user list`: remove who had been removed",
        ),
        (
            cut.connections,
            "connection restored",
            "connections restored",
            "`bellbird connection list`: remove what had been removed",
        ),
    ]
    .into_iter()
    .filter(|(number, ..)| *number > 0)
    .map(|(number, one, several, command)| [count(number, one, several), command.to_owned()])
    .collect();
    steps.push([
        "now".to_owned(),
        "`bellbird serve`, or `systemctl start bellbird`".to_owned(),
    ]);
    format!(
        "Nothing of the backup lets anybody in, and no endpoint gets events, until you have done this:\n\n{}",
        output::table(["what", "then"], steps)
    )
}
