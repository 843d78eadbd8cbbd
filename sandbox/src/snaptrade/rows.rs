//! Activities in SnapTrade's JSON, and the position of each in the order
//! (docs/providers/snaptrade.md#activities).

use std::io::Write as _;

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan as _, civil};
use serde_json::{Value, json};
use uuid::Uuid;

use super::SnapTrade;
use super::store::{Account, Entry, OwnAccount, State, Store};
use crate::clock::nanoseconds;
use crate::members::Members;
use crate::store::{Body, Protocol};
use crate::world::brokerage::Flow;
use crate::world::rng::mix;
use crate::world::securities::security;
use crate::world::trades::Trade;

impl Protocol for SnapTrade {
    type Row = Trade;
    type Account = OwnAccount;
    type State = State;
    const ROW_ID: &'static str = "id";

    fn row_id(seed: u64, number: u64) -> String {
        trade_id(seed, number).to_string()
    }

    fn is_row_id(id: &str, seed: u64, number: u64) -> bool {
        Uuid::try_parse(id) == Ok(trade_id(seed, number))
    }

    fn place(row: &Trade) -> (u8, Option<i64>) {
        place(Timestamp::from_second(row.at).ok())
    }

    fn place_given(row: &Members) -> (u8, Option<i64>) {
        place(row.text("trade_date").and_then(|text| instant(&text)))
    }

    fn write(out: &mut Vec<u8>, row: &Trade, store: &Store, account: &Account) {
        write_drawn(out, row, store, &account.institution);
    }

    fn account_of(row: &mut Members) -> Option<String> {
        // Current rows do not name their account.
        row.take_text("account")
    }

    fn complete(row: &mut Members, id: &str, store: &Store, account: &Account, now: Timestamp) {
        let symbol = &store.instruments.get(security("EXRB")).symbol;
        let symbol: Value = serde_json::from_str(symbol).unwrap_or_default();
        // Activities are never intraday (docs/providers/snaptrade.md#activities).
        let now = TimeZone::UTC.to_datetime(now).date();
        let yesterday = now.saturating_sub(1.day());
        let has_option = row.get("option_symbol").is_some();
        row.set_defaults(&json!({
            "id": id, "symbol": if has_option { Value::Null } else { symbol },
            "option_symbol": null, "currency_universal_symbol": null, "fx_rate": null,
            "external_reference_id": null, "price": 1, "units": 1, "amount": -1, "fee": 0,
            "currency": store.instruments.any_currency("USD"), "type": "BUY", "option_type": "",
            "description": "ADDED TRADE", "trade_date": format!("{yesterday}T20:00:00Z"),
            "settlement_date": format!("{yesterday}T00:00:00Z"), "institution": account.institution,
        }));
    }
}

/// Rows without a date come last.
fn place(at: Option<Timestamp>) -> (u8, Option<i64>) {
    match at {
        Some(at) => (0, Some(nanoseconds(at))),
        None => (1, None),
    }
}

impl Entry {
    /// Whether the `type` member is one of these.
    pub(super) fn is_kind(&self, kinds: &[&str]) -> bool {
        match &self.body {
            Body::Drawn(trade) => kinds.contains(&trade.deal.kind),
            Body::Given(row) => row
                .text("type")
                .is_some_and(|kind| kinds.contains(&kind.as_str())),
        }
    }
}

/// Parses a date in any of its formats; without a zone it is UTC
/// (docs/providers/snaptrade.md#activity-dates and
/// #numbers-and-dates).
fn instant(text: &str) -> Option<Timestamp> {
    let utc = || {
        TimeZone::UTC
            .to_timestamp(text.parse::<civil::DateTime>().ok()?)
            .ok()
    };
    text.parse().ok().or_else(utc)
}

pub(super) fn trade_id(seed: u64, number: u64) -> Uuid {
    let first = mix(mix(seed ^ 0x0074_7261_6465) ^ number);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&first.to_be_bytes());
    bytes[8..].copy_from_slice(&mix(first ^ 1).to_be_bytes());
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Writes the row straight to bytes, because tests read tens of thousands of them. The texts of the
/// world need no escapes. An amount always has a fraction: the official Python models reject whole
/// numbers for members that may be `null`.
fn write_drawn(out: &mut Vec<u8>, trade: &Trade, store: &Store, institution: &str) {
    let (seed, instruments) = (store.seed, &store.instruments);
    let views = trade.security.map(|security| instruments.get(security));
    let symbol = views.map_or("null", |views| &views.symbol);
    let option = views.map_or("null", |views| &views.option_symbol);
    let coin = trade
        .coin
        .map_or("null", |security| &instruments.get(security).symbol);
    // A payment in a coin has no currency (docs/providers/snaptrade.md#activities).
    let currency = if trade.coin.is_some() {
        "null"
    } else {
        instruments.currency(&trade.currency)
    };
    let at = Timestamp::from_second(trade.at).unwrap_or_default();
    let fx_rate = if trade.foreign { "1.3712" } else { "null" };
    let _ = write!(
        out,
        "{{\"id\":\"{}\",\"symbol\":{symbol},\"currency_universal_symbol\":{coin},\"option_symbol\":{option},\
         \"price\":{},\"units\":{},\"amount\":{:#},\"currency\":{currency},\"type\":\"{}\",\"option_type\":\"{}\",\
         \"description\":\"{}",
        trade_id(seed, trade.number),
        trade.price,
        trade.units,
        trade.amount,
        trade.deal.kind,
        trade.deal.option_type,
        trade.deal.text,
    );
    if let Some(security) = trade.security {
        let _ = write!(out, " {}", security.name);
    }
    let _ = write!(
        out,
        "\",\"trade_date\":\"{at}\",\"settlement_date\":\"{}T00:00:00Z\",\"fee\":{},\"fx_rate\":{fx_rate},\
         \"institution\":\"{institution}\",\"external_reference_id\":",
        trade.settled, trade.fee,
    );
    // Sandbox choice: deposits and withdrawals have no group. The real grouping of money movements
    // is unknown.
    let grouped = !matches!(trade.deal.flow, Flow::MoneyIn | Flow::MoneyOut);
    let _ = match grouped {
        true => write!(out, "\"{}\"}}", trade_id(!seed, trade.group)),
        false => write!(out, "null}}"),
    };
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::instant;

    #[test]
    fn dates_parse_in_every_format() {
        for text in [
            "2026-08-27T04:00:00Z",
            "2026-08-27T04:00:00.000Z",
            "2026-08-27 04:00:00+00:00",
            "2026-08-27T00:00:00-04:00",
            "2026-08-27T04:00:00",
        ] {
            assert_eq!(instant(text).unwrap().as_second(), 1_787_803_200, "{text}");
        }
        assert_eq!(instant("2026-08-27").unwrap().as_second(), 1_787_788_800);
        assert_eq!(instant("yesterday"), None);
    }
}
