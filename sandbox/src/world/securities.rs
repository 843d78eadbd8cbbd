//! Securities that can be held and traded. Companies and funds are invented; coins and exchanges
//! have their real names.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use jiff::civil;
use serde::Deserialize;

pub(crate) static MARKET: LazyLock<Market> =
    LazyLock::new(|| super::load(include_str!("data/securities.json")));

#[derive(Deserialize)]
#[serde(deny_unknown_fields, bound(deserialize = "'de: 'static"))]
pub(crate) struct Market {
    /// The names by code.
    pub(crate) currencies: BTreeMap<&'static str, &'static str>,
    /// Code and description by the kind of a security.
    pub(crate) types: BTreeMap<&'static str, (&'static str, &'static str)>,
    exchanges: Vec<Exchange>,
    pub(crate) securities: Vec<Security>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Exchange {
    pub(crate) code: &'static str,
    /// The market identifier code.
    pub(crate) mic: &'static str,
    pub(crate) name: &'static str,
    pub(crate) timezone: &'static str,
    pub(crate) close: &'static str,
    pub(crate) suffix: Option<&'static str>,
}

/// The security with this symbol.
pub(crate) fn security(symbol: &str) -> &'static Security {
    let mut all = MARKET.securities.iter();
    let found = all.find(|known| known.symbol == symbol);
    found.expect("the world's accounts hold securities of the world")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Security {
    /// The `kind` of `positions/all` (docs/providers/snaptrade.md#positions).
    pub(crate) kind: &'static str,
    /// An internal name for contracts; [`Security::ticker`] gives the real symbol, which depends on
    /// the day.
    pub(crate) symbol: &'static str,
    raw_symbol: Option<&'static str>,
    pub(crate) name: &'static str,
    #[serde(default = "dollars")]
    pub(crate) currency: &'static str,
    /// The code of the exchange.
    exchange: Option<&'static str>,
    /// The approximate price in cents, around which trades are drawn.
    pub(crate) cents: u32,
    #[serde(default)]
    pub(crate) shape: Shape,
}

const fn dollars() -> &'static str {
    "USD"
}

/// What a contract has besides its name.
#[derive(Default, Deserialize)]
pub(crate) enum Shape {
    #[default]
    Plain,
    Option(Terms),
    Future {
        root: &'static str,
        months: i32,
        /// The multiplier. Some brokers send neither the day nor the multiplier.
        known: Option<&'static str>,
    },
    FutureOption(Terms),
    /// A contract for difference, or a token that stands for the share with this symbol.
    Mirror(&'static str),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Terms {
    pub(crate) call: bool,
    pub(crate) strike: &'static str,
    /// The expiry month, counted from the start's; negative for past ones. Options expire on the
    /// third Friday.
    pub(crate) months: i32,
    pub(crate) multiplier: &'static str,
    /// The symbol of the share or future.
    underlying: &'static str,
}

impl Terms {
    pub(crate) fn underlying(&self) -> &'static Security {
        security(self.underlying)
    }

    pub(crate) const fn side(&self) -> &'static str {
        if self.call { "CALL" } else { "PUT" }
    }

    pub(crate) fn expires(&self, today: civil::Date) -> civil::Date {
        third_friday(today, self.months)
    }
}

/// The third Friday of the month that is `months` away.
pub(crate) fn third_friday(today: civil::Date, months: i32) -> civil::Date {
    let month = today.saturating_add(jiff::Span::new().months(months));
    month
        .nth_weekday_of_month(3, civil::Weekday::Friday)
        .unwrap_or(month)
}

impl Security {
    pub(crate) fn raw_symbol(&self) -> &'static str {
        self.raw_symbol.unwrap_or(self.symbol)
    }

    pub(crate) fn exchange(&self) -> Option<&'static Exchange> {
        let mut all = MARKET.exchanges.iter();
        all.find(|exchange| Some(exchange.code) == self.exchange)
    }

    /// The symbol that is served; a contract's contains its month.
    pub(crate) fn ticker(&self, today: civil::Date) -> String {
        match &self.shape {
            Shape::Plain | Shape::Mirror(_) => self.symbol.to_owned(),
            // The OCC format: six places for the root, the strike in thousandths.
            Shape::Option(terms) => {
                let day = terms.expires(today);
                let side = if terms.call { 'C' } else { 'P' };
                format!(
                    "{:<6}{}{side}{:0>5}000",
                    terms.underlying,
                    day.strftime("%y%m%d"),
                    terms.strike
                )
            }
            Shape::Future { root, months, .. } => {
                format!("/{root}{}", expiration_code(today, *months))
            }
            Shape::FutureOption(terms) => {
                let side = if terms.call { 'C' } else { 'P' };
                format!(
                    "./{}{side}{}",
                    &terms.underlying().ticker(today)[1..],
                    terms.strike
                )
            }
        }
    }
}

/// The month letter and the year, as exchanges write them.
pub(crate) fn expiration_code(today: civil::Date, months: i32) -> String {
    const LETTERS: &[u8; 12] = b"FGHJKMNQUVXZ";
    let day = third_friday(today, months);
    let letter = char::from(LETTERS[day.month() as usize - 1]);
    format!("{letter}{}", day.strftime("%y"))
}
