//! Stores what operators have entered in the console: for providers, and for the console itself.
//! Values are sealed.
//!
//! The revision of all settings is the sum over their rows. Instances read it with each renewal of
//! their row, so that they follow changes without a query of their own.

use std::collections::BTreeMap;

use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use crate::db::{Tx, from_row, params, scalar, statements};
use crate::error::Result;
use crate::secrets::store::{SecretSlot, delete_secret};
use crate::{ProviderSettings, Secrets, StorageError};

/// In the place of a provider, for what is entered for the console.
const CONSOLE: &str = "console";

/// Whether a provider has connections, or a person is on the way to one. A session whose browser
/// has not come back ends by itself.
macro_rules! uses {
    ($provider:literal, $now:literal) => {
        concat!(
            "(EXISTS (SELECT 1 FROM connections AS c WHERE c.provider = ",
            $provider,
            ") OR EXISTS (SELECT 1 FROM consent_sessions AS s WHERE s.provider = ",
            $provider,
            " AND s.phase <> 'ended' AND (s.phase <> 'started' OR s.expires_at > ",
            $now,
            ")))"
        )
    };
}

macro_rules! registrations {
    ($provider:literal) => {
        concat!(
            "EXISTS (SELECT 1 FROM provider_users AS u WHERE u.provider = ",
            $provider,
            ")"
        )
    };
}

statements! {
    /// As one statement, so that of two changes at once both count.
    SAVE = "INSERT INTO provider_settings (provider, is_sandbox, changed_at, revision) VALUES ($1, $2, $3, 1)
        ON CONFLICT (provider) DO UPDATE SET is_sandbox = excluded.is_sandbox, changed_at = excluded.changed_at,
            revision = provider_settings.revision + 1";

    LIST = "SELECT provider, is_sandbox, changed_at, revision FROM provider_settings ORDER BY provider";

    IS_SANDBOX = "SELECT is_sandbox FROM provider_settings WHERE provider = $1";

    LIST_IN_USE = concat!(
        "SELECT p.provider FROM provider_settings AS p WHERE ", uses!("p.provider", "$1"),
        " OR ", registrations!("p.provider"), " ORDER BY p.provider"
    );

    IS_LINKED = concat!(
        "SELECT 1 WHERE ", uses!("$1", "$2")
    );

    IS_REGISTERED = concat!(
        "SELECT 1 WHERE ", registrations!("$1")
    );

    DELETE_REGISTRATION_JOBS = "DELETE FROM jobs WHERE kind = 'provider_user' AND provider = $1";

    DELETE_REGISTRATIONS = "DELETE FROM provider_users WHERE provider = $1";

    DELETE_REGISTRATION_SECRETS = "DELETE FROM secrets WHERE purpose = 'provider_user' AND subject = $1";
}

/// What is stored for a provider. Its `Debug` shows no value.
#[derive(Debug, Clone)]
pub struct StoredProviderSettings {
    pub provider: String,
    /// Whether the service simulates the provider itself.
    pub is_sandbox: bool,
    /// By the name of the setting. None: there are no credentials, or no configured key opens them.
    pub credentials: Option<BTreeMap<String, SecretString>>,
    /// There are credentials, and no configured key opens them.
    pub is_sealed: bool,
    pub changed_at: Timestamp,
    pub revision: i64,
}

/// What is stored for the console itself. None: nothing, or no configured key opens it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredConsole {
    /// The name that stands on every page.
    pub operator_name: Option<String>,
    /// The URL at which browsers and providers reach the console.
    pub public_url: Option<String>,
}

impl StoredProviderSettings {
    /// Whether an operator has entered anything that is not removed again, readable or not.
    #[must_use]
    pub fn is_used(&self) -> bool {
        self.is_sandbox || self.is_sealed || self.credentials.is_some()
    }
}

impl ProviderSettings<'_> {
    /// The revision of all settings, as the renewals of this instance's row read it. It changes
    /// within seconds of a change by any instance or command.
    #[must_use]
    pub fn changes(self) -> watch::Receiver<i64> {
        self.renewals.provider_settings.subscribe()
    }

    /// Reads and opens the settings of all providers, in the order of their names.
    pub async fn list(self) -> Result<Vec<StoredProviderSettings>> {
        let mut rows = self.db.all(LIST, params![], stored).await?;
        rows.retain(|row| row.provider != CONSOLE);
        for row in &mut rows {
            let slot = SecretSlot::provider_settings(&row.provider);
            match self.secrets().find(&slot).await {
                Ok(found) => {
                    row.credentials = found.as_ref().and_then(credentials);
                    row.is_sealed = found.is_some() && row.credentials.is_none();
                }
                Err(StorageError::Sealed(_)) => row.is_sealed = true,
                Err(error) => return Err(error),
            }
        }
        Ok(rows)
    }

    /// Reads and opens what is stored for the console itself.
    pub async fn console(self) -> Result<StoredConsole> {
        let slot = SecretSlot::provider_settings(CONSOLE);
        match self.secrets().find(&slot).await {
            Ok(found) => Ok(found
                .and_then(|text| serde_json::from_str(text.expose_secret()).ok())
                .unwrap_or_default()),
            Err(StorageError::Sealed(error)) => {
                tracing::warn!(%error, "could not open what was entered for the console");
                Ok(StoredConsole::default())
            }
            Err(error) => Err(error),
        }
    }

    /// The providers with settings here that have connections, users whom we registered there, or
    /// people on the way to a connection.
    pub async fn list_in_use(self, now: Timestamp) -> Result<Vec<String>> {
        self.db.all(LIST_IN_USE, params![now], scalar).await
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
    let values: BTreeMap<_, _> = credentials
        .iter()
        .map(|(name, value)| (name, value.expose_secret()))
        .collect();
    store(tx, secrets, provider, &values, now).await
}

/// Stores what was entered for the console itself, which replaces what was before.
pub async fn set_console(
    tx: &mut Tx,
    secrets: Secrets<'_>,
    console: &StoredConsole,
    now: Timestamp,
) -> Result<()> {
    store(tx, secrets, CONSOLE, console, now).await
}

async fn store(
    tx: &mut Tx,
    secrets: Secrets<'_>,
    provider: &str,
    values: &(impl Serialize + Sync),
    now: Timestamp,
) -> Result<()> {
    save(tx, provider, false, now).await?;
    let text = serde_json::to_string(values).map_err(StorageError::unavailable)?;
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
    tx.value(IS_SANDBOX, params![provider]).await
}

/// Whether anybody has a connection of a provider, or is on the way to one.
pub async fn is_linked(tx: &mut Tx, provider: &str, now: Timestamp) -> Result<bool> {
    tx.exists(IS_LINKED, params![provider, now]).await
}

/// Whether we registered anybody at a provider, or have begun to.
pub async fn is_registered(tx: &mut Tx, provider: &str) -> Result<bool> {
    tx.exists(IS_REGISTERED, params![provider]).await
}

/// Forgets whom we registered at a provider. A task that registers somebody loses its lease.
pub async fn forget_registrations(tx: &mut Tx, provider: &str) -> Result<()> {
    for statement in [
        DELETE_REGISTRATION_JOBS,
        DELETE_REGISTRATIONS,
        DELETE_REGISTRATION_SECRETS,
    ] {
        tx.run(statement, params![provider]).await?;
    }
    Ok(())
}

async fn save(tx: &mut Tx, provider: &str, is_sandbox: bool, now: Timestamp) -> Result<()> {
    let values = params![provider, is_sandbox, now];
    tx.execute(SAVE, values).await
}

fn credentials(text: &SecretString) -> Option<BTreeMap<String, SecretString>> {
    serde_json::from_str::<BTreeMap<String, String>>(text.expose_secret())
        .ok()
        .map(|values| {
            let sealed = |(name, value)| (name, SecretString::from(value));
            values.into_iter().map(sealed).collect()
        })
}

from_row! {
    fn stored(row) -> StoredProviderSettings {
        provider, is_sandbox, changed_at, revision, credentials = None, is_sealed = false,
    }
}
