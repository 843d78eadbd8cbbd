//! `/v1/token`: exchanges the code from the consent page for a user token, and revokes tokens
//! (docs/providers/akahu.md#token-exchange).

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use super::call::{UserCall, body, has_json_content_type};
use super::respond::{done, json as respond};
use super::store::Token;
use super::{Akahu, ids};
use crate::query::Query;

/// How long a code is valid.
const CODE_LIFE: SignedDuration = SignedDuration::from_secs(60);
/// The scope of every token: what `ENDURING_CONSENT` stands for in the sandbox.
const SCOPE: &str = "ENDURING_CONSENT AKAHU ACCOUNTS TRANSACTIONS";

/// Codes that were issued and not exchanged yet.
#[derive(Default)]
pub(super) struct Codes(Mutex<HashMap<String, Code>>);

struct Code {
    user: usize,
    redirect_uri: String,
    issued_at: Timestamp,
}

impl Codes {
    /// Issues a code for a user. It is valid for [`CODE_LIFE`] and for this redirect URI only.
    pub(super) fn issue(&self, user: usize, redirect_uri: &str, now: Timestamp) -> String {
        let code = uuid::Uuid::new_v4().simple().to_string();
        let known = Code {
            user,
            redirect_uri: redirect_uri.to_owned(),
            issued_at: now,
        };
        self.0.lock().insert(code.clone(), known);
        code
    }
}

/// Why there is no token.
#[derive(Debug, Clone, Copy)]
pub(super) enum TokenError {
    InvalidClient,
    InvalidGrant,
    ExpiredGrant,
    InvalidRequest,
    UnsupportedGrantType,
}

impl IntoResponse for TokenError {
    fn into_response(self) -> Response {
        let error = match self {
            Self::InvalidClient => "invalid_client",
            Self::InvalidGrant => "invalid_grant",
            Self::ExpiredGrant => "expired_grant",
            // With a space, as documented (docs/providers/akahu.md#token-exchange).
            Self::InvalidRequest => "invalid Request",
            Self::UnsupportedGrantType => "unsupported_grant_type",
        };
        let mut response = respond(&json!({"success": false, "error": error}));
        *response.status_mut() = StatusCode::BAD_REQUEST;
        response
    }
}

#[derive(Deserialize, Default)]
struct TokenRequest {
    grant_type: Option<String>,
    code: Option<String>,
    redirect_uri: Option<String>,
    client_id: Option<String>,
    client_secret: Option<String>,
}

/// Exchanges a code for a user token. Accepts JSON and form bodies.
pub(super) async fn exchange(
    State(akahu): State<Arc<Akahu>>,
    request: Request,
) -> Result<Response, Response> {
    let is_json = has_json_content_type(request.headers());
    let body = body(request).await.map_err(IntoResponse::into_response)?;
    let parsed = if is_json {
        serde_json::from_slice(&body).ok()
    } else {
        std::str::from_utf8(&body).ok().map(of_form)
    };
    let token_request: TokenRequest =
        parsed.ok_or_else(|| TokenError::InvalidRequest.into_response())?;
    let token = redeem(&akahu, token_request).map_err(IntoResponse::into_response)?;
    let issued = json!({
        "success": true, "access_token": token, "token_type": "bearer", "scope": SCOPE,
    });
    Ok(respond(&issued))
}

fn of_form(text: &str) -> TokenRequest {
    let form = Query::parse(Some(text));
    let get = |name| form.get(name).map(str::to_owned);
    TokenRequest {
        grant_type: get("grant_type"),
        code: get("code"),
        redirect_uri: get("redirect_uri"),
        client_id: get("client_id"),
        client_secret: get("client_secret"),
    }
}

fn redeem(akahu: &Akahu, request: TokenRequest) -> Result<String, TokenError> {
    let TokenRequest {
        grant_type: Some(grant_type),
        code: Some(code),
        redirect_uri: Some(redirect_uri),
        client_id: Some(client_id),
        client_secret: Some(client_secret),
    } = request
    else {
        return Err(TokenError::InvalidRequest);
    };
    if grant_type != "authorization_code" {
        return Err(TokenError::UnsupportedGrantType);
    }
    if client_id != akahu.access.app_token || client_secret != akahu.access.app_secret {
        return Err(TokenError::InvalidClient);
    }
    let mut codes = akahu.codes.0.lock();
    let known = codes
        .get(&code)
        .filter(|known| known.redirect_uri == redirect_uri)
        .ok_or(TokenError::InvalidGrant)?;
    if akahu.clock.now().duration_since(known.issued_at) > CODE_LIFE {
        return Err(TokenError::ExpiredGrant);
    }
    let user = known.user;
    codes.remove(&code);
    Ok(token_of(akahu, user))
}

/// Returns the user's current token if it is valid, else a new one; with `new_token` always a new
/// one. Whether a new consent gives a new token is unknown
/// (docs/providers/akahu.md#token-exchange).
fn token_of(akahu: &Akahu, user: usize) -> String {
    let options = akahu.options.lock().clone();
    let user = &mut akahu.store.write().users[user];
    if let Some(token) = user
        .tokens
        .iter()
        .rev()
        .find(|token| token.alive && !options.new_token)
    {
        return token.text.clone();
    }
    for token in &mut user.tokens {
        token.alive &= options.old_token_lives;
    }
    let text = ids::random("user_token_");
    user.tokens.push(Token {
        text: text.clone(),
        alive: true,
    });
    text
}

/// Ends all access of the app to the user (docs/providers/akahu.md#unlinking).
pub(super) async fn revoke(call: UserCall) -> Response {
    let user = &mut call.akahu.store.write().users[call.user];
    for token in &mut user.tokens {
        token.alive = false;
    }
    user.subscriptions.clear();
    done()
}
