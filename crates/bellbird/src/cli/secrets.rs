//! `bellbird secrets`.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bellbird_storage::{Leftovers, SealError, SealedSecrets, Storage, UnopenableSecret};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag, Progress};
use crate::wiring;

/// Walks over all secrets, when a copy of the service goes on sealing with an older key meanwhile.
const WALKS_MAX: u32 = 3;
/// Secrets that a message names.
const NAMED_MAX: usize = 5;

/// Seal stored secrets with another master key.
#[derive(Debug, Subcommand)]
pub(super) enum SecretsCommand {
    Rotate(RotateArgs),
}

/// Seal everything anew that is not sealed with the first key of secrets.key.
///
/// Works beside a running service that has all keys, a few secrets at a time, and can be interrupted and run again at any
/// moment. The service must know the new key before this seals with it. One copy: put the new key in front of the old
/// one in secrets.key, restart the service, run this, take the old key away, restart. Several copies: put the new key
/// behind the old one everywhere and restart them, then in front of it everywhere and restart them, then run this, then
/// take the old key away.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  BELLBIRD_SECRETS__KEY=\"2027:...,2026:...\" bellbird secrets rotate")]
pub(super) struct RotateArgs {
    #[command(flatten)]
    format: JsonFlag,
}

/// What `rotate --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RotatedView {
    resealed: u64,
    already_current: u64,
    unopenable: usize,
}

pub(super) async fn run(settings: &SettingArgs, command: SecretsCommand) -> anyhow::Result<ExitCode> {
    let SecretsCommand::Rotate(args) = command;
    let settings = settings.load(None)?;
    let storage = wiring::open_sealed_storage(&settings).await?;
    let result = rotate(&storage, &args).await;
    storage.close().await;
    result
}

async fn rotate(storage: &Storage, args: &RotateArgs) -> anyhow::Result<ExitCode> {
    let current = storage.sealing_key_id();
    let mut walked = walk(storage).await?;
    let mut found = storage.sealed_secrets().await?;
    for _ in 1..WALKS_MAX {
        if left(&found, current).next().is_none() {
            break;
        }
        walked.resealed += walk(storage).await?.resealed;
        found = storage.sealed_secrets().await?;
    }
    let mut problems = unopened(&found.unopenable);
    problems.extend(left(&found, current).map(|(key, count)| {
        format!(
            "{count} were sealed with the key `{key}` while this ran: a copy of the service seals with it still. Put \
             `{current}` in front in its secrets.key, restart it, and run this again"
        )
    }));
    match storage.erase_leftovers().await {
        Ok(Leftovers::None) => {}
        Ok(Leftovers::InTheLog) => problems.push(
            "the database's log could not be emptied while somebody read it, and may hold what the old key opens: run \
             this again"
                .to_owned(),
        ),
        Ok(Leftovers::UpToTheServer) => output::note(
            "PostgreSQL keeps the rows as they were until it needs their place, and in its own log: docs/hosting.md, \
             \"Secrets\", tells how to get rid of them.",
        ),
        Err(error) => problems.push(format!(
            "the database's file could not be written anew, and may hold what the old key opens ({error}): run this again"
        )),
    }
    let Walked { resealed, already_current } = walked;
    let view = RotatedView { resealed, already_current, unopenable: found.unopenable.len() };
    output::print(args.format, &view, |view| {
        format!(
            "Sealed anew with the key `{current}`: {}. Sealed with it before: {}. Not opened: {}.",
            view.resealed, view.already_current, view.unopenable
        )
    })?;
    for problem in &problems {
        output::note(&format!("error: {problem}"));
    }
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What one walk came to.
#[derive(Default)]
struct Walked {
    resealed: u64,
    already_current: u64,
}

async fn walk(storage: &Storage) -> anyhow::Result<Walked> {
    let mut progress = Progress::new("secrets", storage.count_secrets().await?);
    let mut walked = Walked::default();
    let mut after = None;
    loop {
        let batch = storage.reseal_batch(after).await?;
        walked.resealed += batch.resealed;
        walked.already_current += batch.already_current;
        progress.add(batch.resealed + batch.already_current + batch.unopenable);
        if batch.next.is_none() {
            return Ok(walked);
        }
        after = batch.next;
    }
}

/// Keys other than the first by which something opens, and how many each.
fn left<'a>(found: &'a SealedSecrets, current: &'a str) -> impl Iterator<Item = (&'a String, &'a u64)> {
    found.opened_by.iter().filter(move |(key, count)| *key != current && **count > 0)
}

/// One sentence for each reason why secrets do not open.
pub(super) fn unopened(secrets: &[UnopenableSecret]) -> Vec<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for secret in secrets {
        let reason = match &secret.why {
            SealError::UnknownKeyId(key) => {
                let otherwise = match secret.purpose.as_str() {
                    "webhook" | "old-webhook" => "make another with `bellbird webhook rotate-secret`",
                    "marks" => "remove and link again, as what was seen cannot be told from what is new",
                    _ => "remove and link again",
                };
                format!(
                    "sealed with the key `{key}`, which is not in secrets.key: add it behind the first one, or {otherwise}"
                )
            }
            SealError::DoesNotOpen => "not opened by the key of their id: that is another key of the same id, or they \
                                       are damaged"
                .to_owned(),
            other => other.to_string(),
        };
        by_reason.entry(reason).or_default().push(format!("{} {}", secret.purpose, secret.subject));
    }
    let sentence = |(reason, secrets): (String, Vec<String>)| {
        let named = secrets.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = if secrets.len() > NAMED_MAX { ", ..." } else { "" };
        format!("{} cannot be opened: {reason} ({named}{more})", secrets.len())
    };
    by_reason.into_iter().map(sentence).collect()
}
