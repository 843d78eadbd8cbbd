//! Fiskil's own control routes: consents, rows, accounts, balances, pages, lag and credentials.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch, post};
use axum::{Json, Router};
use bytes::Bytes;
use http::StatusCode;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::json;

use super::Fiskil;
use super::consents::State as ConsentState;
use super::rows::{Entry, transaction_id};
use super::store::{Account, Store, blank, set_names};
use crate::control::{BadRequest, parse_body};
use crate::members::Members;
use crate::world::rng::Rng;

pub(super) fn routes(fiskil: Arc<Fiskil>) -> Router {
    Router::new()
        .route("/__control/credentials", get(credentials))
        .route("/__control/pages", post(set_pages))
        .route("/__control/lag", post(set_lag))
        .route("/__control/relink", post(set_relink))
        .route("/__control/consents/{id}", post(set_consent))
        .route("/__control/accounts", post(add_account))
        .route("/__control/accounts/{account_id}", patch(change_account))
        .route("/__control/balances/{account_id}", patch(change_balance))
        .route("/__control/transactions", post(add_row))
        .route(
            "/__control/transactions/{id}",
            patch(change_row).delete(remove_row),
        )
        .with_state(fiskil)
}

const OBJECT: &str = "the row's members in the provider's own shape";

async fn credentials(State(fiskil): State<Arc<Fiskil>>) -> Response {
    Json(json!({"credentials": fiskil.credentials()})).into_response()
}

async fn set_pages(State(fiskil): State<Arc<Fiskil>>, body: Bytes) -> Result<Response, BadRequest> {
    fiskil.empty_pages.set(&body, "/v1/banking/transactions")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LagRequest {
    seconds: u32,
}

async fn set_lag(State(fiskil): State<Arc<Fiskil>>, body: Bytes) -> Result<Response, BadRequest> {
    let request: LagRequest = parse_body(&body, "{\"seconds\": N}, 0 for none")?;
    fiskil.linking_options.lock().lag_seconds = request.seconds;
    Ok(Json(json!({"seconds": request.seconds})).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RelinkRequest {
    same_ids: bool,
}

async fn set_relink(
    State(fiskil): State<Arc<Fiskil>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let request: RelinkRequest = parse_body(&body, "{\"sameIds\": true|false}")?;
    fiskil.linking_options.lock().same_ids = request.same_ids;
    Ok(Json(json!({"sameIds": request.same_ids})).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsentStateRequest {
    state: ConsentState,
    expires_at: Option<Timestamp>,
}

async fn set_consent(
    State(fiskil): State<Arc<Fiskil>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, BadRequest> {
    let request: ConsentStateRequest = parse_body(
        &body,
        "{\"state\": \"active|expired|revoked\", \"expiresAt\"}",
    )?;
    let now = fiskil.controls.clock.now();
    let mut store = fiskil.store.write();
    let found = store.set_consent(&id, request.state, now);
    if let Some(expires_at) = request.expires_at {
        store.set_consent_expiry(&id, expires_at);
    }
    if found {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(not_found(
            "consent",
            &id,
            "GET /__control/credentials lists some",
        ))
    }
}

fn not_found(what: &str, id: &str, help: &str) -> BadRequest {
    BadRequest(format!("there is no {what} {id:?}: {help}"))
}

async fn add_account(
    State(fiskil): State<Arc<Fiskil>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let mut given: Members = parse_body(
        &body,
        "{\"endUserId\", \"arrangementId\"} and the account's members",
    )?;
    let (Some(end_user_id), Some(arrangement_id)) = (
        given.take_text("endUserId"),
        given.take_text("arrangementId"),
    ) else {
        return Err("\"endUserId\" and \"arrangementId\" are needed".into());
    };
    let mut store = fiskil.store.write();
    let consent = store
        .consent(&arrangement_id)
        .filter(|consent| consent.end_user_id == end_user_id);
    let consent = consent.ok_or_else(|| {
        not_found(
            "such consent",
            &arrangement_id,
            "it must be one of the end user's",
        )
    })?;
    let random = uuid::Uuid::new_v4().as_u64_pair();
    let mut rng = Rng::new(random.0, random.1);
    let mut account = blank(
        &mut rng,
        &end_user_id,
        &arrangement_id,
        consent.institution.id,
    );
    account.account_id = given.text("account_id").unwrap_or(account.account_id);
    account.fiskil_id = given.text("fiskil_id").unwrap_or(account.fiskil_id);
    if store
        .accounts
        .iter()
        .any(|known| known.account_id == account.account_id)
    {
        return Err(format!("there is an account {:?} already", account.account_id).into());
    }
    defaults(&mut account, &mut rng);
    account.members.merge_all(given);
    let members = account.members.clone();
    store.add_account(account);
    Ok((StatusCode::CREATED, Json(members)).into_response())
}

/// Sets the members that a test may leave out.
fn defaults(account: &mut Account, rng: &mut Rng) {
    set_names(account, rng);
    for (name, value) in [
        ("display_name", "Added Account"),
        ("product_name", "Added Account"),
        ("product_category", "TRANS_AND_SAVINGS_ACCOUNTS"),
        ("masked_number", "xxx-xxx xxxxx0000"),
        ("account_ownership", "ONE_PARTY"),
        ("open_status", "OPEN"),
    ] {
        account.members.set(name, &value);
    }
    for (name, value) in [
        ("current_balance", "0.00"),
        ("available_balance", "0.00"),
        ("currency", "AUD"),
    ] {
        account.balance.set(name, &value);
    }
}

async fn change_account(
    State(fiskil): State<Arc<Fiskil>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    change(&fiskil.store, &id, parse_body(&body, OBJECT)?, |account| {
        &mut account.members
    })
}

async fn change_balance(
    State(fiskil): State<Arc<Fiskil>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    change(&fiskil.store, &id, parse_body(&body, OBJECT)?, |account| {
        &mut account.balance
    })
}

fn change(
    store: &parking_lot::RwLock<Store>,
    id: &str,
    given: Members,
    part: fn(&mut Account) -> &mut Members,
) -> Result<Response, BadRequest> {
    let mut store = store.write();
    let account = store.accounts.iter_mut().find(|account| account.has_id(id));
    let members = part(account.ok_or_else(|| not_found("account", id, "use an account_id"))?);
    members.merge(given);
    Ok(Json(members.clone()).into_response())
}

async fn add_row(State(fiskil): State<Arc<Fiskil>>, body: Bytes) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, OBJECT)?;
    let now = fiskil.controls.clock.now();
    let row = fiskil.store.write().add_row(given, now)?;
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

async fn change_row(
    State(fiskil): State<Arc<Fiskil>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, OBJECT)?;
    let row = fiskil.store.write().change_row(&id, given);
    row.map(|row| Json(row).into_response())
        .ok_or_else(|| not_found("row", &id, "use a fiskil_id"))
}

async fn remove_row(
    State(fiskil): State<Arc<Fiskil>>,
    Path(id): Path<String>,
) -> Result<StatusCode, BadRequest> {
    let mut store = fiskil.store.write();
    let (account, index) = store
        .find_row(&id)
        .ok_or_else(|| not_found("row", &id, "use a fiskil_id"))?;
    store.accounts[account].entries.remove(index);
    store.accounts[account].row_changes += 1;
    Ok(StatusCode::NO_CONTENT)
}

impl Store {
    /// Returns the index of the account and of the row within it.
    fn find_row(&self, fiskil_id: &str) -> Option<(usize, usize)> {
        self.accounts
            .iter()
            .enumerate()
            .find_map(|(account, held)| {
                let index = held
                    .entries
                    .iter()
                    .position(|entry| entry.has_id(fiskil_id, self.seed))?;
                Some((account, index))
            })
    }

    /// Adds a row and fills in the members that the test left out.
    fn add_row(&mut self, mut row: Members, now: Timestamp) -> Result<Members, BadRequest> {
        let account_id = row.text("account_id").ok_or("\"account_id\" is needed")?;
        if row
            .text("fiskil_id")
            .is_some_and(|id| self.find_row(&id).is_some())
        {
            return Err("there is a row with this fiskil_id already: PATCH it".into());
        }
        let seed = self.seed;
        let account = self
            .accounts
            .iter_mut()
            .find(|account| account.has_id(&account_id));
        let account =
            account.ok_or_else(|| not_found("account", &account_id, "use an account_id"))?;
        row.set("account_id", &account.account_id);
        let number = account.take_number();
        let id = transaction_id(seed, number);
        row.set_default("fiskil_id", &id);
        row.set_default("transaction_id", &format!("txn-{}", &id[8..18]));
        row.set_default("arrangement_id", &account.arrangement_id);
        row.set_default("institution_id", &account.institution_id);
        row.set_default("status", &"POSTED");
        row.set_default("type", &"PAYMENT");
        row.set_default("amount", &"-10.00");
        row.set_default("currency", &"AUD");
        row.set_default("description", &"ADDED ROW");
        row.set_default("reference", &"");
        row.set_default("is_detail_available", &false);
        // A pending row has no time. A row with an execution time keeps only that one.
        if row.text("status").as_deref() != Some("PENDING")
            && row.get("execution_date_time").is_none()
        {
            row.set_default("posting_date_time", &now);
        }
        account.insert(Entry::given(row.clone(), number));
        Ok(row)
    }

    /// Merges members into a row and moves it to its new position.
    pub(super) fn change_row(&mut self, fiskil_id: &str, given: Members) -> Option<Members> {
        let (account, index) = self.find_row(fiskil_id)?;
        let seed = self.seed;
        let account = &mut self.accounts[account];
        let entry = account.entries.remove(index);
        let mut row = entry.members(seed, account.names());
        row.merge(given);
        account.insert(Entry::given(row.clone(), entry.number()));
        Some(row)
    }
}
