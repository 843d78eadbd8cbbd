//! Linking (snaptrade.md 4): the link to the portal, and a stand-in for the portal, which decides at once.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde_json::{Value, json};
use uuid::Uuid;

use super::SnapTrade;
use super::call::{UserCall, json};
use super::errors::Failure;
use super::reference::REDIRECT_URI;
use super::store::{Connection, Store};
use crate::query::Query;
use crate::world::brokerage::{BROKERS, Broker, LINKED, SANDBOX};

/// Where a link leads.
pub(super) const PORTAL: &str = "/snapTrade/redeemToken";
/// How long a link is valid.
const LINK_SECONDS: i64 = 300;

/// Links that nobody has followed yet.
#[derive(Default)]
pub(super) struct Links(Mutex<Vec<Link>>);

/// What a link was made for.
struct Link {
    token: String,
    user: u64,
    broker: Option<&'static Broker>,
    reconnect: Option<String>,
    redirect: String,
    trading: bool,
    ends: Timestamp,
}

impl Links {
    /// The link, once and in time.
    fn redeem(&self, token: &str, now: Timestamp) -> Option<Link> {
        let mut links = self.0.lock();
        let index = links.iter().position(|link| link.token == token)?;
        Some(links.swap_remove(index)).filter(|link| now < link.ends)
    }
}

/// Makes a link.
pub(super) async fn login(UserCall { call, user }: UserCall) -> Result<Response, Failure> {
    let asked = Asked(&call.content);
    let broker = asked.text("broker")?.map(broker).transpose()?;
    let trading = match asked.text("connectionType")? {
        None | Some("read") => false,
        Some("trade-if-available") => broker.is_some_and(|broker| broker.trading),
        Some("trade") => {
            if let Some(broker) = broker.filter(|broker| !broker.trading) {
                return Err(Failure::invalid(format!("{} does not have a trade type available", broker.slug)));
            }
            true
        }
        Some(_) => return Err(Failure::invalid("connectionType must be read, trade or trade-if-available")),
    };
    let locale = asked.text("locale")?.unwrap_or("en").to_lowercase().replace('_', "-");
    if !["en", "pt-br"].contains(&locale.as_str()) {
        return Err(Failure::invalid("locale must be en or pt-BR"));
    }
    if !["v4", "v3", "v2"].contains(&asked.text("connectionPortalVersion")?.unwrap_or("v4")) {
        return Err(Failure::invalid("connectionPortalVersion must be v4"));
    }
    for name in ["immediateRedirect", "showCloseButton", "darkMode"] {
        asked.flag(name)?;
    }
    let reconnect = asked.text("reconnect")?;
    if let Some(id) = reconnect {
        call.snaptrade.store.read().connection(user, id, call.now).ok_or_else(Failure::missing)?;
    }
    // Where a key without a redirect sends its user is not known.
    let redirect = asked.text("customRedirect")?.unwrap_or(REDIRECT_URI);
    if HeaderValue::from_str(redirect).is_err() || !redirect.contains(':') {
        return Err(Failure::invalid("customRedirect must be a URL"));
    }
    let (token, session) = (Uuid::new_v4().simple().to_string(), Uuid::new_v4().to_string());
    let named = broker.map(|broker| format!("&broker={}", broker.slug)).unwrap_or_default();
    let uri = format!(
        "{}{PORTAL}?token={token}&clientId={}{named}&connectionPortalVersion=v4&sessionId={session}",
        call.snaptrade.base_url,
        call.snaptrade.client_id(call.key),
    );
    let ends = call.now.saturating_add(SignedDuration::from_secs(LINK_SECONDS)).unwrap_or(Timestamp::MAX);
    let (reconnect, redirect) = (reconnect.map(str::to_owned), redirect.to_owned());
    let mut links = call.snaptrade.links.0.lock();
    links.retain(|link| call.now < link.ends);
    links.push(Link { token, user, broker, reconnect, redirect, trading, ends });
    Ok(json(&json!({"redirectURI": uri, "sessionId": session})))
}

fn broker(slug: &str) -> Result<&'static Broker, Failure> {
    let found = BROKERS.iter().copied().find(|broker| broker.slug == slug);
    found.ok_or_else(|| Failure::invalid(format!("{slug} is not a brokerage")))
}

/// The body's members, all optional; those nobody knows do no harm.
struct Asked<'a>(&'a Value);

impl<'a> Asked<'a> {
    fn text(&self, name: &str) -> Result<Option<&'a str>, Failure> {
        match self.0.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Failure::invalid(format!("{name} must be a string"))),
        }
    }

    fn flag(&self, name: &str) -> Result<(), Failure> {
        match self.0.get(name) {
            None | Some(Value::Null | Value::Bool(_)) => Ok(()),
            Some(_) => Err(Failure::invalid(format!("{name} must be true or false"))),
        }
    }
}

/// The portal without its pages: it sends the user back at once, as `sandbox_outcome` says.
pub(super) async fn portal(State(snaptrade): State<Arc<SnapTrade>>, request: Request) -> Result<Response, Failure> {
    let query = Query::parse(request.uri().query());
    let now = snaptrade.port.clock.now();
    let link = snaptrade.links.redeem(query.get("token").unwrap_or_default(), now);
    // The code is the portal's for an expired session; that a link without a session shows it as JSON is ours.
    let link = link.ok_or_else(|| Failure::new(StatusCode::BAD_REQUEST, "1006", "No authorization in progress"))?;
    let result = match query.get("sandbox_outcome") {
        None | Some("success") => {
            format!("status=SUCCESS&connection_id={}", snaptrade.store.write().link(&link, now))
        }
        Some("error") => "status=ERROR&status_code=403&error_code=1066".to_owned(),
        Some("abandoned") => "status=ABANDONED".to_owned(),
        Some("cancelled") => String::new(),
        Some(_) => return Err(Failure::invalid("sandbox_outcome must be success, error, abandoned or cancelled")),
    };
    // How the two are joined is not known (snaptrade.md 4): ours is what a browser would do.
    let join = match (result.is_empty(), link.redirect.contains('?')) {
        (true, _) => "",
        (_, true) => "&",
        (_, false) => "?",
    };
    Ok((StatusCode::FOUND, [(header::LOCATION, format!("{}{join}{result}", link.redirect))]).into_response())
}

impl Store {
    /// What a user gets who says yes: the connection that is there already, working again, or a new one.
    fn link(&mut self, link: &Link, now: Timestamp) -> String {
        let broker = link.broker.unwrap_or(&SANDBOX);
        let known = |held: &&mut Connection| {
            let reconnected = link.reconnect.as_ref().is_some_and(|id| held.id == *id);
            let again = link.reconnect.is_none() && held.broker.slug == broker.slug;
            held.user == link.user && held.is_there(now) && (reconnected || again)
        };
        if let Some(connection) = self.connections.iter_mut().find(known) {
            connection.revive();
            return connection.id.clone();
        }
        let id = Uuid::new_v4().to_string();
        let name = format!("Connection-{}", self.connections_of(link.user, now).count() + 1);
        let mut connection = Connection::new(id.clone(), link.user, broker, name, now);
        connection.trading = link.trading;
        self.connections.push(connection);
        self.add_folders(&id, LINKED, now, |_| Uuid::new_v4().to_string());
        id
    }
}
