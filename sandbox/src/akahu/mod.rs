//! Simulates Akahu on its real protocol (<https://developers.akahu.nz>). Comments say where the
//! sandbox chose behaviour that is not documented, and the crate's README lists those choices.

mod accounts;
mod authorize;
mod call;
mod categories;
mod connections;
mod control;
mod errors;
mod ids;
mod linking;
mod odd_rows;
mod paging;
mod paths;
mod refresh;
mod respond;
mod rows;
mod store;
mod token;
mod transactions;
mod webhook_events;
mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::consent_page::{self, ConsentSessions};
use crate::empty_pages::EmptyPages;
use crate::serve::ProviderControls;
use crate::world::rng::{BASE62, Rng};
use crate::{AkahuAccess, Credentials, Options, fault_injection};
use errors::Failure;
use store::Store;

pub(crate) struct Akahu {
    controls: Arc<ProviderControls>,
    access: AkahuAccess,
    store: RwLock<Store>,
    codes: token::Codes,
    cursors: paging::Cursors,
    empty_pages: EmptyPages,
    keys: webhooks::Keys,
    webhook_queue: crate::webhooks::WebhookQueue<webhook_events::Snapshot>,
    consent_sessions: ConsentSessions<authorize::AuthorizationRequest>,
    app_registration: authorize::AppRegistration,
    linking_options: Mutex<linking::LinkingOptions>,
}

impl Akahu {
    /// Creates the provider with its data, for a listener at `address`.
    pub(crate) fn new(options: &Options, address: SocketAddr) -> Self {
        let controls = ProviderControls {
            clock: Clock::new(options.now),
            faults: crate::faults::Faults::default(),
            calls: crate::calls::Calls::default(),
            unlisted: Mutex::default(),
            error_body: errors::body,
        };
        let mut rng = Rng::new(options.seed, u64::MAX - 1);
        let access = AkahuAccess {
            base_url: format!("http://{address}/v1"),
            oauth_url: format!("http://{address}"),
            app_token: ids::draw("app_token_", &mut rng),
            app_secret: rng.text(BASE62, 43),
        };
        Self {
            access,
            store: RwLock::new(Store::new(options.seed, controls.clock.now())),
            codes: token::Codes::default(),
            cursors: paging::Cursors::new(),
            empty_pages: EmptyPages::default(),
            keys: webhooks::Keys::default(),
            webhook_queue: crate::webhooks::WebhookQueue::new(options),
            consent_sessions: ConsentSessions::default(),
            app_registration: authorize::AppRegistration::new(),
            linking_options: Mutex::default(),
            controls: Arc::new(controls),
        }
    }

    /// What an adapter needs to call this provider.
    pub(crate) fn access(&self) -> AkahuAccess {
        self.access.clone()
    }

    /// The ready-made logins, in the order of the users.
    pub(crate) fn credentials(&self) -> Vec<Credentials> {
        self.credentials_of(|user| user.is_listed)
    }

    /// Whose each of [`Self::credentials`] is.
    pub(crate) fn people(&self) -> Vec<String> {
        let store = self.store.read();
        let person = |login: &store::Login| {
            let user = &store.users[login.user];
            let is_listed = user.is_listed && !user.tokens.is_empty();
            is_listed.then(|| format!("{}, {}", user.name, login.institution.name))
        };
        store.logins.iter().filter_map(person).collect()
    }

    fn credentials_of(&self, is_wanted: impl Fn(&store::User) -> bool) -> Vec<Credentials> {
        let store = self.store.read();
        let credentials = |login: &store::Login| {
            let user = &store.users[login.user];
            let token = user.tokens.last().filter(|_| is_wanted(user))?;
            Some(Credentials::Akahu {
                user_token: token.text.clone(),
                authorisation: login.id.clone(),
            })
        };
        store.logins.iter().filter_map(credentials).collect()
    }

    /// All routes of the port. Only the provider's own are counted and subject to faults.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let (controls, source) = (Arc::clone(&self.controls), Arc::clone(&self));
        let control =
            control::routes(Arc::clone(&self)).merge(crate::control::routes(Arc::clone(&controls)));
        let provider = consent_page::routes::<Self>()
            // The official client appends a path of the caller's choice; the documented URL has
            // none.
            .route("/", get(authorize::show).post(authorize::begin))
            .route("/authorize", get(authorize::show).post(authorize::begin))
            .route(paths::TOKEN, post(token::exchange).delete(token::revoke))
            .route("/v1/me", get(accounts::me))
            .route("/v1/connections", get(connections::list))
            .route("/v1/connections/{id}", get(connections::show))
            .route("/v1/categories", get(categories::list))
            .route("/v1/categories/{id}", get(categories::show))
            .route("/v1/accounts", get(accounts::list))
            .route(
                "/v1/accounts/{id}",
                get(accounts::show).delete(accounts::delete),
            )
            .route(
                "/v1/accounts/{id}/transactions",
                get(transactions::list_of_account),
            )
            .route(
                "/v1/accounts/{id}/transactions/pending",
                get(transactions::list_pending_of_account),
            )
            .route(
                "/v1/authorisations/{id}",
                get(accounts::show_authorisation).delete(accounts::delete_authorisation),
            )
            .route("/v1/transactions", get(transactions::list))
            .route("/v1/transactions/ids", post(transactions::list_by_ids))
            .route("/v1/transactions/pending", get(transactions::list_pending))
            .route("/v1/transactions/{id}", get(transactions::show))
            .route("/v1/refresh", post(refresh::all))
            .route("/v1/refresh/{id}", post(refresh::one))
            .route(
                "/v1/webhooks",
                get(webhooks::list).post(webhooks::subscribe),
            )
            .route("/v1/webhooks/{id}", delete(webhooks::unsubscribe))
            .route("/v1/webhook-events", get(webhooks::events))
            .route("/v1/keys/{id}", get(webhooks::key))
            .method_not_allowed_fallback(|| reject_route(StatusCode::METHOD_NOT_ALLOWED))
            .fallback(|| reject_route(StatusCode::NOT_FOUND))
            .with_state(self)
            .layer(from_fn_with_state(controls, fault_injection::inject_faults));
        crate::webhooks::attach(&source, provider.merge(control))
    }
}

/// The response to an unknown path or method (a sandbox choice).
async fn reject_route(status: StatusCode) -> Failure {
    Failure::of_status(status)
}
