//! `POST /v1/token`: exchanges the code from the consent page for a user token
//! (docs/providers/akahu.md#token-exchange).

use std::collections::VecDeque;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};

use super::call::{body, has_json_content_type};
use super::store::Token;
use super::{Akahu, ids};
use crate::AkahuAccess;
use crate::query::Query;
use crate::respond::json as respond;

/// How long a code is valid.
const CODE_LIFE: SignedDuration = SignedDuration::from_secs(60);
/// The scope of every token: what `ENDURING_CONSENT` stands for in the sandbox.
const SCOPE: &str = "ENDURING_CONSENT AKAHU ACCOUNTS TRANSACTIONS";

/// Codes that are open at once; a new one evicts the oldest, because anybody may get one.
const CODES_MAX: usize = 100;

/// Codes that were issued and not exchanged yet, oldest first.
#[derive(Default)]
pub(super) struct Codes(Mutex<VecDeque<Code>>);

struct Code {
    code: String,
    user: usize,
    redirect_uri: String,
    issued_at: Timestamp,
}

impl Codes {
    /// Issues a code for a user. It is valid for [`CODE_LIFE`] and for this redirect URI only.
    pub(super) fn issue(&self, user: usize, redirect_uri: &str, now: Timestamp) -> String {
        let code = uuid::Uuid::new_v4().simple().to_string();
        let mut codes = self.0.lock();
        if codes.len() >= CODES_MAX {
            codes.pop_front();
        }
        codes.push_back(Code {
            code: code.clone(),
            user,
            redirect_uri: redirect_uri.to_owned(),
            issued_at: now,
        });
        code
    }
}

/// Why there is no token.
struct TokenError(&'static str);

/// With a space, as documented (docs/providers/akahu.md#token-exchange).
const INVALID_REQUEST: TokenError = TokenError("invalid Request");

impl IntoResponse for TokenError {
    fn into_response(self) -> Response {
        let body = respond(&json!({"success": false, "error": self.0}));
        (StatusCode::BAD_REQUEST, body).into_response()
    }
}

#[derive(Deserialize)]
struct TokenRequest {
    grant_type: String,
    code: String,
    redirect_uri: String,
    client_id: String,
    client_secret: String,
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
        let form = Query::parse(std::str::from_utf8(&body).ok());
        let fields = form
            .names()
            .map(|name| (name.to_owned(), form.get(name).into()));
        serde_json::from_value(Value::Object(fields.collect())).ok()
    };
    let token_request: TokenRequest = parsed.ok_or_else(|| INVALID_REQUEST.into_response())?;
    let token = redeem(&akahu, &token_request).map_err(IntoResponse::into_response)?;
    let issued = json!({
        "success": true, "access_token": token, "token_type": "bearer", "scope": SCOPE,
    });
    Ok(respond(&issued))
}

fn redeem(akahu: &Akahu, request: &TokenRequest) -> Result<String, TokenError> {
    if request.grant_type != "authorization_code" {
        return Err(TokenError("unsupported_grant_type"));
    }
    let AkahuAccess {
        app_token,
        app_secret,
        ..
    } = &akahu.access;
    if request.client_id != *app_token || request.client_secret != *app_secret {
        return Err(TokenError("invalid_client"));
    }
    let mut codes = akahu.codes.0.lock();
    let index = codes
        .iter()
        .position(|known| known.code == request.code && known.redirect_uri == request.redirect_uri)
        .ok_or(TokenError("invalid_grant"))?;
    let known = &codes[index];
    if akahu.clock.now().duration_since(known.issued_at) > CODE_LIFE {
        return Err(TokenError("expired_grant"));
    }
    let user = known.user;
    codes.remove(index);
    Ok(token_of(akahu, user))
}

/// Returns the user's current token if it is valid, else a new one; with `new_token` always a new
/// one. Whether a new consent gives a new token is unknown
/// (docs/providers/akahu.md#token-exchange).
fn token_of(akahu: &Akahu, user: usize) -> String {
    let wants_new = akahu.options.lock().new_token;
    let user = &mut akahu.store.write().users[user];
    if let Some(token) = user
        .tokens
        .iter()
        .rev()
        .find(|token| token.alive && !wants_new)
    {
        return token.text.clone();
    }
    for token in &mut user.tokens {
        token.alive = false;
    }
    let text = ids::random("user_token_");
    user.tokens.push(Token {
        text: text.clone(),
        alive: true,
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn oldest_code_makes_room() {
        let codes = Codes::default();
        let issue = |user| codes.issue(user, "http://127.0.0.1/cb", Timestamp::UNIX_EPOCH);
        let first = issue(0);
        let last = (1..=CODES_MAX).map(issue).last().unwrap();
        let open = codes.0.lock();
        assert_eq!(open.len(), CODES_MAX);
        let is_open = |code: &str| open.iter().any(|known| known.code == code);
        assert_eq!((is_open(&first), is_open(&last)), (false, true));
    }
}
