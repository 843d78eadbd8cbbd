//! What operators enter for providers: credentials, or that a provider is simulated. The audit has
//! the provider, and never a value. And what they enter for the console itself.

use std::collections::BTreeMap;

use bellbird_domain::ProviderName;
use bellbird_storage::writes::provider_settings;
use bellbird_storage::{AuditAction, ManagementChange, StoredConsole};
use secrecy::SecretString;

use crate::refusal::Refusal;

/// Stores the credentials of a provider, by the names of its settings. They replace those before.
///
/// # Errors
/// [`Refusal::ProviderInUse`] if the provider is simulated now, and somebody has a connection of
/// it, or is on the way to one.
pub async fn set(
    change: &mut ManagementChange<'_>,
    provider: ProviderName,
    credentials: &BTreeMap<String, SecretString>,
) -> Result<(), Refusal> {
    require_unused(change, provider, false).await?;
    let (secrets, now) = (change.storage().secrets(), change.now());
    provider_settings::set(change.tx(), secrets, provider.as_str(), credentials, now).await?;
    record(change, "provider_settings.set", provider).await
}

/// Removes what is stored for a provider. Its connections stay, and are not read until it has
/// credentials again.
///
/// # Errors
/// [`Refusal::ProviderInUse`] as for [`set`]: what the simulated provider has issued would go to
/// the real one with the next credentials.
pub async fn remove(
    change: &mut ManagementChange<'_>,
    provider: ProviderName,
) -> Result<(), Refusal> {
    require_unused(change, provider, false).await?;
    let now = change.now();
    provider_settings::remove(change.tx(), provider.as_str(), now).await?;
    record(change, "provider_settings.remove", provider).await
}

/// Has a provider simulated by the service itself.
///
/// # Errors
/// [`Refusal::ProviderInUse`] if the provider is a real one now, and somebody has a connection of
/// it, is on the way to one, or is registered there.
pub async fn use_sandbox(
    change: &mut ManagementChange<'_>,
    provider: ProviderName,
) -> Result<(), Refusal> {
    require_unused(change, provider, true).await?;
    let now = change.now();
    provider_settings::use_sandbox(change.tx(), provider.as_str(), now).await?;
    record(change, "provider_settings.use_sandbox", provider).await
}

/// Stores what is entered for the console itself, which replaces what was before. The audit has the
/// `setting` that this changes.
pub async fn set_console(
    change: &mut ManagementChange<'_>,
    console: &StoredConsole,
    setting: &'static str,
) -> Result<(), Refusal> {
    let (secrets, now) = (change.storage().secrets(), change.now());
    provider_settings::set_console(change.tx(), secrets, console, now).await?;
    let action = AuditAction::of_installation("console_settings.set").about(setting);
    Ok(change.record(&action).await?)
}

/// Fails if the change would call a real provider with what a simulated one has issued, or the
/// other way round. Whom we registered at a simulated provider is forgotten, because nothing of it
/// outlives the simulation, and no page removes a registration without its user.
async fn require_unused(
    change: &mut ManagementChange<'_>,
    provider: ProviderName,
    to_sandbox: bool,
) -> Result<(), Refusal> {
    let (name, now) = (provider.as_str(), change.now());
    let was_sandbox = provider_settings::is_sandbox(change.tx(), name).await?;
    if was_sandbox.unwrap_or_default() == to_sandbox {
        return Ok(());
    }
    let is_registered = to_sandbox && provider_settings::is_registered(change.tx(), name).await?;
    if is_registered || provider_settings::is_linked(change.tx(), name, now).await? {
        return Err(Refusal::ProviderInUse);
    }
    if !to_sandbox {
        provider_settings::forget_registrations(change.tx(), name).await?;
    }
    Ok(())
}

async fn record(
    change: &mut ManagementChange<'_>,
    action: &'static str,
    provider: ProviderName,
) -> Result<(), Refusal> {
    let action = AuditAction::of_installation(action).about(provider);
    Ok(change.record(&action).await?)
}
