//! Securities in SnapTrade's two formats: that of positions (docs/providers/snaptrade.md#positions)
//! and that of activities (#activities).

use std::collections::BTreeMap;

use jiff::civil;
use serde_json::{Value, json};

use crate::world::rng::{Rng, mix};
use crate::world::securities::{
    self, Exchange, MARKET, Security, Shape, expiration_code, third_friday,
};

/// Derives a stable id from the seed and a name, whatever else the world contains.
pub(super) fn id(seed: u64, thing: &str) -> String {
    let label = thing
        .bytes()
        .fold(mix(seed), |label, byte| mix(label ^ u64::from(byte)));
    Rng::new(seed, label).uuid()
}

/// The serialized forms of a security.
pub(super) struct InstrumentViews {
    /// The `instrument` of a position.
    pub(super) instrument: Value,
    /// The `symbol` of an activity; for an option, that of its share.
    pub(super) symbol: String,
    /// The `option_symbol` of an activity; `null` for all but options.
    pub(super) option_symbol: String,
}

#[derive(Default)]
pub(super) struct Instruments {
    seed: u64,
    views: BTreeMap<&'static str, InstrumentViews>,
    currencies: BTreeMap<&'static str, String>,
}

impl Instruments {
    pub(super) fn new(seed: u64, today: civil::Date) -> Self {
        let entry = |security: &'static Security| {
            let views = InstrumentViews {
                instrument: instrument(seed, today, security),
                symbol: match &security.shape {
                    Shape::Option(..) => "null".to_owned(),
                    _ => symbol(seed, today, security).to_string(),
                },
                option_symbol: option_symbol(seed, today, security).to_string(),
            };
            (security.symbol, views)
        };
        let views = MARKET.securities.iter().map(entry).collect();
        let currencies = MARKET.currencies.keys();
        Self {
            seed,
            views,
            currencies: currencies
                .map(|code| (*code, currency(seed, code).to_string()))
                .collect(),
        }
    }

    pub(super) fn get(&self, security: &Security) -> &InstrumentViews {
        self.views
            .get(security.symbol)
            .expect("every security is listed")
    }

    /// A currency of an activity, serialized.
    pub(super) fn currency(&self, code: &str) -> &str {
        self.currencies.get(code).map_or("null", String::as_str)
    }

    pub(super) fn any_currency(&self, code: &str) -> Value {
        currency(self.seed, code)
    }
}

fn security_id(seed: u64, security: &Security) -> String {
    id(seed, &format!("security {}", security.symbol))
}

fn currency(seed: u64, code: &str) -> Value {
    let name = MARKET.currencies.get(code).copied().unwrap_or(code);
    json!({"id": id(seed, &format!("currency {code}")), "code": code, "name": name})
}

/// Draws FIGI codes. Contracts, coins and unlisted securities have none.
fn figi(seed: u64, security: &Security) -> Value {
    if security.exchange().is_none() || !matches!(security.shape, Shape::Plain) {
        return Value::Null;
    }
    let mut rng = Rng::new(
        seed,
        security
            .symbol
            .bytes()
            .fold(7, |label, byte| mix(label ^ u64::from(byte))),
    );
    let mut code = || format!("BBG00{}", rng.text(b"0123456789BCDFGHJKLMNPQRSTVWXYZ", 7));
    json!({"figi_code": code(), "figi_share_class": code()})
}

/// The members of an instrument by kind (docs/providers/snaptrade.md#positions).
fn instrument(seed: u64, today: civil::Date, security: &Security) -> Value {
    let mut shown = json!({
        "kind": security.kind,
        "id": security_id(seed, security),
        "symbol": security.ticker(today),
    });
    let mut add = |name: &str, value: Value| shown[name] = value;
    let exchange = security.exchange().map(|exchange| exchange.mic);
    match &security.shape {
        Shape::Plain => {
            add("raw_symbol", security.raw_symbol().into());
            add("description", security.name.into());
            add("currency", security.currency.into());
            add("figi_instrument", figi(seed, security));
            if security.kind != "crypto" {
                add("exchange", exchange.into());
            }
        }
        Shape::Option(terms) | Shape::FutureOption(terms) => {
            add("description", security.name.into());
            add("option_type", terms.side().into());
            add("strike_price", terms.strike.into());
            add("expiration_date", terms.expires(today).to_string().into());
            add("multiplier", terms.multiplier.into());
            add("underlying", instrument(seed, today, terms.underlying()));
            if matches!(security.shape, Shape::FutureOption(_)) {
                add("currency", security.currency.into());
                add("exchange", exchange.into());
            }
        }
        Shape::Future {
            root,
            months,
            known,
        } => {
            let expires = known.map(|_| third_friday(today, *months).to_string());
            add("root_symbol", (*root).into());
            add("expiration_code", expiration_code(today, *months).into());
            add("expiration_date", expires.into());
            add("multiplier", (*known).into());
            add("currency", security.currency.into());
            add("exchange", exchange.into());
        }
        Shape::Mirror(under) => {
            add("description", security.name.into());
            let under = securities::security(under);
            add("underlying_instrument", instrument(seed, today, under));
            if security.kind == "cfd" {
                add("raw_symbol", security.raw_symbol().into());
                add("currency", security.currency.into());
            }
        }
    }
    shown
}

fn exchange(seed: u64, exchange: &Exchange) -> Value {
    json!({
        "id": id(seed, &format!("exchange {}", exchange.code)),
        "code": exchange.code, "mic_code": exchange.mic, "name": exchange.name,
        "timezone": exchange.timezone, "start_time": "09:30:00", "close_time": exchange.close,
        "suffix": exchange.suffix,
    })
}

/// The codes are invented except `et` and `cs`.
fn security_type(seed: u64, security: &Security) -> Value {
    let known = MARKET.types.get(security.kind).copied();
    let (code, description) = known.unwrap_or(("oth", "Other"));
    json!({"id": id(seed, &format!("type {code}")), "code": code, "description": description, "is_supported": true})
}

/// The symbol of an activity. Without an exchange the member is absent, because `null` would
/// violate the schema (docs/providers/snaptrade.md#official-clients).
fn symbol(seed: u64, today: civil::Date, security: &Security) -> Value {
    let (figi, ticker) = (figi(seed, security), security.ticker(today));
    let plain = matches!(security.shape, Shape::Plain);
    let mut shown = json!({
        "id": security_id(seed, security),
        "symbol": ticker,
        "raw_symbol": if plain { security.raw_symbol() } else { &ticker },
        "description": security.name,
        "currency": currency(seed, security.currency),
        "type": security_type(seed, security),
        "figi_code": figi["figi_code"],
        "figi_instrument": figi,
    });
    if let Some(market) = security.exchange() {
        shown["exchange"] = exchange(seed, market);
    }
    shown
}

fn option_symbol(seed: u64, today: civil::Date, security: &Security) -> Value {
    let Shape::Option(terms) = &security.shape else {
        return Value::Null;
    };
    json!({
        "id": security_id(seed, security),
        "ticker": security.ticker(today),
        "option_type": terms.side(),
        "strike_price": number(terms.strike),
        "expiration_date": terms.expires(today).to_string(),
        "is_mini_option": false,
        "underlying_symbol": symbol(seed, today, terms.underlying()),
    })
}

/// Converts a decimal text to a JSON number. The text must be short, because it passes through the
/// library's number type.
pub(super) fn number(text: &str) -> Value {
    serde_json::from_str(text).expect("the world's decimals are JSON numbers")
}
