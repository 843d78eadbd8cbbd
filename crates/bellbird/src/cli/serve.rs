//! `bellbird serve`: starts the service and runs it until a signal.

use clap::Args;

use super::arguments::{ListenArgs, SettingArgs};
use super::output::{self, JsonFlag};
use super::secrets;
use crate::instances::{self, Finding, Presence};
use crate::serve::raise_open_files_limit;
use crate::service::{self, Listeners, Routers, Urls};
use crate::{background, telemetry, wiring};

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
    let providers = wiring::providers(&settings)?;
    let lock = service::lock(&settings)?;
    let storage = wiring::open_for_service(&settings, wiring::required_sealer(&settings)?).await?;
    let listeners = Listeners::open(&settings).await?;
    service::migrate(&storage).await?;
    if providers.iter().next().is_none() {
        tracing::warn!("providers: {}", wiring::no_provider_hint());
    }
    for message in secrets::unopenable_messages(&storage.secrets().sealed().await?.unopenable) {
        tracing::warn!("secrets: {message}");
    }
    let urls = listeners.urls();
    let presence = Presence::announce(&storage, &settings, &urls, &stop).await?;
    let mut others = instances::running(&storage).await?;
    others.retain(|instance| instance.id != presence.id());
    for Finding { text, .. } in instances::compare_with(&others, &settings) {
        tracing::warn!("instances: {text}");
    }
    let event_buffer = wiring::event_buffer(&settings);
    let console = urls.public_console(&settings);
    let connections = wiring::connections(&settings, &storage, &providers, &event_buffer, Some(console));
    let webhooks = wiring::webhooks(&settings, &storage, &providers, event_buffer)?;
    let api = wiring::api(&settings, &storage, &providers, &connections, &urls.api_url);
    let routers = Routers::new(&settings, api.clone(), &storage, connections.clone(), metrics, &urls, None);
    tracing::info!(api = urls.api_url, console = urls.console_url, ops = urls.ops_url, "ready");
    output::print(args.format, &urls, |urls| {
        let Urls { api_url, console_url, ops_url } = urls;
        format!("Bellbird is running.\n\nAPI      {api_url}\nconsole  {console_url}\nops      {ops_url}")
    })?;
    let (evict, purge) = routers.evict_and_purge(api);
    let background = background::start(storage.clone(), connections.clone(), webhooks, evict, purge, stop.clone());
    listeners.serve(&settings, routers, stop).await;
    background.await?;
    connections.finish_tasks(background::TASK_GRACE).await;
    let withdrawn = presence.withdraw().await;
    storage.close().await;
    drop(lock);
    tracing::info!("stopped");
    withdrawn
}
