//! Stores what operators have entered for providers in the console. Credentials are sealed.
//!
//! The revision of all settings is the sum over their rows. Instances read it with each renewal of
//! their row, so that they follow changes without a query of their own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::watch;

use crate::db::{Row, Tx, params, statements};
use crate::error::Result;
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::{ProviderSettings, Secrets, StorageError};

statements! {
    /// As one statement, so that of two changes at once both count.
    SAVE = "INSERT INTO provider_settings (provider, is_sandbox, changed_at, revision) VALUES ($1, $2, $3, 1)
        ON CONFLICT (provider) DO UPDATE SET is_sandbox = excluded.is_sandbox, changed_at = excluded.changed_at,
            revision = provider_settings.revision + 1";

    LIST = "SELECT provider, is_sandbox, changed_at, revision FROM provider_settings ORDER BY provider";

    IS_SANDBOX = "SELECT is_sandbox FROM provider_settings WHERE provider = $1";

    HAS_CONNECTIONS = "SELECT user_id FROM connections WHERE provider = $1 LIMIT 1";
}

/// What is stored for a provider. Its `Debug` shows no value.
#[derive(Debug, Clone)]
pub struct StoredProviderSettings {
    pub provider: String,
    /// Whether the service simulates the provider itself.
    pub is_sandbox: bool,
    /// By the name of the setting. None: there are no credentials, or no configured key opens them.
    pub credentials: Option<BTreeMap<String, SecretString>>,
    pub changed_at: Timestamp,
    pub revision: i64,
}

impl ProviderSettings<'_> {
    /// The revision of all settings, as the renewals of this instance's row read it. It changes
    /// within seconds of a change by any instance or command.
    #[must_use]
    pub fn changes(self) -> watch::Receiver<i64> {
        self.0.renewals.provider_settings.subscribe()
    }

    /// Reads and opens all settings, in the order of the providers' names. Credentials that cannot
    /// be opened are left out: `storage.secrets().sealed()` lists them.
    pub async fn list(self) -> Result<Vec<StoredProviderSettings>> {
        let mut rows = self.0.db.all(LIST, params![], stored).await?;
        for row in &mut rows {
            let slot = SecretSlot::provider_settings(&row.provider);
            let opened = match self.0.secrets().find(&slot).await {
                Err(StorageError::Sealed(_)) => None,
                found => found?,
            };
            row.credentials = opened.as_ref().and_then(credentials);
        }
        Ok(rows)
    }
}

/// Stores the credentials of a provider, which replace those before.
pub async fn set(
    tx: &mut Tx,
    secrets: Secrets<'_>,
    provider: &str,
    credentials: &BTreeMap<String, SecretString>,
    now: Timestamp,
) -> Result<()> {
    save(tx, provider, false, now).await?;
    let values: BTreeMap<_, _> = credentials
        .iter()
        .map(|(name, value)| (name, value.expose_secret()))
        .collect();
    let text = serde_json::to_string(&values).map_err(StorageError::unavailable)?;
    let slot = SecretSlot::provider_settings(provider);
    secrets.store(tx, &slot, &SecretString::from(text)).await
}

/// Removes the credentials of a provider, and that it is simulated.
pub async fn remove(tx: &mut Tx, provider: &str, now: Timestamp) -> Result<()> {
    save(tx, provider, false, now).await?;
    delete_secret(tx, &SecretSlot::provider_settings(provider)).await
}

/// Has a provider simulated, and removes its credentials.
pub async fn use_sandbox(tx: &mut Tx, provider: &str, now: Timestamp) -> Result<()> {
    save(tx, provider, true, now).await?;
    delete_secret(tx, &SecretSlot::provider_settings(provider)).await
}

/// Whether a provider is simulated by what is stored, or None if nothing is.
pub async fn is_sandbox(tx: &mut Tx, provider: &str) -> Result<Option<bool>> {
    tx.one(IS_SANDBOX, params![provider], |row| Ok(row.int(0)? == 1))
        .await
}

/// Whether anybody has a connection of a provider.
pub async fn has_connections(tx: &mut Tx, provider: &str) -> Result<bool> {
    let found = tx
        .one(HAS_CONNECTIONS, params![provider], |_| Ok(()))
        .await?;
    Ok(found.is_some())
}

async fn save(tx: &mut Tx, provider: &str, is_sandbox: bool, now: Timestamp) -> Result<()> {
    let values = params![provider, i64::from(is_sandbox), now];
    tx.run(SAVE, values).await.map(|_| ())
}

fn credentials(text: &SecretString) -> Option<BTreeMap<String, SecretString>> {
    serde_json::from_str::<BTreeMap<String, String>>(text.expose_secret())
        .ok()
        .map(|values| {
            let sealed = |(name, value)| (name, SecretString::from(value));
            values.into_iter().map(sealed).collect()
        })
}

fn stored(row: &Row<'_>) -> Result<StoredProviderSettings> {
    Ok(StoredProviderSettings {
        provider: row.text(0)?.to_owned(),
        is_sandbox: row.int(1)? == 1,
        credentials: None,
        changed_at: row.time(2)?,
        revision: row.int(3)?,
    })
}
