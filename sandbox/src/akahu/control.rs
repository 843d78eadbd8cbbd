//! Akahu's own control routes: logins, tokens, rows, accounts, pages, redirect URIs and
//! credentials.

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

use super::linking::LinkingOptions;
use super::respond::iso;
use super::rows::Entry;
use super::store::{Account, State as LoginState, Store, start_members};
use super::{Akahu, ids};
use crate::consent_page::is_redirect_uri;
use crate::control::{BadRequest, parse_body};
use crate::members::Members;
use crate::world::new_zealand::NEW_ZEALAND;
use crate::world::nz_rows::{Calendars, fill};

pub(super) fn routes(akahu: Arc<Akahu>) -> Router {
    Router::new()
        .route("/__control/credentials", get(credentials))
        .route("/__control/pages", post(set_pages))
        .route("/__control/consents/{authorisation}", post(set_consent))
        .route("/__control/tokens/{user_token}", post(set_token))
        .route("/__control/accounts", post(add_account))
        .route("/__control/accounts/{id}", patch(change_account))
        .route("/__control/redirects", post(set_redirects))
        .route("/__control/relink", post(set_relink))
        .route("/__control/keys/rotate", post(super::webhooks::rotate))
        .route("/__control/fill", post(fill_account))
        .route("/__control/transactions", post(add_row))
        .route(
            "/__control/transactions/{id}",
            patch(change_row).delete(remove_row),
        )
        .route("/__control/pending", post(add_pending))
        .route(
            "/__control/pending/{account}",
            axum::routing::delete(remove_pending),
        )
        .with_state(akahu)
}

const ACCOUNT: &str = "the account's members in Akahu's own shape";
const ROW: &str = "the row's members in Akahu's own shape";
/// The days over which `fill` distributes its rows.
const FILL_DAYS: u32 = 300;

fn not_found(what: &str, id: &str, help: &str) -> BadRequest {
    BadRequest(format!("there is no {what} {id:?}: {help}"))
}

fn account_not_found(id: &str) -> BadRequest {
    not_found("account", id, "use an _id of GET /v1/accounts")
}

async fn credentials(State(akahu): State<Arc<Akahu>>) -> Response {
    Json(json!({"credentials": akahu.credentials(), "all": akahu.credentials_of(|_| true)}))
        .into_response()
}

async fn set_pages(State(akahu): State<Arc<Akahu>>, body: Bytes) -> Result<Response, BadRequest> {
    akahu.empty_pages.set(&body, "")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RedirectsRequest {
    uris: Vec<String>,
}

async fn set_redirects(
    State(akahu): State<Arc<Akahu>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let request: RedirectsRequest = parse_body(&body, "{\"uris\": [\"https://app.example/cb\"]}")?;
    if let Some(bad) = request.uris.iter().find(|uri| !is_redirect_uri(uri)) {
        return Err(format!("{bad:?} is not an absolute URL").into());
    }
    let response = Json(json!({"uris": request.uris})).into_response();
    akahu.app_registration.set_redirect_uris(request.uris);
    Ok(response)
}

async fn set_relink(State(akahu): State<Arc<Akahu>>, body: Bytes) -> Result<Response, BadRequest> {
    let options: LinkingOptions = parse_body(
        &body,
        "{\"newToken\", \"oldTokenLives\", \"newAuthorisation\"}, each true or false",
    )?;
    *akahu.linking_options.lock() = options;
    Ok(Json(options).into_response())
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ConsentStateRequest {
    state: LoginState,
}

async fn set_consent(
    State(akahu): State<Arc<Akahu>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, BadRequest> {
    let request: ConsentStateRequest =
        parse_body(&body, "{\"state\": \"active|expired|revoked\"}")?;
    let mut store = akahu.store.write();
    let login = store.logins.iter().position(|login| login.id == id);
    let login = login.ok_or_else(|| {
        not_found(
            "authorisation",
            &id,
            "GET /__control/credentials lists them under \"all\"",
        )
    })?;
    store.apply_due_refreshes(akahu.controls.clock.now());
    store.set_state(login, request.state, akahu.controls.clock.now());
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum TokenState {
    Active,
    Revoked,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenStateRequest {
    state: TokenState,
}

async fn set_token(
    State(akahu): State<Arc<Akahu>>,
    Path(text): Path<String>,
    body: Bytes,
) -> Result<StatusCode, BadRequest> {
    let request: TokenStateRequest = parse_body(&body, "{\"state\": \"active|revoked\"}")?;
    let mut store = akahu.store.write();
    let mut tokens = store.users.iter_mut().flat_map(|user| &mut user.tokens);
    let token = tokens.find(|token| token.text == text);
    let token = token.ok_or_else(|| {
        BadRequest::from("there is no such token: GET /__control/credentials lists some")
    })?;
    token.alive = matches!(request.state, TokenState::Active);
    Ok(StatusCode::NO_CONTENT)
}

async fn add_account(State(akahu): State<Arc<Akahu>>, body: Bytes) -> Result<Response, BadRequest> {
    let mut given: Members = parse_body(
        &body,
        "{\"userToken\", \"authorisation\"} and the account's members",
    )?;
    let (Some(token), Some(authorisation)) = (
        given.take_text("userToken"),
        given.take_text("authorisation"),
    ) else {
        return Err("\"userToken\" and \"authorisation\" are needed".into());
    };
    let now = akahu.controls.clock.now();
    let mut store = akahu.store.write();
    let has_token = |user: usize| {
        store.users[user]
            .tokens
            .iter()
            .any(|known| known.text == token)
    };
    let login = store
        .logins
        .iter()
        .position(|login| login.id == authorisation && has_token(login.user));
    let login = login.ok_or_else(|| {
        not_found(
            "authorisation of that user",
            &authorisation,
            "it must be one of the token's",
        )
    })?;
    let id = given.text("_id").unwrap_or_else(|| ids::random("acc_"));
    if store.accounts.iter().any(|account| account.id == id) {
        return Err(format!("there is an account {id:?} already: PATCH it").into());
    }
    let mut account = Account::blank(&mut store, login, id);
    defaults(&mut account, &store, now);
    account.members.merge_all(given);
    let members = account.members.clone();
    store.accounts.push(account);
    Ok((StatusCode::CREATED, Json(members)).into_response())
}

/// Sets the members that a test may leave out.
fn defaults(account: &mut Account, store: &Store, now: Timestamp) {
    start_members(account, &store.logins[account.login]);
    let at = iso(now);
    let others = json!({
        "name": "Added Account", "type": "CHECKING", "formatted_account": "01-0001-0000001-00",
        "attributes": ["TRANSACTIONS"], "balance": {"currency": "NZD", "current": 0}, "meta": {},
        "refreshed": {"balance": at, "meta": at, "transactions": at},
    });
    account.members.merge_all(Members::from_value(&others));
}

async fn change_account(
    State(akahu): State<Arc<Akahu>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, ACCOUNT)?;
    let mut store = akahu.store.write();
    // Apply due refreshes first, so that they cannot undo the change later.
    store.apply_due_refreshes(akahu.controls.clock.now());
    let account = store.account_mut(&id)?;
    account.members.merge(given);
    Ok(Json(&account.members).into_response())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FillRequest {
    account_id: String,
    rows: u32,
}

async fn fill_account(
    State(akahu): State<Arc<Akahu>>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let request: FillRequest = parse_body(&body, "{\"accountId\", \"rows\"}")?;
    let calendars = Calendars::new(akahu.controls.clock.now());
    let mut store = akahu.store.write();
    let seed = store.seed;
    let account = store.account_mut(&request.account_id)?;
    let base = account.take_numbers(u64::from(request.rows));
    let rows = fill(
        NEW_ZEALAND.spending(),
        request.rows,
        FILL_DAYS,
        seed,
        base,
        &calendars,
        account.running,
    );
    account.entries = rows.into_iter().map(Entry::drawn).collect();
    Ok(Json(json!({"accountId": account.id, "rows": account.entries.len()})).into_response())
}

async fn add_row(State(akahu): State<Arc<Akahu>>, body: Bytes) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, ROW)?;
    let now = akahu.controls.clock.now();
    let row = akahu.store.write().add_row(given, now)?;
    akahu.record_row_change(&row);
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

async fn change_row(
    State(akahu): State<Arc<Akahu>>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Response, BadRequest> {
    let given: Members = parse_body(&body, ROW)?;
    let now = akahu.controls.clock.now();
    let row = akahu.store.write().change_row(&id, given, now)?;
    akahu.record_row_change(&row);
    Ok(Json(row).into_response())
}

async fn remove_row(
    State(akahu): State<Arc<Akahu>>,
    Path(id): Path<String>,
) -> Result<StatusCode, BadRequest> {
    let mut store = akahu.store.write();
    let (account, index) = store.find_row(&id)?;
    store.accounts[account].entries.remove(index);
    let account_id = store.accounts[account].id.clone();
    drop(store);
    akahu.record_row_removal(&account_id, &id);
    Ok(StatusCode::NO_CONTENT)
}

async fn add_pending(State(akahu): State<Arc<Akahu>>, body: Bytes) -> Result<Response, BadRequest> {
    let mut row: Members = parse_body(&body, ROW)?;
    let now = iso(akahu.controls.clock.now());
    let mut store = akahu.store.write();
    let account = store.account_mut(&row.text("_account").ok_or("\"_account\" is needed")?)?;
    set_connection_and_user(&mut row, account);
    for (name, value) in [
        ("updated_at", now.as_str()),
        ("date", now.as_str()),
        ("description", "ADDED PENDING ROW"),
        ("type", "EFTPOS"),
    ] {
        row.set_default(name, &value);
    }
    row.set_default("amount", &"-10.00");
    row.set_default("meta", &json!({}));
    account.pending.insert(0, row.clone());
    Ok((StatusCode::CREATED, Json(row)).into_response())
}

async fn remove_pending(
    State(akahu): State<Arc<Akahu>>,
    Path(id): Path<String>,
) -> Result<StatusCode, BadRequest> {
    akahu.store.write().account_mut(&id)?.pending.clear();
    Ok(StatusCode::NO_CONTENT)
}

fn set_connection_and_user(row: &mut Members, account: &Account) {
    let names = account.names();
    row.set_default("_connection", &names.connection_id);
    row.set_default("_user", &names.user_id);
}

impl Store {
    fn account_mut(&mut self, id: &str) -> Result<&mut Account, BadRequest> {
        self.accounts
            .iter_mut()
            .find(|account| account.id == id)
            .ok_or_else(|| account_not_found(id))
    }

    /// Returns the index of the account and of the row within it.
    fn find_row(&self, id: &str) -> Result<(usize, usize), BadRequest> {
        let mut all = self.accounts.iter().enumerate();
        let found = all.find_map(|(account, held)| {
            Some((
                account,
                held.entries
                    .iter()
                    .position(|entry| entry.has_id(id, self.seed))?,
            ))
        });
        found.ok_or_else(|| not_found("row", id, "use an _id of GET /v1/transactions"))
    }

    /// Adds a row and fills in the members that the test left out.
    fn add_row(&mut self, given: Members, now: Timestamp) -> Result<Members, BadRequest> {
        let account_id = given.text("_account").ok_or("\"_account\" is needed")?;
        if given
            .text("_id")
            .is_some_and(|id| self.find_row(&id).is_ok())
        {
            return Err("there is a row with this _id already: PATCH it".into());
        }
        let seed = self.seed;
        let account = self.account_mut(&account_id)?;
        let number = account.take_numbers(1);
        let mut row = given;
        row.set_default("_id", &ids::of_row(seed, number));
        set_connection_and_user(&mut row, account);
        for name in ["created_at", "updated_at", "date"] {
            row.set_default(name, &iso(now));
        }
        row.set_default("description", &"ADDED ROW");
        row.set_default("amount", &-10);
        row.set_default("type", &"DEBIT");
        account.insert(Entry::given(row.clone(), number));
        Ok(row)
    }

    /// Merges members into a row and moves it to its new position. `updated_at` becomes now unless
    /// `given` sets it.
    fn change_row(
        &mut self,
        id: &str,
        mut given: Members,
        now: Timestamp,
    ) -> Result<Members, BadRequest> {
        let (account, index) = self.find_row(id)?;
        let seed = self.seed;
        let account = &mut self.accounts[account];
        let entry = account.entries.remove(index);
        let mut row = entry.members(seed, account.names());
        given.set_default("updated_at", &iso(now));
        row.merge(given);
        account.insert(Entry::given(row.clone(), entry.number()));
        Ok(row)
    }
}
