//! `bellbird sandbox`: runs the simulated providers without the service.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use bellbird_providers::registry::PROVIDERS;
use bellbird_sandbox::{Description, Options};
use clap::Args;

use super::arguments::{self, SettingArgs, listen_address};
use super::output;
use crate::config::Settings;
use crate::sandbox_beside::sandbox_settings;
use crate::{telemetry, wiring};

/// The sandbox gives requests in flight half a second.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// Run the simulated providers without the service.
///
/// They speak the real wire protocols and serve made-up people with years of made-up rows. `serve
/// --sandbox` runs them beside the service, so this command is for tests and several instances. It
/// prints settings for a service, and credentials for `bellbird connection import`. SIGTERM or
/// Ctrl-C stops it.
#[derive(Args)]
#[command(after_long_help = "Example:
  bellbird sandbox --state ~/sandbox")]
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

    /// Folder in which consents are saved, so that links outlive this process
    #[arg(long, value_name = "FOLDER")]
    state: Option<PathBuf>,
}

/// Data of the simulated providers.
#[derive(Args)]
pub(super) struct DataArgs {
    /// Seed of the made-up data; the same seed gives the same people, amounts and row ids
    #[arg(long, value_name = "N", default_value_t = 1)]
    #[arg(value_parser = arguments::whole_number::<u64>)]
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
    let settings = settings.load_here(None)?;
    let _log = telemetry::start_log(&settings.log, None);
    let stop = wiring::stop_on_signal(STOP_TIMEOUT)?;
    let options = Options {
        listen: [args.fiskil_listen, args.akahu_listen, args.snaptrade_listen],
        webhooks_anywhere: args.webhooks_anywhere,
        state: args.state.clone(),
        ..args.data.options()
    };
    let sandbox = bellbird_sandbox::start(options).await.with_context(|| {
        format!(
            "could not start on {}, {} and {}; other addresses are chosen with --fiskil-listen, --akahu-listen and \
             --snaptrade-listen",
            args.fiskil_listen, args.akahu_listen, args.snaptrade_listen
        )
    })?;
    let exports = exports(sandbox.description())?;
    output::print(sandbox.description(), |description| {
        text(&exports, description)
    })?;
    stop.cancelled().await;
    sandbox.stop().await;
    Ok(())
}

/// The settings for a service that uses the sandbox, by provider, as shell commands that set
/// environment variables.
fn exports(description: &Description) -> anyhow::Result<String> {
    let mut settings = sandbox_settings(description)?;
    let mut blocks = Vec::new();
    for provider in PROVIDERS {
        let values = settings.section(provider);
        let mut lines = String::new();
        for setting in provider.settings {
            if let Some(value) = values.get(setting.name) {
                let variable = Settings::variable(&format!("{}.{}", provider.name, setting.name));
                lines.push_str(&format!("export {variable}='{value}'\n"));
            }
        }
        if !lines.is_empty() {
            blocks.push(lines);
        }
    }
    Ok(blocks.join("\n"))
}

fn text(exports: &str, description: &Description) -> String {
    let consents = description.people.iter().zip(&description.credentials);
    let consents: Vec<_> = consents
        .filter_map(|(person, credentials)| {
            Some(format!(
                "# {person}\n{}",
                serde_json::to_string(credentials).ok()?
            ))
        })
        .collect();
    format!(
        "The sandbox is running. Settings for a service that uses it:\n\n{exports}\n\
         Credentials, each for `bellbird connection import --user EMAIL --credentials -`:\n\n{}\n\n\
         Press Ctrl-C to stop.",
        consents.join("\n")
    )
}
