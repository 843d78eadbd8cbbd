//! `POST /snapTrade/login`: creates a link to the portal
//! (docs/providers/snaptrade.md#connection-portal).

use axum::response::Response;
use jiff::SignedDuration;
use serde::Deserialize;
use serde_json::{Value, json};
use uuid::Uuid;

use super::call::UserCall;
use super::errors::Failure;
use super::reference::REDIRECT_URI;
use crate::clock::after;
use crate::consent_page::{ConsentSession, is_redirect_uri};
use crate::respond::json;
use crate::world::brokerage::{self, Broker};

/// The path of a link.
pub(super) const PATH: &str = "/snapTrade/redeemToken";

/// The parameters of a link.
pub(crate) struct Link {
    pub(super) user: u64,
    pub(super) broker: Option<&'static Broker>,
    /// The connection to repair.
    pub(super) reconnect: Option<String>,
    pub(super) redirect_uri: String,
    /// Skips the last page.
    pub(super) immediate: bool,
}

/// How long a link is valid.
const LINK_SECONDS: i64 = 300;

/// All fields are optional, and unknown ones are ignored.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LoginRequest {
    broker: Option<String>,
    connection_type: Option<String>,
    custom_redirect: Option<String>,
    immediate_redirect: Option<bool>,
    reconnect: Option<String>,
    show_close_button: Option<bool>,
}

pub(super) async fn login(call: UserCall) -> Result<Response, Failure> {
    if !matches!(call.content, Value::Null | Value::Object(_)) {
        return Err(Failure::invalid("the body must be an object"));
    }
    let body = Option::<LoginRequest>::deserialize(&call.content);
    let body = body.map_err(|error| Failure::invalid(error.to_string()))?;
    let body = body.unwrap_or_default();
    let broker = body.broker.as_deref().map(broker).transpose()?;
    if body.connection_type.is_some_and(|kind| kind != "read") {
        return Err(Failure::invalid("connections of the sandbox only read"));
    }
    let broker_of = |id| {
        let store = call.snaptrade.store.read();
        store
            .connection(call.user, id, call.now)
            .map(|known| known.broker)
    };
    let repaired = body.reconnect.as_deref().map(broker_of).transpose()?;
    // Unknown: where a key without a redirect sends its user, and whether redirect URIs must be
    // registered.
    let redirect_uri = body.custom_redirect.as_deref().unwrap_or(REDIRECT_URI);
    if !is_redirect_uri(redirect_uri) {
        return Err(Failure::invalid("customRedirect must be a URL"));
    }
    let (token, session_id) = (
        Uuid::new_v4().simple().to_string(),
        Uuid::new_v4().to_string(),
    );
    let named = broker
        .map(|broker| format!("&broker={}", broker.slug))
        .unwrap_or_default();
    let uri = format!(
        "{}{}?token={token}&clientId={}{named}&connectionPortalVersion=v4&sessionId={session_id}",
        call.snaptrade.access.base_url, PATH, call.snaptrade.access.client_id,
    );
    let expires_at = after(call.now, SignedDuration::from_secs(LINK_SECONDS));
    // A repaired connection keeps its broker, whatever the request names (a sandbox choice).
    let broker = repaired.or(broker);
    let link = Link {
        user: call.user,
        broker,
        redirect_uri: redirect_uri.to_owned(),
        reconnect: body.reconnect,
        immediate: body.immediate_redirect.unwrap_or(false),
    };
    let institution = broker.map(|broker| broker.slug.to_owned());
    let mut session = ConsentSession::new(Some(token), link, institution, expires_at);
    session.has_close_button = body.show_close_button.unwrap_or(true);
    call.snaptrade.consent_sessions.open(session);
    Ok(json(&json!({"redirectURI": uri, "sessionId": session_id})))
}

fn broker(slug: &str) -> Result<&'static Broker, Failure> {
    brokerage::broker(slug).ok_or_else(|| Failure::invalid(format!("{slug} is not a brokerage")))
}
