//! Extractors for SnapTrade's handlers: they check a call's signature, timestamp and user.

use std::ops::Deref;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{FromRequest, OriginalUri, Request};
use bytes::Bytes;
use http::{StatusCode, Uri};
use jiff::Timestamp;
use serde_json::Value;

use super::SnapTrade;
use super::errors::Failure;
use super::sign::Signed;
use super::store::Store;
use crate::query::Query;
use crate::serve::REQUEST_BYTES_MAX;

/// How far a call's timestamp may differ from the sandbox's clock, in seconds. The real tolerance
/// is unknown (docs/providers/snaptrade.md#request-signatures).
const TOLERANCE_SECONDS: u64 = 300;

/// The URI of the request line, of which nested routers strip a prefix.
fn original_uri(request: &Request) -> &Uri {
    let original = request.extensions().get::<OriginalUri>();
    original.map_or_else(|| request.uri(), |original| &original.0)
}

/// A call with a valid signature.
pub(super) struct ClientCall {
    pub(super) snaptrade: Arc<SnapTrade>,
    pub(super) now: Timestamp,
    pub(super) query: Query,
    /// The parsed body; `null` without one.
    pub(super) content: Value,
}

impl FromRequest<Arc<SnapTrade>> for ClientCall {
    type Rejection = Failure;

    async fn from_request(request: Request, snaptrade: &Arc<SnapTrade>) -> Result<Self, Failure> {
        let uri = original_uri(&request).clone();
        let query = Query::parse(uri.query());
        let signature = request
            .headers()
            .get("signature")
            .and_then(|value| value.to_str().ok())
            .map(str::to_owned);
        let body = to_bytes(request.into_body(), REQUEST_BYTES_MAX)
            .await
            .map_err(|_| Failure::of_status(StatusCode::PAYLOAD_TOO_LARGE))?;
        let (Some(client_id), Some(signature)) = (query.get("clientId"), signature) else {
            // The text that clients with these values in headers saw
            // (docs/providers/snaptrade.md#credentials).
            let detail = "Authentication credentials were not provided.";
            return Err(Failure::new(StatusCode::UNAUTHORIZED, "0000", detail));
        };
        if client_id != snaptrade.access.client_id {
            return Err(Failure::signature());
        }
        let content = content(&body)?;
        let signed = Signed {
            content: &content,
            path: uri.path(),
            query: uri.query().unwrap_or_default(),
        };
        if !signed.is_signed_by(&snaptrade.access.consumer_key, &signature) {
            return Err(Failure::signature());
        }
        let now = snaptrade.clock.now();
        let sent: Option<i64> = query.get("timestamp").and_then(|text| text.parse().ok());
        if sent.is_none_or(|sent| sent.abs_diff(now.as_second()) > TOLERANCE_SECONDS) {
            // The text was seen live, the code was not (docs/providers/snaptrade.md#errors).
            return Err(Failure::new(
                StatusCode::UNAUTHORIZED,
                "1076",
                "Invalid timestamp",
            ));
        }
        Ok(Self {
            snaptrade: Arc::clone(snaptrade),
            now,
            query,
            content,
        })
    }
}

/// An empty body and `{}` are signed as `null` (docs/providers/snaptrade.md#request-signatures).
fn content(body: &Bytes) -> Result<Value, Failure> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    let content: Value = serde_json::from_slice(body).map_err(|_| Failure::unreadable())?;
    let empty = content.as_object().is_some_and(serde_json::Map::is_empty);
    Ok(if empty { Value::Null } else { content })
}

impl ClientCall {
    /// A text member of the body.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.content.get(name)?.as_str()
    }
}

/// A signed call for a user with valid credentials.
pub(super) struct UserCall {
    call: ClientCall,
    /// The user's number in the store.
    pub(super) user: u64,
}

impl Deref for UserCall {
    type Target = ClientCall;
    fn deref(&self) -> &ClientCall {
        &self.call
    }
}

impl FromRequest<Arc<SnapTrade>> for UserCall {
    type Rejection = Failure;

    async fn from_request(request: Request, snaptrade: &Arc<SnapTrade>) -> Result<Self, Failure> {
        let call = ClientCall::from_request(request, snaptrade).await?;
        let user = user(&call, &snaptrade.store.read())?;
        Ok(Self { call, user })
    }
}

/// Finds the user of a call.
fn user(call: &ClientCall, store: &Store) -> Result<u64, Failure> {
    let query = &call.query;
    let (Some(id), Some(secret)) = (query.filled("userId"), query.filled("userSecret")) else {
        // The text was seen live, the code was not (docs/providers/snaptrade.md#errors).
        let detail = "Please provide clientId, userId and userSecret in query params";
        return Err(Failure::new(StatusCode::UNAUTHORIZED, "0000", detail));
    };
    let user = store
        .users(call.now)
        .find(|user| user.id == id && user.secret == secret && !user.revoked);
    user.map(|user| user.number).ok_or_else(Failure::user)
}
