//! SnapTrade, pretended on its real protocol: <https://docs.snaptrade.com>. What is ours and not known of the real
//! service says so where it stands; the crate's README lists it.

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
mod linking;
mod login;
mod notify;
mod portal;
mod reference;
mod rows;
mod sign;
mod store;
mod users;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::consent_page::{self, Desk};
use crate::serve::Port;
use crate::world::rng::Rng;
use crate::{Grant, Options, SnapTradeAccess, disturb};
use errors::Failure;
use store::Store;

/// The two kinds of keys (docs/providers/snaptrade.md#keys).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    /// Many users, each with a secret.
    Commercial,
    /// One user, and no secret.
    Personal,
}

/// A key's two halves.
struct Credentials {
    client_id: String,
    consumer_key: String,
}

/// The pretended provider.
pub(crate) struct SnapTrade {
    port: Arc<Port>,
    base_url: String,
    commercial: Credentials,
    personal: Credentials,
    store: RwLock<Store>,
    limits: limits::Limits,
    desk: Desk<portal::Link>,
    join: Mutex<portal::Join>,
    outbox: crate::webhooks::Outbox<notify::Seen>,
}

impl SnapTrade {
    /// The provider with its world, for a listener at `address`.
    pub(crate) fn new(options: &Options, address: SocketAddr) -> Self {
        let port = Port {
            clock: Clock::new(options.now),
            faults: crate::faults::Faults::default(),
            calls: crate::calls::Calls::default(),
            error_body: |_path, status| ("application/json", Failure::of_status(status).body()),
        };
        let mut rng = Rng::new(options.seed, u64::MAX - 2);
        // Plain letters: clients differ in how they take others (docs/providers/snaptrade.md#request-signatures).
        let mut credentials = |name: &str| Credentials {
            client_id: format!("{name}-{}", rng.text(b"ABCDEFGHJKLMNPQRSTUVWXYZ", 6)),
            consumer_key: rng.text(crate::world::rng::BASE62, 50),
        };
        Self {
            base_url: format!("http://{address}"),
            commercial: credentials("EXAMPLE"),
            personal: credentials("PERS-EXAMPLE"),
            store: RwLock::new(Store::new(options.seed, port.clock.now())),
            limits: limits::Limits::default(),
            desk: Desk::default(),
            join: Mutex::default(),
            outbox: crate::webhooks::Outbox::default(),
            port: Arc::new(port),
        }
    }

    /// How an adapter gets in: with the commercial key.
    pub(crate) fn access(&self) -> SnapTradeAccess {
        SnapTradeAccess {
            base_url: self.base_url.clone(),
            client_id: self.commercial.client_id.clone(),
            consumer_key: self.commercial.consumer_key.clone(),
        }
    }

    /// The ready-made grants, in the order of the people.
    pub(crate) fn grants(&self) -> Vec<Grant> {
        self.all_grants(|connection| connection.granted)
    }

    /// The connections of the commercial key's users.
    fn all_grants(&self, wanted: impl Fn(&store::Connection) -> bool) -> Vec<Grant> {
        let (store, now) = (self.store.read(), self.port.clock.now());
        let mut grants = Vec::new();
        for user in store.users(Key::Commercial, now) {
            let connections = store.connections_of(user.number, now).filter(|connection| wanted(connection));
            grants.extend(connections.map(|connection| Grant::SnapTrade {
                user_id: user.id.clone(),
                user_secret: user.secret.clone(),
                authorization_id: connection.id.clone(),
            }));
        }
        grants
    }

    fn key_of(&self, client_id: &str) -> Option<Key> {
        [Key::Commercial, Key::Personal].into_iter().find(|key| self.client_id(*key) == client_id)
    }

    fn client_id(&self, key: Key) -> &str {
        &self.credentials(key).client_id
    }

    fn consumer_key(&self, key: Key) -> &str {
        &self.credentials(key).consumer_key
    }

    const fn credentials(&self, key: Key) -> &Credentials {
        match key {
            Key::Commercial => &self.commercial,
            Key::Personal => &self.personal,
        }
    }

    /// Every route of the port: the provider's, counted and disturbed, and the control interface. The provider's
    /// stand below the old prefix too.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let (port, notifier) = (Arc::clone(&self.port), Arc::clone(&self));
        let control = control::routes(Arc::clone(&self)).merge(crate::control::routes(Arc::clone(&port)));
        let provider = api()
            .nest(sign::PREFIX, api())
            .route("/", get(reference::status))
            .merge(consent_page::routes())
            .route(portal::PATH, get(portal::enter))
            .method_not_allowed_fallback(async || Failure::of_status(StatusCode::METHOD_NOT_ALLOWED))
            .fallback(async || Failure::of_status(StatusCode::NOT_FOUND))
            .with_state(Arc::clone(&self))
            .layer(from_fn_with_state(Arc::clone(&self), limits::throttle))
            .layer(from_fn_with_state(port, disturb::observe))
            .layer(from_fn_with_state(self, limits::announce));
        crate::webhooks::attach(&notifier, provider.merge(control))
    }
}

fn api() -> Router<Arc<SnapTrade>> {
    Router::new()
        .route("/institutions", get(reference::institutions))
        .route("/brokerages", get(reference::brokerages))
        .route("/brokerageAuthorizationTypes", get(reference::authorization_types))
        .route("/snapTrade/listUsers", get(users::list))
        .route("/snapTrade/registerUser", post(users::register))
        .route("/snapTrade/deleteUser", delete(users::delete))
        .route("/snapTrade/resetUserSecret", post(users::reset_secret))
        .route("/snapTrade/login", post(login::login))
        .route("/snapTrade/partners", get(reference::partner))
        .route("/authorizations", get(connections::list))
        .route("/authorizations/{id}", get(connections::show).delete(connections::delete_now))
        .route("/connection/{id}", delete(connections::delete))
        .route("/authorizations/{id}/refresh", post(connections::refresh))
        .route("/authorizations/{id}/transactions/sync", post(connections::sync))
        .route("/authorizations/{id}/disable", post(connections::disable))
        .route("/authorizations/{id}/accounts", get(accounts::list_of_connection))
        .route("/connections/{id}/accounts", get(accounts::list_tagged_of_connection))
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
