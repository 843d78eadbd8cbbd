//! Trades of all chosen accounts, newest first, from a window of `/v1/trades` of each broker.

use std::cmp::Reverse;

use askama::Template;
use bellbird_domain::{Caller, Decimal, TradeTime, TradeType};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;

use super::choice::{Broker, Choice};
use super::holdings::trouble_of;
use super::symbol::Symbol;
use crate::pages::names::sanitized;
use crate::pages::{BankTrouble, Frame, Money, Number, day_of_week, rendered_part};
use crate::state::Console;

/// Rows of one page.
const PAGE_ROWS: u64 = 50;
/// Rows of one read of a search: as many as the API gives.
const SEARCH_WINDOW: u64 = 500;
/// Rows of each broker that a search reads at most.
const SEARCHED_MAX: u64 = 5_000;
/// Rows that a search shows at most.
const FOUND_MAX: usize = 200;

#[derive(Template)]
#[template(path = "investments_trades.html")]
struct TradesPart<'a> {
    frame: &'a Frame,
    choice: &'a Choice,
    troubles: Vec<BankTrouble>,
    days: Vec<TradeDay>,
    /// Such as `51 to 100`.
    position: String,
    newest: Option<String>,
    older: Option<String>,
    /// The URLs of the API that give what the page shows.
    api_urls: Vec<String>,
}

struct TradeDay {
    name: String,
    rows: Vec<TradeRow>,
}

struct TradeRow {
    /// Such as `Bought`, in front of the units.
    kind: &'static str,
    /// None: no units.
    quantity: Option<Number>,
    symbol: Option<Symbol>,
    price: Option<Number>,
    fee: Option<Number>,
    description: Option<String>,
    account: Option<String>,
    /// The change in cash. None: there is none.
    amount: Option<Money>,
}

#[derive(Deserialize)]
struct Window {
    data: Vec<Trade>,
    pagination: Pagination,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pagination {
    /// Negative: nobody has counted the rows.
    total: i64,
    has_more: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Trade {
    account_name: String,
    trade_date: String,
    #[serde(rename = "type")]
    kind: String,
    symbol: String,
    name: Option<String>,
    description: Option<String>,
    quantity: String,
    price: String,
    total_amount: String,
    fees: Option<String>,
    currency: String,
}

/// What was read of one broker.
#[derive(Default)]
struct OfBroker {
    trades: Vec<Trade>,
    /// Whether older trades follow.
    has_more: bool,
    /// None: nobody has counted them.
    total: Option<u64>,
    /// Rows that a search has read.
    searched: u64,
}

impl Trade {
    fn time(&self) -> Option<TradeTime> {
        let text = self.trade_date.as_str();
        let instant = text.parse::<Timestamp>().ok().map(TradeTime::Instant);
        let day = || text.get(..10)?.parse::<Date>().ok().map(TradeTime::Day);
        instant.or_else(day)
    }

    /// As the API sorts. One whose time cannot be read is the oldest.
    fn instant(&self) -> Timestamp {
        self.time().map_or(Timestamp::MIN, TradeTime::instant)
    }

    fn day(&self, zone: &TimeZone) -> String {
        match self.time() {
            Some(TradeTime::Day(day)) => day_of_week(day),
            Some(TradeTime::Instant(instant)) => day_of_week(instant.to_zoned(zone.clone()).date()),
            None => sanitized(&self.trade_date),
        }
    }

    fn row(&self, choice: &Choice) -> TradeRow {
        let sign = |text: &str| {
            Decimal::parse(text)
                .ok()
                .map_or(0, |number| sign_of(&number))
        };
        let (units, amount) = (sign(&self.quantity), sign(&self.total_amount));
        let direction = if units == 0 { amount } else { units };
        let kind = match self.kind.parse().ok() {
            Some(TradeType::Buy) => "Bought",
            Some(TradeType::Sell) => "Sold",
            Some(TradeType::Dividend) => "Dividend",
            Some(TradeType::Split) => "Split",
            Some(TradeType::Transfer) if direction > 0 => "Transfer in",
            Some(TradeType::Transfer) if direction < 0 => "Transfer out",
            Some(TradeType::Transfer) => "Transfer",
            Some(TradeType::Fee) => "Fee",
            Some(TradeType::Interest) => "Interest",
            Some(TradeType::Other) | None => "Other",
        };
        let unsigned = self.quantity.trim_start_matches('-');
        let symbol = (!self.symbol.is_empty()).then(|| Symbol::new(&self.symbol));
        let fee = self.fees.as_deref().filter(|fee| sign(fee) != 0);
        let shown = |text: &String| !text.trim().is_empty();
        TradeRow {
            kind,
            quantity: (units != 0 && symbol.is_some()).then(|| Number::quantity(unsigned)),
            symbol,
            price: (sign(&self.price) != 0).then(|| Number::price(&self.price, &self.currency)),
            fee: fee.map(|fee| Number::money(fee, &self.currency)),
            description: self.description.as_deref().map(sanitized).filter(shown),
            account: choice
                .account_name()
                .is_none()
                .then(|| sanitized(&self.account_name)),
            amount: (amount != 0).then(|| Money::new(&self.currency, &self.total_amount)),
        }
    }

    fn is_found(&self, choice: &Choice) -> bool {
        let texts = [
            Some(&self.symbol),
            self.name.as_ref(),
            self.description.as_ref(),
        ];
        choice.finds(texts.into_iter().flatten().map(String::as_str))
    }
}

fn sign_of(number: &Decimal<'_>) -> i8 {
    let is_zero = number
        .as_str()
        .bytes()
        .all(|byte| !matches!(byte, b'1'..=b'9'));
    match (is_zero, number.is_negative()) {
        (true, _) => 0,
        (false, true) => -1,
        (false, false) => 1,
    }
}

pub(super) async fn part(console: &Console, caller: &Caller, choice: &Choice) -> String {
    let chosen: Vec<(&Broker, u64)> = choice
        .chosen()
        .zip(choice.offsets.iter().copied())
        .collect();
    let (mut lists, mut troubles) = (Vec::new(), Vec::new());
    // One after the other, because the holdings are read meanwhile, and a session has few permits.
    for (broker, offset) in &chosen {
        let read = match choice.search.is_empty() {
            true => read_window(console, caller, choice, broker, *offset).await,
            false => search(console, caller, choice, broker).await,
        };
        lists.push(read.unwrap_or_else(|code| {
            troubles.push(trouble_of(console, broker, &code));
            OfBroker::default()
        }));
    }
    let root = console.inner.site.api_url.trim_end_matches('/');
    let url = |(broker, offset): &(&Broker, u64)| {
        let window = choice.window(broker.connection.id, PAGE_ROWS, *offset);
        format!("{root}/v1/trades?{window}")
    };
    let (frame, zone) = (&console.inner.frame, &caller.timezone);
    let mut part = match choice.search.is_empty() {
        true => window_view(frame, choice, &lists, zone),
        false => search_view(frame, choice, &lists, zone),
    };
    part.troubles = troubles;
    part.api_urls = chosen.iter().map(url).collect();
    rendered_part(&part)
}

/// Fails with the API's word for the error.
async fn read_window(
    console: &Console,
    caller: &Caller,
    choice: &Choice,
    broker: &Broker,
    offset: u64,
) -> Result<OfBroker, String> {
    let window = choice.window(broker.connection.id, PAGE_ROWS, offset);
    let window = get(console, caller, &window).await?;
    Ok(OfBroker {
        has_more: window.pagination.has_more,
        total: u64::try_from(window.pagination.total).ok(),
        trades: window.data,
        searched: 0,
    })
}

/// Reads all windows, because the API has no search. Keeps the newest of what is found.
async fn search(
    console: &Console,
    caller: &Caller,
    choice: &Choice,
    broker: &Broker,
) -> Result<OfBroker, String> {
    let mut found = OfBroker {
        has_more: true,
        total: Some(0),
        ..OfBroker::default()
    };
    while found.has_more && found.searched < SEARCHED_MAX {
        let window = choice.window(broker.connection.id, SEARCH_WINDOW, found.searched);
        let window = get(console, caller, &window).await?;
        found.searched += window.data.len() as u64;
        found.has_more = window.pagination.has_more && !window.data.is_empty();
        for trade in window.data {
            if trade.is_found(choice) {
                found.total = found.total.map(|total| total + 1);
                if found.trades.len() < FOUND_MAX {
                    found.trades.push(trade);
                }
            }
        }
    }
    Ok(found)
}

async fn get(console: &Console, caller: &Caller, query: &str) -> Result<Window, String> {
    let path = format!("/v1/trades?{query}");
    let read = console.inner.api.get::<Window>(caller, &path).await;
    read.map_err(|error| error.code)
}

/// The newest of all lists, and how many of each list that are.
fn merged(lists: &[OfBroker], rows: usize) -> (Vec<&Trade>, Vec<u64>) {
    let mut taken = vec![0; lists.len()];
    let mut merged = Vec::new();
    while merged.len() < rows {
        let next = lists.iter().zip(&taken).enumerate();
        let next = next.filter_map(|(at, (list, taken))| Some((at, list.trades.get(*taken)?)));
        let Some((at, trade)) = next.max_by_key(|(at, trade)| (trade.instant(), Reverse(*at)))
        else {
            break;
        };
        merged.push(trade);
        taken[at] += 1;
    }
    let taken = taken.into_iter().map(|count| count as u64).collect();
    (merged, taken)
}

fn window_view<'a>(
    frame: &'a Frame,
    choice: &'a Choice,
    lists: &[OfBroker],
    zone: &TimeZone,
) -> TradesPart<'a> {
    let (trades, taken) = merged(lists, PAGE_ROWS as usize);
    let has_older = lists
        .iter()
        .zip(&taken)
        .any(|(list, taken)| list.has_more || (list.trades.len() as u64) > *taken);
    let before: u64 = choice
        .offsets
        .iter()
        .fold(0, |sum, offset| sum.saturating_add(*offset));
    let offsets: Vec<u64> = choice
        .offsets
        .iter()
        .zip(&taken)
        .map(|(offset, taken)| offset.saturating_add(*taken))
        .collect();
    let total = lists
        .iter()
        .try_fold(0_u64, |total, list| total.checked_add(list.total?));
    let count = trades.len() as u64;
    let position = match (has_older, total) {
        _ if count == 0 => String::new(),
        (false, _) if before == 0 => counted(count),
        (_, Some(total)) => format!(
            "{} to {} of {total}",
            before.saturating_add(1),
            before.saturating_add(count)
        ),
        _ => format!(
            "{} to {}",
            before.saturating_add(1),
            before.saturating_add(count)
        ),
    };
    TradesPart {
        newest: (before > 0).then(|| choice.with_offsets(&[])),
        older: has_older.then(|| choice.with_offsets(&offsets)),
        ..part_of(frame, choice, &trades, zone, position)
    }
}

fn search_view<'a>(
    frame: &'a Frame,
    choice: &'a Choice,
    lists: &[OfBroker],
    zone: &TimeZone,
) -> TradesPart<'a> {
    let (trades, _) = merged(lists, FOUND_MAX);
    let found: u64 = lists.iter().filter_map(|list| list.total).sum();
    let searched: u64 = lists.iter().map(|list| list.searched).sum();
    let shown = match found > trades.len() as u64 {
        true => format!("The newest {} of {found} found", trades.len()),
        false => format!("{found} found"),
    };
    let position = match lists.iter().any(|list| list.has_more) {
        true => format!("{shown} in the newest {}", counted(searched)),
        false => format!("{shown} in {}", counted(searched)),
    };
    part_of(frame, choice, &trades, zone, position)
}

fn counted(trades: u64) -> String {
    match trades {
        1 => "1 trade".to_owned(),
        _ => format!("{trades} trades"),
    }
}

fn part_of<'a>(
    frame: &'a Frame,
    choice: &'a Choice,
    trades: &[&Trade],
    zone: &TimeZone,
    position: String,
) -> TradesPart<'a> {
    let mut days: Vec<TradeDay> = Vec::new();
    for trade in trades {
        let name = trade.day(zone);
        match days.last_mut().filter(|day| day.name == name) {
            Some(day) => day.rows.push(trade.row(choice)),
            None => days.push(TradeDay {
                name,
                rows: vec![trade.row(choice)],
            }),
        }
    }
    TradesPart {
        frame,
        choice,
        troubles: Vec::new(),
        days,
        position,
        newest: None,
        older: None,
        api_urls: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trade(kind: &str, date: &str, numbers: [&str; 3]) -> Trade {
        let [quantity, price, amount] = numbers.map(str::to_owned);
        Trade {
            account_name: "Margin".to_owned(),
            trade_date: date.to_owned(),
            kind: kind.to_owned(),
            symbol: "EXRB".to_owned(),
            name: None,
            description: None,
            quantity,
            price,
            total_amount: amount,
            fees: None,
            currency: "USD".to_owned(),
        }
    }

    fn list(dates: &[&str]) -> OfBroker {
        let trades = dates
            .iter()
            .map(|date| trade("buy", date, ["1", "2", "-2"]));
        OfBroker {
            trades: trades.collect(),
            ..OfBroker::default()
        }
    }

    #[test]
    fn lists_are_merged_newest_first() {
        let lists = [
            list(&["2026-11-03T10:00:00Z", "2026-11-01"]),
            list(&[]),
            list(&["2026-11-02", "2026-11-01", "never"]),
        ];
        let dates = |rows: usize| -> (Vec<String>, Vec<u64>) {
            let (trades, taken) = merged(&lists, rows);
            let dates = trades.iter().map(|trade| trade.trade_date.clone());
            (dates.collect(), taken)
        };
        let all = [
            "2026-11-03T10:00:00Z",
            "2026-11-02",
            "2026-11-01",
            "2026-11-01",
            "never",
        ];
        assert_eq!(dates(9).0, all);
        assert_eq!(dates(9).1, [2, 0, 3]);
        assert_eq!(
            dates(3),
            (
                all[..3].iter().map(ToString::to_string).collect(),
                vec![2, 0, 1]
            )
        );
    }

    #[test]
    fn kinds_are_words_and_nothing_is_zero() {
        let choice = Choice::of(Vec::new(), None, "2026-11-29".parse().unwrap());
        let shown = |kind: &str, numbers| {
            let row = trade(kind, "2026-11-01", numbers).row(&choice);
            let text = |number: Option<Number>| number.map_or("-".to_owned(), |one| one.text);
            let amount = row.amount.map_or("-".to_owned(), |money| money.number.text);
            format!(
                "{} {} at {}: {amount}",
                row.kind,
                text(row.quantity),
                text(row.price)
            )
        };
        for (kind, numbers, expected) in [
            ("buy", ["5", "2.5", "-12.5"], "Bought 5 at 2.50: −12.50"),
            ("sell", ["-5", "2.5", "12.5"], "Sold 5 at 2.50: 12.50"),
            ("dividend", ["0", "0.00", "3"], "Dividend - at -: 3.00"),
            ("transfer", ["-2", "0", "0"], "Transfer out 2 at -: -"),
            ("transfer", ["0", "0", "7"], "Transfer in - at -: 7.00"),
            ("coupon", ["0", "0", "0"], "Other - at -: -"),
        ] {
            assert_eq!(shown(kind, numbers), expected);
        }
    }
}
