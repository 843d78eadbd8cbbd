//! Fiskil, pretended on its real protocol: <https://docs.fiskil.com>. What is ours and not known of the real service
//! says so where it stands; the crate's README lists it.

mod accounts;
mod balances;
mod call;
mod consents;
mod control;
mod end_users;
mod errors;
mod institutions;
mod linking;
mod notify;
mod paging;
mod rows;
mod sessions;
mod store;
mod token;
mod transactions;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use parking_lot::{Mutex, RwLock};

use crate::clock::Clock;
use crate::consent_page::{self, Desk};
use crate::pages::Pages;
use crate::serve::Port;
use crate::world::rng::{BASE62, Rng};
use crate::{FiskilAccess, Grant, Options, disturb};
use errors::{Failure, Family};
use paging::{Ask, Page, Placed};
use store::Store;

/// The primary categories (docs/providers/fiskil.md#categories).
const PRIMARY_CATEGORIES: [&str; 16] = [
    "BANK_FEES",
    "ENTERTAINMENT",
    "FOOD_AND_DRINK",
    "GOVERNMENT_AND_NON_PROFIT",
    "HOME_IMPROVEMENT",
    "INCOME",
    "LOAN_PAYMENTS",
    "MEDICAL",
    "MERCHANDISE",
    "PERSONAL_CARE",
    "RENT_AND_UTILITIES",
    "SERVICES",
    "TRANSFER_IN",
    "TRANSFER_OUT",
    "TRANSPORTATION",
    "TRAVEL",
];

/// The pretended provider.
pub(crate) struct Fiskil {
    port: Arc<Port>,
    base_url: String,
    client_id: String,
    client_secret: String,
    webhook_secret: String,
    tokens: token::Tokens,
    store: RwLock<Store>,
    pages: Pages,
    outbox: crate::webhooks::Outbox<notify::Seen>,
    desk: Desk<sessions::Session>,
    linking: Mutex<sessions::Ways>,
}

impl Fiskil {
    /// The provider with its world, for a listener at `address`.
    pub(crate) fn new(options: &Options, address: SocketAddr) -> Self {
        let port = Port {
            clock: Clock::new(options.now),
            faults: crate::faults::Faults::default(),
            calls: crate::calls::Calls::default(),
            error_body: |path, status| Failure::of_status(Family::of(path), status).body(),
        };
        let mut rng = Rng::new(options.seed, u64::MAX);
        let client_id = rng.text(BASE62, 27);
        let secret: Vec<u8> = (0..4).flat_map(|_| rng.next().to_be_bytes()).collect();
        Self {
            base_url: format!("http://{address}"),
            client_secret: rng.text(BASE62, 43),
            webhook_secret: STANDARD.encode(secret),
            tokens: token::Tokens::new(&rng.uuid(), &client_id),
            store: RwLock::new(Store::new(options.seed, options.rows, port.clock.now())),
            pages: Pages::default(),
            outbox: crate::webhooks::Outbox::default(),
            desk: Desk::default(),
            linking: Mutex::default(),
            client_id,
            port: Arc::new(port),
        }
    }

    /// The page, or an empty one when a test asked for one.
    fn page<'a, T: Placed>(&self, path: &str, page: Page<'a, T>, ask: Ask) -> Page<'a, T> {
        if self.pages.is_turn(path) { paging::emptied(page, ask) } else { page }
    }

    /// How an adapter gets in.
    pub(crate) fn access(&self) -> FiskilAccess {
        FiskilAccess {
            base_url: self.base_url.clone(),
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.clone(),
            webhook_secret: self.webhook_secret.clone(),
        }
    }

    /// The consents there are, in the order of the people.
    pub(crate) fn grants(&self) -> Vec<Grant> {
        let store = self.store.read();
        let grant = |consent: &store::Consent| Grant::Fiskil {
            end_user_id: consent.end_user_id.clone(),
            arrangement_id: consent.arrangement_id.clone(),
        };
        store.consents.iter().map(grant).collect()
    }

    /// Every route of the port: the provider's, counted and disturbed, and the control interface.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let (port, notifier) = (Arc::clone(&self.port), Arc::clone(&self));
        let control = control::routes(Arc::clone(&self)).merge(crate::control::routes(Arc::clone(&port)));
        let provider = consent_page::routes::<Self>()
            .route("/", get(sessions::enter))
            .route(token::PATH, post(token::issue))
            .route("/v1/end-users", post(end_users::create).get(end_users::list))
            .route("/v1/end-users/{id}", get(end_users::show).post(end_users::update).delete(end_users::delete))
            .route("/v1/auth/session", post(sessions::create))
            .route("/v1/institutions", get(institutions::list))
            .route("/v1/institutions/{id}", get(institutions::show))
            .route("/v1/consent", get(consents::list))
            .route("/v1/consent/{arrangement_id}", axum::routing::delete(consents::revoke))
            .route("/v1/banking/accounts", get(accounts::list))
            .route("/v1/banking/balances", get(balances::list))
            .route("/v1/banking/transactions", get(transactions::list))
            .route("/v1/banking/transactions/category", post(transactions::correct_category))
            .method_not_allowed_fallback(|request| refuse(request, StatusCode::METHOD_NOT_ALLOWED))
            .fallback(|request| refuse(request, StatusCode::NOT_FOUND))
            .with_state(self)
            .layer(from_fn_with_state(port, disturb::observe))
            .layer(from_fn(call::say_version));
        crate::webhooks::attach(&notifier, provider.merge(control))
    }
}

/// What a path or a method that is none gets: ours.
async fn refuse(request: Request, status: StatusCode) -> Failure {
    Failure::of_status(Family::of(request.uri().path()), status)
}
