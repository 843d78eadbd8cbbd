//! `bellbird sandbox`: runs the simulated providers without the service.

use std::net::SocketAddr;

use anyhow::Context as _;
use bellbird_providers::registry::{PROVIDERS, ProviderSettings};
use bellbird_sandbox::{Description, Options};
use clap::Args;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag};
use crate::{telemetry, wiring};

/// Run the simulated providers without the service.
///
/// They speak the real wire protocols and serve made-up people with years of made-up rows. Use them to try or test a
/// service without a provider account. SIGTERM or Ctrl-C stops them.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird sandbox
  # prints settings for a service, and credentials for `bellbird connection import`")]
pub(super) struct SandboxArgs {
    #[command(flatten)]
    data: DataArgs,

    /// Listen address of the simulated Fiskil; port 0 picks a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    fiskil_listen: SocketAddr,

    /// Listen address of the simulated Akahu
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8091")]
    akahu_listen: SocketAddr,

    /// Listen address of the simulated SnapTrade
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8092")]
    snaptrade_listen: SocketAddr,

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
        Options { seed: self.seed, rows: self.rows, ..Options::default() }
    }
}

pub(super) async fn run(settings: &SettingArgs, args: &SandboxArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let _log = telemetry::start_log(&settings.log);
    let stop = wiring::stop_on_signal()?;
    let SandboxArgs { data, fiskil_listen, akahu_listen, snaptrade_listen, format } = args;
    let options = Options {
        fiskil_listen: *fiskil_listen,
        akahu_listen: *akahu_listen,
        snaptrade_listen: *snaptrade_listen,
        ..data.options()
    };
    let sandbox = bellbird_sandbox::start(options).await.with_context(|| {
        format!(
            "could not listen on {fiskil_listen}, {akahu_listen} and {snaptrade_listen}; choose other addresses with \
             --fiskil-listen, --akahu-listen and --snaptrade-listen"
        )
    })?;
    let exports = exports(sandbox.description())?;
    output::print(*format, sandbox.description(), |description| text(&exports, description))?;
    stop.cancelled().await;
    sandbox.stop().await;
    Ok(())
}

/// Builds the provider settings that point at the sandbox. The description has camel-case names: `client_id` is
/// `clientId` there. A provider without a simulation gets no settings.
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

/// Shell commands that set the environment variables for a service that uses the sandbox, by provider.
fn exports(description: &Description) -> anyhow::Result<String> {
    let mut settings = sandbox_settings(description)?;
    let blocks = PROVIDERS.iter().map(|provider| {
        let values = settings.section(provider);
        let lines = provider.settings.iter().filter_map(|setting| {
            let variable = format!("BELLBIRD_{}__{}", provider.name, setting.name).to_ascii_uppercase();
            values.get(setting.name).map(|value| format!("export {variable}='{value}'\n"))
        });
        lines.collect::<String>()
    });
    Ok(blocks.filter(|block| !block.is_empty()).collect::<Vec<_>>().join("\n"))
}

fn text(exports: &str, description: &Description) -> String {
    let all_credentials: Vec<_> =
        description.credentials.iter().filter_map(|credentials| serde_json::to_string(credentials).ok()).collect();
    format!(
        "The sandbox is running. Settings for a service that uses it:\n\n{exports}\n\
         Credentials, each for `bellbird connection import --user EMAIL --credentials -`:\n\n{}\n\n\
         Press Ctrl-C to stop.",
        all_credentials.join("\n")
    )
}
