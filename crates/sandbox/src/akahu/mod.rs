//! Akahu, pretended on its real protocol: <https://developers.akahu.nz>. What is ours and not known of the real
//! service says so where it stands; the crate's README lists it.

mod accounts;
mod authorize;
mod call;
mod categories;
mod connections;
mod control;
mod errors;
mod ids;
mod linking;
mod notify;
mod paging;
mod refresh;
mod rows;
mod store;
mod token;
mod transactions;
mod webhooks;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use http::StatusCode;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::consent_page::{self, Desk};
use crate::pages::Pages;
use crate::serve::Port;
use crate::world::rng::{BASE62, Rng};
use crate::{AkahuAccess, Grant, Options, disturb};
use errors::Failure;
use store::Store;

/// The pretended provider.
pub(crate) struct Akahu {
    port: Arc<Port>,
    access: AkahuAccess,
    store: RwLock<Store>,
    codes: token::Codes,
    cursors: paging::Cursors,
    pages: Pages,
    keys: webhooks::Keys,
    outbox: crate::webhooks::Outbox<notify::Seen>,
    desk: Desk<authorize::Ask>,
    seal: authorize::Seal,
    linking: Mutex<linking::Ways>,
}

impl Akahu {
    /// The provider with its world, for a listener at `address`.
    pub(crate) fn new(options: &Options, address: SocketAddr) -> Self {
        let port = Port {
            clock: Clock::new(options.now),
            faults: crate::faults::Faults::default(),
            calls: crate::calls::Calls::default(),
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
            store: RwLock::new(Store::new(options.seed, port.clock.now())),
            codes: token::Codes::default(),
            cursors: paging::Cursors::new(),
            pages: Pages::default(),
            keys: webhooks::Keys::default(),
            outbox: crate::webhooks::Outbox::default(),
            desk: Desk::default(),
            seal: authorize::Seal::new(),
            linking: Mutex::default(),
            port: Arc::new(port),
        }
    }

    /// How an adapter gets in.
    pub(crate) fn access(&self) -> AkahuAccess {
        self.access.clone()
    }

    /// The logins that are offered, in the order of the people.
    pub(crate) fn grants(&self) -> Vec<Grant> {
        self.grants_of(|user| user.granted)
    }

    fn grants_of(&self, is_wanted: impl Fn(&store::User) -> bool) -> Vec<Grant> {
        let store = self.store.read();
        let grant = |login: &store::Login| {
            let user = &store.users[login.user];
            let token = user.tokens.last().filter(|_| is_wanted(user))?;
            Some(Grant::Akahu { user_token: token.text.clone(), authorisation: login.id.clone() })
        };
        store.logins.iter().filter_map(grant).collect()
    }

    /// Every route of the port: the provider's, counted and disturbed, and the control interface.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let (port, notifier) = (Arc::clone(&self.port), Arc::clone(&self));
        let control = control::routes(Arc::clone(&self)).merge(crate::control::routes(Arc::clone(&port)));
        let provider = consent_page::routes::<Self>()
            // The official client appends a path of the caller's choice; the documented address has none.
            .route("/", get(authorize::show).post(authorize::begin))
            .route("/authorize", get(authorize::show).post(authorize::begin))
            .route(token::PATH, post(token::exchange).delete(token::revoke))
            .route("/v1/me", get(accounts::me))
            .route("/v1/connections", get(connections::list))
            .route("/v1/connections/{id}", get(connections::show))
            .route("/v1/categories", get(categories::list))
            .route("/v1/categories/{id}", get(categories::show))
            .route("/v1/accounts", get(accounts::list))
            .route("/v1/accounts/{id}", get(accounts::show).delete(accounts::delete))
            .route("/v1/accounts/{id}/transactions", get(transactions::list_of_account))
            .route("/v1/accounts/{id}/transactions/pending", get(transactions::list_pending_of_account))
            .route("/v1/authorisations/{id}", get(accounts::show_authorisation).delete(accounts::delete_authorisation))
            .route("/v1/transactions", get(transactions::list))
            .route("/v1/transactions/ids", post(transactions::list_by_ids))
            .route("/v1/transactions/pending", get(transactions::list_pending))
            .route("/v1/transactions/{id}", get(transactions::show))
            .route("/v1/refresh", post(refresh::all))
            .route("/v1/refresh/{id}", post(refresh::one))
            .route("/v1/webhooks", get(webhooks::list).post(webhooks::subscribe))
            .route("/v1/webhooks/{id}", delete(webhooks::unsubscribe))
            .route("/v1/webhook-events", get(webhooks::events))
            .route("/v1/keys/{id}", get(webhooks::key))
            .method_not_allowed_fallback(|| refuse(StatusCode::METHOD_NOT_ALLOWED))
            .fallback(|| refuse(StatusCode::NOT_FOUND))
            .with_state(self)
            .layer(from_fn_with_state(port, disturb::observe));
        crate::webhooks::attach(&notifier, provider.merge(control))
    }
}

/// What a path or a method that is none gets: ours.
async fn refuse(status: StatusCode) -> Failure {
    Failure::of_status(status)
}
