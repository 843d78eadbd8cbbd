//! The running service: its listeners (API, console, ops, and perhaps admin), the background work,
//! and the row of this instance. `serve`, `demo` and the tests start it in the same way.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use bellbird_console::{ConsoleSettings, Demo, MasterKey, ProviderControl as _, Site};
use bellbird_domain::Clock;
use bellbird_storage::{Sealer, ServiceLock, Storage, StorageError};
use http::StatusCode;
use metrics_exporter_prometheus::PrometheusHandle;
use secrecy::ExposeSecret as _;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use uuid::Uuid;

use crate::config::{Address, Settings, url_on_this_machine};
use crate::instances::Heartbeat;
use crate::ops::ServiceInfo;
use crate::provider_loader::ProcessSandbox;
use crate::public_info::PublicInfo;
use crate::roles::{Role, Roles};
use crate::wiring::{self, Parts, Urls, Wiring};
use crate::{background, ops};
use bellbird_api::serve::{self, Listener, ServeOptions};

/// Time to send a response after the request's own deadline, when the service stops.
const STOP_MARGIN: Duration = Duration::from_secs(5);
/// Why a part of the service does not start there.
pub(crate) const SQLITE_SERVES_ONE: &str =
    "SQLite serves one instance, so that has to do everything: leave out --only, or use PostgreSQL";

/// How long requests in flight may continue when the service stops.
pub fn stop_timeout(settings: &Settings) -> Duration {
    settings.reads.deadline + STOP_MARGIN
}

/// What a start brings beside the settings.
pub struct Start {
    pub roles: Roles,
    pub sealer: Sealer,
    pub clock: Clock,
    pub metrics: PrometheusHandle,
    /// Simulates providers for which the database says so.
    pub sandbox: Option<Arc<dyn ProcessSandbox>>,
    pub stop: CancellationToken,
}

/// A service whose sockets are bound and whose database is ready. The system queues connections
/// until [`Service::serve`].
pub struct Service {
    pub urls: Urls,
    pub parts: Parts,
    /// How long requests in flight may continue after a stop.
    pub stop_timeout: Duration,
    settings: Settings,
    start: Start,
    listeners: Listeners,
    heartbeat: Heartbeat,
    background: Option<JoinHandle<()>>,
    /// Freed last.
    lock: Option<ServiceLock>,
}

impl Service {
    /// Binds the sockets, opens and migrates the database, and stores that this instance runs.
    ///
    /// # Errors
    /// With a message for the operator, also on a restored database whose operator has not decided
    /// yet.
    pub async fn open(settings: Settings, start: Start) -> anyhow::Result<Self> {
        if ServiceLock::database_is_gone(settings.database.url.expose_secret()) {
            bail!(wiring::missing_database(
                &settings,
                "is gone, though a service has run on it"
            ));
        }
        let lock = lock(&settings)?;
        if lock.is_some() && !start.roles.are_all() {
            bail!(SQLITE_SERVES_ONE);
        }
        let id = Uuid::now_v7();
        let storage = wiring::open(&settings, start.sealer.clone())
            .await?
            .held_by(id);
        let (clock, sandbox) = (start.clock.clone(), start.sandbox.clone());
        let wiring = Wiring::with_clock(&settings, &storage, clock, sandbox)?;
        let listeners = Listeners::open(&settings, &start.roles).await?;
        let is_new = migrate(&storage).await?;
        // A demo's is always new.
        if is_new && settings.master_keys.is_some() {
            let location = wiring::database_location(&settings);
            tracing::warn!(
                location,
                "new, empty database made: if there was another, stop and restore a backup"
            );
        }
        wiring::require_ready(&settings, &storage).await?;
        // The random key of a demo opens nothing that another run has left.
        if settings.master_keys.is_some() {
            storage.secrets().check_sealing_key().await?;
        }
        let urls = listeners.urls(&settings);
        let (public, sandbox) = (urls.public.clone(), start.sandbox.clone());
        let (of_settings, own) = (settings.clone(), listeners.own_urls(&settings));
        wiring.provider_loader.follow_console(move |entered| {
            public.apply(&of_settings, &own, entered);
            if let Some(sandbox) = &sandbox {
                sandbox.set_console_url(&public.console_url.get());
            }
        });
        wiring.provider_loader.end_unused_sandbox().await?;
        wiring.provider_loader.apply().await?;
        let parts = Parts::new(&wiring, &urls)?;
        let heartbeat = Heartbeat::start(
            id,
            &urls,
            &start.roles,
            &parts,
            &settings,
            &start.sealer,
            &start.stop,
        )
        .await?;
        Ok(Self {
            urls,
            parts,
            stop_timeout: stop_timeout(&settings),
            settings,
            start,
            listeners,
            heartbeat,
            background: None,
            lock,
        })
    }

    /// Whether only programs on this machine can reach the console.
    pub fn is_console_local(&self) -> bool {
        self.settings.console.public_url.is_none()
            && self
                .listeners
                .console
                .as_ref()
                .is_some_and(|listener| listener.address().ip().is_loopback())
    }

    /// Starts the background work, which [`Service::serve`] waits for at its end.
    pub fn start_background(&mut self) {
        self.background = Some(background::start(
            self.parts.clone(),
            &self.start.roles,
            self.start.stop.clone(),
        ));
    }

    /// Serves until the stop, completes what runs within its time, and closes the database. The
    /// console shows `demo`.
    ///
    /// # Errors
    /// If a backup has replaced the database meanwhile.
    pub async fn serve(self, demo: Option<Demo>) -> anyhow::Result<()> {
        let (urls, parts, start) = (self.urls, self.parts, self.start);
        let (settings, listeners) = (self.settings, self.listeners);
        let storage = parts.storage;
        let info = ServiceInfo {
            location: wiring::database_location(&settings),
            is_demo: demo.is_some(),
        };
        let site = Site {
            // They and the name follow what operators enter.
            api_url: String::new(),
            console_url: String::new(),
            is_api_open: !settings.api.listen.ip().is_loopback(),
            mailer: parts.mailer,
            webhooks: parts.webhooks,
            providers: parts.provider_loader,
            serves_sandbox: start.sandbox.is_some(),
            settings_file: settings.file.clone(),
            master_key: master_key(&settings),
            demo,
        };
        let options = ServeOptions {
            stop_timeout: self.stop_timeout,
            trusted_proxies: settings.api_context.trusted_proxies.clone(),
            ..ServeOptions::default()
        };
        let (stop, stop_ops) = (start.stop, CancellationToken::new());
        let ops = ops::router(storage.clone(), start.metrics, info);
        let ops = tokio::spawn(serve::serve(
            listeners.ops,
            ops,
            options.clone(),
            stop_ops.clone(),
        ));
        let is_shared = settings.admin_listen == Some(settings.api.listen);
        let admin = &parts.admin;
        let router = wiring::api_router(&parts.api, &parts.interop, is_shared.then_some(admin));
        let (context, api) = (parts.api.context().clone(), router.clone());
        let (pages, of_storage) = (settings.pages, storage.clone());
        let console = current_router(urls.public, move |[api_url, console_url, name]| {
            let attach = |pages| match start.sandbox.clone() {
                Some(sandbox) => sandbox
                    .attach_pages(pages)
                    .layer(from_fn_with_state(of_storage.clone(), while_simulated)),
                None => pages,
            };
            let pages = ConsoleSettings {
                operator_name: Some(name.to_string()).filter(|name| !name.is_empty()),
                ..pages.clone()
            };
            let site = Site {
                api_url: api_url.to_string(),
                console_url: console_url.to_string(),
                ..site.clone()
            };
            bellbird_console::router(context.clone(), api.clone(), pages, site, attach)
        });
        let admin = bellbird_api::http::listener(bellbird_api::admin::interface(admin), Vec::new());
        let served = [
            (listeners.api, router),
            (listeners.console, console),
            (listeners.admin, admin),
        ];
        let tasks: Vec<_> = served
            .into_iter()
            .filter_map(|(listener, router)| {
                Some(serve::serve(
                    listener?,
                    router,
                    options.clone(),
                    stop.clone(),
                ))
            })
            .map(tokio::spawn)
            .collect();
        stop.cancelled().await;
        for task in tasks {
            report_panic(task.await);
        }
        // It stops after the others, so that the last requests are counted.
        stop_ops.cancel();
        report_panic(ops.await);
        if let Some(background) = self.background {
            background.await?;
        }
        let grace = background::TASK_GRACE;
        parts.connections.finish_tasks(grace).await;
        let withdrawn = self.heartbeat.withdraw().await;
        storage.close().await;
        drop(self.lock);
        withdrawn
    }
}

/// For an operator who completes a first start.
fn master_key(settings: &Settings) -> Option<MasterKey> {
    let key = settings.master_keys.clone()?;
    let place = settings
        .origin("secrets.key")
        .map_or_else(|| "the settings".to_owned(), ToString::to_string);
    Some(MasterKey { key, place })
}

/// The pages of a simulated provider exist as long as it is simulated.
async fn while_simulated(State(storage): State<Storage>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let Some(below) = path.strip_prefix("/sandbox/") else {
        return next.run(request).await;
    };
    let provider = below.split('/').next().unwrap_or_default();
    match storage.provider_settings().list().await {
        Ok(stored) => {
            let mut stored = stored.iter();
            if stored.any(|stored| stored.is_sandbox && stored.provider == provider) {
                next.run(request).await
            } else {
                StatusCode::NOT_FOUND.into_response()
            }
        }
        Err(error) => {
            tracing::warn!(%error, "could not read the settings of providers");
            StatusCode::SERVICE_UNAVAILABLE.into_response()
        }
    }
}

fn report_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "listener task panicked");
    }
}

/// Those that the roles need.
struct Listeners {
    api: Option<Listener>,
    console: Option<Listener>,
    ops: Listener,
    /// `None` also if the operator's API is off, or on the listener of the API.
    admin: Option<Listener>,
}

impl Listeners {
    /// Binds all addresses. An error has a line for each address that cannot be bound, and how to
    /// choose another.
    async fn open(settings: &Settings, roles: &Roles) -> anyhow::Result<Self> {
        let of = async |role, section, address: Option<SocketAddr>| match address
            .filter(|_| roles.has(role))
        {
            Some(address) => open(settings, section, address).await.map(Some),
            None => Ok(None),
        };
        let api = of(Role::Api, "api", Some(settings.api.listen)).await;
        let console = of(Role::Console, "console", Some(settings.console.listen)).await;
        let ops = open(settings, "ops", settings.ops_listen).await;
        let admin = settings
            .admin_listen
            .filter(|address| *address != settings.api.listen);
        let admin = of(Role::Api, "admin", admin).await;
        match (api, console, ops, admin) {
            (Ok(api), Ok(console), Ok(ops), Ok(admin)) => Ok(Self {
                api,
                console,
                ops,
                admin,
            }),
            (api, console, ops, admin) => {
                let errors = [api.err(), console.err(), ops.err(), admin.err()];
                let errors = errors.iter().flatten().map(ToString::to_string);
                bail!(errors.collect::<Vec<_>>().join("\n"))
            }
        }
    }

    fn urls(&self, settings: &Settings) -> Urls {
        let api_url = local_url(self.api.as_ref());
        Urls {
            ops_url: url_on_this_machine(self.ops.address()),
            admin_url: local_url(self.admin.as_ref())
                .or_else(|| settings.admin_listen.and(api_url.clone())),
            api_url: api_url.unwrap_or_default(),
            console_url: local_url(self.console.as_ref()).unwrap_or_default(),
            public: PublicInfo::default(),
        }
    }

    /// Those of API and console without a proxy: of another instance, if this one does not serve
    /// them.
    fn own_urls(&self, settings: &Settings) -> [String; 2] {
        let of = |listener: Option<&Listener>, address: &Address| {
            let expected = || address.expected_url();
            local_url(listener).or_else(expected).unwrap_or_default()
        };
        [
            of(self.api.as_ref(), &settings.api),
            of(self.console.as_ref(), &settings.console),
        ]
    }
}

fn local_url(listener: Option<&Listener>) -> Option<String> {
    listener.map(|listener| url_on_this_machine(listener.address()))
}

/// Serves what `make` makes of the texts, and makes it again when one of them has changed: cookies,
/// links and redirect URI of the console depend on them. Requests in flight complete as they began.
fn current_router(
    public: PublicInfo,
    make: impl Fn(&[Arc<str>; 3]) -> Router + Send + Sync + 'static,
) -> Router {
    let texts = public.texts();
    let made = (make(&texts), texts);
    let current = Arc::new((parking_lot::Mutex::new(made), public, make));
    Router::new().fallback(move |request: Request| {
        let (made, public, make) = &*current;
        let texts = public.texts();
        let mut made = made.lock();
        if made.1 != texts {
            *made = (make(&texts), texts);
        }
        made.0.clone().oneshot(request)
    })
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

/// Keeps other services off a SQLite file while it is held. Take it before the database is opened.
fn lock(settings: &Settings) -> anyhow::Result<Option<ServiceLock>> {
    let url = settings.database.url.expose_secret();
    ServiceLock::acquire(url).map_err(|error| match error {
        StorageError::InUse(_) => anyhow::anyhow!(
            "another service runs on the {}, and SQLite serves one: stop that one, or use PostgreSQL for several",
            Storage::location(url)
        ),
        other => wiring::describe_open_error(settings, other),
    })
}

/// Returns whether the database was empty.
async fn migrate(storage: &Storage) -> anyhow::Result<bool> {
    let is_new = storage
        .schema_version()
        .await
        .context("could not read the database")?
        .is_none();
    let applied = storage
        .migrate()
        .await
        .context("could not migrate the database")?;
    if !applied.is_empty() {
        tracing::info!(applied = applied.join(", "), "database migrated");
    }
    Ok(is_new)
}
