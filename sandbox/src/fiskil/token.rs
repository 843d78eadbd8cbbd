//! `POST /v1/token`: issues and checks access tokens (docs/providers/fiskil.md#tokens). Tokens are
//! signed and not stored, so any number can be valid at once.

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::call::Call;
use super::errors::Failure;
use crate::respond::json as respond;

const LIFE_SECONDS: i64 = 900;
/// The scopes that a live token carried.
const SCOPE: &str = "api:banking api:user.read api:user.write";

/// Signs and checks tokens. The real ones use another signature; this key is the sandbox's own
/// (docs/providers/fiskil.md#sandbox-choices).
pub(super) struct Tokens {
    key: hmac::Key,
    org_id: String,
    key_id: String,
}

impl Tokens {
    /// Draws a random key, so a token of another sandbox is never valid here.
    pub(super) fn new(org_id: &str, key_id: &str) -> Self {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        Self {
            key: key.expect("the system has random numbers"),
            org_id: org_id.to_owned(),
            key_id: key_id.to_owned(),
        }
    }

    fn issue(&self, now: Timestamp) -> String {
        let claims = json!({
            "org_id": self.org_id, "key_id": self.key_id, "scope": SCOPE,
            "exp": now.as_second().saturating_add(LIFE_SECONDS), "iat": now.as_second(),
            "jti": uuid::Uuid::new_v4(),
        });
        let header = URL_SAFE_NO_PAD.encode(br#"{"alg":"HS256","typ":"JWT"}"#);
        let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims.to_string()));
        let tag = hmac::sign(&self.key, signed.as_bytes());
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(tag))
    }

    /// Whether this sandbox signed the token and it has not expired.
    pub(super) fn accepts(&self, token: &str, now: Timestamp) -> bool {
        self.expires_at(token)
            .is_some_and(|at| now.as_second() < at)
    }

    /// When a token expires that this sandbox signed.
    fn expires_at(&self, token: &str) -> Option<i64> {
        let (signed, tag) = token.rsplit_once('.')?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.key, signed.as_bytes(), &tag).ok()?;
        let (_, claims) = signed.split_once('.')?;
        let claims = URL_SAFE_NO_PAD.decode(claims).ok()?;
        let claims: Value = serde_json::from_slice(&claims).ok()?;
        claims["exp"].as_i64()
    }
}

/// Issues a token for the team's id and secret. The error text for a wrong secret is invented
/// (docs/providers/fiskil.md#tokens).
pub(super) async fn issue(call: Call) -> Result<Response, Failure> {
    let members = call.members()?;
    let (Some(id), Some(secret)) = (members.text("client_id"), members.text("client_secret"))
    else {
        return Err(call.invalid("client_id and client_secret are required"));
    };
    if id != call.fiskil.access.client_id || secret != call.fiskil.access.client_secret {
        return Err(call.fail(StatusCode::UNAUTHORIZED, "invalid client credentials"));
    }
    let token = call.fiskil.tokens.issue(call.now);
    let issued = json!({"token": token, "token_type": "Bearer", "expires_in": LIFE_SECONDS});
    Ok(respond(&issued))
}
