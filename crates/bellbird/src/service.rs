//! The three listeners of the service (API, console, ops) and their routers over one database.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use bellbird_api::AppState;
use bellbird_connections::Connections;
use bellbird_console::{ConsoleSettings, Demo};
use bellbird_domain::{ConnectionId, UserId};
use bellbird_interop::{Interop, InteropSettings};
use bellbird_storage::{ServiceLock, Storage, StorageError};
use metrics_exporter_prometheus::PrometheusHandle;
use secrecy::ExposeSecret as _;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::config::Settings;
use crate::ops;
use crate::serve::{self, Listener, ServeOptions};
use crate::wiring;

/// Time to send a response after the request's own deadline, when the service stops.
const STOP_MARGIN: Duration = Duration::from_secs(5);

/// How long requests in flight may continue when the service stops.
#[must_use]
pub fn stop_timeout(settings: &Settings) -> Duration {
    Duration::from_secs(settings.reads.deadline_seconds.into()) + STOP_MARGIN
}

/// The three bound sockets, before they accept connections.
#[derive(Debug)]
pub struct Listeners {
    api: Listener,
    console: Listener,
    ops: Listener,
}

/// URLs of the listeners, as this machine reaches them.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Urls {
    pub api_url: String,
    pub console_url: String,
    pub ops_url: String,
}

impl Urls {
    /// URL at which browsers and providers reach the console: `console.public_url`, or the listener's URL.
    #[must_use]
    pub fn public_console<'a>(&'a self, settings: &'a Settings) -> &'a str {
        settings.console.public_url.as_deref().unwrap_or(&self.console_url)
    }
}

impl Listeners {
    /// Binds all three addresses. An error has a line for each address that cannot be bound, and how to choose another.
    pub async fn open(settings: &Settings) -> anyhow::Result<Self> {
        let api = open(settings, "api", settings.api.listen).await;
        let console = open(settings, "console", settings.console.listen).await;
        let ops = open(settings, "ops", settings.ops.listen).await;
        match (api, console, ops) {
            (Ok(api), Ok(console), Ok(ops)) => Ok(Self { api, console, ops }),
            (api, console, ops) => {
                let errors = [api, console, ops].into_iter().filter_map(Result::err);
                bail!(errors.map(|error| error.to_string()).collect::<Vec<_>>().join("\n"))
            }
        }
    }

    #[must_use]
    pub fn urls(&self) -> Urls {
        Urls {
            api_url: url(self.api.address()),
            console_url: url(self.console.address()),
            ops_url: url(self.ops.address()),
        }
    }

    /// Whether only programs on this machine can reach the console.
    #[must_use]
    pub fn is_console_local(&self) -> bool {
        self.console.address().ip().is_loopback()
    }

    /// Serves until `stop`; then requests in flight may finish. The ops listener stops after the other two.
    pub async fn serve(self, settings: &Settings, routers: Routers, stop: CancellationToken) {
        let options = ServeOptions {
            stop_timeout: stop_timeout(settings),
            trusted_proxies: settings.api.trusted_proxies.clone(),
            ..ServeOptions::default()
        };
        let stop_ops = CancellationToken::new();
        let ops = tokio::spawn(serve::serve(self.ops, routers.ops, options.clone(), stop_ops.clone()));
        let console = tokio::spawn(serve::serve(self.console, routers.console, options.clone(), stop.clone()));
        serve::serve(self.api, routers.api, options, stop).await;
        let console = console.await;
        stop_ops.cancel();
        for result in [console, ops.await] {
            if let Err(error) = result {
                tracing::error!(%error, "listener task panicked");
            }
        }
    }
}

/// The router of each listener.
pub struct Routers {
    pub api: Router,
    pub console: Router,
    pub ops: Router,
    /// The state of the API's other interfaces.
    pub interop: Interop,
}

impl Routers {
    #[must_use]
    pub fn new(
        settings: &Settings,
        api: AppState,
        storage: &Storage,
        connections: Connections,
        metrics: PrometheusHandle,
        urls: &Urls,
        demo: Option<Demo>,
    ) -> Self {
        let public_url = settings.api.public_url.clone().unwrap_or_else(|| urls.api_url.clone());
        let interop = InteropSettings {
            public_url: public_url.clone(),
            simplefin_per_minute: settings.limits.simplefin_per_minute,
        };
        let interop = Interop::new(api.access().clone(), interop);
        let console = ConsoleSettings {
            api_url: public_url,
            console_url: urls.public_console(settings).to_owned(),
            operator_name: settings.console.operator_name.clone(),
            trusted_proxies: settings.api.trusted_proxies.clone(),
            failed_auth_per_minute: settings.limits.failed_auth_per_minute,
            demo,
        };
        Self {
            api: wiring::api_router(&api, &interop),
            console: bellbird_console::router(connections, console),
            ops: ops::router(storage.clone(), metrics),
            interop,
        }
    }

    /// What the background work does to everything cached: evicts a removed connection, and frees what has expired.
    pub fn evict_and_purge(&self, api: AppState) -> (impl Fn(UserId, ConnectionId) + use<>, impl Fn() + use<>) {
        let (caches, interop_caches, interop) = (api.clone(), self.interop.clone(), self.interop.clone());
        let evict = move |user, connection| {
            api.evict_connection(user, connection);
            interop.evict_connection(connection);
        };
        let purge = move || {
            caches.purge_expired();
            interop_caches.purge_expired();
        };
        (evict, purge)
    }
}

async fn open(settings: &Settings, section: &str, address: SocketAddr) -> anyhow::Result<Listener> {
    serve::listen(address).await.map_err(|error| {
        let reason = match error.kind() {
            io::ErrorKind::AddrInUse => "another process uses this port, perhaps another Bellbird".to_owned(),
            io::ErrorKind::AddrNotAvailable => "this machine does not have this address".to_owned(),
            io::ErrorKind::PermissionDenied => "permission denied; use a port from 1024 on".to_owned(),
            _ => error.to_string(),
        };
        let origin = match settings.origin(&format!("{section}.listen")) {
            Some(origin) => format!("set by {origin}"),
            None => {
                format!("the default; choose another with --{section}-listen 127.0.0.1:PORT, port 0 for a free one")
            }
        };
        anyhow::anyhow!("{section} cannot listen on {address} ({origin}): {reason}")
    })
}

/// Console URL of a service with these settings, for a command that runs beside it. `None` if the settings leave the
/// choice of the port to the system.
#[must_use]
pub fn console_url(settings: &Settings) -> Option<String> {
    let local_url = Some(settings.console.listen).filter(|address| address.port() != 0).map(url);
    settings.console.public_url.clone().or(local_url)
}

/// As [`console_url`], of the API.
#[must_use]
pub fn api_url(settings: &Settings) -> Option<String> {
    let local_url = Some(settings.api.listen).filter(|address| address.port() != 0).map(url);
    settings.api.public_url.clone().or(local_url)
}

/// URL of a listener on this machine. A listener on all interfaces gets the loopback address.
fn url(mut address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        address.set_ip(if address.is_ipv4() { [127, 0, 0, 1].into() } else { std::net::Ipv6Addr::LOCALHOST.into() });
    }
    format!("http://{address}")
}

/// Keeps other services off a SQLite file while it is held. Take it before the database is opened.
pub fn lock(settings: &Settings) -> anyhow::Result<Option<ServiceLock>> {
    let url = settings.database.url.expose_secret();
    ServiceLock::acquire(url).map_err(|error| match error {
        StorageError::InUse(_) => anyhow::anyhow!(
            "another service runs on the {}, and SQLite serves one: stop that one, or use PostgreSQL for several",
            Storage::location(url)
        ),
        other => wiring::describe_open_error(settings, other),
    })
}

pub async fn migrate(storage: &Storage) -> anyhow::Result<()> {
    let applied = storage.migrate().await.context("could not migrate the database")?;
    if !applied.is_empty() {
        tracing::info!(applied = applied.join(", "), "database migrated");
    }
    Ok(())
}
