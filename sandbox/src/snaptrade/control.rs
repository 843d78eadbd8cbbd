//! SnapTrade's own control routes: connections, users, trades, positions, accounts, limits,
//! redirects and credentials.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use uuid::Uuid;

use super::fill::raw;
use super::limits::LimitSettings;
use super::link::Join;
use super::rows::not_found;
use super::{Key, KeyPair, SnapTrade};
use crate::control::{BadRequest, parse_body};
use crate::members::Members;
use crate::query::Query;
use crate::world::brokerage::{BROKERAGE, Plan};

pub(super) fn routes(snaptrade: Arc<SnapTrade>) -> Router {
    Router::new()
        .route("/__control/access", get(access))
        .route("/__control/credentials", get(credentials))
        .route("/__control/limits", post(set_limits))
        .route("/__control/redirects", post(set_redirects))
        .route("/__control/consents/{authorization_id}", post(set_consent))
        .route("/__control/users/{user_id}", post(set_user))
        .route("/__control/accounts", post(add_account))
        .route("/__control/accounts/{account_id}", patch(change_account))
        .route("/__control/balances/{account_id}", put(set_balances))
        .route("/__control/fill", post(fill))
        .route("/__control/trades", post(add_trade))
        .route(
            "/__control/trades/{id}",
            patch(change_trade).delete(remove_trade),
        )
        .route("/__control/positions", post(add_position))
        .route(
            "/__control/positions/{instrument_id}",
            patch(change_position).delete(remove_position),
        )
        .with_state(snaptrade)
}

type Provider = State<Arc<SnapTrade>>;

const OBJECT: &str = "the members in the provider's own shape";

async fn access(State(snaptrade): Provider) -> Response {
    let key = |key: &KeyPair| json!({"clientId": key.client_id, "consumerKey": key.consumer_key});
    let (store, now) = (snaptrade.store.read(), snaptrade.controls.clock.now());
    let mut personal = key(&snaptrade.personal);
    if let Some(user) = store.users(Key::Personal, now).next() {
        let connections = store
            .connections_of(user.number, now)
            .map(|connection| &connection.id);
        personal["userId"] = user.id.as_str().into();
        personal["authorizationIds"] = json!(connections.collect::<Vec<_>>());
    }
    let body = json!({
        "baseUrl": snaptrade.base_url, "commercial": key(&snaptrade.commercial), "personal": personal,
    });
    Json(body).into_response()
}

async fn credentials(State(snaptrade): Provider) -> Response {
    Json(
        json!({"credentials": snaptrade.credentials(), "all": snaptrade.all_credentials(|_| true)}),
    )
    .into_response()
}

async fn set_limits(State(snaptrade): Provider, body: Bytes) -> Result<Response, BadRequest> {
    let settings: LimitSettings = parse_body(&body, "{\"perMinute\", \"perAccountPerMinute\"}")?;
    snaptrade.limits.set(settings);
    Ok(Json(settings).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedirectsRequest {
    join: Join,
}

async fn set_redirects(State(snaptrade): Provider, body: Bytes) -> Result<Response, BadRequest> {
    let request: RedirectsRequest = parse_body(&body, "{\"join\": \"&\"} or {\"join\": \"?\"}")?;
    *snaptrade.join.lock() = request.join;
    Ok(Json(json!({"join": request.join})).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum ConsentState {
    Active,
    Expired,
    Revoked,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum UserState {
    Active,
    Revoked,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StateRequest<S> {
    state: S,
}

async fn set_consent(
    State(snaptrade): Provider,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, BadRequest> {
    let request: StateRequest<ConsentState> =
        parse_body(&body, "{\"state\": \"active|expired|revoked\"}")?;
    let (mut store, now) = (snaptrade.store.write(), snaptrade.controls.clock.now());
    let connection = store
        .connections
        .iter_mut()
        .find(|connection| connection.id == id);
    let connection = connection.ok_or_else(|| not_found("connection", &id))?;
    connection.reactivate();
    match request.state {
        ConsentState::Active => {}
        ConsentState::Expired => connection.disabled_at = Some(now),
        ConsentState::Revoked => connection.delete_now(now),
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn set_user(
    State(snaptrade): Provider,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, BadRequest> {
    let request: StateRequest<UserState> = parse_body(&body, "{\"state\": \"active|revoked\"}")?;
    let (mut store, now) = (snaptrade.store.write(), snaptrade.controls.clock.now());
    let key = [Key::Commercial, Key::Personal]
        .into_iter()
        .find(|key| store.users(*key, now).any(|user| user.id == id));
    let user = key
        .and_then(|key| store.user_mut(key, &id, now))
        .ok_or_else(|| not_found("user", &id))?;
    user.revoked = matches!(request.state, UserState::Revoked);
    Ok(StatusCode::NO_CONTENT)
}

async fn add_account(State(snaptrade): Provider, body: Bytes) -> Result<Response, BadRequest> {
    let mut given: Members = parse_body(&body, "{\"authorizationId\"} and the account's members")?;
    let connection_id = given
        .take_text("authorizationId")
        .ok_or("\"authorizationId\" is needed")?;
    let (mut store, now) = (snaptrade.store.write(), snaptrade.controls.clock.now());
    let connection = store
        .connections
        .iter()
        .find(|connection| connection.id == connection_id);
    let institution = connection
        .ok_or_else(|| not_found("connection", &connection_id))?
        .broker
        .name;
    let id = given
        .text("id")
        .unwrap_or_else(|| Uuid::new_v4().to_string());
    if store.accounts.iter().any(|account| account.id == id) {
        return Err(format!("there is an account {id:?} already").into());
    }
    let defaults = json!({
        "id": id, "brokerage_authorization": connection_id, "name": "Added Account", "number": "AD-0000",
        "institution_account_id": null, "institution_name": institution, "created_date": now.to_string(),
        "funding_date": null, "opening_date": null,
        "sync_status": {
            "transactions": {
                "initial_sync_completed": true, "last_successful_sync": null, "first_transaction_date": null,
            },
            "holdings": {"initial_sync_completed": true, "last_successful_sync": null},
        },
        "balance": {"total": {"amount": 0, "currency": "USD"}},
        "status": "open", "raw_type": "Cash", "account_category": "INVESTMENT", "meta": {},
        "portfolio_group": connection_id, "cash_restrictions": [], "is_paper": false,
    });
    let mut members = Members::from_value(&defaults);
    members.merge_all(given);
    let balances =
        json!([{"currency": store.instruments.any_currency("USD"), "cash": 0, "buying_power": 0}]);
    store
        .add_account(&connection_id, id, members.clone(), now)
        .balances = raw(&balances);
    Ok((StatusCode::CREATED, Json(members)).into_response())
}

async fn change_account(
    State(snaptrade): Provider,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, OBJECT)?;
    let mut store = snaptrade.store.write();
    let account = store.any_account(&id)?;
    account.members.merge(given);
    Ok(Json(account.members.clone()).into_response())
}

async fn set_balances(
    State(snaptrade): Provider,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    const EXPECTED: &str = "an array of {\"currency\", \"cash\", \"buying_power\"}";
    let balances: Box<RawValue> = parse_body(&body, EXPECTED)?;
    if !balances.get().starts_with('[') {
        return Err(format!("send {EXPECTED}").into());
    }
    let mut store = snaptrade.store.write();
    let account = store.any_account(&id)?;
    account.balances = balances.clone();
    account.holding_changes += 1;
    Ok(Json(balances).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FillRequest {
    account_id: String,
    rows: u32,
}

async fn fill(State(snaptrade): Provider, body: Bytes) -> Result<Response, BadRequest> {
    let request: FillRequest = parse_body(&body, "{\"accountId\", \"rows\"}")?;
    if request.rows > 1_000_000 {
        return Err("\"rows\" must be at most 1000000".into());
    }
    let mut store = snaptrade.store.write();
    let (seed, today) = (store.seed, store.today);
    let plan = Plan {
        rows: request.rows,
        ..BROKERAGE.fill.clone()
    };
    store
        .any_account(&request.account_id)?
        .draw(&plan, "USD", seed, today);
    Ok(Json(json!({"accountId": request.account_id, "rows": request.rows})).into_response())
}

async fn add_trade(State(snaptrade): Provider, body: Bytes) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, OBJECT)?;
    let now = snaptrade.controls.clock.now();
    let row = snaptrade.store.write().add_trade(given, now)?;
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

async fn change_trade(
    State(snaptrade): Provider,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, OBJECT)?;
    Ok(Json(snaptrade.store.write().change_trade(&id, given)?).into_response())
}

async fn remove_trade(
    State(snaptrade): Provider,
    Path(id): Path<String>,
) -> Result<StatusCode, BadRequest> {
    snaptrade.store.write().remove_trade(&id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn add_position(State(snaptrade): Provider, body: Bytes) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, OBJECT)?;
    let position = snaptrade.store.write().add_position(given)?;
    Ok((StatusCode::CREATED, Json(position)).into_response())
}

async fn change_position(
    State(snaptrade): Provider,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, OBJECT)?;
    let query = Query::parse(query.as_deref());
    let position = snaptrade
        .store
        .write()
        .change_position(&id, query.get("account"), given)?;
    Ok(Json(position).into_response())
}

async fn remove_position(
    State(snaptrade): Provider,
    Path(id): Path<String>,
    RawQuery(query): RawQuery,
) -> Result<StatusCode, BadRequest> {
    let query = Query::parse(query.as_deref());
    snaptrade
        .store
        .write()
        .remove_position(&id, query.get("account"))?;
    Ok(StatusCode::NO_CONTENT)
}
