//! Reads one window of a connection's trades: from the lists of all accounts, merged.
//!
//! Brokers number the rows of an account's list and state how many there are. So a window of one
//! account is read directly at its offset, and the cursor index knows the number of the next row in
//! each list, for some rows of the merged list.

mod cursor_index;

use std::sync::Arc;

use bellbird_domain::{AccountId, Caller, Page, Trade};
use bellbird_providers::pages::Trades;
use bellbird_providers::{CallContext, Error};
use jiff::Timestamp;
use parking_lot::Mutex;

use crate::connection_context::lister;
use crate::cursor_cache::QueryKey;
use crate::merged::{ListState, Merged};
use crate::window::WindowTotals;
use crate::{ConnectionContext, ReadError, Reads, WindowKey};
pub(crate) use cursor_index::TradeCursorIndex;

/// Extra rows to request if `from` or `to` is given. The query covers one day more on each side,
/// and those rows are filtered out.
const ROWS_SPARE: u64 = 50;
/// The number of the next row in a list that has ended.
const END: u64 = u64::MAX;
/// How often a window is read while its lists change.
const READS_MAX: usize = 5;

pub struct TradesWindow {
    /// The written rows, separated by commas.
    pub rows: Vec<u8>,
    pub totals: WindowTotals,
    /// False if a provider failure left it unknown whether rows follow the window.
    pub complete: bool,
}

/// Whether rows follow the window.
enum More {
    Yes,
    No,
    /// The provider failed after the window was complete.
    Unknown,
}

/// Writes a trade as JSON.
pub type WriteTrade = fn(&Trade<'_>, &mut Vec<u8>);

impl Reads {
    /// Reads the trades of the window, newest first.
    ///
    /// Fails if one of the accounts fails. The cursor index keeps what was learned, so the same
    /// request continues from there.
    pub async fn trades(
        &self,
        call: &CallContext,
        caller: &Caller,
        context: &Arc<ConnectionContext>,
        key: WindowKey,
        write: WriteTrade,
    ) -> Result<TradesWindow, ReadError> {
        let WindowKey { query, page } = key;
        lister::<Trades>(self.provider(&context.connection)?.as_ref())?;
        let accounts = context.accounts_of(query.account_id)?;
        let mut ids: Vec<AccountId> = accounts.iter().map(|account| account.id).collect();
        ids.sort_unstable();
        let zone = &caller.timezone;
        let cursors = &self.inner.trade_cursors;
        let new = || TradeCursorIndex::new(ids.clone(), zone.clone());
        let cached = cursors
            .find_or_insert(key, call.now, |index| index.is_for(&ids, zone), new)
            .await;
        let mut read = TradesRead {
            reads: self,
            call,
            caller,
            context,
            query,
            page,
            write,
            ids: &ids,
            index: &cached.index,
            start: (0, Vec::new()),
            row: 0,
            numbers: Vec::new(),
            totals: cached.index.lock().totals(),
            has_jumped: false,
            window_start: Vec::new(),
            written: Vec::new(),
        };
        let more = read.run().await;
        cursors.store(key, &cached, call.now).await;
        let more = more?;
        Ok(TradesWindow {
            totals: read.window_totals(&more, self.inner.limits.row_cap),
            rows: read.written,
            complete: !matches!(more, More::Unknown),
        })
    }
}

/// A row that was read.
struct ReadTrade {
    /// The place of its account among those of the window.
    account: usize,
    /// In the provider's list of that account.
    number: u64,
    instant: Timestamp,
    json: Vec<u8>,
}

/// How one request reads its window.
struct TradesRead<'r> {
    reads: &'r Reads,
    call: &'r CallContext,
    caller: &'r Caller,
    context: &'r Arc<ConnectionContext>,
    query: QueryKey,
    page: Page,
    write: WriteTrade,
    /// Sorted.
    ids: &'r [AccountId],
    index: &'r Mutex<TradeCursorIndex>,
    /// Where the read began: [`Self::row`] and [`Self::numbers`].
    start: (u64, Vec<u64>),
    /// The number of the next row of the merged list.
    row: u64,
    /// The number of the next row of each account's list.
    numbers: Vec<u64>,
    /// The number of rows in each account's list, as last stated.
    totals: Vec<Option<u64>>,
    /// Whether rows before the window were skipped unread, so that their number is the provider's.
    has_jumped: bool,
    /// [`Self::numbers`] at the first row of the window.
    window_start: Vec<u64>,
    written: Vec<u8>,
}

impl<'r> TradesRead<'r> {
    /// Reads until the window is complete and it is known whether another row follows. Begins again
    /// if rows of the lists have vanished, and a little earlier, because a row that comes twice
    /// does less harm than one that never comes.
    async fn run(&mut self) -> Result<More, ReadError> {
        let (row, numbers) = self.index.lock().nearest(self.page.offset);
        self.start = (row, numbers.into_vec());
        let mut may_jump = self.ids.len() == 1;
        for _ in 0..READS_MAX {
            (self.row, self.numbers) = self.start.clone();
            (self.has_jumped, self.window_start) = (false, Vec::new());
            self.written.clear();
            let read = self.read(may_jump).await;
            if !matches!(read, Ok(None)) {
                self.learn();
            }
            match read? {
                None => {}
                // No row of the range lies at the offset. The provider's total includes filtered
                // rows, so only a read from the start counts the rows of the range.
                Some(_) if self.is_behind_the_end() && !self.query.dates.is_open() => {
                    self.start = (0, vec![0; self.ids.len()]);
                    may_jump = false;
                }
                Some(more) => return Ok(more),
            }
        }
        Err(self.failure(&Error::unavailable("the lists change while they are read")))
    }

    fn is_behind_the_end(&self) -> bool {
        self.has_jumped && self.row == self.page.offset
    }

    /// Reads once. `None` if the lists have changed.
    async fn read(&mut self, may_jump: bool) -> Result<Option<More>, ReadError> {
        let (offset, end) = (self.page.offset, self.page.end());
        // The query covers one day more than `to`, so only reading shows which rows that leaves
        // out. Behind them the provider's row numbers are those of the filtered list.
        let numbered_before = self.query.dates.unfiltered_before(&self.caller.timezone);
        if may_jump && numbered_before.is_none() && !self.is_ended(0) {
            self.jump(self.numbers[0]);
        }
        let mut merged = self.merged()?;
        loop {
            if self.row == offset {
                self.window_start.clone_from(&self.numbers);
            }
            let next = merged.next(self.call).await;
            if self.has_changed(&merged) {
                return Ok(None);
            }
            if let Some(error) = self.failure_of(&merged) {
                // The window is complete. Only whether more follow stays unknown.
                let is_complete = self.row == end && error.is_transient();
                return is_complete.then_some(Some(More::Unknown)).ok_or(error);
            }
            let Ok(Some(trade)) = next else {
                self.numbers.fill(END);
                return Ok(Some(More::No));
            };
            let is_numbered = numbered_before.is_some_and(|before| trade.instant < before);
            if self.row == end {
                return Ok(Some(More::Yes));
            } else if may_jump && is_numbered && self.row < offset {
                self.jump(trade.number);
                merged = self.merged()?;
            } else {
                self.take(&trade);
            }
        }
    }

    /// Moves to the window, if the next row has this number in the list of the only account.
    fn jump(&mut self, number: u64) {
        if self.row < self.page.offset {
            self.numbers[0] = number.saturating_add(self.page.offset - self.row);
            self.row = self.page.offset;
            self.has_jumped = true;
        }
    }

    /// The lists of all accounts from their next rows on.
    fn merged(&self) -> Result<Merged<'r, Trades, ReadTrade>, ReadError> {
        let spare = if self.query.dates.is_open() {
            0
        } else {
            ROWS_SPARE
        };
        let rows = u32::try_from(self.page.end() + 1 - self.row + spare).unwrap_or(u32::MAX);
        let (caller, now, dates) = (self.caller, self.call.now, self.query.dates);
        let mut ranges = Vec::with_capacity(self.ids.len());
        for (at, id) in self.ids.iter().enumerate() {
            if !self.is_ended(at) {
                let context = Arc::clone(self.context);
                let range = self
                    .reads
                    .range::<Trades>(caller, context, Some(*id), dates, now)?;
                let range = range.at_number(self.numbers[at])?;
                ranges.push(range.with_first_page_rows(rows));
            }
        }
        let (ids, write, calls_max) = (self.ids, self.write, ranges.len());
        let merged = Merged::new(
            ranges,
            None,
            self.call.deadline,
            move |row: &Trade<'_>, number| {
                let mut json = Vec::new();
                write(row, &mut json);
                Some(ReadTrade {
                    account: ids.binary_search(&row.account.id).ok()?,
                    number,
                    instant: row.time.instant(),
                    json,
                })
            },
        );
        Ok(merged.with_calls_at_once(calls_max))
    }

    fn is_ended(&self, account: usize) -> bool {
        let number = self.numbers[account];
        number == END || self.totals[account].is_some_and(|total| number >= total)
    }

    /// Takes over the totals of the lists. Whether the read has to begin again: if rows before its
    /// start may have vanished, which moves its start, or if a list has changed between two pages.
    fn has_changed(&mut self, merged: &Merged<'_, Trades, ReadTrade>) -> bool {
        let mut has_changed = false;
        for list in merged.lists() {
            let at = list
                .account_id
                .and_then(|id| self.ids.binary_search(&id).ok());
            let (Some(at), Some(total)) = (at, list.total) else {
                continue;
            };
            let before = self.totals[at].replace(total).unwrap_or(total);
            let start = &mut self.start.1[at];
            has_changed |= before > total && *start > 0
                || before != total && matches!(list.state, ListState::Failed(_));
            *start = start.saturating_sub(before.saturating_sub(total));
        }
        has_changed
    }

    fn failure_of(&self, merged: &Merged<'_, Trades, ReadTrade>) -> Option<ReadError> {
        merged.lists().find_map(|list| match list.state {
            ListState::Failed(error) => Some(error.clone()),
            ListState::Stopped => Some(self.failure(&Error::Deadline)),
            ListState::Reading | ListState::Ended => None,
        })
    }

    fn failure(&self, error: &Error) -> ReadError {
        ReadError::from_provider(error, self.context.connection.status)
    }

    fn take(&mut self, trade: &ReadTrade) {
        if self.row >= self.page.offset {
            if !self.written.is_empty() {
                self.written.push(b',');
            }
            self.written.extend_from_slice(&trade.json);
        }
        self.row += 1;
        self.numbers[trade.account] = trade.number + 1;
        if self.row == self.page.offset || self.row == self.page.end() {
            self.learn();
        }
    }

    /// Stores where the lists stand in the index.
    fn learn(&self) {
        let mut index = self.index.lock();
        index.set_totals(&self.totals);
        // After a jump, there may be no row at the offset.
        if !self.is_behind_the_end() {
            index.learn(self.row, self.numbers.clone().into(), !self.has_jumped);
        }
    }

    fn window_totals(&self, more: &More, row_cap: u64) -> WindowTotals {
        let remaining =
            |(total, start): (&Option<u64>, &u64)| total.unwrap_or_default().saturating_sub(*start);
        let remaining = self.totals.iter().zip(&self.window_start).map(remaining);
        let remaining = remaining.fold(0, u64::saturating_add);
        let total = match self.totals.as_slice() {
            // Nothing was read, so the provider's total counts.
            [total] if self.is_behind_the_end() => total.unwrap_or_default().min(self.row),
            _ => self.row,
        };
        let has_more = !matches!(more, More::No);
        WindowTotals {
            total,
            has_more,
            truncated: matches!(more, More::Unknown) || has_more && remaining > row_cap,
        }
    }
}

#[cfg(test)]
mod tests;
