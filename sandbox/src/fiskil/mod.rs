//! Simulates Fiskil on its real protocol (<https://docs.fiskil.com>). Comments say where the
//! sandbox chose behaviour that is not documented, and the crate's README lists those choices.

mod accounts;
mod call;
mod consents;
mod end_users;
mod errors;
mod fill;
mod institutions;
mod linking;
mod paging;
mod rows;
mod sessions;
mod store;
mod token;
mod transactions;
mod webhook_events;

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::consent::ConsentState;
use crate::members::Members;
use crate::provider::{Controls, Core, Provider};
use crate::refused::Refused;
use crate::state::Keys;
use crate::world::rng::{BASE62, Rng};
use crate::{Credentials, FiskilAccess, Options, consent_page, fault_injection};
use errors::{Failure, Family};
use store::{Consent, Store};

/// Issues access tokens, so it needs none.
const TOKEN_PATH: &str = "/v1/token";

pub(crate) struct Fiskil {
    core: Core<Self>,
    /// What an adapter needs to call this provider.
    pub(crate) access: FiskilAccess,
    tokens: token::Tokens,
}

impl Deref for Fiskil {
    type Target = Core<Self>;
    fn deref(&self) -> &Core<Self> {
        &self.core
    }
}

/// How linking behaves.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LinkingOptions {
    /// How long accounts and rows lag behind a consent.
    lag_seconds: u32,
    /// Whether accounts that are linked again keep their ids.
    same_ids: bool,
}

impl Provider for Fiskil {
    type AuthRequest = sessions::Session;
    type Options = LinkingOptions;
    const NAME: &'static str = "fiskil";

    fn error_body(path: &str, status: StatusCode) -> (&'static str, Vec<u8>) {
        Failure::of_status(Family::of(path), status).body()
    }
}

impl Controls for Fiskil {
    fn credentials(&self, _all: bool) -> Vec<(Credentials, String)> {
        let store = self.store.read();
        let credentials = |consent: &Consent| {
            let name = store.text_of_giver(consent, "name").unwrap_or_default();
            let credentials = Credentials::Fiskil {
                end_user_id: consent.end_user_id.clone(),
                arrangement_id: consent.arrangement_id.clone(),
            };
            (credentials, format!("{name}, {}", consent.institution.name))
        };
        store.consents.iter().map(credentials).collect()
    }

    fn set_consent(
        &self,
        id: &str,
        state: ConsentState,
        expires_at: Option<Timestamp>,
    ) -> Result<(), Refused> {
        let mut store = self.store.write();
        let consent = store
            .consent_mut(id)
            .ok_or_else(|| Refused::unknown("consent", id))?;
        consent.set_state(state, self.clock.now());
        consent.expires_at = expires_at.unwrap_or(consent.expires_at);
        Ok(())
    }

    fn add_account(&self, mut given: Members) -> Result<Members, Refused> {
        let (end_user_id, arrangement_id) =
            (given.take("endUserId")?, given.take("arrangementId")?);
        let mut store = self.store.write();
        let consent = store.consent(&arrangement_id);
        let consent = consent.filter(|consent| consent.end_user_id == end_user_id);
        let institution = consent
            .ok_or_else(|| Refused::unknown("consent of the end user", &arrangement_id))?
            .institution;
        let mut rng = Rng::random();
        let mut account = fill::blank(&mut rng, &end_user_id, &arrangement_id, institution.id);
        account.id = given.text("account_id").unwrap_or(account.id);
        store.check_new_account(&account.id)?;
        fill::set_names(&mut account, &mut rng);
        let defaults = json!({
            "display_name": "Added Account", "product_name": "Added Account",
            "product_category": "TRANS_AND_SAVINGS_ACCOUNTS", "masked_number": "xxx-xxx xxxxx0000",
            "account_ownership": "ONE_PARTY", "open_status": "OPEN",
        });
        let balance = json!({
            "current_balance": "0.00", "available_balance": "0.00", "currency": "AUD",
        });
        account.members.merge_all(Members::from_value(&defaults));
        account.balance.merge_all(Members::from_value(&balance));
        account.members.merge_all(given);
        Ok(store.add_account(account).members.clone())
    }

    fn change_account(&self, id: &str, given: Members) -> Result<Members, Refused> {
        self.store.write().change_account(id, given)
    }

    fn set_balance(&self, id: &str, given: Box<RawValue>) -> Result<Box<RawValue>, Refused> {
        let given = Members::parse(given.get().as_bytes()).map_err(|error| error.to_string())?;
        let mut store = self.store.write();
        let balance = &mut store.account_mut(id)?.balance;
        balance.merge(given);
        Ok(balance.to_raw())
    }
}

impl Fiskil {
    /// Creates the provider with its data, for a listener at `address`.
    pub(crate) fn new(options: &Options, keys: &Keys, address: SocketAddr) -> io::Result<Self> {
        let client_id = keys.rng("fiskil client id").text(BASE62, 27);
        let mut rng = keys.rng("fiskil webhook secret");
        let secret: Vec<u8> = (0..4).flat_map(|_| rng.next().to_be_bytes()).collect();
        Ok(Self {
            core: Core::new(options, |now| Store::new(options.seed, options.rows, now))?,
            tokens: token::Tokens::new(&keys.rng("fiskil tokens").uuid(), &client_id),
            access: FiskilAccess {
                base_url: format!("http://{address}"),
                client_id,
                client_secret: keys.rng("fiskil client secret").text(BASE62, 43),
                webhook_secret: STANDARD.encode(secret),
            },
        })
    }

    /// The provider's routes. All but those of logos are counted and subject to faults.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let provider = Arc::clone(&self);
        consent_page::routes::<Self>()
            .route("/", get(sessions::enter))
            .route(TOKEN_PATH, post(token::issue))
            .route(
                "/v1/end-users",
                post(end_users::create).get(end_users::list),
            )
            .route("/v1/end-users/{id}", delete(end_users::delete))
            .route("/v1/auth/session", post(sessions::create))
            .route("/v1/institutions/{id}", get(institutions::show))
            .route("/v1/consent", get(consents::list))
            .route("/v1/consent/{arrangement_id}", delete(consents::revoke))
            .route("/v1/banking/accounts", get(accounts::list))
            .route("/v1/banking/balances", get(accounts::balances))
            .route("/v1/banking/transactions", get(transactions::list))
            .method_not_allowed_fallback(|request| {
                reject_route(request, StatusCode::METHOD_NOT_ALLOWED)
            })
            .fallback(|request| reject_route(request, StatusCode::NOT_FOUND))
            .with_state(self)
            .layer(from_fn_with_state(
                provider,
                fault_injection::inject_faults::<Self>,
            ))
            .merge(crate::logos::routes(institutions::name))
    }
}

/// The response to an unknown path or method (a sandbox choice).
async fn reject_route(request: Request, status: StatusCode) -> Failure {
    Failure::of_status(Family::of(request.uri().path()), status)
}
