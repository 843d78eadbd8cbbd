//! Keeps a process in step with what operators enter in the console: its providers, and how others
//! know it. What the settings file or the environment sets wins.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use axum::Router;
use bellbird_console::{ProviderControl, TestError};
use bellbird_domain::{Actor, UserId};
use bellbird_limits::SharedStore;
use bellbird_management::{ManagementChange, Refusal, provider_settings};
use bellbird_providers::http::ClientSettings;
use bellbird_providers::registry::{self, Enabled, PROVIDERS, ProviderSettings};
use bellbird_providers::settings::{Declaration, Form};
use bellbird_providers::{CallContext, Cause, Registry};
use bellbird_storage::{LastFailure, Storage, StorageError, StoredConsole, StoredProviderSettings};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::{Origin, Settings};

/// Why a provider that the settings configure is left out: the real one would be called with what
/// the simulated one has issued.
const OF_SANDBOX: &str = "Its connections are of the sandbox, so the real provider is not called. Take these settings \
                          away and restart, remove the connections, and stop the sandbox of this provider. Then set \
                          them again.";

/// Simulates the providers in this process.
#[async_trait]
pub trait ProcessSandbox: Send + Sync {
    /// The settings with which the simulated providers are called, of each provider that is
    /// simulated. Starts them if they do not run yet.
    async fn settings(&self) -> anyhow::Result<ProviderSettings>;

    /// Says where browsers find the console, to which they come back. Before the first call of
    /// [`Self::settings`], and again when it has changed.
    fn set_console_url(&self, _url: &str) {}

    /// Adds the pages at which users consent to the router of the console, which leads there.
    fn attach_pages(self: Arc<Self>, console: Router) -> Router {
        console
    }
}

#[async_trait]
impl ProviderControl for ProviderLoader {
    fn configured_by(&self, provider: &Declaration) -> Option<String> {
        self.configured_by.get(provider.name.as_str()).cloned()
    }

    fn set_by(&self, setting: &str) -> Option<String> {
        self.origins.get(setting).map(ToString::to_string)
    }

    fn left_out(&self, provider: &Declaration) -> Option<String> {
        let is_left_out = self.left_out.lock().contains(provider.name.as_str());
        is_left_out.then(|| OF_SANDBOX.to_owned())
    }

    fn has_sandbox(&self) -> bool {
        self.sandbox.is_some()
    }

    async fn test(
        &self,
        operator: UserId,
        provider: &'static Declaration,
        credentials: BTreeMap<String, SecretString>,
    ) -> Result<(), TestError> {
        let settings = with_credentials(&self.configured, provider, &credentials);
        let opened = registry::open(provider, &settings, self.client()).map_err(TestError::Form)?;
        let enabled =
            opened.ok_or_else(|| TestError::Form("credentials are missing".to_owned()))?;
        let deadline = Instant::now() + self.call_timeout;
        let call = CallContext::new(deadline, Timestamp::now(), Cause::Request(operator));
        Ok(enabled.provider.check(&call).await?)
    }

    /// Opens the providers whose stored settings have changed since the last call, and closes those
    /// that have none any more. A provider that cannot be opened is logged and left out, so that
    /// the others work. The console comes first, because simulated providers lead back to it.
    async fn apply(&self) -> Result<(), StorageError> {
        let mut applied = self.applied.lock().await;
        let settings = self.storage.provider_settings();
        self.apply_console(settings.console().await?);
        let in_use = settings.list_in_use(Timestamp::now()).await?;
        for stored in settings.list().await? {
            let Some(declared) = registry::declaration(&stored.provider) else {
                continue;
            };
            let name = declared.name.as_str();
            if self.is_configured(declared) {
                let is_of_sandbox = stored.is_sandbox && in_use.contains(&stored.provider);
                self.registry.set_sandbox(declared, is_of_sandbox);
                self.leave_out(declared, is_of_sandbox);
                continue;
            }
            if applied.get(name) == Some(&stored.revision) {
                continue;
            }
            let enabled = match self.open(declared, &stored).await {
                Ok(enabled) => enabled,
                Err(error) => {
                    // With its causes, which say what to do.
                    let error = format!("{error:#}");
                    tracing::warn!(provider = name, error, "could not use the stored settings");
                    None
                }
            };
            self.registry.set_sandbox(declared, stored.is_sandbox);
            tracing::info!(
                provider = name,
                is_enabled = enabled.is_some(),
                is_sandbox = stored.is_sandbox,
                "stored settings of provider applied"
            );
            self.registry.exchange(name, enabled);
            applied.insert(name, stored.revision);
        }
        Ok(())
    }
}

impl fmt::Debug for ProviderLoader {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ProviderLoader").finish_non_exhaustive()
    }
}

/// Exchanges the providers of a [`Registry`] when their stored settings change.
pub struct ProviderLoader {
    registry: Registry,
    storage: Storage,
    /// Of the settings file and the environment.
    configured: ProviderSettings,
    /// Of each provider whose credentials these have, the source of the first one.
    configured_by: BTreeMap<&'static str, String>,
    /// Of each setting that has a value.
    origins: BTreeMap<String, Origin>,
    call_timeout: Duration,
    user_calls_per_minute: u32,
    store: Option<SharedStore>,
    /// None: this process simulates nothing.
    sandbox: Option<Arc<dyn ProcessSandbox>>,
    /// The revision of each provider's row that its adapter was opened with.
    applied: Mutex<BTreeMap<&'static str, i64>>,
    /// Those that are configured, and whose connections are of the sandbox.
    left_out: parking_lot::Mutex<BTreeSet<&'static str>>,
    /// What a change of what is entered for the console does here. A command has none.
    follow_console: OnceLock<FollowConsole>,
    applied_console: parking_lot::Mutex<Option<StoredConsole>>,
}

/// Is called with what is entered for the console.
type FollowConsole = Box<dyn Fn(&StoredConsole) + Send + Sync>;

impl ProviderLoader {
    pub(crate) fn new(
        settings: &Settings,
        storage: &Storage,
        registry: &Registry,
        store: Option<&SharedStore>,
        sandbox: Option<Arc<dyn ProcessSandbox>>,
    ) -> Self {
        Self {
            registry: registry.clone(),
            storage: storage.clone(),
            configured: settings.providers.clone(),
            configured_by: configured_by(settings),
            origins: origins_of_values(settings),
            call_timeout: settings.provider_timeout,
            user_calls_per_minute: settings.api_context.provider_calls_per_minute,
            store: store.cloned(),
            sandbox,
            applied: Mutex::default(),
            left_out: parking_lot::Mutex::default(),
            follow_console: OnceLock::new(),
            applied_console: parking_lot::Mutex::default(),
        }
    }

    /// Has `follow` called by the next [`Self::apply`], and by each one after a change of what is
    /// entered for the console.
    pub fn follow_console(&self, follow: impl Fn(&StoredConsole) + Send + Sync + 'static) {
        // A process has one console.
        let _ = self.follow_console.set(Box::new(follow));
    }

    fn apply_console(&self, entered: StoredConsole) {
        let Some(follow) = self.follow_console.get() else {
            return;
        };
        let mut applied = self.applied_console.lock();
        if applied.as_ref() == Some(&entered) {
            return;
        }
        follow(&entered);
        if applied.replace(entered).is_some() {
            tracing::info!("name and address of the console applied");
        }
    }

    /// Whether the settings file or the environment has the credentials of a provider.
    pub fn is_configured(&self, provider: &Declaration) -> bool {
        self.configured.is_complete(provider)
    }

    /// Takes back that providers are simulated that the settings configure now, if they are not in
    /// use. Their next connections are of the real ones. For a service, before the first
    /// [`Self::apply`].
    pub async fn end_unused_sandbox(&self) -> Result<(), StorageError> {
        for stored in self.storage.provider_settings().list().await? {
            let Some(declared) = registry::declaration(&stored.provider) else {
                continue;
            };
            if !stored.is_sandbox || !self.is_configured(declared) {
                continue;
            }
            let (storage, now) = (&self.storage, Timestamp::now());
            let mut change = storage.begin_change(Actor::settings(), now).await?;
            match provider_settings::remove(&mut change, declared.name).await {
                Ok(()) => change.commit().await?,
                // Then it is left out.
                Err(Refusal::ProviderInUse) => {}
                Err(Refusal::Storage(error)) => return Err(error),
                Err(error) => {
                    tracing::warn!(provider = %declared.name, %error, "could not end the sandbox");
                }
            }
        }
        Ok(())
    }

    /// Leaves a configured provider out while its connections are of the sandbox, or opens it
    /// again.
    fn leave_out(&self, declared: &'static Declaration, is_of_sandbox: bool) {
        let name = declared.name.as_str();
        let mut left_out = self.left_out.lock();
        if left_out.contains(name) == is_of_sandbox {
            return;
        }
        let enabled = if is_of_sandbox {
            left_out.insert(name);
            tracing::warn!(provider = name, reason = OF_SANDBOX, "provider left out");
            None
        } else {
            left_out.remove(name);
            // It was open before, with the same settings.
            registry::open(declared, &self.configured, self.client()).unwrap_or_default()
        };
        self.registry.exchange(name, enabled);
    }

    /// Applies changes until `stop`. They are read with each renewal of the instance's row.
    pub async fn follow(&self, stop: &CancellationToken) {
        let mut changes = self.storage.provider_settings().changes();
        // What has changed since the process applied them at its start.
        changes.mark_changed();
        let mut failure = LastFailure::default();
        while let Some(Ok(())) = stop.run_until_cancelled(changes.changed()).await {
            let applied = self.apply().await;
            if let Some(error) = failure.news(&applied) {
                tracing::warn!(error, "could not read the settings of providers");
            }
            if applied.is_err() {
                // The next renewal may read the same revision, which would be no change.
                changes.mark_changed();
                let pause = tokio::time::sleep(Duration::from_secs(5));
                stop.run_until_cancelled(pause).await;
            }
        }
    }

    async fn open(
        &self,
        declared: &'static Declaration,
        stored: &StoredProviderSettings,
    ) -> anyhow::Result<Option<Enabled>> {
        let settings = match (&self.sandbox, stored.is_sandbox) {
            (Some(sandbox), true) => sandbox.settings().await?,
            (None, true) => anyhow::bail!("this process has no simulated providers"),
            (_, false) => match &stored.credentials {
                Some(credentials) => with_credentials(&self.configured, declared, credentials),
                None if stored.is_sealed => {
                    anyhow::bail!("the stored credentials cannot be opened with this master key")
                }
                None => return Ok(None),
            },
        };
        registry::open(declared, &settings, self.client()).map_err(anyhow::Error::msg)
    }

    fn client(&self) -> ClientSettings<'_> {
        ClientSettings {
            call_timeout: self.call_timeout,
            user_calls_per_minute: self.user_calls_per_minute,
            store: self.store.as_ref(),
        }
    }
}

/// The settings of a provider with these credentials: other settings are the configured ones.
pub fn with_credentials(
    configured: &ProviderSettings,
    declared: &Declaration,
    credentials: &BTreeMap<String, SecretString>,
) -> ProviderSettings {
    let mut settings = configured.clone();
    let section = settings.section(declared);
    for setting in declared.settings {
        if let Some(value) = credentials.get(setting.name)
            && !matches!(setting.form, Form::Url(_))
            && section.get(setting.name).is_none()
        {
            section.set(setting.name, value.clone());
        }
    }
    settings
}

/// Whether a service with these settings can simulate providers.
pub fn can_simulate(settings: &Settings) -> bool {
    let url = settings.database.url.expose_secret();
    cfg!(feature = "sandbox") && Storage::sqlite_path(url).is_some()
}

/// What to do where [`can_simulate`] is false.
pub const NO_SANDBOX: &str = if cfg!(feature = "sandbox") {
    "simulated providers need SQLite, because each instance would simulate others: run `bellbird sandbox`, and set \
     what it prints"
} else {
    "this build has no simulated providers: use one of a release"
};

/// Has the service simulate each provider that is neither configured nor `stored`. Returns those
/// that are left out because they are in use.
pub async fn simulate_others(
    settings: &Settings,
    stored: &[StoredProviderSettings],
    change: &mut ManagementChange<'_>,
) -> Result<Vec<&'static str>, Refusal> {
    let mut in_use = Vec::new();
    for declared in PROVIDERS {
        let name = declared.name.as_str();
        let is_entered =
            |stored: &StoredProviderSettings| stored.provider == name && stored.is_used();
        if settings.providers.is_complete(declared) || stored.iter().any(is_entered) {
            continue;
        }
        match provider_settings::use_sandbox(change, declared.name).await {
            Err(Refusal::ProviderInUse) => in_use.push(name),
            other => other?,
        }
    }
    Ok(in_use)
}

/// Without those of empty values, each of which leaves its setting unset: compose files have such
/// variables.
fn origins_of_values(settings: &Settings) -> BTreeMap<String, Origin> {
    let is_empty = |name: &str| {
        let value = settings.effective.get(name);
        value.is_some_and(|value| value.expose_secret().is_empty())
    };
    let origins = settings.origins.iter();
    let of_values = origins.filter(|(name, _)| !is_empty(name));
    of_values
        .map(|(name, origin)| (name.clone(), origin.clone()))
        .collect()
}

/// The sources of the credentials of each provider that the settings configure completely.
fn configured_by(settings: &Settings) -> BTreeMap<&'static str, String> {
    let configured = PROVIDERS
        .iter()
        .filter(|declared| settings.providers.is_complete(declared));
    configured
        .map(|declared| {
            let name = declared.name.as_str();
            let mut origins = declared
                .needs
                .iter()
                .filter_map(|needed| settings.origin(&format!("{name}.{needed}")));
            let origin = origins
                .next()
                .map_or_else(|| "the command".to_owned(), ToString::to_string);
            (name, origin)
        })
        .collect()
}
