//! Simulates SnapTrade on its real protocol (<https://docs.snaptrade.com>). Comments say where the
//! sandbox chose behaviour that is not documented, and the crate's README lists those choices.

mod accounts;
mod activities;
mod call;
mod connections;
mod errors;
mod fill;
mod instruments;
mod limits;
mod linking;
mod login;
mod portal;
mod reference;
mod rows;
mod sign;
mod store;
mod users;
mod webhook_events;

use std::io;
use std::net::SocketAddr;
use std::ops::Deref;
use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post};
use http::StatusCode;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::consent::ConsentState;
use crate::members::Members;
use crate::provider::{Controls, Core, Provider};
use crate::refused::Refused;
use crate::state::Keys;
use crate::world::brokerage::{BROKERAGE, Plan};
use crate::world::rng::BASE62;
use crate::{Credentials, Options, SnapTradeAccess, consent_page, fault_injection};
use errors::Failure;
use store::Store;

pub(crate) struct SnapTrade {
    core: Core<Self>,
    /// What an adapter needs to call this provider.
    pub(crate) access: SnapTradeAccess,
    rate_counter: Mutex<limits::RateCounter>,
}

impl Deref for SnapTrade {
    type Target = Core<Self>;
    fn deref(&self) -> &Core<Self> {
        &self.core
    }
}

/// The rate limit.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct SnapTradeOptions {
    /// Calls per minute. The real limit is 250, which tests of other things would exceed.
    per_minute: u64,
}

impl Default for SnapTradeOptions {
    fn default() -> Self {
        Self {
            per_minute: 1_000_000,
        }
    }
}

impl Provider for SnapTrade {
    type AuthRequest = login::Link;
    type Options = SnapTradeOptions;
    const NAME: &'static str = "snaptrade";

    fn error_body(_: &str, status: StatusCode) -> (&'static str, Vec<u8>) {
        ("application/json", Failure::of_status(status).body())
    }

    fn apply_options(&self, _: &SnapTradeOptions) -> Result<(), Refused> {
        *self.rate_counter.lock() = limits::RateCounter::default();
        Ok(())
    }
}

impl Controls for SnapTrade {
    fn credentials(&self, all: bool) -> Vec<(Credentials, String)> {
        let (store, now) = (self.store.read(), self.clock.now());
        let mut found = Vec::new();
        for user in store.users(now) {
            let connections = store.connections_of(user.number, now);
            for connection in connections.filter(|connection| all || connection.is_listed) {
                let credentials = Credentials::SnapTrade {
                    user_id: user.id.clone(),
                    user_secret: user.secret.clone(),
                    authorization_id: connection.id.clone(),
                };
                found.push((
                    credentials,
                    format!("{}, {}", user.id, connection.broker.name),
                ));
            }
        }
        found
    }

    fn set_consent(
        &self,
        id: &str,
        state: ConsentState,
        _: Option<Timestamp>,
    ) -> Result<(), Refused> {
        let (mut store, now) = (self.store.write(), self.clock.now());
        let connection = store
            .any_connection_mut(id)
            .ok_or_else(|| Refused::unknown("connection", id))?;
        connection.reactivate();
        match state {
            ConsentState::Active => {}
            ConsentState::Expired => connection.disabled_at = Some(now),
            ConsentState::Revoked => connection.delete_now(now),
        }
        Ok(())
    }

    fn set_user(&self, id: &str, valid: bool) -> Result<(), Refused> {
        let (mut store, now) = (self.store.write(), self.clock.now());
        let user = store.user_mut(id, now);
        user.ok_or_else(|| Refused::unknown("user", id))?.revoked = !valid;
        Ok(())
    }

    fn add_account(&self, mut given: Members) -> Result<Members, Refused> {
        let connection_id = given.take("authorizationId")?;
        let (mut store, now) = (self.store.write(), self.clock.now());
        let institution = store
            .any_connection(&connection_id)
            .ok_or_else(|| Refused::unknown("connection", &connection_id))?
            .broker
            .name;
        let id = given
            .text("id")
            .unwrap_or_else(|| Uuid::new_v4().to_string());
        store.check_new_account(&id)?;
        let defaults = json!({
            "id": id, "brokerage_authorization": connection_id, "name": "Added Account",
            "number": "AD-0000", "institution_account_id": null, "institution_name": institution,
            "created_date": now.to_string(), "funding_date": null, "opening_date": null,
            "sync_status": {
                "transactions": {
                    "initial_sync_completed": true, "last_successful_sync": null,
                    "first_transaction_date": null,
                },
                "holdings": {"initial_sync_completed": true, "last_successful_sync": null},
            },
            "balance": {"total": {"amount": 0, "currency": "USD"}},
            "status": "open", "raw_type": "Cash", "account_category": "INVESTMENT", "meta": {},
            "portfolio_group": connection_id, "cash_restrictions": [], "is_paper": false,
        });
        let mut members = Members::from_value(&defaults);
        members.merge_all(given);
        let currency = store.instruments.any_currency("USD");
        let account = store.add_account(&connection_id, id, members.clone(), now);
        account.balances =
            fill::raw(&json!([{"currency": currency, "cash": 0, "buying_power": 0}]));
        Ok(members)
    }

    fn change_account(&self, id: &str, given: Members) -> Result<Members, Refused> {
        self.store.write().change_account(id, given)
    }

    fn set_balance(&self, id: &str, given: Box<RawValue>) -> Result<Box<RawValue>, Refused> {
        let mut store = self.store.write();
        let account = store.account_mut(id)?;
        account.balances.clone_from(&given);
        account.holding_changes += 1;
        Ok(given)
    }

    fn fill(&self, id: &str, rows: u32) -> Result<(), Refused> {
        let mut store = self.store.write();
        let (seed, today) = (store.seed, store.today);
        let plan = Plan {
            rows,
            ..BROKERAGE.fill.clone()
        };
        store.account_mut(id)?.draw(&plan, "USD", seed, today);
        Ok(())
    }

    fn add_position(&self, mut given: Members) -> Result<Members, Refused> {
        let account = given.take("account")?;
        given.set_defaults(&json!({
            "instrument": {
                "kind": "stock", "id": Uuid::new_v4(), "symbol": "ADDED", "raw_symbol": "ADDED",
                "description": "Added Example Inc.", "currency": "USD", "exchange": "XNAS",
                "figi_instrument": null,
            },
            "units": "1", "price": "1", "cost_basis": "1", "currency": "USD",
        }));
        let mut store = self.store.write();
        store.account_mut(&account)?.add_position(given.clone());
        Ok(given)
    }
}

impl SnapTrade {
    /// Creates the provider with its data, for a listener at `address`.
    pub(crate) fn new(options: &Options, keys: &Keys, address: SocketAddr) -> io::Result<Self> {
        let core: Core<Self> = Core::new(options, |now| Store::new(options.seed, now))?;
        core.store.write().fill_instruments();
        // Letters only: clients encode other characters differently
        // (docs/providers/snaptrade.md#request-signatures).
        let mut client_id = keys.rng("snaptrade EXAMPLE client id");
        let mut consumer_key = keys.rng("snaptrade EXAMPLE consumer key");
        Ok(Self {
            core,
            access: SnapTradeAccess {
                base_url: format!("http://{address}"),
                client_id: format!("EXAMPLE-{}", client_id.text(b"ABCDEFGHJKLMNPQRSTUVWXYZ", 6)),
                consumer_key: consumer_key.text(BASE62, 50),
            },
            rate_counter: Mutex::default(),
        })
    }

    /// The provider's routes, which exist below the old prefix too. All but those of logos are
    /// counted and subject to faults.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        api()
            .nest(sign::PREFIX, api())
            .merge(consent_page::routes())
            .route(login::PATH, get(portal::enter))
            .method_not_allowed_fallback(async || {
                Failure::of_status(StatusCode::METHOD_NOT_ALLOWED)
            })
            .fallback(async || Failure::of_status(StatusCode::NOT_FOUND))
            .with_state(Arc::clone(&self))
            .layer(from_fn_with_state(Arc::clone(&self), limits::throttle))
            .layer(from_fn_with_state(
                Arc::clone(&self),
                fault_injection::inject_faults::<Self>,
            ))
            .layer(from_fn_with_state(self, limits::add_headers))
            .merge(crate::logos::routes(reference::logo_name))
    }
}

fn api() -> Router<Arc<SnapTrade>> {
    Router::new()
        .route("/snapTrade/registerUser", post(users::register))
        .route("/snapTrade/deleteUser", delete(users::delete))
        .route("/snapTrade/login", post(login::login))
        .route("/snapTrade/partners", get(reference::partner))
        .route("/authorizations", get(connections::list))
        .route("/authorizations/{id}", get(connections::show))
        .route("/connection/{id}", delete(connections::delete))
        .route("/authorizations/{id}/refresh", post(connections::refresh))
        .route("/authorizations/{id}/accounts", get(accounts::list))
        .route("/accounts", get(accounts::list))
        .route("/accounts/{id}/balances", get(accounts::balances))
        .route("/accounts/{id}/positions/all", get(accounts::positions))
        .route("/accounts/{id}/activities", get(activities::list))
        .route("/accounts/{id}/holdings", get(accounts::retired))
        .route("/accounts/{id}/options", get(accounts::retired))
        .route("/accounts/{id}/positions", get(accounts::retired))
        .route("/activities", get(accounts::retired))
        .route("/holdings", get(accounts::retired))
}
