//! What the accounts hold, from `/v1/holdings`, by currency, with exact sums.

use std::collections::BTreeMap;

use askama::Template;
use bellbird_domain::{Decimal, ExactSum};
use bellbird_reads::Trades;
use futures_util::StreamExt as _;
use futures_util::stream;
use serde::Deserialize;

use crate::api_client::List;
use crate::pages::names::sanitized;
use crate::pages::{BankTrouble, Money, Number, SignedInFrame, rendered_part};
use crate::rows::Symbol;
use crate::rows::filter::{Filter, RowFilter};
use crate::rows::linked::Bank;
use crate::rows::list::RowList;

/// Brokers read at the same time. The trades are read meanwhile, and a session has few permits.
const BROKERS_AT_ONCE: usize = 2;

#[derive(Template)]
#[template(path = "investments_holdings.html")]
struct HoldingsPart<'a> {
    frame: &'a SignedInFrame<'a>,
    filter: &'a Filter,
    /// This page again.
    again: String,
    troubles: Vec<BankTrouble>,
    currencies: Vec<InCurrency>,
    /// Holdings without a value, which are in no total.
    without_value: usize,
    /// Holdings with a value, but without a cost, which are in no gain.
    without_cost: usize,
    /// Futures with a value, which are in no total and no gain.
    futures: usize,
}

struct InCurrency {
    code: String,
    /// None: no holding counts.
    total: Option<Number>,
    gain: Option<Gain>,
    rows: Vec<HoldingRow>,
}

struct HoldingRow {
    symbol: Symbol,
    name: Option<String>,
    /// None: it says nothing new, because only one account is shown.
    account: Option<String>,
    /// The query of the page with its trades.
    trades: String,
    quantity: Number,
    price: Option<Number>,
    value: Option<Money>,
    cost: Option<Number>,
    /// Per cent of the total.
    share: Option<String>,
    gain: Option<Gain>,
}

/// Value minus cost.
struct Gain {
    number: Number,
    /// Of the cost.
    percent: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Holding {
    account_name: String,
    symbol: String,
    name: Option<String>,
    quantity: String,
    current_price: Option<String>,
    market_value: Option<String>,
    unrealized_pnl: Option<String>,
    currency: String,
}

impl Holding {
    fn value(&self) -> Option<ExactSum> {
        sum_of(self.market_value.as_deref()?)
    }

    fn gain(&self) -> Option<ExactSum> {
        sum_of(self.unrealized_pnl.as_deref()?)
    }

    /// By the symbol as most brokers write it, because the API names no kinds. Its value is that of
    /// what the contract is about, for which nobody has paid, so it is in no sum.
    fn is_future(&self) -> bool {
        self.symbol.starts_with('/')
    }

    /// What it adds to the total.
    fn counted_value(&self) -> Option<ExactSum> {
        self.value().filter(|_| !self.is_future())
    }
}

fn sum_of(number: &str) -> Option<ExactSum> {
    let mut sum = ExactSum::default();
    sum.add(&Decimal::parse(number).ok()?).then_some(sum)
}

impl Gain {
    fn new(gain: &ExactSum, cost: &ExactSum, currency: &str) -> Self {
        Self {
            number: Number::money(gain.to_decimal().as_str(), currency),
            percent: percent(gain, cost),
        }
    }

    fn plus(&self) -> &'static str {
        match self.number.is_positive() {
            true => "+",
            false => "",
        }
    }
}

/// With a sign if it is a gain.
fn percent(part: &ExactSum, whole: &ExactSum) -> Option<String> {
    let percent = part.percent_of(whole)?;
    Some(Number::percent(percent.as_str()).text)
}

/// Of the accounts that the page shows.
pub(super) async fn part(list: &RowList<Trades>) -> String {
    let mut reads = Vec::new();
    for broker in list.linked.chosen(list.filter.account) {
        reads.push(read(list, broker));
    }
    let read: Vec<Result<Vec<Holding>, BankTrouble>> = stream::iter(reads)
        .buffered(BROKERS_AT_ONCE)
        .collect()
        .await;
    let (mut holdings, mut troubles) = (Vec::<Holding>::new(), Vec::new());
    for of_broker in read {
        match of_broker {
            Ok(some) => holdings.extend(some),
            Err(trouble) => troubles.push(trouble),
        }
    }
    let mut by_currency: BTreeMap<&str, Vec<&Holding>> = BTreeMap::new();
    for holding in &holdings {
        by_currency
            .entry(&holding.currency)
            .or_default()
            .push(holding);
    }
    let filter = &list.filter;
    let wanted = filter.rows();
    let mut currencies: Vec<InCurrency> = by_currency
        .iter()
        .map(|(currency, holdings)| in_currency(filter, &wanted, currency, holdings))
        .collect();
    currencies.retain(|currency| !currency.rows.is_empty());
    let count = |is: fn(&Holding) -> bool| holdings.iter().filter(|one| is(one)).count();
    let frame = list.session.frame("/investments");
    rendered_part(&HoldingsPart {
        frame: &frame,
        filter,
        again: format!("{}/investments?{}", frame.root, filter.query.this_page()),
        troubles,
        currencies,
        without_value: count(|one| one.value().is_none()),
        without_cost: count(|one| {
            one.value().is_some() && one.gain().is_none() && !one.is_future()
        }),
        futures: count(|one| one.value().is_some() && one.is_future()),
    })
}

async fn read(list: &RowList<Trades>, broker: &Bank) -> Result<Vec<Holding>, BankTrouble> {
    let (connection, session) = (&broker.connection, &list.session);
    let account = list.filter.account;
    let account = account.map(|id| format!("&accountId={id}"));
    let account = account.unwrap_or_default();
    let path = format!("/v1/holdings?connectionId={}{account}", connection.id);
    let read = session
        .api
        .get::<List<Holding>>(&session.caller, &path, None);
    match read.await {
        Ok(read) => Ok(read.value.data),
        Err(error) => {
            let trouble = session.trouble_of_code(connection, &error.code, error.retry_after);
            Err(trouble.among(&list.linked.names))
        }
    }
}

fn in_currency(
    filter: &Filter,
    wanted: &RowFilter,
    currency: &str,
    holdings: &[&Holding],
) -> InCurrency {
    let (mut total, mut gain, mut cost) = <(ExactSum, ExactSum, ExactSum)>::default();
    for holding in holdings {
        let Some(value) = holding.counted_value() else {
            continue;
        };
        if let Some(own) = holding.gain() {
            cost = cost.plus(&value.minus(&own));
            gain = gain.plus(&own);
        }
        total = total.plus(&value);
    }
    let mut sorted: Vec<(Option<ExactSum>, &Holding)> = holdings
        .iter()
        .map(|holding| (holding.value(), *holding))
        .collect();
    sorted.sort_by(|(one, first), (other, second)| {
        other
            .cmp(one)
            .then_with(|| first.symbol.cmp(&second.symbol))
    });
    let found = sorted.into_iter().map(|(_, holding)| holding);
    let found = found.filter(|holding| {
        let texts = [holding.symbol.as_str()];
        let names = holding.name.as_deref();
        wanted.finds(texts.into_iter().chain(names), None, currency)
    });
    InCurrency {
        code: currency.to_owned(),
        total: (holdings.iter())
            .any(|holding| holding.counted_value().is_some())
            .then(|| Number::money(total.to_decimal().as_str(), currency)),
        gain: (holdings.iter())
            .any(|holding| holding.gain().is_some() && !holding.is_future())
            .then(|| Gain::new(&gain, &cost, currency)),
        rows: found
            .map(|holding| row(filter, currency, holding, &total))
            .collect(),
    }
}

fn row(filter: &Filter, currency: &str, holding: &Holding, total: &ExactSum) -> HoldingRow {
    let (value, gain, is_future) = (holding.value(), holding.gain(), holding.is_future());
    let cost = value
        .as_ref()
        .zip(gain.as_ref())
        .map(|(value, gain)| value.minus(gain));
    let symbol = Symbol::new(&holding.symbol);
    let name = holding.name.as_deref().map(sanitized);
    HoldingRow {
        trades: filter.with_search(&holding.symbol),
        name: name.filter(|name| !name.is_empty() && *name != symbol.text),
        symbol,
        account: filter
            .account
            .is_none()
            .then(|| sanitized(&holding.account_name)),
        quantity: Number::quantity(&holding.quantity),
        price: holding
            .current_price
            .as_deref()
            .map(|price| Number::price(price, currency)),
        value: (holding.market_value.as_deref()).map(|value| Money::new(currency, value)),
        cost: (cost.as_ref()).map(|cost| Number::money(cost.to_decimal().as_str(), currency)),
        share: (value.as_ref().filter(|_| !is_future)).and_then(|value| percent(value, total)),
        gain: gain.zip(cost).map(|(gain, cost)| {
            let gain = Gain::new(&gain, &cost, currency);
            Gain {
                percent: gain.percent.filter(|_| !is_future),
                ..gain
            }
        }),
    }
}
