//! `bellbird secrets`: seals stored secrets with a new master key, and describes secrets that no key opens.

use std::collections::BTreeMap;
use std::process::ExitCode;

use bellbird_storage::{Leftovers, SealError, SealedSecrets, Storage, UnopenableSecret};
use clap::Subcommand;
use serde::Serialize;

use super::arguments::SettingArgs;
use super::output::{self, ErrorView, JsonFlag, Progress};
use crate::wiring;

/// Passes over all secrets. A second pass is needed if an instance still seals with an older key during the first.
const PASSES_MAX: u32 = 3;
/// Secrets that a message lists by id.
const NAMED_MAX: usize = 5;

/// Manage the encryption of stored secrets.
#[derive(Debug, Subcommand)]
pub(super) enum SecretsCommand {
    /// Encrypt all stored secrets with the first key of secrets.key.
    ///
    /// Safe to run while the service is running, and safe to interrupt and repeat. The running service must already
    /// have the new key.
    ///
    /// With one instance: put the new key first in secrets.key and keep the old one after it. Restart the service, run
    /// this command, remove the old key, and restart again.
    ///
    /// With several instances: put the new key after the old one on all instances and restart them. Then put it first
    /// on all instances and restart them. Run this command, remove the old key, and restart again.
    #[command(after_long_help = "Example:
  BELLBIRD_SECRETS__KEY=\"2027:...,2026:...\" bellbird secrets rotate")]
    Rotate(JsonFlag),
}

/// What `rotate --json` prints.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RotatedView {
    resealed: u64,
    already_current: u64,
    unopenable: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorView>,
}

pub(super) async fn run(settings: &SettingArgs, command: SecretsCommand) -> anyhow::Result<ExitCode> {
    let SecretsCommand::Rotate(format) = command;
    let settings = settings.load(None)?;
    let storage = wiring::open_sealed_storage(&settings).await?;
    let result = rotate(&storage, format).await;
    storage.close().await;
    result
}

async fn rotate(storage: &Storage, format: JsonFlag) -> anyhow::Result<ExitCode> {
    let current = storage.sealing_key_id();
    let mut counts = reseal_all(storage).await?;
    let mut found = storage.sealed_secrets().await?;
    for _ in 1..PASSES_MAX {
        if sealed_with_other_keys(&found, current).next().is_none() {
            break;
        }
        counts.resealed += reseal_all(storage).await?.resealed;
        found = storage.sealed_secrets().await?;
    }
    let mut messages = unopenable_messages(&found.unopenable);
    messages.extend(sealed_with_other_keys(&found, current).map(|(key, count)| {
        format!(
            "{count} secrets were sealed with key `{key}` meanwhile: an instance of the service still uses it. Put \
             `{current}` first in its secrets.key, restart it, and run this command again"
        )
    }));
    match storage.erase_leftovers().await {
        Ok(Leftovers::None) => {}
        Ok(Leftovers::InWal) => messages.push(
            "could not truncate the write-ahead log because another process is reading the database. It may still \
             hold secrets sealed with the old key: run this command again"
                .to_owned(),
        ),
        Ok(Leftovers::ServerManaged) => output::note(
            "PostgreSQL keeps old row versions until a vacuum, and in its write-ahead log. See \"Secrets\" in \
             docs/operating.md for how to erase them.",
        ),
        Err(error) => messages.push(format!(
            "could not rewrite the database file ({error}). It may still hold secrets sealed with the old key: run \
             this command again"
        )),
    }
    let ResealCounts { resealed, already_current } = counts;
    let (unopenable, error) = (found.unopenable.len(), ErrorView::of(&messages));
    let view = RotatedView { resealed, already_current, unopenable, error };
    output::print(format, &view, |view| {
        format!(
            "Resealed with key `{current}`: {}. Already sealed with it: {}. Not opened: {}.",
            view.resealed, view.already_current, view.unopenable
        )
    })?;
    Ok(output::finish(&messages))
}

/// Counts of one pass.
#[derive(Default)]
struct ResealCounts {
    resealed: u64,
    already_current: u64,
}

async fn reseal_all(storage: &Storage) -> anyhow::Result<ResealCounts> {
    let mut progress = Progress::new("secrets", storage.count_secrets().await?);
    let mut counts = ResealCounts::default();
    let mut after = None;
    loop {
        let batch = storage.reseal_batch(after).await?;
        counts.resealed += batch.resealed;
        counts.already_current += batch.already_current;
        progress.add(batch.resealed + batch.already_current + batch.unopenable);
        if batch.next.is_none() {
            return Ok(counts);
        }
        after = batch.next;
    }
}

/// Keys other than the current one that still open secrets, with the number of those secrets.
fn sealed_with_other_keys<'a>(
    found: &'a SealedSecrets,
    current: &'a str,
) -> impl Iterator<Item = (&'a String, &'a u64)> {
    found.opened_by.iter().filter(move |(key, count)| *key != current && **count > 0)
}

/// One message for each reason why secrets cannot be opened.
pub(super) fn unopenable_messages(secrets: &[UnopenableSecret]) -> Vec<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for secret in secrets {
        let reason = match &secret.why {
            SealError::UnknownKeyId(key) => {
                let alternative = match secret.purpose.as_str() {
                    "webhook" | "old_webhook" => "create a new secret with `bellbird webhook rotate-secret`",
                    // Fingerprints too: without them, syncs cannot distinguish seen rows from new ones.
                    _ => "remove the connection and link it again",
                };
                format!(
                    "sealed with key `{key}`, which is not in secrets.key. Add that key after the first one, or \
                     {alternative}"
                )
            }
            SealError::DoesNotOpen => "not opened by the key with their id. Another key has the same id, or the \
                                       data is damaged"
                .to_owned(),
            other => other.to_string(),
        };
        by_reason.entry(reason).or_default().push(format!("{} {}", secret.purpose, secret.subject));
    }
    let sentence = |(reason, secrets): (String, Vec<String>)| {
        let named = secrets.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
        let more = if secrets.len() > NAMED_MAX { ", ..." } else { "" };
        let noun = if secrets.len() == 1 { "secret" } else { "secrets" };
        format!("{} {noun} cannot be opened: {reason} ({named}{more})", secrets.len())
    };
    by_reason.into_iter().map(sentence).collect()
}
