//! The [`Bank`] over HTTP, below `/__control` of every provider. Control calls need no token. They
//! are not counted, and faults do not apply to them.

use std::borrow::Cow;
use std::time::Duration;

use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use axum::{Json, Router};
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode, Uri};
use jiff::{SignedDuration, Timestamp};
use percent_encoding::percent_decode_str;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::task::spawn_blocking;

use crate::bank::Bank;
use crate::consent::ConsentState;
use crate::faults::Fault;
use crate::host::is_fixed;
use crate::members::Members;
use crate::refused::Refused;
use crate::respond::json as ok;
use crate::webhooks::WebhookSettings;

/// A 400 whose text says what is wrong.
impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let body = Json(json!({"error": self.to_string()}));
        (StatusCode::BAD_REQUEST, body).into_response()
    }
}

/// Who opens the routes of a provider.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Callers {
    /// What a call changes is saved before its response, as is what a page changed before: what a
    /// client has read outlives the process.
    Clients,
    /// Anybody, so what a page changes is saved within a second.
    Browsers,
}

/// Reports what the calls of a provider change, and saves it.
pub(crate) fn watch(bank: &Bank, callers: Callers, provider: Router) -> Router {
    provider.layer(from_fn_with_state((bank.clone(), callers), announce_after))
}

/// Adds the control routes to those of a provider, which are watched.
pub(crate) fn attach(bank: &Bank, provider: Router) -> Router {
    let routes = Router::new()
        .route("/{*path}", any(control))
        .with_state(bank.clone());
    Router::new()
        .nest("/__control", watch(bank, Callers::Clients, routes))
        .merge(provider)
        .layer(from_fn(guard))
}

/// A call may have changed something, and the clock goes on.
async fn announce_after(
    State((bank, callers)): State<(Bank, Callers)>,
    request: Request,
    next: Next,
) -> Response {
    let may_change = may_change(&request);
    let response = next.run(request).await;
    bank.0.announce();
    let file = bank.0.shared().state_file.as_ref();
    let wait = file.and_then(|file| match callers {
        Callers::Browsers if may_change => file.claim_page_save(),
        Callers::Clients if may_change || file.is_save_pending() => Some(Duration::ZERO),
        _ => None,
    });
    match wait {
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

/// A consent without pages is the one `GET` that changes something.
fn may_change(request: &Request) -> bool {
    let query = request.uri().query().unwrap_or_default();
    request.method() != Method::GET || query.contains("sandbox_auto")
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
    let uri: Result<Uri, _> = format!("http://{host}").parse();
    is_same_origin && uri.is_ok_and(|uri| is_fixed(&uri))
}

/// Parses a body as JSON and ignores its content type.
fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| format!("the body is not right: {error}").into())
}

fn created(value: &impl Serialize) -> Response {
    (StatusCode::CREATED, ok(value)).into_response()
}

fn done((): ()) -> Response {
    StatusCode::NO_CONTENT.into_response()
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ClockRequest {
    now: Option<Timestamp>,
    #[serde(default)]
    advance_seconds: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PagesRequest {
    empty_every: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ConsentRequest {
    state: ConsentState,
    expires_at: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct FillRequest {
    account_id: String,
    rows: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResendRequest {
    id: u64,
}

/// The routes, in the order of the README's table.
async fn control(
    State(bank): State<Bank>,
    method: Method,
    uri: Uri,
    body: Bytes,
) -> Result<Response, Refused> {
    let parts = uri.path().split('/').skip(1);
    let parts = parts.map(|part| percent_decode_str(part).decode_utf8_lossy());
    let parts: Vec<Cow<'_, str>> = parts.collect();
    let path: Vec<&str> = parts.iter().map(|part| &**part).collect();
    Ok(match (method.as_str(), path.as_slice()) {
        ("POST", ["faults"]) => {
            let fault: Fault = parse(&body)?;
            fault.check()?;
            bank.add_fault(fault);
            faults(&bank)
        }
        ("GET", ["faults"]) => faults(&bank),
        ("DELETE", ["faults"]) => {
            bank.clear_faults();
            done(())
        }
        ("GET", ["calls"]) => ok(&json!({"calls": bank.0.shared().calls.list()})),
        ("DELETE", ["calls"]) => {
            bank.reset_calls();
            done(())
        }
        ("GET", ["clock"]) => clock(&bank),
        ("POST", ["clock"]) => {
            let request: ClockRequest = parse(&body)?;
            if let Some(now) = request.now {
                bank.set_clock(now);
            }
            bank.advance_clock(SignedDuration::from_secs(request.advance_seconds));
            clock(&bank)
        }
        ("POST", ["transactions"]) => created(&bank.0.add_row(parse(&body)?)?),
        ("PATCH", ["transactions", id]) => ok(&bank.0.change_row(id, parse(&body)?)?),
        ("DELETE", ["transactions", id]) => bank.0.remove_row(id).map(done)?,
        ("POST", ["accounts"]) => created(&bank.0.add_account(parse(&body)?)?),
        ("PATCH", ["accounts", id]) => ok(&bank.0.change_account(id, parse(&body)?)?),
        ("PUT", ["balances", id]) => ok(&bank.0.set_balance(id, parse(&body)?)?),
        ("POST", ["positions"]) => created(&bank.0.add_position(parse(&body)?)?),
        ("POST", ["fill"]) => {
            let FillRequest { account_id, rows } = parse(&body)?;
            bank.0.fill(&account_id, rows).map(done)?
        }
        ("POST", ["consents", id]) => {
            let ConsentRequest { state, expires_at } = parse(&body)?;
            bank.0.set_consent(id, state, expires_at).map(done)?
        }
        ("POST", ["users", id]) => {
            let ConsentRequest { state, .. } = parse(&body)?;
            let is_valid = state == ConsentState::Active;
            bank.0.set_user(id, is_valid).map(done)?
        }
        ("PUT", ["unlisted"]) => {
            bank.unlist(parse::<Vec<String>>(&body)?);
            done(())
        }
        ("POST", ["pages"]) => {
            let PagesRequest { empty_every } = parse(&body)?;
            bank.empty_pages(empty_every);
            done(())
        }
        ("POST", ["options"]) => ok(&bank.0.set_options(parse(&body)?)?),
        ("GET", ["credentials"]) => {
            let (listed, all) = (bank.credentials(false), bank.credentials(true));
            ok(&json!({"credentials": listed, "all": all}))
        }
        ("GET", ["webhooks"]) => webhooks(&bank),
        ("POST", ["webhooks"]) => {
            let settings: WebhookSettings = parse(&body)?;
            bank.set_webhooks(settings)?;
            webhooks(&bank)
        }
        ("DELETE", ["webhooks"]) => {
            bank.forget_deliveries();
            done(())
        }
        ("POST", ["webhooks", "resend"]) => {
            let ResendRequest { id } = parse(&body)?;
            created(&json!({"id": bank.resend(id)?}))
        }
        ("POST", ["webhooks", "send"]) => {
            let mut given: Members = parse(&body)?;
            let name = given.take("event")?;
            created(&json!({"id": bank.0.send_event(&name, given)?}))
        }
        _ => {
            let text = "no control route has this method and path; the crate's README lists them";
            (StatusCode::NOT_FOUND, text).into_response()
        }
    })
}

fn faults(bank: &Bank) -> Response {
    ok(&json!({"faults": bank.faults()}))
}

fn clock(bank: &Bank) -> Response {
    ok(&json!({"now": bank.now().to_string()}))
}

fn webhooks(bank: &Bank) -> Response {
    ok(&json!({"url": bank.0.shared().webhooks.url(), "deliveries": bank.deliveries()}))
}
