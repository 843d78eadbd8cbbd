//! `summarize_transactions`: exact sums, made while the rows of a range pass by. No row is kept.

use std::sync::atomic::{AtomicU64, Ordering};

use bellbird_domain::{
    AccountId, Category, ConnectionCategory, Currency, DateFilter, Decimal, Direction,
};
use bellbird_reads::merged::stop_at;
use bellbird_reads::summary::{Group, GroupBy, GroupTotals, Summary};
use bellbird_reads::{ReadError, SelectedAccounts, TransactionFilter, Transactions};
use futures_util::stream::{self, StreamExt as _};
use jiff::civil::Date;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::{
    HEAD_BYTES, LISTS_AT_ONCE, LeftOut, Missing, ToolCall, find_account, missing_bytes,
    missing_lines,
};
use crate::mcp::arguments::{
    self, Accounts, Amount, Choice, DayOrTime, SearchText, date_filter, transaction_filter,
};
use crate::mcp::output::{self, Room, Rows};
use crate::mcp::texts::{CELL_CHARS_MAX, cell, clean};

const COLUMNS: &str = "| group | money in | money out | net | rows | currency |";
const GROUPS_MAX: u32 = 500;

#[derive(Serialize)]
struct SumRow {
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    label: Option<String>,
    currency: String,
    money_in: String,
    money_out: String,
    net: String,
    count: u64,
}

#[derive(Deserialize)]
struct SummaryArguments {
    account_ids: Option<Accounts>,
    from: Option<DayOrTime>,
    to: Option<DayOrTime>,
    text: Option<SearchText>,
    category: Option<Choice<Category>>,
    direction: Option<Choice<Direction>>,
    min_amount: Option<Amount>,
    max_amount: Option<Amount>,
    group_by: Option<Choice<GroupBy>>,
}

/// How far a list was read.
enum End {
    Whole,
    /// Time ran short. Every row after this day was read.
    After(Option<Date>),
    /// As [`Self::After`], after a failure.
    Failed(Option<Date>, ReadError),
}

/// What all lists share.
struct SummaryRead<'a> {
    call: &'a ToolCall<'a>,
    filter: TransactionFilter,
    dates: DateFilter,
    summary: Mutex<Summary>,
    rows_read: AtomicU64,
    stop_at: Instant,
}

pub(super) async fn summarize(
    call: &ToolCall<'_>,
    mut arguments: Map<String, Value>,
) -> Result<Vec<u8>, String> {
    arguments.retain(|_, value| !value.is_null());
    let range = super::default_range(&arguments).unwrap_or_else(|| " of the range".to_owned());
    let arguments: SummaryArguments = arguments::read(&arguments, &[])?;
    let dates = date_filter(arguments.from, arguments.to)?;
    let filter = transaction_filter(
        arguments.text,
        arguments.category,
        arguments.direction,
        arguments.min_amount,
        arguments.max_amount,
    );
    let group_by = arguments.group_by.map(|group_by| group_by.0);
    let permit = call.admit(|quotas| &quotas.live).await?;
    let (selected, mut missing) = call
        .select(
            arguments.account_ids,
            ConnectionCategory::Banking,
            &LeftOut::default(),
        )
        .await?;
    let lists: Vec<SelectedAccounts> = selected.iter().flat_map(SelectedAccounts::lists).collect();
    let reading = SummaryRead {
        call,
        filter,
        dates,
        summary: Mutex::new(Summary::new(group_by)),
        rows_read: AtomicU64::new(0),
        stop_at: stop_at(&call.context),
    };
    let mut reads = Vec::with_capacity(lists.len());
    for list in &lists {
        reads.push(reading.read(list));
    }
    let ends: Vec<End> = stream::iter(reads).buffered(LISTS_AT_ONCE).collect().await;
    drop(permit);

    let (mut complete, mut is_late) = (missing.is_empty(), false);
    // The newest day on which a list ended early, if each of those had rows at all.
    let mut ended_on = Some(Date::MIN);
    for (list, end) in lists.iter().zip(ends) {
        let day = match end {
            End::Whole => continue,
            End::After(day) => {
                is_late = true;
                day
            }
            End::Failed(day, error) => {
                missing.push(call.missing(list, &error).await);
                day
            }
        };
        complete = false;
        ended_on = ended_on.zip(day).map(|(one, other)| one.max(other));
    }
    // Rows of the day itself may lie on the page that was not read, and so may rows of the next
    // day: days of one order may be those of two timezones.
    let read_from = ended_on
        .filter(|day| !complete && *day > Date::MIN)
        .and_then(|day| day.tomorrow().ok()?.tomorrow().ok());
    let left_out = super::fit(&mut missing);
    let summary = reading.summary.into_inner();
    let result = SummaryResult {
        selected: &selected,
        missing: &missing,
        left_out,
        range,
        complete,
        is_late,
        read_from,
        rows_read: reading.rows_read.into_inner(),
    };
    let groups = if group_by.is_some() {
        summary.groups()
    } else {
        Vec::new()
    };
    Ok(result.members(&groups, &summary.totals(), &summary.transfers()))
}

impl SummaryRead<'_> {
    /// Adds up a list until it ends, fails, or time runs short.
    async fn read(&self, list: &SelectedAccounts) -> End {
        let reads = self.call.interop.context.reads();
        let context = list.context.clone();
        let range = reads.range::<Transactions>(
            self.call.caller,
            context,
            list.account_id(),
            self.dates,
            self.call.now,
        );
        let mut range = match range {
            Ok(range) => range,
            Err(error) => return End::Failed(None, error),
        };
        let mut oldest = None;
        loop {
            if Instant::now() >= self.stop_at {
                return End::After(oldest);
            }
            // An adapter gives no row of a page that fails, so no sum has to be taken back.
            let mut sink = |row: &bellbird_domain::Transaction<'_>, day: Date| {
                self.rows_read.fetch_add(1, Ordering::Relaxed);
                oldest = Some(day);
                if self.filter.matches(row) {
                    self.summary.lock().add(row, day);
                }
            };
            match range.next_page(&self.call.context, &mut sink).await {
                Ok(true) => {}
                Ok(false) => return End::Whole,
                Err(_) if Instant::now() >= self.stop_at => return End::After(oldest),
                Err(error) => return End::Failed(oldest, error),
            }
        }
    }
}

struct SummaryResult<'a> {
    selected: &'a [SelectedAccounts],
    missing: &'a [Missing],
    left_out: String,
    range: String,
    complete: bool,
    /// Time ran short.
    is_late: bool,
    read_from: Option<Date>,
    rows_read: u64,
}

impl SummaryResult<'_> {
    fn members(
        &self,
        groups: &[GroupTotals],
        totals: &[GroupTotals],
        transfers: &[GroupTotals],
    ) -> Vec<u8> {
        let sum_rows = |totals: &[GroupTotals]| {
            json!(
                totals
                    .iter()
                    .map(|one| self.row(one))
                    .collect::<Vec<SumRow>>()
            )
        };
        let (total_rows, transfer_rows) = (sum_rows(totals), sum_rows(transfers));
        let mut head = self.head(totals, transfers);
        let sums_bytes = total_rows.to_string().len() + transfer_rows.to_string().len();
        let reserved = HEAD_BYTES + missing_bytes(self.missing) + sums_bytes + 2 * head.len();
        let mut rows = Rows::new(GROUPS_MAX, reserved);
        for group in groups {
            let row = self.row(group);
            let name = row
                .label
                .as_deref()
                .or(row.group.as_deref())
                .unwrap_or_default();
            let (rows_summed, currency) = (row.count.to_string(), row.currency.as_str());
            let [money_in, money_out, net] = sums(group);
            let line = output::line(&[
                &cell(name),
                &money_in,
                &money_out,
                &net,
                &rows_summed,
                currency,
            ]);
            if rows.push(&line, &row) == Room::Full {
                break;
            }
        }
        if (rows.shown as usize) < groups.len() {
            let (shown, all) = (rows.shown, groups.len());
            head += &format!(
                "\n{shown} of {all} groups are shown. Totals are over all. Ask with a filter for the others."
            );
        }
        let mut others = Map::new();
        others.insert("totals".to_owned(), total_rows);
        others.insert("transfers".to_owned(), transfer_rows);
        others.insert("complete".to_owned(), self.complete.into());
        others.insert("rows_read".to_owned(), self.rows_read.into());
        if let Some(day) = self.read_from {
            others.insert("read_from".to_owned(), day.to_string().into());
        }
        let too_long: u64 = totals.iter().map(|totals| totals.rows_too_long).sum();
        others.insert("rows_left_out".to_owned(), too_long.into());
        others.insert("shown".to_owned(), rows.shown.into());
        others.insert("total".to_owned(), groups.len().into());
        others.insert("problems".to_owned(), json!(self.missing));
        output::members(&head, COLUMNS, &rows, "groups", &others)
    }

    fn head(&self, totals: &[GroupTotals], transfers: &[GroupTotals]) -> String {
        let mut head = if self.complete {
            format!(
                "Complete: all {} rows{} were read.",
                self.rows_read, self.range
            )
        } else {
            let from = self
                .read_from
                .map(|day| format!(" The sums have every row from {day} on."))
                .unwrap_or_default();
            let missing = if self.missing.is_empty() {
                ""
            } else {
                " Accounts could not be read: see below."
            };
            let late = if self.is_late {
                " Time ran short: ask for a shorter range."
            } else {
                ""
            };
            format!(
                "NOT complete: {} rows{} were read.{from}{missing}{late}",
                self.rows_read, self.range
            )
        };
        for totals in totals {
            let GroupTotals { currency, rows, .. } = totals;
            let [money_in, money_out, net] = sums(totals);
            head += &format!(
                "\nTotal {currency}: in {money_in}, out {money_out}, net {net}, {rows} rows."
            );
            if let Some(transfers) = transfers
                .iter()
                .find(|transfers| transfers.currency == *currency)
            {
                let rows = transfers.rows;
                let [money_in, money_out, _] = sums(transfers);
                head += &format!(
                    " Of these, transfers (TRANSFER_IN and TRANSFER_OUT, also between the user's own accounts): in \
                     {money_in}, out {money_out}, {rows} rows."
                );
            }
        }
        let too_long: u64 = totals.iter().map(|totals| totals.rows_too_long).sum();
        if too_long > 0 {
            head +=
                &format!("\n{too_long} rows are in no sum, because their amounts are too long.");
        }
        head + &missing_lines(self.missing) + &self.left_out
    }

    fn row(&self, totals: &GroupTotals) -> SumRow {
        let (group, label) = match &totals.group {
            Group::All => (None, None),
            Group::Category(None) => (Some(String::new()), Some("(no category)".to_owned())),
            Group::Category(Some(category)) => (Some(category.key().to_owned()), None),
            Group::Merchant(None) => (Some(String::new()), Some("(no merchant)".to_owned())),
            Group::Merchant(Some(name)) => (Some(clean(name, CELL_CHARS_MAX)), None),
            Group::Month(first) => (Some(first.strftime("%Y-%m").to_string()), None),
            Group::Account(id) => (Some(id.to_string()), self.name_of(*id)),
            Group::Rest => (Some("(all other groups)".to_owned()), None),
        };
        SumRow {
            group,
            label,
            currency: totals.currency.to_string(),
            money_in: totals.money_in.to_string(),
            money_out: totals.money_out.to_string(),
            net: totals.net.to_string(),
            count: totals.rows,
        }
    }

    fn name_of(&self, id: AccountId) -> Option<String> {
        let (_, account) = find_account(self.selected, id)?;
        Some(clean(&account.name, CELL_CHARS_MAX))
    }
}

/// The sums of a group for people: in, out and net.
fn sums(totals: &GroupTotals) -> [String; 3] {
    [&totals.money_in, &totals.money_out, &totals.net].map(|sum| sum_text(sum, totals.currency))
}

/// The same value with the places of its currency, and more only if it needs them.
fn sum_text(sum: &Decimal<'_>, currency: Currency) -> String {
    let (whole, fraction) = sum.as_str().split_once('.').unwrap_or((sum.as_str(), ""));
    let fraction = fraction.trim_end_matches('0');
    let places = currency.minor_unit_digits() as usize;
    let point = if fraction.is_empty() && places == 0 {
        ""
    } else {
        "."
    };
    format!("{whole}{point}{fraction:0<places$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_have_the_places_of_their_currency() {
        for (sum, currency, expected) in [
            ("24745.7100", "AUD", "24745.71"),
            ("-26931.071", "AUD", "-26931.071"),
            ("-45", "AUD", "-45.00"),
            ("0", "AUD", "0.00"),
            ("1993", "JPY", "1993"),
            ("-7.0", "JPY", "-7"),
            ("0.50", "JPY", "0.5"),
            ("1.5", "BHD", "1.500"),
            ("2331.53", "XXX", "2331.53"),
        ] {
            let (sum, currency) = (Decimal::parse(sum), Currency::parse(currency));
            assert_eq!(sum_text(&sum.unwrap(), currency.unwrap()), expected);
        }
    }
}
