//! Data that is the same for every user: brokerages, institutions and the settings of a key
//! (docs/providers/snaptrade.md#endpoints and #reference-data).

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};

use super::call::ClientCall;
use super::instruments::id;
use super::{Key, SnapTrade};
use crate::consent_page::APP;
use crate::logos;
use crate::respond::json;
use crate::world::brokerage::{BROKERAGE, Broker};

/// The redirect URI in this integration's dashboard.
pub(super) const REDIRECT_URI: &str = "https://client.example.com/linked";

/// `GET /`: the health check. The version is the documented sample.
pub(super) async fn status(State(snaptrade): State<Arc<SnapTrade>>) -> Response {
    let now = snaptrade
        .clock
        .now()
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string();
    json(&json!({"version": 153, "timestamp": now, "online": true}))
}

fn logo(base_url: &str, broker: &Broker, square: bool) -> String {
    let square = if square { "-square" } else { "" };
    logos::url(base_url, &format!("{}{square}", broker.slug.to_lowercase()))
}

fn square_logo(base_url: &str, broker: &Broker) -> Option<String> {
    broker.square_logo.then(|| logo(base_url, broker, true))
}

pub(super) fn logo_name(id: &str) -> Option<&'static str> {
    let slug = id.strip_suffix("-square").unwrap_or(id);
    BROKERAGE
        .brokers
        .iter()
        .find(|broker| broker.slug.eq_ignore_ascii_case(slug))
        .map(|broker| broker.name)
}

pub(super) fn brokerage_id(seed: u64, broker: &Broker) -> String {
    id(seed, &format!("brokerage {}", broker.slug))
}

/// A brokerage as connections show it (docs/providers/snaptrade.md#reference-data).
pub(super) fn brokerage(base_url: &str, seed: u64, broker: &Broker) -> Value {
    json!({
        "id": brokerage_id(seed, broker),
        "slug": broker.slug,
        "name": broker.name,
        "display_name": broker.name,
        "description": broker.description,
        "aws_s3_logo_url": logo(base_url, broker, false),
        "aws_s3_square_logo_url": square_logo(base_url, broker),
        "url": format!("https://{}.example.com", broker.slug.to_lowercase()),
        "enabled": true, "maintenance_mode": false, "is_degraded": false,
        "allows_trading": broker.trading, "allows_fractional_units": true, "has_reporting": true,
        "is_real_time_connection": broker.real_time,
        "brokerage_type": {"id": id(seed, "brokerage type"), "name": "Traditional Brokerage"},
        "exchanges": [], "open_url": null,
    })
}

pub(super) async fn brokerages(call: ClientCall) -> Response {
    let seed = call.snaptrade.store.read().seed;
    let base_url = &call.snaptrade.access.base_url;
    json(
        &BROKERAGE
            .brokers
            .iter()
            .map(|broker| brokerage(base_url, seed, broker))
            .collect::<Value>(),
    )
}

/// Lists the public catalogue.
pub(super) async fn institutions(State(snaptrade): State<Arc<SnapTrade>>) -> Response {
    let base_url = &snaptrade.access.base_url;
    let view = |broker: &Broker| {
        let scopes: &[&str] = if broker.trading {
            &["READ", "TRADE"]
        } else {
            &["READ"]
        };
        json!({
            "slug": broker.slug, "name": broker.name, "display_name": broker.name,
            "description": broker.description,
            "website": format!("https://{}.example.com", broker.slug.to_lowercase()),
            "logo_url": logo(base_url, broker, false), "square_logo_url": square_logo(base_url, broker),
            "release_stage": "GENERALLY_AVAILABLE", "is_paper": false, "regions": ["US"],
            "connection": {"methods": ["OAUTH"], "scopes": scopes},
        })
    };
    json(&BROKERAGE.brokers.iter().map(view).collect::<Value>())
}

/// Lists how each brokerage can be connected, or each of those that the call names.
pub(super) async fn authorization_types(call: ClientCall) -> Response {
    let seed = call.snaptrade.store.read().seed;
    let named = call.query.filled("brokerage");
    let is_wanted = |broker: &Broker| {
        named.is_none_or(|slugs| slugs.split(',').any(|slug| slug == broker.slug))
    };
    let mut types = Vec::new();
    for broker in BROKERAGE.brokers.iter().filter(|broker| is_wanted(broker)) {
        let kinds: &[&str] = if broker.trading {
            &["read", "trade"]
        } else {
            &["read"]
        };
        types.extend(kinds.iter().map(|kind| {
            let brokerage =
                json!({"id": brokerage_id(seed, broker), "name": broker.name, "slug": broker.slug});
            let type_id = id(seed, &format!("{kind} at {}", broker.slug));
            json!({"id": type_id, "type": kind, "auth_type": "OAUTH", "brokerage": brokerage})
        }));
    }
    json(&types)
}

/// Shows the settings of the key (docs/providers/snaptrade.md#reference-data). A personal key has
/// neither logo nor redirect URI.
pub(super) async fn partner(call: ClientCall) -> Response {
    let seed = call.snaptrade.store.read().seed;
    let (slug, name, redirect) = match call.key {
        Key::Commercial => ("SANDBOX-APP", APP, Some(REDIRECT_URI)),
        Key::Personal => ("PERSONAL", "Personal", None),
    };
    json(&json!({
        "slug": slug, "name": name,
        "logo_url": redirect.map(|_| "https://logos.example.com/app.png"),
        "allowed_brokerages": BROKERAGE.brokers
            .iter()
            .map(|broker| brokerage(&call.snaptrade.access.base_url, seed, broker))
            .collect::<Value>(),
        "can_access_trades": false, "can_access_holdings": true, "can_access_account_history": true,
        "can_access_reference_data": true, "can_access_portfolio_management": false, "can_access_orders": false,
        "redirect_uri": redirect, "pin_required": false,
    }))
}
