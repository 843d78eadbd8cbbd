//! Trades: rows of a brokerage account that pass through and are never kept.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::connection::named;
use crate::{Account, Decimal};

named! {
    /// What kind of trade it is.
    TradeType {
        /// Units were bought, reinvested dividends included.
        Buy "buy",
        /// Units were sold.
        Sell "sell",
        /// A payment to holders.
        Dividend "dividend",
        /// Units were split or joined.
        Split "split",
        /// Cash or units moved in or out.
        Transfer "transfer",
        /// A fee or a tax.
        Fee "fee",
        /// Interest, received or paid.
        Interest "interest",
        /// Everything else.
        Other "other",
    }
}

/// When a trade was made: brokers give a day or a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TradeTime {
    /// A day, in nobody's timezone.
    Day(Date),
    /// A moment.
    Instant(Timestamp),
}

impl TradeTime {
    /// Its place in the order: a day counts as 00:00 UTC.
    #[must_use]
    pub fn instant(self) -> Timestamp {
        match self {
            Self::Instant(instant) => instant,
            Self::Day(day) => {
                let beyond = if day.year() > 0 { Timestamp::MAX } else { Timestamp::MIN };
                day.to_zoned(TimeZone::UTC).map_or(beyond, |start| start.timestamp())
            }
        }
    }
}

/// One row of a brokerage account. Borrows the page it came from; has no `Debug`, so that it cannot be logged.
#[derive(Clone)]
pub struct Trade<'a> {
    /// The account that it is on.
    pub account: &'a Account,
    /// Ticker; empty where no security is concerned.
    pub symbol: Cow<'a, str>,
    /// The security's name.
    pub name: Option<Cow<'a, str>>,
    /// What kind of trade it is.
    pub trade_type: TradeType,
    /// The provider's own word for that, as sent.
    pub provider_type: Cow<'a, str>,
    /// Units, signed as the provider signs them.
    pub quantity: Option<Decimal<'a>>,
    /// Price of a unit.
    pub price: Option<Decimal<'a>>,
    /// ISO 4217, or the ticker of a crypto asset.
    pub currency: Cow<'a, str>,
    /// The effect on cash.
    pub total_amount: Option<Decimal<'a>>,
    /// Fees.
    pub fees: Option<Decimal<'a>>,
    /// When it was made, as text.
    pub trade_date: Cow<'a, str>,
    /// When it was made.
    pub time: TradeTime,
    /// When it was settled, as text.
    pub settlement_date: Option<Cow<'a, str>>,
    /// The broker's words.
    pub description: Option<Cow<'a, str>>,
}

impl<'a> Trade<'a> {
    /// The identifier: eight parts joined by hyphens, an absent one empty. Equal trades have equal ids.
    #[must_use]
    pub fn id(&self) -> TradeId<'_, 'a> {
        TradeId(self)
    }
}

/// Shows a trade's identifier.
pub struct TradeId<'t, 'a>(&'t Trade<'a>);

impl fmt::Display for TradeId<'_, '_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let trade = self.0;
        fn digits<'d>(number: &'d Option<Decimal<'_>>) -> &'d str {
            number.as_ref().map_or("", |number| number.as_str())
        }
        write!(
            out,
            "{}-{}-{}-{}-{}-{}-{}-{}",
            trade.trade_date,
            trade.symbol,
            trade.provider_type.to_uppercase(),
            digits(&trade.total_amount),
            digits(&trade.quantity),
            trade.settlement_date.as_deref().unwrap_or(""),
            digits(&trade.fees),
            trade.description.as_deref().unwrap_or(""),
        )
    }
}

impl serde::Serialize for TradeId<'_, '_> {
    fn serialize<S: serde::Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_stands_at_its_start_in_utc() {
        for (day, instant) in [
            ("2026-10-31", "2026-10-31T00:00:00Z".parse().expect("an instant")),
            // Brokers' way to say never.
            ("9999-12-31", Timestamp::MAX),
            ("0001-01-01", "0001-01-01T00:00:00Z".parse().expect("an instant")),
        ] {
            assert_eq!(TradeTime::Day(day.parse().expect("a day")).instant(), instant, "{day}");
        }
    }
}
