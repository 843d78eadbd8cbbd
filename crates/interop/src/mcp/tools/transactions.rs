//! `list_transactions`: bank transactions of any accounts, newest first.

use bellbird_domain::date::DEFAULT_RANGE;
use bellbird_domain::{AccountId, Category, ConnectionCategory, Currency, Direction, Transaction};
use bellbird_reads::Transactions;
use jiff::civil::Date;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::ToolCall;
use super::merged::{self, ListProgress, Listing, ResultRow};
use crate::mcp::arguments::{
    Accounts, Amount, Choice, DayOrTime, Detail, RowLimit, SearchText, date_filter,
    transaction_filter,
};
use crate::mcp::cursor::Resumed;
use crate::mcp::output;
use crate::mcp::texts::{
    CELL_CHARS_MAX, ID_CHARS_MAX, TEXT_CHARS_MAX, cell, cell_of, clean, visible,
};

pub(super) const COLUMNS: &str = "| day | amount | currency | payee | category | account | id |";
/// Arguments that leave rows out.
const FILTERS: [&str; 5] = ["text", "category", "direction", "min_amount", "max_amount"];

#[derive(Deserialize)]
struct ListArguments {
    account_ids: Option<Accounts>,
    from: Option<DayOrTime>,
    to: Option<DayOrTime>,
    text: Option<SearchText>,
    category: Option<Choice<Category>>,
    direction: Option<Choice<Direction>>,
    min_amount: Option<Amount>,
    max_amount: Option<Amount>,
    limit: Option<RowLimit>,
    detail: Option<Choice<Detail>>,
}

/// What a row has in common, then what only a brief or a full one has.
#[derive(Serialize)]
pub(super) struct Row {
    id: String,
    day: Date,
    amount: String,
    currency: Currency,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<&'static str>,
    account_id: AccountId,
    #[serde(skip_serializing_if = "Option::is_none")]
    payee: Option<String>,
    #[serde(flatten)]
    full: Option<FullRow>,
}

#[derive(Serialize)]
struct FullRow {
    datetime: String,
    direction: &'static str,
    description: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    merchant_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    merchant_category_code: Option<String>,
}

pub(super) async fn list_transactions(
    call: &ToolCall<'_>,
    arguments: Map<String, Value>,
) -> Result<Vec<u8>, String> {
    let resumed = Resumed::<ListProgress>::of(&call.seal(), arguments, call.now)?;
    let arguments: ListArguments = resumed.read()?;
    let dates = date_filter(arguments.from, arguments.to)?;
    let filter = transaction_filter(
        arguments.text,
        arguments.category,
        arguments.direction,
        arguments.min_amount,
        arguments.max_amount,
    );
    let limit = arguments.limit.unwrap_or_default().0;
    let detail = arguments.detail.map_or(Detail::Brief, |detail| detail.0);
    let _permit = call.admit(|quotas| &quotas.live).await?;
    let selected = call
        .select(
            arguments.account_ids,
            ConnectionCategory::Banking,
            &resumed.position.left_out,
        )
        .await?;
    let listing = Listing {
        name: "transactions",
        range: super::default_range(&resumed.arguments).unwrap_or_default(),
        columns: if detail == Detail::Brief { COLUMNS } else { "" },
        limit,
        is_counted: merged::is_counted(&dates, resumed.asked_at(), Some(DEFAULT_RANGE)),
        is_filtered: FILTERS
            .iter()
            .any(|name| resumed.arguments.contains_key(*name)),
    };
    merged::result::<Transactions, _>(
        call,
        &resumed,
        selected,
        &listing,
        |_| dates,
        |row: &Transaction<'_>, day| filter.matches(row).then(|| Row::of(row, day, detail)),
    )
    .await
}

impl Row {
    pub(super) fn of(row: &Transaction<'_>, day: Date, detail: Detail) -> Self {
        let text = |text: &str| clean(text, TEXT_CHARS_MAX);
        let payee = || {
            clean(
                row.merchant_name.as_deref().unwrap_or(&row.description),
                CELL_CHARS_MAX,
            )
        };
        let full = || FullRow {
            datetime: text(&row.datetime),
            direction: row.direction(),
            description: text(&row.description),
            merchant_name: row.merchant_name.as_deref().map(text),
            merchant_category_code: row.merchant_category_code.as_deref().map(text),
        };
        Self {
            id: visible(&row.id, ID_CHARS_MAX),
            day,
            amount: row.amount.to_string(),
            currency: row.actual_currency(),
            category: row.category.map(Category::key),
            account_id: row.account.id,
            payee: (detail == Detail::Brief).then(payee),
            full: (detail == Detail::Full).then(full),
        }
    }

    /// The row as JSON, with texts as in a table.
    fn full_line(&self) -> String {
        let mut row = json!(self);
        for value in row
            .as_object_mut()
            .into_iter()
            .flat_map(|row| row.values_mut())
        {
            if let Value::String(text) = value {
                *text = cell_of(text, TEXT_CHARS_MAX);
            }
        }
        row.to_string()
    }
}

impl ResultRow for Row {
    fn account_id(&self) -> AccountId {
        self.account_id
    }

    fn line(&self, account: &str) -> String {
        let Some(payee) = &self.payee else {
            return self.full_line();
        };
        output::line(&[
            &self.day.to_string(),
            &self.amount,
            self.currency.as_str(),
            &cell(payee),
            self.category.unwrap_or_default(),
            account,
            &cell(&self.id),
        ])
    }
}
