//! The running service: three listeners over one database.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use bellbird_api::AppState;
use bellbird_connections::Connections;
use bellbird_console::ConsoleSettings;
use bellbird_storage::Storage;
use metrics_exporter_prometheus::PrometheusHandle;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::ops;
use crate::serve::{self, Listener, ServeOptions};

/// Beyond a request's own deadline, what it gets to send its answer when the service stops.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// The three sockets, before anything is served on them.
#[derive(Debug)]
pub struct Listeners {
    api: Listener,
    console: Listener,
    ops: Listener,
}

/// Where the service can be reached.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Urls {
    /// The public API.
    pub api_url: String,
    /// The web console.
    pub console_url: String,
    /// Metrics and readiness.
    pub ops_url: String,
}

impl Urls {
    /// Where browsers and providers reach the console.
    #[must_use]
    pub fn public_console<'a>(&'a self, settings: &'a Settings) -> &'a str {
        settings.console.public_url.as_deref().unwrap_or(&self.console_url)
    }
}

impl Listeners {
    /// Starts to listen on all three addresses.
    ///
    /// # Errors
    /// A sentence that names the address and how to choose another one.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        Ok(Self {
            api: open(settings, "api", settings.api.listen).await?,
            console: open(settings, "console", settings.console.listen).await?,
            ops: open(settings, "ops", settings.ops.listen).await?,
        })
    }

    /// Where they are, as this machine sees them.
    #[must_use]
    pub fn urls(&self) -> Urls {
        Urls {
            api_url: url(self.api.address()),
            console_url: url(self.console.address()),
            ops_url: url(self.ops.address()),
        }
    }

    /// Serves until `stop`, then lets the requests in flight end. The ops listener answers as long as the others do.
    pub async fn serve(self, settings: &Settings, routers: Routers, stop: CancellationToken) {
        let deadline = Duration::from_secs(settings.reads.deadline_seconds.into());
        let options = ServeOptions { stop_timeout: deadline + STOP_MARGIN, ..ServeOptions::default() };
        let stop_ops = CancellationToken::new();
        let ops = tokio::spawn(serve::serve(self.ops, routers.ops, options, stop_ops.clone()));
        let console = tokio::spawn(serve::serve(self.console, routers.console, options, stop.clone()));
        serve::serve(self.api, routers.api, options, stop).await;
        let console = console.await;
        stop_ops.cancel();
        for ended in [console, ops.await] {
            if let Err(error) = ended {
                tracing::error!(%error, "a listener broke");
            }
        }
    }
}

/// What is served on each listener.
#[derive(Debug)]
pub struct Routers {
    /// The public API.
    pub api: Router,
    /// The web console.
    pub console: Router,
    /// Metrics and readiness.
    pub ops: Router,
}

impl Routers {
    /// Everything, over one database.
    #[must_use]
    pub fn new(
        settings: &Settings,
        api: AppState,
        storage: &Storage,
        connections: Connections,
        metrics: PrometheusHandle,
        urls: &Urls,
    ) -> Self {
        let console = ConsoleSettings {
            api_url: settings.api.public_url.clone().unwrap_or_else(|| urls.api_url.clone()),
            console_url: urls.public_console(settings).to_owned(),
        };
        Self {
            api: bellbird_api::router(api),
            console: bellbird_console::router(connections, console),
            ops: ops::router(storage.clone(), metrics),
        }
    }
}

async fn open(settings: &Settings, section: &str, address: SocketAddr) -> anyhow::Result<Listener> {
    serve::listen(address).await.map_err(|error| {
        let problem = match error.kind() {
            io::ErrorKind::AddrInUse => "something else listens there already, perhaps another Bellbird".to_owned(),
            io::ErrorKind::AddrNotAvailable => "this machine does not have that address".to_owned(),
            io::ErrorKind::PermissionDenied => {
                "the system does not allow it; ports from 1024 on need no rights".to_owned()
            }
            _ => error.to_string(),
        };
        let origin = match settings.origin(section, "listen") {
            Some(origin) => format!("as {origin} says"),
            None => format!("its default; choose another with --{section}-listen 127.0.0.1:PORT, 0 for any free one"),
        };
        anyhow::anyhow!("{section} cannot listen on {address} ({origin}): {problem}")
    })
}

/// Where browsers reach the console of a service with these settings, for a command beside it. None while the system is
/// to choose the port.
#[must_use]
pub fn console_url(settings: &Settings) -> Option<String> {
    let listened_on = Some(settings.console.listen).filter(|address| address.port() != 0).map(url);
    settings.console.public_url.clone().or(listened_on)
}

/// An address that leads here from this machine.
fn url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{address}")
}

/// Brings the tables up to date.
///
/// # Errors
/// Those of the database.
pub async fn migrate(storage: &Storage) -> anyhow::Result<()> {
    let applied = storage.migrate().await.context("the database cannot be brought up to date")?;
    if !applied.is_empty() {
        tracing::info!(applied = applied.join(", "), "the database was brought up to date");
    }
    Ok(())
}
