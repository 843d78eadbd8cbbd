//! Simulates SnapTrade on its real protocol (<https://docs.snaptrade.com>). Comments say where the
//! sandbox chose behaviour that is not documented, and the crate's README lists those choices.

mod accounts;
mod activities;
mod call;
mod connections;
mod control;
mod entries;
mod errors;
mod fill;
mod instruments;
mod limits;
mod link;
mod linking;
mod login;
mod portal;
mod reference;
mod rows;
mod sign;
mod store;
mod users;
mod webhook_events;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::consent_page::{self, ConsentSessions};
use crate::serve::ProviderControls;
use crate::world::rng::Rng;
use crate::{Credentials, Options, SnapTradeAccess, fault_injection};
use errors::Failure;
use store::Store;

/// The two kinds of keys (docs/providers/snaptrade.md#keys).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Many users, each with a secret.
    Commercial,
    /// One user without a secret.
    Personal,
}

struct KeyPair {
    client_id: String,
    consumer_key: String,
}

pub(crate) struct SnapTrade {
    controls: Arc<ProviderControls>,
    base_url: String,
    commercial: KeyPair,
    personal: KeyPair,
    store: RwLock<Store>,
    limits: limits::Limits,
    consent_sessions: ConsentSessions<link::Link>,
    join: Mutex<link::Join>,
    webhook_queue: crate::webhooks::WebhookQueue<webhook_events::Snapshot>,
}

impl SnapTrade {
    /// Creates the provider with its data, for a listener at `address`.
    pub(crate) fn new(options: &Options, address: SocketAddr) -> Self {
        let controls = ProviderControls {
            clock: Clock::new(options.now),
            faults: crate::faults::Faults::default(),
            calls: crate::calls::Calls::default(),
            unlisted: Mutex::default(),
            error_body: |_path, status| ("application/json", Failure::of_status(status).body()),
        };
        let mut rng = Rng::new(options.seed, u64::MAX - 2);
        // Letters only: clients encode other characters differently
        // (docs/providers/snaptrade.md#request-signatures).
        let mut key_pair = |name: &str| KeyPair {
            client_id: format!("{name}-{}", rng.text(b"ABCDEFGHJKLMNPQRSTUVWXYZ", 6)),
            consumer_key: rng.text(crate::world::rng::BASE62, 50),
        };
        Self {
            base_url: format!("http://{address}"),
            commercial: key_pair("EXAMPLE"),
            personal: key_pair("PERS-EXAMPLE"),
            store: RwLock::new(Store::new(options.seed, controls.clock.now())),
            limits: limits::Limits::default(),
            consent_sessions: ConsentSessions::default(),
            join: Mutex::default(),
            webhook_queue: crate::webhooks::WebhookQueue::new(options),
            controls: Arc::new(controls),
        }
    }

    /// What an adapter needs to call this provider, with the commercial key.
    pub(crate) fn access(&self) -> SnapTradeAccess {
        SnapTradeAccess {
            base_url: self.base_url.clone(),
            client_id: self.commercial.client_id.clone(),
            consumer_key: self.commercial.consumer_key.clone(),
        }
    }

    /// The ready-made credentials, in the order of the users.
    pub(crate) fn credentials(&self) -> Vec<Credentials> {
        self.all_credentials(|connection| connection.is_listed)
    }

    /// Whose each of [`Self::credentials`] is.
    pub(crate) fn people(&self) -> Vec<String> {
        let (store, now) = (self.store.read(), self.controls.clock.now());
        let mut people = Vec::new();
        for user in store.users(Key::Commercial, now) {
            let listed = store
                .connections_of(user.number, now)
                .filter(|connection| connection.is_listed);
            people.extend(
                listed.map(|connection| format!("{}, {}", user.id, connection.broker.name)),
            );
        }
        people
    }

    /// The connections of the commercial key's users.
    fn all_credentials(&self, is_wanted: impl Fn(&store::Connection) -> bool) -> Vec<Credentials> {
        let (store, now) = (self.store.read(), self.controls.clock.now());
        let mut credentials = Vec::new();
        for user in store.users(Key::Commercial, now) {
            let connections = store
                .connections_of(user.number, now)
                .filter(|connection| is_wanted(connection));
            credentials.extend(connections.map(|connection| Credentials::SnapTrade {
                user_id: user.id.clone(),
                user_secret: user.secret.clone(),
                authorization_id: connection.id.clone(),
            }));
        }
        credentials
    }

    fn key_of(&self, client_id: &str) -> Option<Key> {
        [Key::Commercial, Key::Personal]
            .into_iter()
            .find(|key| self.client_id(*key) == client_id)
    }

    fn client_id(&self, key: Key) -> &str {
        &self.key_pair(key).client_id
    }

    fn consumer_key(&self, key: Key) -> &str {
        &self.key_pair(key).consumer_key
    }

    const fn key_pair(&self, key: Key) -> &KeyPair {
        match key {
            Key::Commercial => &self.commercial,
            Key::Personal => &self.personal,
        }
    }

    /// All routes of the port. Only the provider's own are counted and subject to faults. They
    /// exist below the old prefix too.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let (controls, source) = (Arc::clone(&self.controls), Arc::clone(&self));
        let control =
            control::routes(Arc::clone(&self)).merge(crate::control::routes(Arc::clone(&controls)));
        let control = control.merge(crate::logos::routes(reference::logo_name));
        let provider = api()
            .nest(sign::PREFIX, api())
            .route("/", get(reference::status))
            .merge(consent_page::routes())
            .route(link::PATH, get(portal::enter))
            .method_not_allowed_fallback(async || {
                Failure::of_status(StatusCode::METHOD_NOT_ALLOWED)
            })
            .fallback(async || Failure::of_status(StatusCode::NOT_FOUND))
            .with_state(Arc::clone(&self))
            .layer(from_fn_with_state(Arc::clone(&self), limits::throttle))
            .layer(from_fn_with_state(controls, fault_injection::inject_faults))
            .layer(from_fn_with_state(self, limits::add_headers));
        crate::webhooks::attach(&source, provider.merge(control))
    }
}

fn api() -> Router<Arc<SnapTrade>> {
    Router::new()
        .route("/institutions", get(reference::institutions))
        .route("/brokerages", get(reference::brokerages))
        .route(
            "/brokerageAuthorizationTypes",
            get(reference::authorization_types),
        )
        .route("/snapTrade/listUsers", get(users::list))
        .route("/snapTrade/registerUser", post(users::register))
        .route("/snapTrade/deleteUser", delete(users::delete))
        .route("/snapTrade/resetUserSecret", post(users::reset_secret))
        .route("/snapTrade/login", post(login::login))
        .route("/snapTrade/partners", get(reference::partner))
        .route("/authorizations", get(connections::list))
        .route(
            "/authorizations/{id}",
            get(connections::show).delete(connections::delete_now),
        )
        .route("/connection/{id}", delete(connections::delete))
        .route("/authorizations/{id}/refresh", post(connections::refresh))
        .route(
            "/authorizations/{id}/transactions/sync",
            post(connections::sync),
        )
        .route("/authorizations/{id}/disable", post(connections::disable))
        .route(
            "/authorizations/{id}/accounts",
            get(accounts::list_of_connection),
        )
        .route(
            "/connections/{id}/accounts",
            get(accounts::list_tagged_of_connection),
        )
        .route("/accounts", get(accounts::list))
        .route("/accounts/all", get(accounts::list_tagged))
        .route("/accounts/{id}", get(accounts::show))
        .route("/accounts/{id}/details", get(accounts::show_tagged))
        .route("/accounts/{id}/balances", get(accounts::balances))
        .route("/accounts/{id}/positions/all", get(accounts::positions))
        .route("/accounts/{id}/activities", get(activities::list))
        .route("/accounts/{id}/positions", get(accounts::retired))
        .route("/accounts/{id}/options", get(accounts::retired))
        .route("/accounts/{id}/holdings", get(accounts::retired))
        .route("/activities", get(accounts::retired))
        .route("/holdings", get(accounts::retired))
}
