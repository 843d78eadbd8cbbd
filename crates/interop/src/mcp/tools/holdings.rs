//! `list_holdings`: the positions of brokerage accounts, account by account.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use bellbird_domain::{AccountId, ConnectionCategory, Decimal, Holding};
use bellbird_reads::SelectedAccounts;
use futures_util::stream::{self, StreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::merged::ResultRow;
use super::{AccountNames, HEAD_BYTES, LISTS_AT_ONCE, LeftOut, Missing, ToolCall, Total};
use crate::mcp::arguments::{Accounts, RowLimit};
use crate::mcp::cursor::{BEGIN_AGAIN, Resumed};
use crate::mcp::output::{self, Room, Rows};
use crate::mcp::texts::{CELL_CHARS_MAX, ID_CHARS_MAX, cell, clean, visible};

const COLUMNS: &str = "| symbol | name | quantity | price | value | profit | currency | account |";

/// How far the list was shown. If the rows up to there are not those that were there, the client
/// has to begin again.
#[derive(Default, Serialize, Deserialize)]
struct Position {
    offset: u64,
    /// Of the ids of the rows that were shown.
    digest: u64,
    left_out: LeftOut,
}

/// A position as in `/v1/holdings`, with cleaned texts.
#[derive(Serialize)]
struct Row {
    id: String,
    account_id: AccountId,
    symbol: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exchange: Option<String>,
    currency: String,
    quantity: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    average_price: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_price: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    market_value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unrealized_pnl: Option<String>,
}

#[derive(Deserialize)]
struct HoldingsArguments {
    account_ids: Option<Accounts>,
    limit: Option<RowLimit>,
}

pub(super) async fn list_holdings(
    call: &ToolCall<'_>,
    arguments: Map<String, Value>,
) -> Result<Vec<u8>, String> {
    let resumed = Resumed::<Position>::of(&call.seal(), arguments, call.now)?;
    let arguments: HoldingsArguments = resumed.read()?;
    let limit = arguments.limit.unwrap_or_default().0;
    let before = &resumed.position;
    let permit = call.admit(|quotas| &quotas.brokerage).await?;
    let (selected, mut missing) = call
        .select(
            arguments.account_ids,
            ConnectionCategory::Brokerage,
            &resumed.position.left_out,
        )
        .await?;
    let mut reads = Vec::with_capacity(selected.len());
    for selected in &selected {
        reads.push(read_accounts(call, selected));
    }
    let found: Vec<(Vec<Row>, Vec<Missing>)> =
        stream::iter(reads).buffered(LISTS_AT_ONCE).collect().await;
    drop(permit);
    let mut all = Vec::new();
    for (rows, failed) in found {
        all.extend(rows);
        missing.extend(failed);
    }
    let offset = usize::try_from(before.offset).unwrap_or(usize::MAX);
    let Some((shown, unshown)) = all
        .split_at_checked(offset)
        .filter(|(shown, _)| digest(shown) == before.digest)
    else {
        return Err(BEGIN_AGAIN.to_owned());
    };
    let (left_out, is_whole) = (before.left_out.with(&missing), missing.is_empty());
    let left_out_bytes = before.left_out.bytes_if_missing(missing.len());
    let not_named = super::fit(&mut missing);

    let mut named = AccountNames::new(&selected);
    let reserved =
        HEAD_BYTES + super::missing_bytes(&missing) + left_out_bytes + resumed.cursor_bytes();
    let mut rows = Rows::new(limit, reserved);
    for row in unshown {
        if named.push(&mut rows, row) == Room::Full {
            break;
        }
    }
    let next = shown.len() + rows.shown as usize;
    let known = all.len() as u64;
    let total = if is_whole {
        Total::Exact(known)
    } else {
        Total::AtLeast(known)
    };
    if rows.shown == 0 && next < all.len() {
        return Err(super::TOO_LONG.to_owned());
    }
    let cursor = (next < all.len()).then(|| {
        let position = Position {
            offset: next as u64,
            digest: digest(&all[..next]),
            left_out: left_out?,
        };
        resumed.cursor(&call.seal(), position)
    });
    let cursor = cursor.transpose()?;
    let (head, mut others) = call.outline("holdings", "", rows.shown, total, cursor, &missing);
    others.insert("accounts".to_owned(), named.into_json());
    let head = head + &not_named;
    Ok(output::members(&head, COLUMNS, &rows, "holdings", &others))
}

/// The same in every instance. 0 of no rows.
fn digest(rows: &[Row]) -> u64 {
    if rows.is_empty() {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    rows.iter()
        .for_each(|row| (row.account_id, &row.id).hash(&mut hasher));
    hasher.finish()
}

/// Reads the requested accounts of one connection.
async fn read_accounts(
    call: &ToolCall<'_>,
    selected: &SelectedAccounts,
) -> (Vec<Row>, Vec<Missing>) {
    let add = |holding: &Holding<'_>, rows: &mut Vec<Row>| rows.push(Row::of(holding));
    let accounts = match call
        .interop
        .context
        .reads()
        .holdings(&call.context, selected, &add)
        .await
    {
        Ok(accounts) => accounts,
        Err(error) => return (Vec::new(), vec![call.missing(selected, &error).await]),
    };
    let (mut rows, mut missing) = (Vec::new(), Vec::new());
    for (id, read) in accounts {
        match read {
            Ok(read) => rows.extend(read),
            Err(error) => missing.push(
                call.missing(&selected.with_accounts(vec![id]), &error)
                    .await,
            ),
        }
    }
    (rows, missing)
}

impl Row {
    fn of(holding: &Holding<'_>) -> Self {
        let text = |text: &str| clean(text, CELL_CHARS_MAX);
        let number = |number: &Option<Decimal<'_>>| number.as_ref().map(ToString::to_string);
        Self {
            id: visible(&holding.id(), ID_CHARS_MAX),
            account_id: holding.account.id,
            symbol: visible(&holding.symbol, CELL_CHARS_MAX),
            name: holding.name.as_deref().map(text),
            exchange: holding.exchange.as_deref().map(text),
            currency: text(&holding.currency),
            quantity: holding.quantity.to_string(),
            average_price: number(&holding.average_price),
            current_price: number(&holding.current_price),
            market_value: number(&holding.market_value),
            unrealized_pnl: number(&holding.unrealized_pnl),
        }
    }
}

impl ResultRow for Row {
    fn account_id(&self) -> AccountId {
        self.account_id
    }

    fn line(&self, account: &str) -> String {
        let or_empty = |text: &Option<String>| text.clone().unwrap_or_default();
        output::line(&[
            &cell(&self.symbol),
            &cell(&or_empty(&self.name)),
            &self.quantity,
            &or_empty(&self.current_price),
            &or_empty(&self.market_value),
            &or_empty(&self.unrealized_pnl),
            &cell(&self.currency),
            account,
        ])
    }
}
