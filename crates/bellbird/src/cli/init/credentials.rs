//! Credentials of a provider, as an operator enters them.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use bellbird_management::{ManagementChange, provider_settings};
use bellbird_providers::http::ClientSettings;
use bellbird_providers::registry;
use bellbird_providers::settings::{Declaration, Form, Setting};
use bellbird_providers::{CallContext, Cause};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::super::arguments::read_secret;
use super::super::ask;
use super::super::output::UsageError;
use crate::config::Settings;
use crate::provider_loader::with_credentials;

/// The values of one provider's settings, by name.
pub(super) struct Credentials {
    provider: &'static Declaration,
    values: BTreeMap<String, SecretString>,
}

impl Credentials {
    /// From a file, or standard input at `-`.
    pub(super) fn read(provider: &str, from: &str) -> anyhow::Result<Self> {
        let provider = declaration(provider)?;
        let text = read_secret(from, "the credentials")?;
        let read: Result<BTreeMap<String, String>, _> = serde_json::from_str(text.expose_secret());
        // The message of the error may hold a value.
        let Ok(read) = read else {
            bail!("the credentials must be one JSON object with texts");
        };
        let known: Vec<_> = entered(provider).map(|setting| setting.name).collect();
        if let Some(other) = read.keys().find(|name| !known.contains(&name.as_str())) {
            bail!(UsageError(format!(
                "{} has no setting {other:?}: the credentials are {}",
                provider.name,
                known.join(", ")
            )));
        }
        let values: BTreeMap<_, _> = read
            .into_iter()
            .map(|(name, value)| (name, SecretString::from(value)))
            .collect();
        let mut needs = provider.needs.iter();
        if let Some(missing) = needs.find(|name| !values.contains_key(**name)) {
            bail!(UsageError(format!(
                "the credentials of {} have no {missing}",
                provider.name
            )));
        }
        Ok(Self { provider, values })
    }

    /// On the terminal, without showing secrets.
    pub(super) fn ask(provider: &str) -> anyhow::Result<Self> {
        let provider = declaration(provider)?;
        let mut values = BTreeMap::new();
        for setting in entered(provider) {
            let is_needed = provider.needs.contains(&setting.name);
            let hint = if is_needed { "" } else { " (may be empty)" };
            let question = format!("{}.{}{hint}: ", provider.name, setting.name);
            let value = loop {
                let value = match setting.form {
                    Form::Secret => ask::secret(&question)?,
                    _ => SecretString::from(ask::line(&question)?),
                };
                if !is_needed || !value.expose_secret().is_empty() {
                    break value;
                }
            };
            if !value.expose_secret().is_empty() {
                values.insert(setting.name.to_owned(), value);
            }
        }
        Ok(Self { provider, values })
    }

    /// Calls the provider with them, where the settings say that it is.
    pub(super) async fn check(&self, configured: &Settings) -> anyhow::Result<()> {
        let set = configured.providers.of(self.provider);
        // What was entered would neither be tested nor used.
        if let Some(name) = self.values.keys().find(|name| set.get(name).is_some()) {
            let provider = self.provider.name;
            bail!(
                "{provider}.{name} is set in the settings, which win: unset it there, or keep all of {provider} there"
            );
        }
        let settings = with_credentials(&configured.providers, self.provider, &self.values);
        let timeout = configured.provider_timeout;
        let client = ClientSettings {
            call_timeout: timeout,
            user_calls_per_minute: 0,
            store: None,
        };
        let opened =
            registry::open(self.provider, &settings, client).map_err(anyhow::Error::msg)?;
        let Some(opened) = opened else {
            return Ok(());
        };
        let call = CallContext::new(Instant::now() + timeout, Timestamp::now(), Cause::Schedule);
        opened.provider.check(&call).await.map_err(|error| {
            let title = self.provider.title;
            let text = if error.is_transient() {
                format!("could not test the credentials of {title}")
            } else {
                format!("{title} does not take these credentials")
            };
            anyhow::Error::new(error).context(text)
        })
    }

    pub(super) async fn store(&self, change: &mut ManagementChange<'_>) -> anyhow::Result<()> {
        provider_settings::set(change, self.provider.name, &self.values).await?;
        Ok(())
    }
}

fn declaration(provider: &str) -> anyhow::Result<&'static Declaration> {
    registry::declaration(provider).context("there is no such provider")
}

/// The settings that are entered: all but the URLs, which have defaults.
fn entered(provider: &'static Declaration) -> impl Iterator<Item = &'static Setting> {
    let is_entered = |setting: &&Setting| !matches!(setting.form, Form::Url(_));
    provider.settings.iter().filter(is_entered)
}
