//! `list_trades`: activity of brokerage accounts, merged newest first.
//!
//! Each list is a connection, or one of its accounts if not all of them were asked for. `/v1/trades` numbers the rows of
//! a list, so a position is one number for each list.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use bellbird_domain::{AccountId, ConnectionCategory, Decimal, Page, Span, Trade};
use bellbird_reads::{ListKey, ReadError};
use bellbird_requests::Class;
use futures_util::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::{Asked, HEAD_BYTES, LISTS_AT_ONCE, Missing, Named, PROBLEMS_MAX, ROWS_DEFAULT, Source, Total, others};
use crate::mcp::ROWS_MAX;
use crate::mcp::arguments::Arguments;
use crate::mcp::cursor::Resumed;
use crate::mcp::output::{self, Room, Rows};
use crate::mcp::texts::{CELL_CHARS_MAX, TEXT_CHARS_MAX, cell, clean};

const COLUMNS: &str = "| date | type | symbol | quantity | price | total | currency | description | account |";

/// Rows of each list that were shown.
#[derive(Default, Serialize, Deserialize)]
struct Position {
    shown: BTreeMap<Uuid, u64>,
}

/// A row as in `/v1/trades`, with cleaned texts.
#[derive(Serialize, Deserialize)]
struct Row {
    id: String,
    account_id: String,
    symbol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    r#type: String,
    quantity: String,
    price: String,
    currency: String,
    total_amount: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fees: Option<String>,
    trade_date: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    settlement_date: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
}

/// A row, and what orders it.
#[derive(Serialize, Deserialize)]
struct Dated {
    instant_us: i64,
    row: Row,
}

struct List<'s> {
    source: &'s Source,
    /// `None`: all accounts of the connection.
    account_id: Option<AccountId>,
}

impl List<'_> {
    fn id(&self) -> Uuid {
        self.account_id.map_or_else(|| self.source.context.connection.id.uuid(), AccountId::uuid)
    }
}

/// A window of a list, from its position on.
#[derive(Default)]
struct Window {
    rows: Vec<Dated>,
    has_more: bool,
}

pub(super) async fn list_trades(asked: &Asked<'_>, arguments: Map<String, Value>) -> Result<Vec<u8>, String> {
    let resumed = Resumed::<Position>::of(&asked.owner(), arguments, asked.now)?;
    let mut read = Arguments::new(resumed.arguments.clone());
    let requested = read.accounts();
    let span = Span { from: read.bound("from"), to: read.bound("to") };
    let limit = read.number("limit", ROWS_DEFAULT, ROWS_MAX);
    read.finish()?;
    let permit = asked.admit(Class::Brokerage)?;
    let (sources, mut missing) = asked.sources(requested, ConnectionCategory::Brokerage).await?;
    let lists: Vec<List<'_>> = sources.iter().flat_map(lists_of).collect();
    let before = &resumed.position.shown;
    let mut reads = Vec::with_capacity(lists.len());
    for list in &lists {
        let offset = before.get(&list.id()).copied().unwrap_or(0);
        reads.push(read_list(asked, list, span, Page { limit, offset }));
    }
    let found: Vec<Result<Window, Missing>> = stream::iter(reads).buffered(LISTS_AT_ONCE).collect().await;
    drop(permit);
    let mut windows = Vec::new();
    for (list, outcome) in lists.iter().zip(found) {
        match outcome {
            Ok(window) => windows.push((list.id(), window)),
            Err(failed) => missing.push(failed),
        }
    }
    missing.truncate(PROBLEMS_MAX);

    let mut named = Named::new(&sources);
    let position_bytes = 4 * resumed.arguments.len() * 100 + 2 * 60 * lists.len();
    let mut rows = Rows::new(limit, HEAD_BYTES + super::missing_bytes(&missing) + position_bytes);
    // A stable sort: rows of one instant stay in the order of the lists, and in the broker's own within a list.
    let mut merged: Vec<(&Uuid, &Dated)> =
        windows.iter().flat_map(|(id, window)| window.rows.iter().map(move |row| (id, row))).collect();
    merged.sort_by_key(|(_, dated)| Reverse(dated.instant_us));
    let mut shown = before.clone();
    for (id, Dated { row, .. }) in &merged {
        let (name, bytes) = named.name(&row.account_id);
        rows.reserve(bytes);
        if rows.push(&row.line(&name), row) == Room::Full {
            break;
        }
        *shown.entry(**id).or_insert(0) += 1;
    }
    let has_more = merged.len() > rows.shown as usize || windows.iter().any(|(_, window)| window.has_more);
    let known = shown.values().sum::<u64>() + (merged.len() as u64 - u64::from(rows.shown));
    let total = if has_more || !missing.is_empty() { Total::AtLeast(known) } else { Total::Exact(known) };
    let cursor = if has_more { Some(resumed.cursor(&asked.owner(), Position { shown })?) } else { None };
    let head = asked.head("trades, newest first", rows.shown, total, cursor.as_deref(), &missing);
    let mut others = others(rows.shown, total, cursor, &missing);
    others.insert("accounts".to_owned(), named.into_json());
    Ok(output::members(&head, COLUMNS, &rows, "trades", &others))
}

fn lists_of(source: &Source) -> Vec<List<'_>> {
    if source.is_whole() {
        return vec![List { source, account_id: None }];
    }
    source.accounts.iter().map(|account| List { source, account_id: Some(account.id) }).collect()
}

async fn read_list(asked: &Asked<'_>, list: &List<'_>, span: Span, page: Page) -> Result<Window, Missing> {
    let context = &list.source.context;
    let key = ListKey {
        key_id: asked.caller.key_id,
        connection_id: context.connection.id,
        account_id: list.account_id,
        span,
    };
    let answer = asked.interop.access.reads().trades(&asked.call, asked.caller, context, key, page, write).await;
    match answer {
        Ok(answer) => Ok(Window { rows: super::rows_of(&answer.rows), has_more: answer.extent.has_more }),
        // Removed meanwhile.
        Err(ReadError::NotFound) => Ok(Window::default()),
        Err(error) => {
            let accounts = list.source.accounts.iter();
            let accounts = accounts.filter(|account| list.account_id.is_none_or(|id| id == account.id)).cloned();
            let failed = Source { context: context.clone(), accounts: accounts.collect() };
            Err(asked.missing(&failed, &error).await)
        }
    }
}

fn write(trade: &Trade<'_>, out: &mut Vec<u8>) {
    let text = |text: &str| clean(text, CELL_CHARS_MAX);
    let or_zero = |number: &Option<Decimal<'_>>| number.as_ref().map_or_else(|| "0".to_owned(), ToString::to_string);
    let row = Row {
        id: clean(&trade.id().to_string(), TEXT_CHARS_MAX),
        account_id: trade.account.id.to_string(),
        symbol: text(&trade.symbol),
        name: trade.name.as_deref().map(text),
        r#type: trade.trade_type.to_string(),
        quantity: or_zero(&trade.quantity),
        price: or_zero(&trade.price),
        currency: text(&trade.currency),
        total_amount: or_zero(&trade.total_amount),
        fees: trade.fees.as_ref().map(ToString::to_string),
        trade_date: text(&trade.trade_date),
        settlement_date: trade.settlement_date.as_deref().map(text),
        description: trade.description.as_deref().map(text),
    };
    let dated = Dated { instant_us: trade.time.instant().as_microsecond(), row };
    bellbird_requests::json::write_json(&dated, out);
}

impl Row {
    fn line(&self, account: &str) -> String {
        let day = self.trade_date.get(..10).unwrap_or(&self.trade_date);
        output::line(&[
            &cell(day),
            &self.r#type,
            &cell(&self.symbol),
            &self.quantity,
            &self.price,
            &self.total_amount,
            &cell(&self.currency),
            &cell(self.description.as_deref().unwrap_or("")),
            account,
        ])
    }
}
