//! `/token` and `/authorize`: how the app gets in (akahu.md 3).

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use super::call::{UserCall, body, done, json, says_json};
use super::errors::Failure;
use super::store::{State as LoginState, Token};
use super::{Akahu, ids};
use crate::query::Query;

pub(super) const PATH: &str = "/v1/token";
/// How long a code may be exchanged.
const CODE_LIFE: SignedDuration = SignedDuration::from_secs(60);
/// What everybody has consented to: all that `ENDURING_CONSENT` stands for here.
const SCOPE: &str = "ENDURING_CONSENT AKAHU ACCOUNTS TRANSACTIONS";

/// What the redirect of somebody who consented says beside the code (akahu.md 3.2).
const ACCEPTED: [(&str, &str); 2] = [("source", "oauth"), ("event", "ACCEPT")];

/// Codes that were given out and not exchanged yet.
#[derive(Default)]
pub(super) struct Codes(Mutex<HashMap<String, Code>>);

struct Code {
    user: usize,
    redirect_uri: String,
    issued_at: Timestamp,
}

/// Why there is no token.
#[derive(Debug, Clone, Copy)]
pub(super) enum Refusal {
    InvalidClient,
    InvalidGrant,
    ExpiredGrant,
    InvalidRequest,
    UnsupportedGrantType,
}

#[derive(Serialize)]
struct Refused {
    success: bool,
    error: &'static str,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let error = match self {
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::ExpiredGrant => "expired_grant",
            // With a space, as documented (akahu.md 3.3).
            Self::InvalidRequest => "invalid Request",
            Self::UnsupportedGrantType => "unsupported_grant_type",
        };
        let mut response = json(&Refused { success: false, error });
        *response.status_mut() = StatusCode::BAD_REQUEST;
        response
    }
}

#[derive(Deserialize, Default)]
struct Exchange {
    grant_type: Option<String>,
    code: Option<String>,
    redirect_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
}

#[derive(Serialize)]
struct Issued {
    success: bool,
    access_token: String,
    token_type: &'static str,
    scope: &'static str,
}

/// A user's token for a code. JSON and form bodies are both good.
pub(super) async fn exchange(State(akahu): State<Arc<Akahu>>, request: Request) -> Result<Response, Response> {
    let is_json = says_json(request.headers());
    let body = body(request).await.map_err(IntoResponse::into_response)?;
    let ask = if is_json { serde_json::from_slice(&body).ok() } else { std::str::from_utf8(&body).ok().map(of_form) };
    let ask: Exchange = ask.ok_or_else(|| Refusal::InvalidRequest.into_response())?;
    let token = redeem(&akahu, ask).map_err(IntoResponse::into_response)?;
    Ok(json(&Issued { success: true, access_token: token, token_type: "bearer", scope: SCOPE }))
}

fn of_form(text: &str) -> Exchange {
    let form = Query::parse(Some(text));
    let get = |name| form.get(name).map(str::to_owned);
    Exchange {
        grant_type: get("grant_type"),
        code: get("code"),
        redirect_uri: get("redirect_uri"),
        client_id: get("client_id"),
        client_secret: get("client_secret"),
    }
}

fn redeem(akahu: &Akahu, ask: Exchange) -> Result<String, Refusal> {
    let Exchange {
        grant_type: Some(grant_type),
        code: Some(code),
        redirect_uri: Some(redirect_uri),
        client_id: Some(client_id),
        client_secret: Some(client_secret),
    } = ask
    else {
        return Err(Refusal::InvalidRequest);
    };
    if grant_type != "authorization_code" {
        return Err(Refusal::UnsupportedGrantType);
    }
    if client_id != akahu.access.app_token || client_secret != akahu.access.app_secret {
        return Err(Refusal::InvalidClient);
    }
    let mut codes = akahu.codes.0.lock();
    let known = codes.get(&code).filter(|known| known.redirect_uri == redirect_uri).ok_or(Refusal::InvalidGrant)?;
    if akahu.port.clock.now().duration_since(known.issued_at) > CODE_LIFE {
        return Err(Refusal::ExpiredGrant);
    }
    let user = known.user;
    codes.remove(&code);
    Ok(token_of(akahu, user))
}

/// The same token as long as it is alive, a new one after that: ours (akahu.md 3.3).
fn token_of(akahu: &Akahu, user: usize) -> String {
    let user = &mut akahu.store.write().users[user];
    if let Some(token) = user.tokens.iter().rev().find(|token| token.alive) {
        return token.text.clone();
    }
    let text = ids::random("user_token_");
    user.tokens.push(Token { text: text.clone(), alive: true });
    text
}

/// Ends all access of the app to the user (akahu.md 3.5).
pub(super) async fn revoke(call: UserCall) -> Response {
    let user = &mut call.akahu.store.write().users[call.user];
    for token in &mut user.tokens {
        token.alive = false;
    }
    user.hooks.clear();
    done()
}

/// A stand-in for the pages on which a user consents: it comes straight back with a code. Whoever has the address in
/// `email` consents, else the first person; all their logins are shared and active from then on.
pub(super) async fn authorize(State(akahu): State<Arc<Akahu>>, request: Request) -> Result<Response, Failure> {
    let query = Query::parse(request.uri().query());
    // Without a known app there is nowhere to go back to. Which addresses an app has registered is not known here.
    if query.get("client_id") != Some(akahu.access.app_token.as_str()) {
        return Err(Failure::invalid("client_id is not known"));
    }
    let Some(redirect_uri) = query.get("redirect_uri").filter(|uri| uri.parse::<http::Uri>().is_ok()) else {
        return Err(Failure::invalid("redirect_uri is required"));
    };
    let outcome = if query.get("response_type") != Some("code") {
        Err("unsupported_response_type")
    } else if !query.get("scope").is_some_and(|scope| scope.split(' ').any(|one| one == "ENDURING_CONSENT")) {
        Err("invalid_scope")
    } else if query.get("sandbox_deny") == Some("1") {
        Err("access_denied")
    } else {
        Ok(consent(&akahu, query.get("email"), redirect_uri))
    };
    let state = query.get("state").map(|state| ("state", state));
    let answer: Vec<(&str, &str)> = match &outcome {
        Ok(code) => [("code", code.as_str())].into_iter().chain(state).chain(ACCEPTED).collect(),
        Err(error) => [("error", *error)].into_iter().chain(state).collect(),
    };
    let separator = if redirect_uri.contains('?') { '&' } else { '?' };
    let location = format!("{redirect_uri}{separator}{}", crate::query::write(&answer));
    Ok((StatusCode::FOUND, [(header::LOCATION, location)]).into_response())
}

/// Shares everything and gives a code for it.
fn consent(akahu: &Akahu, email: Option<&str>, redirect_uri: &str) -> String {
    let now = akahu.port.clock.now();
    let mut store = akahu.store.write();
    let user = store.users.iter().position(|user| Some(user.email.as_str()) == email).unwrap_or_default();
    for login in 0..store.logins.len() {
        if store.logins[login].user == user && store.logins[login].state != LoginState::Active {
            store.set_state(login, LoginState::Active, now);
        }
    }
    store.users[user].granted_at = now;
    let code = uuid::Uuid::new_v4().simple().to_string();
    let known = Code { user, redirect_uri: redirect_uri.to_owned(), issued_at: now };
    akahu.codes.0.lock().insert(code.clone(), known);
    code
}
