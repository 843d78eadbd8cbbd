//! A console without providers on a real database. Does not use the router.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use bellbird_api::http::{ApiContext, ApiContextSettings};
use bellbird_connections::Connections;
use bellbird_domain::Clock;
use bellbird_domain::{Plan, UserId};
use bellbird_providers::Error;
use bellbird_providers::settings::Declaration;
use bellbird_reads::{Limits, Reads};
use bellbird_storage::{NewLink, NewUser, Sealer, Storage, StorageError, in_tx};
use bellbird_webhooks::event::buffer::WebhookEventBuffer;
use bellbird_webhooks::{Settings, Webhooks};
use bytes::Bytes;
use http::header::LOCATION;
use http::{HeaderMap, Request, StatusCode};
use jiff::Timestamp;
use secrecy::{ExposeSecret as _, SecretString};
use tempfile::TempDir;
use tower::ServiceExt as _;

use crate::provider_control::{ProviderControl, TestError};
use crate::settings::{ConsoleSettings, Site};

/// A console with one user and two links, without providers.
pub(crate) struct TestConsole {
    pub(crate) context: ApiContext,
    pub(crate) user: UserId,
    pub(crate) _folder: TempDir,
}

pub(crate) fn settings() -> ConsoleSettings {
    ConsoleSettings {
        trades_cache: Duration::from_secs(600),
        first_rows_within: Duration::from_millis(700),
        operator_name: Some("<Acme> Ltd".to_owned()),
        trusted_proxies: Vec::new(),
        failed_auth_per_minute: 3,
        console_per_minute: 0,
        console_forms_per_minute: 0,
        oidc: None,
        email: None,
    }
}

fn context(storage: Storage, connections: Connections) -> ApiContext {
    let clock = Clock::manual("2026-11-20T09:24:00Z".parse().unwrap());
    let limits = Limits {
        deadline: Duration::from_secs(30),
        row_cap: 1_000,
    };
    let reads = Reads::new(
        storage.clone(),
        Default::default(),
        clock.clone(),
        limits,
        None,
    );
    let settings = ApiContextSettings {
        metadata_per_minute: 0,
        balances_per_minute: 0,
        live_per_minute: 0,
        live_in_flight: 0,
        provider_calls_per_minute: 0,
        operator_per_minute: 0,
        changes_max_age: Duration::from_secs(60),
        trusted_proxies: Vec::new(),
        cors_origins: Vec::new(),
    };
    ApiContext::new(storage, reads, connections, clock, settings, None)
}

impl TestConsole {
    /// On a database of nobody.
    pub(crate) async fn without_user() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("console.db").display());
        let storage = Storage::open(&url, Sealer::random()).await.unwrap();
        storage.migrate().await.unwrap();
        let now: Timestamp = "2026-11-20T09:24:00Z".parse().unwrap();
        let connections = Connections::new(storage.clone(), Default::default(), Clock::manual(now));
        Self {
            context: context(storage, connections),
            user: UserId::INSTALLATION,
            _folder: folder,
        }
    }

    pub(crate) async fn new() -> Self {
        let empty = Self::without_user().await;
        let (storage, now) = (empty.context.storage(), empty.context.clock().now());
        let user = NewUser {
            email: "<emma>@example.com",
            plan: Plan::Developer,
            timezone: None,
            reference: None,
            console_sign_in: true,
        };
        let user_id = in_tx!(storage, user::insert(&user, now)).await.unwrap().id;
        let expires_at = "2026-11-20T09:54:00Z".parse().unwrap();
        for (token, provider) in [("choice-token", None), ("provider-token", Some("somebank"))] {
            let link = NewLink {
                user_id,
                token,
                provider,
                connection_id: None,
                expires_at,
                session: None,
                console_session: None,
            };
            in_tx!(storage, links::insert(&link, now)).await.unwrap();
        }
        Self {
            user: user_id,
            ..empty
        }
    }

    /// Sets the URL in links.
    pub(crate) fn set_console_url(&mut self, url: &str) {
        let connections = self
            .context
            .connections()
            .clone()
            .with_console_url(url.into());
        self.context = context(self.context.storage().clone(), connections);
    }

    pub(crate) fn site(&self) -> Site {
        let (api, console) = ("http://127.0.0.1:8080", "https://example.com/console/");
        let (storage, clock) = (self.context.storage().clone(), self.context.clock().clone());
        let settings = Settings {
            timeout: Duration::from_secs(1),
            chunk_rows: 1,
            ..Settings::default()
        };
        let buffer = WebhookEventBuffer::default();
        let webhooks = Webhooks::new(storage, Default::default(), clock, buffer, settings).unwrap();
        Site {
            api_url: api.to_owned(),
            console_url: console.to_owned(),
            is_api_open: true,
            mailer: None,
            webhooks,
            providers: Arc::new(FakeProviders),
            serves_sandbox: false,
            settings_file: None,
            master_key: None,
            demo: None,
        }
    }

    pub(crate) fn router(&self, site: Site) -> Router {
        crate::router(
            self.context.clone(),
            Router::new(),
            settings(),
            site,
            |pages| pages,
        )
    }
}

/// The client secret that [`FakeProviders`] take.
pub(crate) const RIGHT_SECRET: &str = "right-4711";

/// None is configured, but for a secret that its provider may do without, and each rejects all
/// credentials but one.
#[derive(Debug)]
pub(crate) struct FakeProviders;

#[async_trait::async_trait]
impl ProviderControl for FakeProviders {
    fn configured_by(&self, _: &Declaration) -> Option<String> {
        None
    }

    fn set_by(&self, setting: &str) -> Option<String> {
        setting
            .ends_with(".app_secret")
            .then(|| "the environment".to_owned())
    }

    fn left_out(&self, _: &Declaration) -> Option<String> {
        None
    }

    fn has_sandbox(&self) -> bool {
        true
    }

    async fn test(
        &self,
        _: UserId,
        _: &'static Declaration,
        credentials: BTreeMap<String, SecretString>,
    ) -> Result<(), TestError> {
        let secret = credentials.get("client_secret");
        if secret.is_some_and(|secret| secret.expose_secret() == RIGHT_SECRET) {
            return Ok(());
        }
        let settings = "client_id and client_secret";
        let rejected = Error::OperatorRejected {
            settings,
            status: 403,
        };
        Err(rejected.into())
    }

    async fn apply(&self) -> Result<(), StorageError> {
        Ok(())
    }
}

/// A body that never sends a byte.
pub(crate) fn pending_body() -> Body {
    Body::from_stream(futures_util::stream::pending::<Result<Bytes, std::io::Error>>())
}

/// A response whose body has been read.
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
}

impl TestResponse {
    pub(crate) async fn of(router: Router, request: Request<Body>) -> Self {
        let (parts, body) = router.oneshot(request).await.unwrap().into_parts();
        let body = to_bytes(body, usize::MAX).await.unwrap();
        Self {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(body.to_vec()).unwrap(),
        }
    }

    pub(crate) fn location(&self) -> &str {
        let location = self.headers.get(LOCATION);
        location.map_or("", |to| to.to_str().unwrap())
    }

    #[track_caller]
    pub(crate) fn assert_has(&self, words: &str) {
        let text = &self.text;
        assert!(text.contains(words), "no {words:?} in {text}");
    }
}
