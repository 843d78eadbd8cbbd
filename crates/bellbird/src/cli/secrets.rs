//! `bellbird secrets`: seals stored secrets with a new master key, and describes secrets that no
//! key opens.

use std::collections::BTreeMap;

use anyhow::bail;
use bellbird_storage::{
    AuditAction, INSTANCE_TIMEOUT, Instance, Leftovers, ResealCounts, SealError, SealedSecrets,
    Storage, UnopenableSecret,
};
use clap::Subcommand;
use serde_json::json;

use super::actor;
use super::arguments::SettingArgs;
use super::output::{self, ErrorView, Progress, count};
use crate::instances;
use crate::wiring;

/// Passes over all secrets. A second pass is needed if an instance still seals with an older key
/// during the first.
const PASSES_MAX: u32 = 3;
/// Secrets that a message lists by id.
const NAMED_MAX: usize = 5;

/// Manage the encryption of stored secrets.
#[derive(Subcommand)]
pub(super) enum SecretsCommand {
    /// Encrypt all stored secrets with the first key of secrets.key.
    ///
    /// Safe to run while the service is running, and safe to interrupt and repeat. Every running
    /// instance must already have the new key. Otherwise the command changes nothing and names the
    /// instance.
    ///
    /// With one instance: put the new key first in secrets.key and keep the old one after it.
    /// Restart the service, run this command, remove the old key, and restart again.
    ///
    /// With several instances: put the new key after the old one on all instances and restart them.
    /// Then put it first on all instances and restart them. Run this command, remove the old key,
    /// and restart again.
    #[command(after_long_help = "Example:
  BELLBIRD_SECRETS__KEY=\"2027:...,2026:...\" bellbird secrets rotate")]
    Rotate,
}

pub(super) async fn run(settings: &SettingArgs, command: SecretsCommand) -> anyhow::Result<()> {
    let SecretsCommand::Rotate = command;
    let settings = settings.load(None)?;
    let storage = wiring::open_sealed_storage(&settings).await?;
    let result = rotate(&storage).await;
    storage.close().await;
    result
}

async fn rotate(storage: &Storage) -> anyhow::Result<()> {
    let current = storage.secrets().sealing_key_id();
    require_key_everywhere(&instances::running(storage).await?, current)?;
    let action = AuditAction::of_installation("secrets.rotate").about(current);
    actor::record(storage, &action).await?;
    let mut counts = reseal_all(storage).await?;
    let mut found = storage.secrets().sealed().await?;
    for _ in 1..PASSES_MAX {
        if sealed_with_other_keys(&found, current).next().is_none() {
            break;
        }
        counts.resealed += reseal_all(storage).await?.resealed;
        found = storage.secrets().sealed().await?;
    }
    let mut messages = unopenable_messages(&found.unopenable);
    messages.extend(sealed_with_other_keys(&found, current).map(|(key, count)| {
        format!("{count} secrets were sealed with key `{key}` meanwhile: run this command again")
    }));
    // Again, because an instance may have started meanwhile.
    let running = instances::running(storage).await?;
    messages.extend(running.iter().filter(|instance| instance.sealing_key_id() != current).map(|instance| {
        format!(
            "{instance} seals with key `{}`: put `{current}` first in its secrets.key, restart it, and run this \
             command again",
            instance.sealing_key_id()
        )
    }));
    match storage.secrets().erase_leftovers().await {
        Ok(Leftovers::None) => {}
        Ok(Leftovers::InWal) => messages.push(
            "could not truncate the write-ahead log because another process is reading the database. It may still \
             hold secrets sealed with the old key: run this command again"
                .to_owned(),
        ),
        Ok(Leftovers::ServerManaged) => output::note(
            "PostgreSQL keeps old row versions until a vacuum, and in its write-ahead log. See \
             docs/secrets.md#what-the-old-key-still-opens for how to erase them.",
        ),
        Err(error) => messages.push(format!(
            "could not rewrite the database file ({error}). It may still hold secrets sealed with the old key: run \
             this command again"
        )),
    }
    let ResealCounts {
        resealed,
        already_current,
        ..
    } = counts;
    let (unopenable, instances) = (found.unopenable.len(), running.len());
    let mut view = json!({
        "resealed": resealed,
        "alreadyCurrent": already_current,
        "unopenable": unopenable,
        "instances": instances,
    });
    if let Some(error) = ErrorView::of(&messages) {
        view["error"] = json!(error);
    }
    output::print_done(&view, |_| {
        let checked = match instances {
            0 => "No instance of the service runs now".to_owned(),
            1 => "One instance of the service runs, and was checked".to_owned(),
            count => format!("{count} instances of the service run, and were checked"),
        };
        format!(
            "Resealed with key `{current}`: {resealed}. Already sealed with it: {already_current}. Not opened: \
             {unopenable}.\n{checked}."
        )
    })?;
    output::finish(&messages)
}

/// Fails if a running instance could not open secrets after the rotation. Its reads would fail.
fn require_key_everywhere(running: &[Instance], current: &str) -> anyhow::Result<()> {
    let without: Vec<_> = running
        .iter()
        .filter(|instance| !instance.opens(current))
        .collect();
    if without.is_empty() {
        return Ok(());
    }
    let lines = without.iter().map(|instance| {
        let keys: Vec<_> = instance.key_ids.iter().map(|id| format!("`{id}`")).collect();
        format!(
            "\n{instance} opens only {}: add `{current}` to its secrets.key, restart it, and run this command again",
            keys.join(", ")
        )
    });
    bail!(
        "nothing was changed, because {} of {} running instances cannot open the key `{current}`. An instance that \
         was killed counts as running for {} seconds{}",
        without.len(),
        running.len(),
        INSTANCE_TIMEOUT.as_secs(),
        lines.collect::<String>()
    )
}

async fn reseal_all(storage: &Storage) -> anyhow::Result<ResealCounts> {
    let mut progress = Progress::new("secrets", storage.secrets().count().await?);
    Ok(storage
        .secrets()
        .reseal_all(|read| progress.add(read))
        .await?)
}

/// Keys other than the current one that still open secrets, with the number of those secrets.
fn sealed_with_other_keys<'a>(
    found: &'a SealedSecrets,
    current: &'a str,
) -> impl Iterator<Item = (&'a String, &'a u64)> {
    found
        .opened_by
        .iter()
        .filter(move |(key, count)| *key != current && **count > 0)
}

/// One message for each reason why secrets cannot be opened.
pub(super) fn unopenable_messages(secrets: &[UnopenableSecret]) -> Vec<String> {
    let mut by_reason: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for secret in secrets {
        let named = format!("{} {}", plain_purpose(&secret.purpose), secret.subject);
        by_reason.entry(reason(secret)).or_default().push(named);
    }
    let sentence = |(reason, secrets): (String, Vec<String>)| {
        let named = secrets[..secrets.len().min(NAMED_MAX)].join(", ");
        let more = if secrets.len() > NAMED_MAX {
            ", ..."
        } else {
            ""
        };
        let number = count(secrets.len() as u64, "secret", "secrets");
        format!("{number} cannot be opened: {reason}. {ADVICE} ({named}{more})")
    };
    by_reason.into_iter().map(sentence).collect()
}

/// What to do about secrets that cannot be opened.
pub(super) const ADVICE: &str =
    "Add the missing key to secrets.key, after the first one. If it is lost, see docs/secrets.md";

/// Why a secret cannot be opened, after "cannot be opened:".
pub(super) fn reason(secret: &UnopenableSecret) -> String {
    match &secret.why {
        SealError::UnknownKeyId(key) => format!("sealed with key `{key}`, which is not in secrets.key"),
        SealError::DoesNotOpen => {
            "not opened by the key with their id. Another key has the same id, or the data is damaged".to_owned()
        }
        other => other.to_string(),
    }
}

fn plain_purpose(purpose: &str) -> &str {
    match purpose {
        "credentials" => "credentials of connection",
        "fingerprints" => "fingerprint key of connection",
        "consent_session" => "consent session",
        "provider_user" => "registration at",
        "webhook" => "signing secret of endpoint",
        "old_webhook" => "previous signing secret of endpoint",
        "provider_settings" => "what was entered for",
        "operator_request" => "response to an operator's request",
        other => other,
    }
}
