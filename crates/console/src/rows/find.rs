//! Reads the rows of a page of transactions: of all chosen accounts, newest first, and of each list
//! no more than the page needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bellbird_api::http::Problem;
use bellbird_api::http::problem::problem_for_category;
use bellbird_domain::{
    AccountId, Caller, Category, Connection, ConnectionCategory, ConnectionId, Transaction,
};
use bellbird_reads::merged::{Awaited, ListState, MergedPosition, PositionLost};
use bellbird_reads::{
    ConnectionContext, Merged, Range, ReadError, SelectError, Selection, Transactions,
};
use jiff::Timestamp;
use jiff::civil::Date;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::filter::{Days, Filter};
use crate::pages::names::sanitized;
use crate::pages::{BankTrouble, Money, why_not_read};
use crate::state::Console;

/// Rows of a page, and of one that shows what a search or a category has found.
const PAGE_ROWS: usize = 50;
const FOUND_ROWS: usize = 100;
/// Rows of the first page of each list. More than the page shows, because a provider may list the
/// rows of other consents between them, which the page leaves out.
const FIRST_PAGE_ROWS: u32 = 200;
/// Rows that one page reads. Further ones are read on request.
pub(super) const READ_ROWS_MAX: u64 = 20_000;
const NO_TEXT: &str = "No description";

/// A row of the page.
#[derive(Clone)]
pub(super) struct Row {
    pub(super) day: Date,
    /// The merchant, or else the description.
    pub(super) title: String,
    /// Beside a merchant.
    pub(super) description: Option<String>,
    /// Whether the search has found the description, and not the title.
    pub(super) is_found_by_description: bool,
    pub(super) category: Option<&'static str>,
    pub(super) account: AccountId,
    pub(super) amount: Money,
}

impl Row {
    fn new(row: &Transaction<'_>, day: Date, search: &str) -> Self {
        let text = |text: &str| Some(sanitized(text)).filter(|text| !text.trim().is_empty());
        let description = text(&row.description);
        let merchant = row.merchant_name.as_deref().and_then(text);
        let (title, description) = match merchant {
            Some(merchant) => {
                let other = description.filter(|text| *text != merchant);
                (merchant, other)
            }
            None => (description.unwrap_or_else(|| NO_TEXT.to_owned()), None),
        };
        let search = search.to_lowercase();
        let has = |text: &str| !search.is_empty() && text.to_lowercase().contains(&search);
        let currency = row.currency.unwrap_or(row.account.currency);
        Self {
            day,
            is_found_by_description: !has(&title) && description.as_deref().is_some_and(has),
            title,
            description,
            category: row.category.map(Category::label),
            account: row.account.id,
            amount: Money::new(currency.as_str(), row.amount.as_str()),
        }
    }
}

/// What was found.
#[derive(Default)]
pub(super) struct Found {
    pub(super) rows: Vec<Row>,
    /// Behind the last row, if more may follow.
    pub(super) older: Option<MergedPosition>,
    /// Why the rows end before the page is full, although older ones may follow.
    pub(super) stopped: Option<Stopped>,
    /// The rows at the beginning of the page are not those that were there.
    pub(super) is_lost: bool,
    pub(super) troubles: Vec<BankTrouble>,
    /// Accounts that were read, of banks without a trouble.
    pub(super) accounts: usize,
    /// Banks that listed no row at all.
    pub(super) silent: Vec<ConnectionId>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// [`READ_ROWS_MAX`] were read.
    AtRows,
    /// Time was up.
    InTime,
}

/// What is known while banks are still asked.
#[derive(Default)]
pub(super) struct Progress {
    /// With their times, until the first part of the page was sent.
    seen: Mutex<Option<Vec<(Timestamp, Row)>>>,
    awaited: Mutex<Option<Awaited>>,
}

impl Progress {
    /// Collects rows.
    pub(super) fn begun() -> Self {
        Self {
            seen: Mutex::new(Some(Vec::new())),
            ..Self::default()
        }
    }

    fn see(&self, instant: Timestamp, row: &Row) {
        if let Some(seen) = &mut *self.seen.lock() {
            seen.push((instant, row.clone()));
            if seen.len() >= 4 * PAGE_ROWS {
                keep_newest(seen);
            }
        }
    }

    /// The newest rows so far, and the banks that are asked. No row is kept after this.
    pub(super) fn take(&self) -> (Vec<Row>, BTreeSet<ConnectionId>) {
        let mut seen = self.seen.lock().take().unwrap_or_default();
        keep_newest(&mut seen);
        let asked = self.awaited.lock();
        let asked = asked.iter().flat_map(|awaited| awaited.lock().clone());
        (
            seen.into_iter().map(|(_, row)| row).collect(),
            asked.map(|(connection, _)| connection).collect(),
        )
    }
}

fn keep_newest(seen: &mut Vec<(Timestamp, Row)>) {
    seen.sort_by_key(|(instant, _)| std::cmp::Reverse(*instant));
    seen.truncate(PAGE_ROWS);
}

/// The lists to read.
pub(super) struct Lists {
    pub(super) ranges: Vec<Range<Transactions>>,
    pub(super) contexts: BTreeMap<ConnectionId, Arc<ConnectionContext>>,
    /// How many accounts of each bank.
    accounts: BTreeMap<ConnectionId, usize>,
    /// Of banks that cannot be read at all.
    pub(super) troubles: Vec<BankTrouble>,
}

impl Lists {
    /// Those of the chosen account, or of all. Calls no provider.
    pub(super) async fn select(
        console: &Console,
        caller: &Caller,
        filter: &Filter,
        days: Days,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        let reads = console.inner.context.reads();
        let account = filter.account();
        let selection = Selection {
            account_ids: account.as_ref().map(std::slice::from_ref),
            category: Some(ConnectionCategory::Banking),
            ..Selection::default()
        };
        let selected = reads.select(caller, selection).await.map_err(|error| {
            let (SelectError::Connection(error) | SelectError::Account(error)) = error;
            problem_for_category(&error, "Account", ConnectionCategory::Banking)
        })?;
        let mut lists = Self {
            ranges: Vec::new(),
            contexts: BTreeMap::new(),
            accounts: BTreeMap::new(),
            troubles: Vec::new(),
        };
        for connection in selected.connections {
            let accounts = match connection {
                Ok(accounts) => accounts,
                Err(unreadable) => {
                    lists.add_trouble(console, &unreadable.connection, &unreadable.error);
                    continue;
                }
            };
            let context = &accounts.context;
            for list in accounts.lists() {
                let (id, dates) = (list.account_id(), days.filter());
                match reads.range(caller, Arc::clone(context), id, dates, now) {
                    Ok(range) => lists.ranges.push(range),
                    Err(error) => lists.add_trouble(console, &context.connection, &error),
                }
            }
            let id = context.connection.id;
            lists.accounts.insert(id, accounts.accounts().count());
            lists.contexts.insert(id, Arc::clone(context));
        }
        Ok(lists)
    }

    fn add_trouble(&mut self, console: &Console, connection: &Connection, error: &ReadError) {
        let linkable = console.inner.connections.links().providers();
        self.troubles
            .push(BankTrouble::of_read(connection, error, &linkable));
    }
}

/// The banks of which a list has failed. Each is reported to the service, as the API does: a
/// consent that is gone is a reason to ask the provider for its status. One that was removed
/// meanwhile is left out.
pub(super) async fn failed<T: Send>(
    console: &Console,
    caller: &Caller,
    contexts: &BTreeMap<ConnectionId, Arc<ConnectionContext>>,
    merged: &Merged<'_, Transactions, T>,
) -> Vec<BankTrouble> {
    let mut errors = BTreeMap::new();
    for list in merged.lists() {
        if let ListState::Failed(error) = list.state {
            errors.insert(list.connection_id, error.clone());
        }
    }
    let linkable = console.inner.connections.links().providers();
    let mut troubles = Vec::new();
    for (id, error) in errors {
        let Some(context) = contexts.get(&id) else {
            continue;
        };
        let api = &console.inner.context;
        let problem = api.after_failed_read(caller, context, &error).await;
        if !matches!(problem, Problem::NotFound(_)) {
            let trouble = BankTrouble::of_read(&context.connection, &error, &linkable);
            troubles.push(trouble);
        }
    }
    troubles
}

/// Reads the page. An error is a sentence for its user.
pub(super) async fn find(
    console: &Console,
    caller: &Caller,
    filter: &Filter,
    days: Days,
    now: Timestamp,
    progress: &Progress,
) -> Result<Found, String> {
    read(console, caller, filter, days, now, progress)
        .await
        .map_err(|problem| why_not_read(&problem))
}

async fn read(
    console: &Console,
    caller: &Caller,
    filter: &Filter,
    days: Days,
    now: Timestamp,
    progress: &Progress,
) -> Result<Found, Problem> {
    let api = &console.inner.context;
    let permit = api.admit(&api.quotas().live, caller, now).await?;
    let Lists {
        mut ranges,
        contexts,
        accounts,
        troubles,
    } = Lists::select(console, caller, filter, days, now).await?;
    let after = filter.start().map(|start| start.after);
    let page_rows = match filter.leaves_rows_out() {
        true => FOUND_ROWS,
        false => {
            let smaller = |range: Range<Transactions>| range.with_first_page_rows(FIRST_PAGE_ROWS);
            ranges = ranges.into_iter().map(smaller).collect();
            PAGE_ROWS
        }
    };
    let (wanted, search) = (filter.rows(), filter.search());
    let heard = Mutex::new(BTreeSet::new());
    let call = api.call_context(caller);
    let time = call.deadline.saturating_duration_since(Instant::now());
    // The page is sent before its deadline.
    let stop_at = call.deadline - time / 5;
    let merged = Merged::new(ranges, after, stop_at, |row: &Transaction<'_>, day| {
        heard.lock().insert(row.account.connection_id);
        let row_of_page = wanted.matches(row).then(|| Row::new(row, day, search))?;
        if after.is_none() {
            progress.see(row.instant, &row_of_page);
        }
        Some(row_of_page)
    });
    let mut merged = merged.with_rows_max(READ_ROWS_MAX);
    *progress.awaited.lock() = Some(merged.awaited());
    let mut found = Found {
        troubles,
        ..Found::default()
    };
    let mut position = after;
    loop {
        match merged.next(&call).await {
            Err(PositionLost) => {
                found.is_lost = true;
                break;
            }
            Ok(Some(_)) if found.rows.len() == page_rows => {
                found.older = position;
                break;
            }
            Ok(Some(row)) => {
                found.rows.push(row);
                position = merged.position();
            }
            Ok(None) if merged.is_stopped() => {
                found.older = merged
                    .position()
                    .filter(|position| Some(*position) != after);
                found.stopped = Some(match merged.rows_read() >= READ_ROWS_MAX {
                    true => Stopped::AtRows,
                    false => Stopped::InTime,
                });
                break;
            }
            Ok(None) => break,
        }
    }
    let failed = failed(console, caller, &contexts, &merged).await;
    drop((merged, permit));
    found.troubles.extend(failed);
    found.troubles.sort_unstable();
    found.troubles.dedup();
    let heard = heard.into_inner();
    let is_in_trouble = |id: &ConnectionId| found.troubles.iter().any(|one| one.id == *id);
    let readable = accounts.iter().filter(|(id, _)| !is_in_trouble(id));
    found.accounts = readable.map(|(_, accounts)| accounts).sum();
    let silent = contexts
        .keys()
        .filter(|id| !heard.contains(id) && !is_in_trouble(id));
    found.silent = silent.copied().collect();
    Ok(found)
}
