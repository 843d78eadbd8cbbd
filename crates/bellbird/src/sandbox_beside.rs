//! The simulated providers in the process of the service: `serve --sandbox`, `demo`, and what an
//! operator chooses in the console. Their state is in a folder beside the database, so that links
//! outlive the process.
//!
//! A browser reaches their consent pages below `/sandbox` of the console, because it may run on
//! another machine than the service, and no other port has to be open for it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use async_trait::async_trait;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Query, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use bellbird_console::ProviderControl as _;
use bellbird_domain::Actor;
use bellbird_providers::registry::{PROVIDERS, ProviderSettings};
use bellbird_providers::settings::Values;
use bellbird_sandbox::{Description, Options, Sandbox};
use bellbird_storage::Storage;
use http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use jiff::Timestamp;
use parking_lot::Mutex;
use secrecy::ExposeSecret as _;
use serde_json::Value;
use tokio::sync::OnceCell;
use tower::ServiceExt as _;

use crate::config::Settings;
use crate::provider_loader::{self, NO_SANDBOX, ProcessSandbox, ProviderLoader, can_simulate};

/// Below the console.
const PREFIX: &str = "/sandbox";
const CALLBACK: &str = "/link/callback";
/// How the running service tells commands where its simulated providers are.
const RUNNING_FILE: &str = "running.json";
/// The policy of a provider whose pages may be in a frame of any other.
const FRAMED: &str = "frame-ancestors *";
/// No consent page is longer.
const PAGE_BYTES_MAX: usize = 1024 * 1024;

/// Starts the simulated providers when they are needed first.
pub struct SandboxBeside {
    options: Options,
    console: Mutex<Arc<ConsoleAddress>>,
    /// Whether only programs on this machine reach the console, unless a proxy does.
    is_console_local: bool,
    running: OnceCell<Sandbox>,
}

/// Where browsers find the console. Empty until that is known.
#[derive(Default)]
struct ConsoleAddress {
    /// To which they come back from a consent page. Providers compare it.
    redirect_uri: String,
    /// The path of the console behind a proxy, without a slash at its end.
    root: String,
    /// Whether browsers of other machines have no URL of it.
    is_local: bool,
}

impl ConsoleAddress {
    fn new(url: &str) -> Self {
        let url = url.trim_end_matches('/');
        let uri = url.parse::<Uri>().unwrap_or_default();
        Self {
            redirect_uri: format!("{url}{CALLBACK}"),
            root: uri.path().trim_end_matches('/').to_owned(),
            is_local: bellbird_console::is_loopback_url(url),
        }
    }

    /// The callback without its host: a browser may have come by another address of this machine,
    /// where its session is.
    fn callback_from<'a>(&self, location: &'a str) -> Option<(&str, &'a str)> {
        let rest = location.strip_prefix(&self.redirect_uri)?;
        let is_whole = rest.is_empty() || rest.starts_with(['?', '#']);
        is_whole.then_some((&self.root, rest))
    }
}

impl SandboxBeside {
    /// With the usual data. `None` for PostgreSQL, because its instances would each simulate other
    /// providers.
    pub fn of_service(settings: &Settings) -> Option<Self> {
        can_simulate(settings).then(|| Self::new(settings, Options::default()))
    }

    /// For a process that is the only one on its database. On PostgreSQL, its links end with it.
    pub fn new(settings: &Settings, options: Options) -> Self {
        let console = &settings.console;
        Self {
            options: Options {
                state: state_folder(settings),
                ..options
            },
            console: Mutex::default(),
            is_console_local: console.public_url.is_none() && console.listen.ip().is_loopback(),
            running: OnceCell::new(),
        }
    }

    /// The simulated providers, which run from the first call on.
    pub async fn running(&self) -> anyhow::Result<&Sandbox> {
        self.running
            .get_or_try_init(|| async {
                let sandbox = bellbird_sandbox::start(self.options.clone()).await;
                let sandbox = sandbox.context("could not start the simulated providers")?;
                if let Some(folder) = &self.options.state {
                    publish(folder, sandbox.description())
                        .context("could not write the state of the simulated providers")?;
                }
                register(&sandbox, &self.console())?;
                tracing::info!("simulated providers started");
                Ok(sandbox)
            })
            .await
    }

    fn console(&self) -> Arc<ConsoleAddress> {
        Arc::clone(&self.console.lock())
    }

    /// The provider at whose listener this URL is, and the path there.
    fn find<'a>(&self, url: &'a str) -> Option<(&'static str, &'a str)> {
        let sandbox = self.running.get()?;
        sandbox
            .origins()
            .into_iter()
            .find_map(|(provider, origin)| {
                let path = url.strip_prefix(origin)?;
                let is_whole = path.is_empty() || path.starts_with(['/', '?']);
                is_whole.then_some((provider, path))
            })
    }

    /// The page of a simulated provider, as below the prefix.
    async fn page(&self, provider: &str, path: &str, request: Request) -> Option<Response> {
        let sandbox = self.running.get()?;
        let path = if path.is_empty() { "/" } else { path };
        let headers = request.headers();
        let is_forwarded =
            headers.contains_key(header::FORWARDED) || headers.contains_key("x-forwarded-for");
        let console = self.console();
        // They may skip the pages.
        let is_local = self.is_console_local && console.is_local && !is_forwarded;
        if !is_local && skips_pages(request.uri()) {
            return Some(StatusCode::FORBIDDEN.into_response());
        }
        let router = sandbox.page_router(provider, path)?.clone();
        let (mut parts, body) = request.into_parts();
        let query = parts.uri.query().map(|query| format!("?{query}"));
        parts.uri = format!("{path}{}", query.unwrap_or_default())
            .parse()
            .ok()?;
        // Parts of the console's path would count as parts of this one.
        parts.extensions.clear();
        let response = router.oneshot(Request::from_parts(parts, body)).await;
        let response = response.unwrap_or_else(|never| match never {});
        let prefix = format!("{}{PREFIX}/{provider}", console.root);
        Some(below_prefix(&prefix, &console, response).await)
    }
}

#[async_trait]
impl ProcessSandbox for SandboxBeside {
    async fn settings(&self) -> anyhow::Result<ProviderSettings> {
        let description = self.running().await?.description();
        sandbox_settings(description)
    }

    fn set_console_url(&self, url: &str) {
        let console = Arc::new(ConsoleAddress::new(url));
        if let Some(sandbox) = self.running.get()
            && let Err(error) = register(sandbox, &console)
        {
            tracing::warn!(%error, "simulated providers do not lead to the console");
        }
        *self.console.lock() = console;
    }

    fn attach_pages(self: Arc<Self>, console: Router) -> Router {
        let pages = Router::new()
            .route(&format!("{PREFIX}/{{provider}}"), any(show))
            .route(&format!("{PREFIX}/{{provider}}/"), any(show))
            .route(&format!("{PREFIX}/{{provider}}/{{*path}}"), any(show))
            .with_state(Arc::clone(&self));
        console
            .layer(from_fn_with_state(self, lead_to_pages))
            .merge(pages)
    }
}

/// The simulated providers of a service that runs beside a command.
pub struct SandboxOfService {
    state: PathBuf,
}

impl SandboxOfService {
    /// `None` for PostgreSQL, as [`SandboxBeside::of_service`].
    pub fn new(settings: &Settings) -> Option<Self> {
        state_folder(settings).map(|state| Self { state })
    }
}

#[async_trait]
impl ProcessSandbox for SandboxOfService {
    async fn settings(&self) -> anyhow::Result<ProviderSettings> {
        let text = fs::read(self.state.join(RUNNING_FILE));
        let text = text.context("the service has not simulated any provider yet: start it")?;
        Ok(settings_of(&serde_json::from_slice(&text)?))
    }
}

/// The provider settings that point at the sandbox.
pub fn sandbox_settings(sandbox: &Description) -> anyhow::Result<ProviderSettings> {
    Ok(settings_of(&serde_json::to_value(sandbox)?))
}

/// The description has camel-case names: `client_id` is `clientId` there. A provider without a
/// simulation gets no settings.
fn settings_of(sandbox: &Value) -> ProviderSettings {
    let mut settings = ProviderSettings::default();
    for provider in PROVIDERS {
        let access = &sandbox[provider.name.as_str()];
        if !access.is_object() {
            continue;
        }
        let mut values = Values::default();
        for setting in provider.settings {
            if let Some(value) = access[camel_case(setting.name)].as_str() {
                values.set(setting.name, value.into());
            }
        }
        settings.set_sandbox(provider, values);
    }
    settings
}

/// Has the service simulate each provider for which nothing has credentials. The database remembers
/// it.
pub async fn simulate_others(
    settings: &Settings,
    storage: &Storage,
    loader: &ProviderLoader,
    actor: Actor,
) -> anyhow::Result<()> {
    if !loader.has_sandbox() {
        bail!(NO_SANDBOX);
    }
    let stored = storage.provider_settings().list().await?;
    let mut change = storage.begin_change(actor, Timestamp::now()).await?;
    let in_use = provider_loader::simulate_others(settings, &stored, &mut change).await?;
    // Nothing commits without a change.
    if change.action().is_some() {
        change.commit().await?;
    }
    for provider in in_use {
        tracing::warn!(provider, "not simulated, because it is in use");
    }
    loader.apply().await?;
    Ok(())
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

/// Has the simulated providers lead back to the console.
fn register(sandbox: &Sandbox, console: &ConsoleAddress) -> anyhow::Result<()> {
    if console.redirect_uri.is_empty() {
        return Ok(());
    }
    let registered = sandbox.register_redirect_uri(&console.redirect_uri);
    registered.map_err(|error| anyhow!("{error}"))
}

/// Beside the SQLite database: `bellbird.db-sandbox`.
fn state_folder(settings: &Settings) -> Option<PathBuf> {
    let mut folder = Storage::sqlite_path(settings.database.url.expose_secret())?.into_os_string();
    folder.push("-sandbox");
    Some(folder.into())
}

fn publish(folder: &Path, description: &Description) -> anyhow::Result<()> {
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    serde_json::to_writer(&mut file, description)?;
    file.persist(folder.join(RUNNING_FILE))
        .map_err(|error| anyhow!(error))?;
    Ok(())
}

async fn show(State(sandbox): State<Arc<SandboxBeside>>, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let below = path
        .strip_prefix(PREFIX)
        .unwrap_or_default()
        .trim_start_matches('/');
    let at = below.find('/').unwrap_or(below.len());
    let (provider, path) = below.split_at(at);
    let page = sandbox.page(provider, path, request).await;
    page.unwrap_or_else(|| StatusCode::NOT_FOUND.into_response())
}

/// Whether the simulated provider would consent at once, as tests want it.
fn skips_pages(uri: &Uri) -> bool {
    Query::<Vec<(String, String)>>::try_from_uri(uri).map_or(true, |Query(pairs)| {
        pairs.iter().any(|(name, _)| name == "sandbox_auto")
    })
}

/// Leads a browser to the consent pages below the console, where it would be led to the listener of
/// a simulated provider.
async fn lead_to_pages(
    State(sandbox): State<Arc<SandboxBeside>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = next.run(request).await;
    let location = header_text(response.headers(), &header::LOCATION);
    if let Some((provider, path)) = location.as_deref().and_then(|url| sandbox.find(url)) {
        let console = sandbox.console();
        let location = format!("{}{PREFIX}/{provider}{path}", console.root);
        set_location(&mut response, &location);
    }
    response
}

/// Moves the links of a consent page below the prefix, and the way back below the console. The
/// console's pages are in no frame, and nor are these.
async fn below_prefix(prefix: &str, console: &ConsoleAddress, mut response: Response) -> Response {
    let location = header_text(response.headers(), &header::LOCATION);
    if let Some(location) = location {
        if let Some((root, rest)) = console.callback_from(&location) {
            set_location(&mut response, &format!("{root}{CALLBACK}{rest}"));
        } else if location.starts_with('/') {
            set_location(&mut response, &format!("{prefix}{location}"));
        }
        return response;
    }
    let policy = header_text(response.headers(), &header::CONTENT_SECURITY_POLICY);
    if let Some(policy) = policy.filter(|policy| policy.contains(FRAMED))
        && let Ok(policy) = HeaderValue::from_str(&policy.replace(FRAMED, "frame-ancestors 'none'"))
    {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    let kind = header_text(response.headers(), &header::CONTENT_TYPE);
    if !kind.is_some_and(|kind| kind.starts_with("text/html")) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(page) = to_bytes(body, PAGE_BYTES_MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    let page = String::from_utf8_lossy(&page);
    let mut page = page.replace(" action=\"/", &format!(" action=\"{prefix}/"));
    let ConsoleAddress {
        redirect_uri, root, ..
    } = console;
    if !redirect_uri.is_empty() {
        let back = format!(" href=\"{root}{CALLBACK}");
        page = page.replace(&format!(" href=\"{redirect_uri}"), &back);
    }
    parts.headers.remove(header::CONTENT_LENGTH);
    Response::from_parts(parts, Body::from(page))
}

fn header_text(headers: &HeaderMap, name: &http::HeaderName) -> Option<String> {
    headers.get(name)?.to_str().ok().map(str::to_owned)
}

fn set_location(response: &mut Response, location: &str) {
    // What is no URI came from no provider.
    if location.parse::<Uri>().is_ok()
        && let Ok(location) = HeaderValue::from_str(location)
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
}
