//! What the pages about providers need of the process that serves them.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bellbird_domain::UserId;
use bellbird_providers::Error;
use bellbird_providers::settings::Declaration;
use bellbird_storage::StorageError;
use secrecy::SecretString;

/// The providers of this process.
#[async_trait::async_trait]
pub trait ProviderControl: Debug + Send + Sync {
    /// Which setting of the settings file or the environment has the credentials of a provider, for
    /// the operator. None: operators enter them in the console.
    fn configured_by(&self, provider: &Declaration) -> Option<String>;

    /// Which line of the settings file or the environment has a setting such as `fiskil.client_id`,
    /// for the operator. None: none has.
    fn set_by(&self, setting: &str) -> Option<String>;

    /// Why a provider that the settings configure is not used, and what to do about it.
    fn left_out(&self, provider: &Declaration) -> Option<String>;

    /// Whether this process can simulate providers.
    fn has_sandbox(&self) -> bool;

    /// Calls the provider with these credentials, by the names of its settings. The operator pays
    /// for the call, as for any other that a person causes.
    async fn test(
        &self,
        operator: UserId,
        provider: &'static Declaration,
        credentials: BTreeMap<String, SecretString>,
    ) -> Result<(), TestError>;

    /// Applies what the database holds in this process. Others follow within seconds.
    async fn apply(&self) -> Result<(), StorageError>;
}

/// Why credentials cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TestError {
    /// They have the wrong form. The text names the setting.
    #[error("{0}")]
    Form(String),
    #[error(transparent)]
    Call(#[from] Error),
}

/// The master key of the service, for an operator who completes a first start.
#[derive(Debug, Clone)]
pub struct MasterKey {
    /// As `secrets.key` has it.
    pub key: SecretString,
    /// Where the service reads it, for the operator: `the file /var/lib/bellbird/master.key`.
    pub place: String,
}
