//! `POST /snapTrade/login`: creates a link to the portal
//! (docs/providers/snaptrade.md#connection-portal).

use axum::response::Response;
use jiff::SignedDuration;
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
    pub(super) trading: bool,
    /// Skips the last page.
    pub(super) immediate: bool,
}

/// How long a link is valid.
const LINK_SECONDS: i64 = 300;

pub(super) async fn login(call: UserCall) -> Result<Response, Failure> {
    let body = LoginBody(&call.content);
    let broker = body.text("broker")?.map(broker).transpose()?;
    let trading = match body.text("connectionType")? {
        None | Some("read") => false,
        Some("trade-if-available") => broker.is_some_and(|broker| broker.trading),
        Some("trade") => {
            if let Some(broker) = broker.filter(|broker| !broker.trading) {
                return Err(Failure::invalid(format!(
                    "{} does not have a trade type available",
                    broker.slug
                )));
            }
            true
        }
        Some(_) => {
            return Err(Failure::invalid(
                "connectionType must be read, trade or trade-if-available",
            ));
        }
    };
    let locale = body
        .text("locale")?
        .unwrap_or("en")
        .to_lowercase()
        .replace('_', "-");
    if !["en", "pt-br"].contains(&locale.as_str()) {
        return Err(Failure::invalid("locale must be en or pt-BR"));
    }
    if !["v4", "v3", "v2"].contains(&body.text("connectionPortalVersion")?.unwrap_or("v4")) {
        return Err(Failure::invalid("connectionPortalVersion must be v4"));
    }
    body.flag("darkMode")?;
    let (immediate, show_close_button) = (
        body.flag("immediateRedirect")?,
        body.flag("showCloseButton")?,
    );
    let reconnect = body.text("reconnect")?;
    let broker_of = |id| {
        let store = call.snaptrade.store.read();
        store
            .connection(call.user, id, call.now)
            .map(|known| known.broker)
    };
    let repaired = reconnect.map(broker_of).transpose()?;
    // Unknown: where a key without a redirect sends its user, and whether redirect URIs must be
    // registered.
    let redirect_uri = body.text("customRedirect")?.unwrap_or(REDIRECT_URI);
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
        call.snaptrade.access.base_url,
        PATH,
        call.snaptrade.client_id(call.key),
    );
    let expires_at = after(call.now, SignedDuration::from_secs(LINK_SECONDS));
    // A repaired connection keeps its broker, whatever the request names (a sandbox choice).
    let broker = repaired.or(broker);
    let link = Link {
        user: call.user,
        broker,
        reconnect: reconnect.map(str::to_owned),
        redirect_uri: redirect_uri.to_owned(),
        trading,
        immediate: immediate.unwrap_or(false),
    };
    let institution = broker.map(|broker| broker.slug.to_owned());
    let session = ConsentSession::new(Some(token), link, institution, expires_at);
    call.snaptrade
        .consent_sessions
        .open(session.with_close_button(show_close_button.unwrap_or(true)));
    Ok(json(&json!({"redirectURI": uri, "sessionId": session_id})))
}

fn broker(slug: &str) -> Result<&'static Broker, Failure> {
    brokerage::broker(slug).ok_or_else(|| Failure::invalid(format!("{slug} is not a brokerage")))
}

/// The members of the body. All are optional, and unknown ones are ignored.
struct LoginBody<'a>(&'a Value);

impl<'a> LoginBody<'a> {
    fn text(&self, name: &str) -> Result<Option<&'a str>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::invalid(format!("{name} must be a string"))),
        }
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(_) => Err(Failure::invalid(format!("{name} must be true or false"))),
        }
    }
}
