//! The [`Bank`] over HTTP, below `/__control` of every provider. Control calls need no token. They
//! are not counted, and faults do not apply to them.

use std::collections::HashSet;
use std::net::IpAddr;
use std::time::Duration;

use axum::extract::{Path, Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, patch, post, put};
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::spawn_blocking;

use crate::bank::Bank;
use crate::consent::ConsentState;
use crate::faults::Fault;
use crate::members::Members;
use crate::refused::Refused;
use crate::state::StateFile;
use crate::webhooks::WebhookSettings;

/// A 400 whose text says what is wrong.
impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = Json(json!({"error": self.to_string()}));
        (StatusCode::BAD_REQUEST, body).into_response()
    }
}

/// When to save what a call may have changed; `None` if nothing is to be saved.
type ClaimSave = fn(&StateFile, bool) -> Option<Duration>;

/// Reports what the calls of a provider change, and saves it before the response: what a client has
/// read outlives the process, as does what a page changed before.
pub(crate) fn watch(bank: &Bank, provider: Router) -> Router {
    let claim: ClaimSave =
        |file, may_change| (may_change || file.is_save_pending()).then_some(Duration::ZERO);
    provider.layer(from_fn_with_state((bank.clone(), claim), announce_after))
}

/// As [`watch`], for pages that anybody may open: what they change is saved within a second.
pub(crate) fn watch_pages(bank: &Bank, provider: Router) -> Router {
    let claim: ClaimSave = |file, may_change| {
        if may_change {
            file.claim_page_save()
        } else {
            None
        }
    };
    provider.layer(from_fn_with_state((bank.clone(), claim), announce_after))
}

/// Adds the control routes to those of a provider, which are watched.
pub(crate) fn attach(bank: &Bank, provider: Router) -> Router {
    let control = Router::new()
        .route("/faults", get(faults).post(add_fault).delete(clear_faults))
        .route("/calls", get(calls).delete(clear_calls))
        .route("/clock", get(clock).post(set_clock))
        .route("/pages", post(set_pages))
        .route("/unlisted", put(set_unlisted))
        .route("/options", post(set_options))
        .route("/credentials", get(credentials))
        .route("/consents/{id}", post(set_consent))
        .route("/users/{id}", post(set_user))
        .route("/accounts", post(add_account))
        .route("/accounts/{id}", patch(change_account))
        .route("/balances/{id}", put(set_balance))
        .route("/transactions", post(add_row))
        .route("/transactions/{id}", patch(change_row).delete(remove_row))
        .route("/positions", post(add_position))
        .route("/fill", post(fill))
        .route("/webhooks", get(webhooks).post(set_webhooks).delete(forget))
        .route("/webhooks/resend", post(resend))
        .route("/webhooks/send", post(send))
        .route("/{*rest}", any(unknown))
        .with_state(bank.clone());
    Router::new()
        .nest("/__control", watch(bank, control))
        .merge(provider)
        .layer(from_fn(guard))
}

/// A call may have changed something, and the clock goes on.
async fn announce_after(
    State((bank, claim)): State<(Bank, ClaimSave)>,
    request: Request,
    next: Next,
) -> Response {
    let may_change = may_change(&request);
    let response = next.run(request).await;
    bank.0.announce();
    let file = bank.0.shared().state_file.as_ref();
    match file.and_then(|file| claim(file, may_change)) {
        Some(Duration::ZERO) => save(bank).await,
        Some(wait) => {
            tokio::spawn(async move {
                tokio::time::sleep(wait).await;
                save(bank).await;
            });
        }
        None => {}
    }
    response
}

async fn save(bank: Bank) {
    let _ = spawn_blocking(move || bank.save()).await;
}

fn may_change(request: &Request) -> bool {
    request.method() != Method::GET || is_consent_without_pages(request.uri())
}

/// The one `GET` that changes something.
fn is_consent_without_pages(uri: &Uri) -> bool {
    uri.query()
        .is_some_and(|query| query.contains("sandbox_auto"))
}

/// Rejects control calls that a web page could send from a developer's browser: pages name their
/// origin, and a name that was rebound to this machine is neither an address nor `localhost`.
async fn guard(request: Request, next: Next) -> Response {
    if request.uri().path().starts_with("/__control") && !is_from_program(request.headers()) {
        let why = "control calls come from programs, with an address or localhost in the URL";
        return (StatusCode::FORBIDDEN, Json(json!({"error": why}))).into_response();
    }
    next.run(request).await
}

fn is_from_program(headers: &HeaderMap) -> bool {
    let header = |name| {
        headers
            .get(name)
            .map(|value| value.to_str().unwrap_or_default())
    };
    let host = header("host").unwrap_or_default();
    let is_same_origin = match (header("origin"), header("sec-fetch-site")) {
        (Some(origin), _) => origin.strip_prefix("http://") == Some(host),
        (None, Some(site)) => site == "same-origin" || site == "none",
        (None, None) => true,
    };
    is_same_origin && is_address(host)
}

fn is_address(host: &str) -> bool {
    let name = host
        .rsplit_once(':')
        .filter(|(_, port)| port.parse::<u16>().is_ok())
        .map_or(host, |(name, _)| name);
    name == "localhost"
        || name
            .trim_start_matches('[')
            .trim_end_matches(']')
            .parse::<IpAddr>()
            .is_ok()
}

/// Parses a body as JSON and ignores its content type.
fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| format!("the body is not right: {error}").into())
}

const DONE: Result<StatusCode, Refused> = Ok(StatusCode::NO_CONTENT);

type Created<T> = Result<(StatusCode, Json<T>), Refused>;

fn created<T>(value: T) -> Created<T> {
    Ok((StatusCode::CREATED, Json(value)))
}

async fn unknown() -> (StatusCode, &'static str) {
    let text = "no such control route; the crate's README lists them";
    (StatusCode::NOT_FOUND, text)
}

async fn faults(State(bank): State<Bank>) -> Json<Value> {
    Json(json!({"faults": bank.faults()}))
}

async fn add_fault(State(bank): State<Bank>, body: Bytes) -> Result<Json<Value>, Refused> {
    let fault: Fault = parse(&body)?;
    fault.check()?;
    bank.add_fault(fault);
    Ok(faults(State(bank)).await)
}

async fn clear_faults(State(bank): State<Bank>) -> StatusCode {
    bank.clear_faults();
    StatusCode::NO_CONTENT
}

async fn calls(State(bank): State<Bank>) -> Json<Value> {
    Json(json!({"calls": bank.0.shared().calls.list()}))
}

async fn clear_calls(State(bank): State<Bank>) -> StatusCode {
    bank.reset_calls();
    StatusCode::NO_CONTENT
}

async fn clock(State(bank): State<Bank>) -> Json<Value> {
    Json(json!({"now": bank.now().to_string()}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClockRequest {
    now: Option<Timestamp>,
    #[serde(default)]
    advance_seconds: i64,
}

async fn set_clock(State(bank): State<Bank>, body: Bytes) -> Result<Json<Value>, Refused> {
    let request: ClockRequest = parse(&body)?;
    if let Some(now) = request.now {
        bank.set_clock(now);
    }
    bank.advance_clock(SignedDuration::from_secs(request.advance_seconds));
    Ok(clock(State(bank)).await)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PagesRequest {
    empty_every: u64,
}

async fn set_pages(State(bank): State<Bank>, body: Bytes) -> Result<StatusCode, Refused> {
    let request: PagesRequest = parse(&body)?;
    bank.empty_pages(request.empty_every);
    DONE
}

async fn set_unlisted(State(bank): State<Bank>, body: Bytes) -> Result<StatusCode, Refused> {
    bank.unlist(parse::<HashSet<String>>(&body)?);
    DONE
}

async fn set_options(State(bank): State<Bank>, body: Bytes) -> Result<Json<Value>, Refused> {
    let given = parse(&body)?;
    bank.0.set_options(given).map(Json)
}

async fn credentials(State(bank): State<Bank>) -> Json<Value> {
    Json(json!({"credentials": bank.credentials(false), "all": bank.credentials(true)}))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsentRequest {
    state: ConsentState,
    expires_at: Option<Timestamp>,
}

async fn set_consent(
    State(bank): State<Bank>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    let request: ConsentRequest = parse(&body)?;
    bank.0.set_consent(&id, request.state, request.expires_at)?;
    DONE
}

async fn set_user(
    State(bank): State<Bank>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    let request: ConsentRequest = parse(&body)?;
    bank.0
        .set_user(&id, request.state == ConsentState::Active)?;
    DONE
}

async fn add_account(State(bank): State<Bank>, body: Bytes) -> Created<Members> {
    created(bank.0.add_account(parse(&body)?)?)
}

async fn change_account(
    State(bank): State<Bank>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Members>, Refused> {
    bank.0.change_account(&id, parse(&body)?).map(Json)
}

async fn set_balance(
    State(bank): State<Bank>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Box<RawValue>>, Refused> {
    bank.0.set_balance(&id, parse(&body)?).map(Json)
}

async fn add_row(State(bank): State<Bank>, body: Bytes) -> Created<Members> {
    created(bank.0.add_row(parse(&body)?)?)
}

async fn change_row(
    State(bank): State<Bank>,
    Path(id): Path<String>,
    body: Bytes,
) -> Result<Json<Members>, Refused> {
    bank.0.change_row(&id, parse(&body)?).map(Json)
}

async fn remove_row(
    State(bank): State<Bank>,
    Path(id): Path<String>,
) -> Result<StatusCode, Refused> {
    bank.0.remove_row(&id)?;
    DONE
}

async fn add_position(State(bank): State<Bank>, body: Bytes) -> Created<Members> {
    created(bank.0.add_position(parse(&body)?)?)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FillRequest {
    account_id: String,
    rows: u32,
}

async fn fill(State(bank): State<Bank>, body: Bytes) -> Result<StatusCode, Refused> {
    let request: FillRequest = parse(&body)?;
    bank.0.fill(&request.account_id, request.rows)?;
    DONE
}

async fn webhooks(State(bank): State<Bank>) -> Json<Value> {
    Json(json!({"url": bank.0.shared().webhooks.url(), "deliveries": bank.deliveries()}))
}

async fn set_webhooks(State(bank): State<Bank>, body: Bytes) -> Result<Json<Value>, Refused> {
    let settings: WebhookSettings = parse(&body)?;
    bank.set_webhooks(settings)?;
    Ok(webhooks(State(bank)).await)
}

async fn forget(State(bank): State<Bank>) -> StatusCode {
    bank.forget_deliveries();
    StatusCode::NO_CONTENT
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendRequest {
    id: u64,
}

async fn resend(State(bank): State<Bank>, body: Bytes) -> Created<Value> {
    let request: ResendRequest = parse(&body)?;
    created(json!({"id": bank.resend(request.id)?}))
}

async fn send(State(bank): State<Bank>, body: Bytes) -> Created<Value> {
    let mut given: Members = parse(&body)?;
    let name = given.take("event")?;
    created(json!({"id": bank.0.send_event(&name, given)?}))
}
