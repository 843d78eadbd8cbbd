//! Activities in SnapTrade's JSON, and the position of each in the order
//! (docs/providers/snaptrade.md#activities).

use std::cmp::Reverse;
use std::io::Write as _;

use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use uuid::Uuid;

use super::instruments::Instruments;
use crate::members::Members;
use crate::world::brokerage::Flow;
use crate::world::rng::mix;
use crate::world::trades::Trade;

pub(super) struct Entry {
    /// The instant of `trade_date`; `None` if it is absent or unreadable.
    pub(super) at: Option<Timestamp>,
    number: u64,
    body: Body,
}

enum Body {
    /// Generated from the world on each read.
    Drawn(Trade),
    /// Stored as a test sent it.
    Given { members: Members, kind: String },
}

/// What a row needs from outside to be written.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) seed: u64,
    pub(super) instruments: &'a Instruments,
    pub(super) institution: &'a str,
}

impl Entry {
    pub(super) fn drawn(trade: Trade) -> Self {
        Self {
            at: Timestamp::from_second(trade.at).ok(),
            number: trade.number,
            body: Body::Drawn(trade),
        }
    }

    pub(super) fn given(members: Members, number: u64) -> Self {
        let at = members.text("trade_date").and_then(|text| instant(&text));
        let kind = members.text("type").unwrap_or_default();
        Self {
            at,
            number,
            body: Body::Given { members, kind },
        }
    }

    /// Newest first, then rows without a date. Of one instant the last added comes first, which is
    /// a sandbox choice.
    pub(super) const fn position(&self) -> (Reverse<Option<Timestamp>>, Reverse<u64>) {
        (Reverse(self.at), Reverse(self.number))
    }

    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// The `type` member.
    pub(super) fn kind(&self) -> &str {
        match &self.body {
            Body::Drawn(trade) => trade.deal.kind,
            Body::Given { kind, .. } => kind,
        }
    }

    pub(super) fn has_id(&self, id: &str, seed: u64) -> bool {
        match &self.body {
            Body::Drawn(trade) => Uuid::try_parse(id) == Ok(trade_id(seed, trade.number)),
            Body::Given { members, .. } => members.text("id").as_deref() == Some(id),
        }
    }

    /// Converts the row to an object that can be changed.
    pub(super) fn members(&self, names: Names<'_>) -> Members {
        match &self.body {
            Body::Given { members, .. } => members.clone(),
            Body::Drawn(trade) => {
                let mut out = Vec::new();
                write_drawn(&mut out, trade, names);
                Members::parse(&out).expect("our own rows are JSON objects")
            }
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>, names: Names<'_>) {
        match &self.body {
            Body::Drawn(trade) => write_drawn(out, trade, names),
            Body::Given { members, .. } => {
                serde_json::to_writer(out, members).expect("text can be written to memory");
            }
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
fn write_drawn(out: &mut Vec<u8>, trade: &Trade, names: Names<'_>) {
    let Names {
        seed,
        instruments,
        institution,
    } = names;
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
        instruments.currency(trade.currency)
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
