//! What operators enter for providers: credentials, or that a provider is simulated. The audit has
//! the provider, and never a value.

use std::collections::BTreeMap;

use bellbird_domain::ProviderName;
use bellbird_storage::writes::provider_settings;
use bellbird_storage::{AuditAction, ManagementChange};
use secrecy::SecretString;

use crate::refusal::Refusal;

/// Stores the credentials of a provider, by the names of its settings. They replace those before.
///
/// # Errors
/// [`Refusal::ProviderInUse`] if the provider is simulated now, and somebody has a connection of
/// it.
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
pub async fn remove(
    change: &mut ManagementChange<'_>,
    provider: ProviderName,
) -> Result<(), Refusal> {
    let now = change.now();
    provider_settings::remove(change.tx(), provider.as_str(), now).await?;
    record(change, "provider_settings.remove", provider).await
}

/// Has a provider simulated by the service itself.
///
/// # Errors
/// [`Refusal::ProviderInUse`] if the provider is a real one now, and somebody has a connection of
/// it.
pub async fn use_sandbox(
    change: &mut ManagementChange<'_>,
    provider: ProviderName,
) -> Result<(), Refusal> {
    require_unused(change, provider, true).await?;
    let now = change.now();
    provider_settings::use_sandbox(change.tx(), provider.as_str(), now).await?;
    record(change, "provider_settings.use_sandbox", provider).await
}

/// Fails if the change would call a real provider with what a simulated one has issued, or the
/// other way round.
async fn require_unused(
    change: &mut ManagementChange<'_>,
    provider: ProviderName,
    to_sandbox: bool,
) -> Result<(), Refusal> {
    let name = provider.as_str();
    let was_sandbox = provider_settings::is_sandbox(change.tx(), name).await?;
    let changes = was_sandbox.unwrap_or_default() != to_sandbox;
    if changes && provider_settings::has_connections(change.tx(), name).await? {
        return Err(Refusal::ProviderInUse);
    }
    Ok(())
}

async fn record(
    change: &mut ManagementChange<'_>,
    action: &'static str,
    provider: ProviderName,
) -> Result<(), Refusal> {
    let action = AuditAction::of_installation(action).about(provider.as_str());
    Ok(change.record(&action).await?)
}
