//! Simulates Fiskil on its real protocol (<https://docs.fiskil.com>). Comments say where the
//! sandbox chose behaviour that is not documented, and the crate's README lists those choices.

mod accounts;
mod balances;
mod call;
mod consents;
mod control;
mod end_users;
mod errors;
mod institutions;
mod linking;
mod odd_rows;
mod paging;
mod paths;
mod rows;
mod sessions;
mod store;
mod token;
mod transactions;
mod webhook_events;

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
use crate::consent_page::{self, ConsentSessions};
use crate::empty_pages::EmptyPages;
use crate::serve::ProviderControls;
use crate::world::rng::{BASE62, Rng};
use crate::{Credentials, FiskilAccess, Options, fault_injection};
use errors::{Failure, Family};
use paging::{HasPosition, Page, PageRequest};
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

pub(crate) struct Fiskil {
    controls: Arc<ProviderControls>,
    base_url: String,
    client_id: String,
    client_secret: String,
    webhook_secret: String,
    tokens: token::Tokens,
    store: RwLock<Store>,
    empty_pages: EmptyPages,
    webhook_queue: crate::webhooks::WebhookQueue<webhook_events::Snapshot>,
    consent_sessions: ConsentSessions<sessions::Session>,
    linking_options: Mutex<sessions::LinkingOptions>,
}

impl Fiskil {
    /// Creates the provider with its data, for a listener at `address`.
    pub(crate) fn new(options: &Options, address: SocketAddr) -> Self {
        let controls = ProviderControls {
            clock: Clock::new(options.now),
            faults: crate::faults::Faults::default(),
            calls: crate::calls::Calls::default(),
            unlisted: Mutex::default(),
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
            store: RwLock::new(Store::new(options.seed, options.rows, controls.clock.now())),
            empty_pages: EmptyPages::default(),
            webhook_queue: crate::webhooks::WebhookQueue::new(options),
            consent_sessions: ConsentSessions::default(),
            linking_options: Mutex::default(),
            client_id,
            controls: Arc::new(controls),
        }
    }

    /// Returns the page, or an empty one if a test requested it.
    fn page<'a, T: HasPosition>(
        &self,
        path: &str,
        page: Page<'a, T>,
        page_request: PageRequest,
    ) -> Page<'a, T> {
        if self.empty_pages.next_is_empty(path) {
            paging::empty_page(page, page_request)
        } else {
            page
        }
    }

    /// What an adapter needs to call this provider.
    pub(crate) fn access(&self) -> FiskilAccess {
        FiskilAccess {
            base_url: self.base_url.clone(),
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.clone(),
            webhook_secret: self.webhook_secret.clone(),
        }
    }

    /// All consents, in the order of the end users.
    pub(crate) fn credentials(&self) -> Vec<Credentials> {
        let store = self.store.read();
        let credentials = |consent: &store::Consent| Credentials::Fiskil {
            end_user_id: consent.end_user_id.clone(),
            arrangement_id: consent.arrangement_id.clone(),
        };
        store.consents.iter().map(credentials).collect()
    }

    /// Whose each of [`Self::credentials`] is.
    pub(crate) fn people(&self) -> Vec<String> {
        let store = self.store.read();
        let person = |consent: &store::Consent| {
            let user = store
                .end_users
                .iter()
                .find(|user| user.id == consent.end_user_id);
            let name = user
                .and_then(|user| user.members.text("name"))
                .unwrap_or_default();
            format!("{name}, {}", consent.institution.name)
        };
        store.consents.iter().map(person).collect()
    }

    /// All routes of the port. Only the provider's own are counted and subject to faults.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let (controls, source) = (Arc::clone(&self.controls), Arc::clone(&self));
        let control =
            control::routes(Arc::clone(&self)).merge(crate::control::routes(Arc::clone(&controls)));
        let control = control.merge(crate::logos::routes(institutions::name));
        let provider = consent_page::routes::<Self>()
            .route("/", get(sessions::enter))
            .route(paths::TOKEN, post(token::issue))
            .route(
                "/v1/end-users",
                post(end_users::create).get(end_users::list),
            )
            .route(
                "/v1/end-users/{id}",
                get(end_users::show)
                    .post(end_users::update)
                    .delete(end_users::delete),
            )
            .route("/v1/auth/session", post(sessions::create))
            .route("/v1/institutions", get(institutions::list))
            .route("/v1/institutions/{id}", get(institutions::show))
            .route("/v1/consent", get(consents::list))
            .route(
                "/v1/consent/{arrangement_id}",
                axum::routing::delete(consents::revoke),
            )
            .route("/v1/banking/accounts", get(accounts::list))
            .route("/v1/banking/balances", get(balances::list))
            .route("/v1/banking/transactions", get(transactions::list))
            .route(
                "/v1/banking/transactions/category",
                post(transactions::correct_category),
            )
            .method_not_allowed_fallback(|request| {
                reject_route(request, StatusCode::METHOD_NOT_ALLOWED)
            })
            .fallback(|request| reject_route(request, StatusCode::NOT_FOUND))
            .with_state(self)
            .layer(from_fn_with_state(controls, fault_injection::inject_faults))
            .layer(from_fn(call::set_version_header));
        crate::webhooks::attach(&source, provider.merge(control))
    }
}

/// The response to an unknown path or method (a sandbox choice).
async fn reject_route(request: Request, status: StatusCode) -> Failure {
    Failure::of_status(Family::of(request.uri().path()), status)
}
