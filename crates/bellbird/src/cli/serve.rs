//! `bellbird serve`: starts the service and runs it until a signal.

use bellbird_domain::Clock;
use clap::Args;

use super::arguments::{ListenArgs, SettingArgs};
use super::output::{self, JsonFlag};
use super::secrets;
use crate::config::Settings;
use crate::instances::{self, Finding};
use crate::service::{self, Service, Start};
use crate::telemetry;
use crate::wiring::{self, Urls};
use bellbird_api::serve::raise_open_files_limit;

/// Run the service.
///
/// Applies pending database migrations and listens on three addresses (API, console, ops). SIGTERM or Ctrl-C stops the
/// service after it has finished the requests in flight. All settings are listed in bellbird.example.toml.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  BELLBIRD_SECRETS__KEY=\"main:...\" bellbird serve --config /etc/bellbird.toml")]
pub(super) struct ServeArgs {
    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    format: JsonFlag,
}

pub(super) async fn run(settings: &SettingArgs, args: &ServeArgs) -> anyhow::Result<()> {
    let settings = settings.load(Some(&args.listen))?;
    let log = telemetry::start_log(&settings.log);
    raise_open_files_limit();
    let stop = wiring::stop_on_signal(service::stop_timeout(&settings))?;
    let metrics = telemetry::start_metrics(&log, stop.clone())?;
    let (providers, sealer) = (wiring::providers(&settings)?, wiring::required_sealer(&settings).await?);
    let has_providers = providers.iter().next().is_some();
    let start = Start { providers, sealer, clock: Clock::system(), metrics, stop };
    let mut service = Service::open(settings.clone(), start).await?;
    if !has_providers {
        tracing::warn!("providers: {}", wiring::no_provider_hint());
    }
    warn_operator(&service, &settings).await?;
    let Urls { api_url, console_url, ops_url, admin_url, .. } = &service.urls;
    tracing::info!(api = api_url, console = console_url, ops = ops_url, admin = admin_url, "ready");
    output::print(args.format, &service.urls, |_| {
        let admin = admin_url.as_ref().map_or_else(String::new, |url| format!("\nadmin    {url}"));
        format!("Bellbird is running.\n\nAPI      {api_url}\nconsole  {console_url}\nops      {ops_url}{admin}")
    })?;
    service.start_background();
    let served = service.serve(None).await;
    tracing::info!("stopped");
    served
}

/// Warns of secrets and instances that will not work together.
async fn warn_operator(service: &Service, settings: &Settings) -> anyhow::Result<()> {
    let storage = &service.parts.storage;
    for message in secrets::unopenable_messages(&storage.secrets().sealed().await?.unopenable) {
        tracing::warn!("secrets: {message}");
    }
    for Finding { text, .. } in instances::compare_with(&instances::running(storage).await?, settings) {
        tracing::warn!("instances: {text}");
    }
    Ok(())
}
