//! `bellbird sandbox`: runs the simulated providers without the service.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use bellbird_providers::registry::{PROVIDERS, ProviderSettings};
use bellbird_sandbox::{Description, Options};
use clap::Args;

use super::arguments::{SettingArgs, listen_address};
use super::output::{self, JsonFlag};
use crate::config::Settings;
use crate::{telemetry, wiring};

/// The sandbox gives requests in flight half a second.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Run the simulated providers without the service.
///
/// They speak the real wire protocols and serve made-up people with years of made-up rows. Use them
/// to try or test a service without a provider account. SIGTERM or Ctrl-C stops them.
#[derive(Debug, Args)]
#[command(after_long_help = "Examples:
  bellbird sandbox
  # prints settings for a service, and credentials for `bellbird connection import`

  bellbird sandbox --toml > bellbird.toml
  # the same as a settings file, for a service that starts in this folder")]
pub(super) struct SandboxArgs {
    #[command(flatten)]
    data: DataArgs,

    /// Listen address of the simulated Fiskil; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    #[arg(value_parser = listen_address)]
    fiskil_listen: SocketAddr,

    /// Listen address of the simulated Akahu
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8091")]
    #[arg(value_parser = listen_address)]
    akahu_listen: SocketAddr,

    /// Listen address of the simulated SnapTrade
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8092")]
    #[arg(value_parser = listen_address)]
    snaptrade_listen: SocketAddr,

    /// Let control calls send webhooks to other machines too
    #[arg(long)]
    webhooks_anywhere: bool,

    /// Print the settings as sections of bellbird.toml, and all else as comments
    #[arg(long, conflicts_with = "json")]
    toml: bool,

    #[command(flatten)]
    format: JsonFlag,
}

/// Data of the simulated providers.
#[derive(Debug, Args)]
pub(super) struct DataArgs {
    /// Seed of the made-up data; the same seed gives the same people, amounts and row ids
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Number of transactions of the busiest account
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rows: u32,
}

impl DataArgs {
    /// Sandbox options with this data and free ports.
    pub(super) fn options(&self) -> Options {
        Options {
            seed: self.seed,
            rows: self.rows,
            ..Options::default()
        }
    }
}

pub(super) async fn run(settings: &SettingArgs, args: &SandboxArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let _log = telemetry::start_log(&settings.log, None);
    let stop = wiring::stop_on_signal(STOP_TIMEOUT)?;
    let SandboxArgs {
        data,
        fiskil_listen,
        akahu_listen,
        snaptrade_listen,
        webhooks_anywhere,
        toml,
        format,
    } = args;
    let options = Options {
        fiskil_listen: *fiskil_listen,
        akahu_listen: *akahu_listen,
        snaptrade_listen: *snaptrade_listen,
        webhooks_anywhere: *webhooks_anywhere,
        ..data.options()
    };
    let sandbox = bellbird_sandbox::start(options).await.with_context(|| {
        format!(
            "could not listen on {fiskil_listen}, {akahu_listen} and {snaptrade_listen}; choose other addresses with \
             --fiskil-listen, --akahu-listen and --snaptrade-listen"
        )
    })?;
    let form = if *toml {
        SettingsForm::Toml
    } else {
        SettingsForm::Exports
    };
    let settings = settings_text(sandbox.description(), form)?;
    output::print(*format, sandbox.description(), |description| {
        text(&settings, description, form)
    })?;
    stop.cancelled().await;
    sandbox.stop().await;
    Ok(())
}

/// Builds the provider settings that point at the sandbox. The description has camel-case names:
/// `client_id` is `clientId` there. A provider without a simulation gets no settings.
pub fn sandbox_settings(sandbox: &Description) -> anyhow::Result<ProviderSettings> {
    let sandbox = serde_json::to_value(sandbox)?;
    let mut settings = ProviderSettings::default();
    for provider in PROVIDERS {
        let access = &sandbox[provider.name.as_str()];
        for setting in provider.settings {
            if let Some(value) = access[camel_case(setting.name)].as_str() {
                settings.section(provider).set(setting.name, value.into());
            }
        }
    }
    Ok(settings)
}

fn camel_case(name: &str) -> String {
    let mut words = name.split('_');
    let mut text = words.next().unwrap_or_default().to_owned();
    for word in words {
        let (first, rest) = word.split_at(word.len().min(1));
        text.push_str(&first.to_ascii_uppercase());
        text.push_str(rest);
    }
    text
}

/// How the sandbox prints the settings of a service that uses it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SettingsForm {
    /// Shell commands that set environment variables.
    Exports,
    /// Sections of a settings file.
    Toml,
}

/// The settings for a service that uses the sandbox, by provider.
fn settings_text(description: &Description, form: SettingsForm) -> anyhow::Result<String> {
    let mut settings = sandbox_settings(description)?;
    let mut blocks = Vec::new();
    for provider in PROVIDERS {
        let values = settings.section(provider);
        let mut lines = String::new();
        for setting in provider.settings {
            let Some(value) = values.get(setting.name) else {
                continue;
            };
            if form == SettingsForm::Toml {
                // A string of TOML, which escapes as JSON does.
                lines.push_str(&format!(
                    "{} = {}\n",
                    setting.name,
                    serde_json::to_string(value)?
                ));
            } else {
                let variable = Settings::variable(&format!("{}.{}", provider.name, setting.name));
                lines.push_str(&format!("export {variable}='{value}'\n"));
            }
        }
        if !lines.is_empty() {
            let head = if form == SettingsForm::Toml {
                format!("[{}]\n", provider.name)
            } else {
                String::new()
            };
            blocks.push(head + &lines);
        }
    }
    Ok(blocks.join("\n"))
}

fn text(settings: &str, description: &Description, form: SettingsForm) -> String {
    let consents = description.people.iter().zip(&description.credentials);
    let consents: Vec<_> = consents
        .filter_map(|(person, credentials)| {
            Some(format!(
                "# {person}\n{}",
                serde_json::to_string(credentials).ok()?
            ))
        })
        .collect();
    let credentials = format!(
        "Credentials, each for `bellbird connection import --user EMAIL --credentials -`:\n\n{}\n\n\
         Press Ctrl-C to stop.",
        consents.join("\n")
    );
    let intro = "The sandbox is running. Settings for a service that uses it:";
    match form {
        SettingsForm::Exports => format!("{intro}\n\n{settings}\n{credentials}"),
        SettingsForm::Toml => format!(
            "{}\n\n{settings}\n{}",
            commented(intro),
            commented(&credentials)
        ),
    }
}

/// The lines as comments of TOML.
fn commented(text: &str) -> String {
    let comment = |line: &str| match line {
        "" => "#".to_owned(),
        comment if comment.starts_with('#') => comment.to_owned(),
        line => format!("# {line}"),
    };
    text.lines().map(comment).collect::<Vec<_>>().join("\n")
}
