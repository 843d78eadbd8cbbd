//! Data that is the same for every user: brokerages and the settings of the key
//! (docs/providers/snaptrade.md#reference-data).

use axum::response::Response;
use serde_json::{Value, json};

use super::call::ClientCall;
use super::instruments::id;
use crate::consent_page::APP;
use crate::logos;
use crate::respond::json;
use crate::world::brokerage::{BROKERAGE, Broker};

/// The redirect URI in this integration's dashboard.
pub(super) const REDIRECT_URI: &str = "https://client.example.com/linked";

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
        "allows_trading": false, "allows_fractional_units": true, "has_reporting": true,
        "is_real_time_connection": false,
        "brokerage_type": {"id": id(seed, "brokerage type"), "name": "Traditional Brokerage"},
        "exchanges": [], "open_url": null,
    })
}

/// Shows the settings of the key (docs/providers/snaptrade.md#reference-data).
pub(super) async fn partner(call: ClientCall) -> Response {
    let seed = call.snaptrade.store.read().seed;
    json(&json!({
        "slug": "SANDBOX-APP", "name": APP,
        "logo_url": "https://logos.example.com/app.png",
        "allowed_brokerages": BROKERAGE.brokers
            .iter()
            .map(|broker| brokerage(&call.snaptrade.access.base_url, seed, broker))
            .collect::<Value>(),
        "can_access_trades": false, "can_access_holdings": true, "can_access_account_history": true,
        "can_access_reference_data": true, "can_access_portfolio_management": false, "can_access_orders": false,
        "redirect_uri": REDIRECT_URI, "pin_required": false,
    }))
}
