//! Simulates Akahu on its real protocol (<https://developers.akahu.nz>). Comments say where the
//! sandbox chose behaviour that is not documented, and the crate's README lists those choices.

mod accounts;
mod authorize;
mod call;
mod connections;
mod errors;
mod fill;
mod ids;
mod linking;
mod paging;
mod refresh;
mod respond;
mod rows;
mod store;
mod token;
mod transactions;
mod webhook_events;
mod webhooks;

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;

use crate::consent::ConsentState;
use crate::consent_page::is_redirect_uri;
use crate::members::Members;
use crate::provider::{Controls, Core, Provider};
use crate::refused::Refused;
use crate::state::Keys;
use crate::world::new_zealand::NEW_ZEALAND;
use crate::world::nz_rows::{Calendars, draw};
use crate::world::rng::BASE62;
use crate::{AkahuAccess, Credentials, Options, consent_page, fault_injection};
use errors::Failure;
use respond::iso;
use store::{Account, Login, Store};

/// Exchanges codes for tokens. Its errors have their own shape.
const TOKEN_PATH: &str = "/v1/token";

pub(crate) struct Akahu {
    core: Core<Self>,
    /// What an adapter needs to call this provider.
    pub(crate) access: AkahuAccess,
    codes: token::Codes,
    first_pages: authorize::FirstPages,
}

impl Deref for Akahu {
    type Target = Core<Self>;
    fn deref(&self) -> &Core<Self> {
        &self.core
    }
}

/// How linking the same login again behaves, because the real behaviour is unknown
/// (docs/providers/akahu.md#token-exchange), and which redirect URIs the app has registered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct LinkingOptions {
    /// Every consent returns a new token.
    new_token: bool,
    /// A login that is linked again gets a new id. Its accounts keep theirs.
    new_authorisation: bool,
    /// Without any, every loopback URI is registered (a sandbox choice).
    redirect_uris: Vec<String>,
}

impl Provider for Akahu {
    type AuthRequest = authorize::AuthorizationRequest;
    type Options = LinkingOptions;
    const NAME: &'static str = "akahu";

    fn error_body(path: &str, status: StatusCode) -> (&'static str, Vec<u8>) {
        errors::body(path, status)
    }

    fn apply_options(&self, options: &LinkingOptions) -> Result<(), Refused> {
        match options
            .redirect_uris
            .iter()
            .find(|uri| !is_redirect_uri(uri))
        {
            Some(bad) => Err(format!("{bad:?} is not an absolute URL").into()),
            None => Ok(()),
        }
    }
}

impl Controls for Akahu {
    fn credentials(&self, all: bool) -> Vec<(Credentials, String)> {
        let store = self.store.read();
        let credentials = |login: &Login| {
            let user = &store.users[login.user];
            let token = user.tokens.last().filter(|_| all || user.is_listed)?;
            let credentials = Credentials::Akahu {
                user_token: token.text.clone(),
                authorisation: login.id.clone(),
            };
            Some((
                credentials,
                format!("{}, {}", user.name, login.institution.name),
            ))
        };
        store.logins.iter().filter_map(credentials).collect()
    }

    fn set_consent(
        &self,
        id: &str,
        state: ConsentState,
        _: Option<Timestamp>,
    ) -> Result<(), Refused> {
        let (mut store, now) = (self.store.write(), self.clock.now());
        let login = store.logins.iter().position(|login| login.id == id);
        let login = login.ok_or_else(|| Refused::unknown("authorisation", id))?;
        store.apply_due_refreshes(now);
        store.set_state(login, state, now);
        Ok(())
    }

    fn set_user(&self, id: &str, valid: bool) -> Result<(), Refused> {
        let mut store = self.store.write();
        let mut tokens = store.users.iter_mut().flat_map(|user| &mut user.tokens);
        let token = tokens.find(|token| token.text == id);
        token.ok_or("there is no such token")?.alive = valid;
        Ok(())
    }

    fn add_account(&self, mut given: Members) -> Result<Members, Refused> {
        let (token, authorisation) = (given.take("userToken")?, given.take("authorisation")?);
        let (mut store, at) = (self.store.write(), iso(self.clock.now()));
        let has_token = |user: usize| {
            let mut tokens = store.users[user].tokens.iter();
            tokens.any(|known| known.text == token)
        };
        let mut logins = store.logins.iter();
        let login = logins
            .position(|login| login.id == authorisation && has_token(login.user))
            .ok_or_else(|| Refused::unknown("authorisation of the token", &authorisation))?;
        let id = given.text("_id").unwrap_or_else(|| ids::random("acc_"));
        store.check_new_account(&id)?;
        let mut account = Account::blank(&mut store, login, id);
        fill::start_members(&mut account, &store.logins[login]);
        let defaults = json!({
            "name": "Added Account", "type": "CHECKING", "formatted_account": "01-0001-0000001-00",
            "attributes": ["TRANSACTIONS"], "balance": {"currency": "NZD", "current": 0}, "meta": {},
            "refreshed": {"balance": at, "meta": at, "transactions": at},
        });
        account.members.merge_all(Members::from_value(&defaults));
        account.members.merge_all(given);
        Ok(store.push(account).members.clone())
    }

    fn change_account(&self, id: &str, given: Members) -> Result<Members, Refused> {
        let mut store = self.store.write();
        // Apply due refreshes first, so that they cannot undo the change later.
        store.apply_due_refreshes(self.clock.now());
        store.change_account(id, given)
    }

    fn set_balance(&self, id: &str, given: Box<RawValue>) -> Result<Box<RawValue>, Refused> {
        let mut store = self.store.write();
        store.account_mut(id)?.members.set("balance", &given);
        Ok(given)
    }

    fn fill(&self, id: &str, rows: u32) -> Result<(), Refused> {
        let calendars = Calendars::new(self.clock.now());
        let mut plan = NEW_ZEALAND.fill.clone();
        plan.spending = rows;
        let mut store = self.store.write();
        let seed = store.seed;
        let account = store.account_mut(id)?;
        let base = account.take_numbers(u64::from(rows));
        account.set_rows(draw(&plan, seed, base, &calendars, account.running));
        Ok(())
    }
}

impl Akahu {
    /// Creates the provider with its data, for a listener at `address`.
    pub(crate) fn new(options: &Options, keys: &Keys, address: SocketAddr) -> io::Result<Self> {
        Ok(Self {
            core: Core::new(options, |now| Store::new(options.seed, now))?,
            access: AkahuAccess {
                base_url: format!("http://{address}/v1"),
                oauth_url: format!("http://{address}"),
                app_token: ids::draw("app_token_", &mut keys.rng("akahu app token")),
                app_secret: keys.rng("akahu app secret").text(BASE62, 43),
            },
            codes: token::Codes::default(),
            first_pages: authorize::FirstPages::new(),
        })
    }

    /// The provider's routes, which are counted and subject to faults.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        let provider = Arc::clone(&self);
        consent_page::routes::<Self>()
            // The official client appends a path of the caller's choice; the documented URL has
            // none.
            .route("/", get(authorize::show).post(authorize::begin))
            .route("/authorize", get(authorize::show).post(authorize::begin))
            .route(TOKEN_PATH, post(token::exchange))
            .route("/v1/me", get(accounts::me))
            .route("/v1/connections", get(connections::list))
            .route("/v1/categories", get(connections::categories))
            .route("/v1/accounts", get(accounts::list))
            .route("/v1/accounts/{id}", get(accounts::show))
            .route("/v1/accounts/{id}/transactions", get(transactions::list))
            .route(
                "/v1/accounts/{id}/transactions/pending",
                get(transactions::list_pending),
            )
            .route(
                "/v1/authorisations/{id}",
                delete(accounts::delete_authorisation),
            )
            .route("/v1/transactions", get(transactions::list))
            .route("/v1/transactions/ids", post(transactions::list_by_ids))
            .route("/v1/transactions/{id}", get(transactions::show))
            .route("/v1/refresh", post(refresh::refresh))
            .route(
                "/v1/webhooks",
                get(webhooks::list).post(webhooks::subscribe),
            )
            .route("/v1/webhooks/{id}", delete(webhooks::unsubscribe))
            .route("/v1/keys/{id}", get(webhooks::key))
            .method_not_allowed_fallback(|| reject_route(StatusCode::METHOD_NOT_ALLOWED))
            .fallback(|| reject_route(StatusCode::NOT_FOUND))
            .with_state(self)
            .layer(from_fn_with_state(
                provider,
                fault_injection::inject_faults::<Self>,
            ))
    }
}

/// The response to an unknown path or method (a sandbox choice).
async fn reject_route(status: StatusCode) -> Failure {
    Failure::of_status(status)
}
