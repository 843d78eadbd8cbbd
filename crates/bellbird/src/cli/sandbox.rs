//! `bellbird sandbox`.

use std::net::SocketAddr;

use anyhow::Context as _;
use bellbird_sandbox::{Description, Options, Sandbox};
use clap::Args;

use super::arguments::SettingArgs;
use super::output::{self, JsonFlag};
use crate::{telemetry, wiring};

/// Run the pretended providers alone.
///
/// They speak the real wire protocols, with made-up people and years of made-up rows, so that a service can be tried
/// out, or tested, without an account anywhere. Runs until it is told to stop.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  bellbird sandbox
  # prints the settings for a service that uses it, and grants for `bellbird connection adopt`")]
pub(super) struct SandboxArgs {
    #[command(flatten)]
    pub(super) data: DataArgs,

    /// Address of the pretended Fiskil; port 0 takes a free one
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8090")]
    fiskil_listen: SocketAddr,

    #[command(flatten)]
    format: JsonFlag,
}

/// What data the pretended providers have.
#[derive(Debug, Args)]
pub(super) struct DataArgs {
    /// The same seed gives the same people, amounts and ids of rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Transactions of the busiest account
    #[arg(long, value_name = "N", default_value_t = 2_000)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub(super) rows: u32,
}

pub(super) async fn run(settings: &SettingArgs, args: &SandboxArgs) -> anyhow::Result<()> {
    let settings = settings.load(None)?;
    let _log = telemetry::start_log(&settings.log);
    let stop = wiring::stop_on_signal()?;
    let sandbox = start(&args.data, args.fiskil_listen).await.with_context(|| {
        let address = args.fiskil_listen;
        format!("the sandbox cannot listen on {address}; choose another address with --fiskil-listen")
    })?;
    output::print(args.format, sandbox.description(), text)?;
    stop.cancelled().await;
    sandbox.stop().await;
    Ok(())
}

/// Starts the pretended providers.
pub(super) async fn start(data: &DataArgs, fiskil_listen: SocketAddr) -> std::io::Result<Sandbox> {
    bellbird_sandbox::start(Options { seed: data.seed, rows: data.rows, fiskil_listen, now: None }).await
}

fn text(description: &Description) -> String {
    let fiskil = &description.fiskil;
    let grants: Vec<_> = description.grants.iter().filter_map(|grant| serde_json::to_string(grant).ok()).collect();
    format!(
        "The sandbox runs. Settings for a service that uses it:\n\n\
         export BELLBIRD_FISKIL__BASE_URL={}\n\
         export BELLBIRD_FISKIL__CLIENT_ID={}\n\
         export BELLBIRD_FISKIL__CLIENT_SECRET={}\n\n\
         Grants, each for `bellbird connection adopt --grant -`:\n\n{}\n\n\
         Stop it with Ctrl-C.",
        fiskil.base_url,
        fiskil.client_id,
        fiskil.client_secret,
        grants.join("\n")
    )
}
