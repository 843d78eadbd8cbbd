//! `bellbird serve`: starts the service and runs it until a signal.

use std::ffi::OsStr;
use std::io;
use std::os::unix::net::UnixDatagram;

use bellbird_domain::Clock;
use clap::Args;
use tokio::signal::unix::{SignalKind, signal};

use super::arguments::{ListenArgs, SettingArgs};
use super::output::{self, JsonFlag};
use super::secrets;
use crate::config::{Settings, service_manager};
use crate::instances::{self, Finding};
use crate::roles::{Role, Roles};
use crate::service::{self, Service, Start};
use crate::telemetry::traces::Traces;
use crate::telemetry::{self, LogGuard};
use crate::wiring::{self, Urls};
use bellbird_api::serve::raise_open_files_limit;

/// Run the service.
///
/// Applies pending database migrations and listens on three addresses (API, console, ops). SIGTERM
/// or Ctrl-C stops the service after it has finished the requests in flight. SIGHUP reads log.level
/// again. All settings are listed in bellbird.example.toml.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:
  BELLBIRD_SECRETS__KEY=\"main:...\" bellbird serve --config /etc/bellbird.toml")]
pub(super) struct ServeArgs {
    /// What this instance does, if others share its PostgreSQL database; everything by default
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    only: Vec<Role>,

    #[command(flatten)]
    listen: ListenArgs,

    #[command(flatten)]
    format: JsonFlag,
}

pub(super) async fn run(setting_args: &SettingArgs, args: &ServeArgs) -> anyhow::Result<()> {
    let settings = setting_args.load(Some(&args.listen))?;
    let traces = settings
        .traces_url
        .as_ref()
        .map(|url| Traces::start(url))
        .transpose()
        .map_err(anyhow::Error::msg)?;
    let log = telemetry::start_log(&settings.log, traces.as_ref());
    change_level_on_hangup(setting_args.clone(), args.listen.clone(), &log)?;
    raise_open_files_limit();
    let stop = wiring::stop_on_signal(service::stop_timeout(&settings))?;
    let metrics = telemetry::start_metrics(&log, stop.clone())?;
    let has_providers = wiring::providers(&settings)?.iter().next().is_some();
    let sealer = wiring::required_sealer(&settings).await?;
    let roles = Roles::only(args.only.clone());
    let start = Start {
        roles,
        sealer,
        clock: Clock::system(),
        metrics,
        stop,
    };
    let mut service = Service::open(settings.clone(), start).await?;
    if !has_providers {
        tracing::warn!("providers: {}", wiring::no_provider_hint());
    }
    warn_operator(&service, &settings).await?;
    let Urls {
        api_url,
        console_url,
        ops_url,
        admin_url,
        ..
    } = &service.urls;
    tracing::info!(
        api = api_url,
        console = console_url,
        ops = ops_url,
        admin = admin_url,
        "ready"
    );
    output::print(args.format, &service.urls, |_| {
        let admin_url = admin_url.as_deref().unwrap_or_default();
        let urls = [
            ("API    ", api_url.as_str()),
            ("console", console_url),
            ("ops    ", ops_url),
            ("admin  ", admin_url),
        ];
        let lines = urls
            .iter()
            .filter(|(_, url)| !url.is_empty())
            .map(|(name, url)| format!("\n{name}  {url}"));
        format!("Bellbird is running.\n{}", lines.collect::<String>())
    })?;
    service.start_background();
    if let Some(socket) = service_manager::notify_socket()
        && let Err(error) = notify_ready(&socket)
    {
        tracing::warn!(%error, "could not tell systemd that the service is ready");
    }
    let served = service.serve(None).await;
    if let Some(traces) = traces {
        traces.stop().await;
    }
    tracing::info!("stopped");
    served
}

/// systemd then starts what is ordered after the unit, and `systemctl start` returns.
fn notify_ready(socket: &OsStr) -> io::Result<()> {
    UnixDatagram::unbound()?
        .send_to(b"READY=1", socket)
        .map(|_| ())
}

/// Reads the log level again when SIGHUP comes. Other settings need a restart.
fn change_level_on_hangup(
    settings: SettingArgs,
    listen: ListenArgs,
    log: &LogGuard,
) -> io::Result<()> {
    let (mut hangup, set_level) = (signal(SignalKind::hangup())?, log.level_setter());
    tokio::spawn(async move {
        while hangup.recv().await.is_some() {
            match settings.load(Some(&listen)) {
                Ok(settings) => {
                    set_level(settings.log.level);
                    tracing::warn!(level = ?settings.log.level, "log level set");
                }
                Err(error) => {
                    tracing::error!(%error, "could not read settings, log level unchanged");
                }
            }
        }
    });
    Ok(())
}

/// Warns of secrets and instances that will not work together.
async fn warn_operator(service: &Service, settings: &Settings) -> anyhow::Result<()> {
    let storage = &service.parts.storage;
    for message in secrets::unopenable_messages(&storage.secrets().sealed().await?.unopenable) {
        tracing::warn!("secrets: {message}");
    }
    for Finding { text, .. } in
        instances::compare_with(&instances::running(storage).await?, settings)
    {
        tracing::warn!("instances: {text}");
    }
    Ok(())
}
