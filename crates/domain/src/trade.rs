//! Trades of a brokerage account. They pass through from the provider to the client and are never
//! stored.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::connection::string_enum;
use crate::{Account, Decimal};

string_enum! {
    /// The trade types of the public API.
    TradeType {
        /// Units were bought, reinvested dividends included.
        Buy "buy",
        /// Units were sold.
        Sell "sell",
        /// A payment to holders.
        Dividend "dividend",
        /// Units were split or consolidated.
        Split "split",
        /// Cash or units moved in or out.
        Transfer "transfer",
        /// A fee or a tax.
        Fee "fee",
        /// Interest, received or paid.
        Interest "interest",
        Other "other",
    }
}

/// When a trade was made. Some brokers send a day, others an instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TradeTime {
    /// A day without a timezone.
    Day(Date),
    Instant(Timestamp),
}

impl TradeTime {
    /// The instant to sort by. A day counts as 00:00 UTC.
    #[must_use]
    pub fn instant(self) -> Timestamp {
        match self {
            Self::Instant(instant) => instant,
            Self::Day(day) => {
                let beyond = if day.year() > 0 {
                    Timestamp::MAX
                } else {
                    Timestamp::MIN
                };
                day.to_zoned(TimeZone::UTC)
                    .map_or(beyond, |start| start.timestamp())
            }
        }
    }
}

/// One trade. Borrows the provider's page. Has no `Debug`, so that it cannot be logged.
#[derive(Clone)]
pub struct Trade<'a> {
    pub account: &'a Account,
    /// Ticker. Empty if the trade involves no security, such as a deposit.
    pub symbol: Cow<'a, str>,
    pub name: Option<Cow<'a, str>>,
    pub trade_type: TradeType,
    /// The provider's own word for the type, unchanged.
    pub provider_type: Cow<'a, str>,
    /// Units, with the provider's sign.
    pub quantity: Option<Decimal<'a>>,
    /// Price of one unit.
    pub price: Option<Decimal<'a>>,
    /// An ISO 4217 code, or the ticker of a crypto asset.
    pub currency: Cow<'a, str>,
    /// The effect on the cash balance.
    pub total_amount: Option<Decimal<'a>>,
    pub fees: Option<Decimal<'a>>,
    /// The provider's text for [`Self::time`].
    pub trade_date: Cow<'a, str>,
    pub time: TradeTime,
    /// The provider's text.
    pub settlement_date: Option<Cow<'a, str>>,
    /// The broker's text.
    pub description: Option<Cow<'a, str>>,
}

impl<'a> Trade<'a> {
    /// The public id: eight parts joined by hyphens. An absent part is empty. Equal trades have
    /// equal ids.
    #[must_use]
    pub fn id(&self) -> TradeId<'_, 'a> {
        TradeId(self)
    }
}

/// Displays the id of a trade.
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
    fn day_sorts_at_midnight_utc() {
        for (day, instant) in [
            (
                "2026-10-31",
                "2026-10-31T00:00:00Z".parse().expect("an instant"),
            ),
            // Brokers send this day for "never".
            ("9999-12-31", Timestamp::MAX),
            (
                "0001-01-01",
                "0001-01-01T00:00:00Z".parse().expect("an instant"),
            ),
        ] {
            assert_eq!(
                TradeTime::Day(day.parse().expect("a day")).instant(),
                instant,
                "{day}"
            );
        }
    }
}
