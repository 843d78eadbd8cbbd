//! Reads one window of a connection's trades.
//!
//! The provider pages each account by offset and reports the total. So a window of one account is
//! read directly at its offset; several accounts are merged by time, newest first.

mod account_trades;
mod cursor_index;

use bellbird_domain::{AccountId, Caller, DateFilter, Page, Trade};
use bellbird_providers::{Brokerage, CallContext, Error};
use futures_util::future::try_join_all;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::window::Extent;
use crate::{ConnectionContext, ReadError, Reads, WindowKey};
use account_trades::AccountTrades;
pub(crate) use cursor_index::TradeCursorIndex;

/// Extra rows to request if `from` or `to` is given. The query covers one day more on each side,
/// and those rows are filtered out.
const ROWS_SPARE: u64 = 50;

pub struct TradesWindow {
    /// The written rows, separated by commas.
    pub rows: Vec<u8>,
    pub extent: Extent,
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
        context: &ConnectionContext,
        key: WindowKey,
        write: WriteTrade,
    ) -> Result<TradesWindow, ReadError> {
        let WindowKey { query, page } = key;
        let accounts = context.accounts_of(query.account_id)?;
        let brokerage = self.brokerage(&context.connection)?;
        if accounts.is_empty() || query.span.is_empty(&caller.timezone) {
            let extent = Extent {
                total: 0,
                has_more: false,
                truncated: false,
            };
            return Ok(TradesWindow {
                rows: Vec::new(),
                extent,
                complete: true,
            });
        }
        let mut lists: Vec<AccountTrades<'_>> = accounts.iter().map(AccountTrades::new).collect();
        lists.sort_by_key(AccountTrades::account_id);
        let (credentials, span, zone) = (&context.credentials, &query.span, &caller.timezone);
        let ids: Vec<AccountId> = lists.iter().map(AccountTrades::account_id).collect();
        let cursors = &self.inner.trade_cursors;
        let new = || TradeCursorIndex::new(ids.clone(), zone.clone());
        let walk = cursors
            .find_or_insert(key, call.now, |index| index.is_for(&ids, zone), new)
            .await;
        let merged_query = MergedQuery {
            brokerage,
            call,
            credentials,
            span,
            zone,
            write,
        };
        let mut merge = Merge::new(merged_query, lists, page);
        let more = merge.run(&walk.index).await;
        cursors.keep(key, &walk, call.now).await;
        let more =
            more.map_err(|error| ReadError::from_provider(&error, context.connection.status))?;
        if call.calls() > 0 {
            self.record_refresh(context);
        }
        let extent = merge.extent(&more, self.inner.limits.row_cap);
        Ok(TradesWindow {
            rows: merge.written,
            extent,
            complete: !matches!(more, More::Unknown),
        })
    }
}

/// What the lists of all accounts share.
#[derive(Clone, Copy)]
struct MergedQuery<'q> {
    brokerage: &'q dyn Brokerage,
    call: &'q CallContext,
    credentials: &'q SecretString,
    span: &'q DateFilter,
    zone: &'q TimeZone,
    write: WriteTrade,
}

/// How one request reads the merged lists of all accounts.
struct Merge<'m> {
    query: MergedQuery<'m>,
    /// Sorted by account id, which orders rows with equal instants.
    lists: Vec<AccountTrades<'m>>,
    page: Page,
    /// Number of the next row of the merged list.
    row: u64,
    /// Whether the read started at the window, in the middle of the list.
    jumped: bool,
    /// The position of each list at the first row of the window.
    window_start: Option<Box<[u64]>>,
    written: Vec<u8>,
}

impl<'m> Merge<'m> {
    fn new(query: MergedQuery<'m>, lists: Vec<AccountTrades<'m>>, page: Page) -> Self {
        Self {
            query,
            lists,
            page,
            row: 0,
            jumped: false,
            window_start: None,
            written: Vec::new(),
        }
    }

    /// Reads until the window is complete and it is known whether another row follows.
    async fn run(&mut self, index: &Mutex<TradeCursorIndex>) -> Result<More, Error> {
        let (cursor, totals) = {
            let index = index.lock();
            (index.nearest(self.page.offset), index.totals())
        };
        self.seek(cursor, &totals);
        self.skip_filtered_head(index).await?;
        self.jump();
        let more = self.advance(index).await?;
        if self.jumped && self.row == self.page.offset && !self.query.span.is_open() {
            // No row of the range lies at the offset. The provider's total includes filtered rows,
            // so only a read from the start counts the rows of the range.
            self.jumped = false;
            let totals = self.totals();
            self.seek((0, vec![0; self.lists.len()].into()), &totals);
            return self.advance(index).await;
        }
        Ok(more)
    }

    fn seek(&mut self, (row, positions): (u64, Box<[u64]>), totals: &[Option<u64>]) {
        self.row = row;
        for ((list, position), total) in self.lists.iter_mut().zip(&positions).zip(totals) {
            list.seek(*position, *total);
        }
    }

    fn totals(&self) -> Vec<Option<u64>> {
        self.lists.iter().map(AccountTrades::stated_total).collect()
    }

    /// Reads past the rows that `to` filters out. The query covers one day more than `to`, so only
    /// reading shows which rows those are. Behind them the provider's row numbers are those of the
    /// filtered list.
    async fn skip_filtered_head(&mut self, index: &Mutex<TradeCursorIndex>) -> Result<(), Error> {
        let Some(unfiltered_before) = self.query.span.unfiltered_before(self.query.zone) else {
            return Ok(());
        };
        while self.row < self.page.offset && self.lists.len() == 1 && !self.lists[0].is_exhausted()
        {
            match self.lists[0].head() {
                Some(head) if head < unfiltered_before => return Ok(()),
                Some(_) => {
                    self.take();
                }
                None => {
                    self.record_positions(index);
                    self.fill(u64::from(self.query.brokerage.trades_rows_max()))
                        .await?;
                }
            }
        }
        Ok(())
    }

    /// Moves directly to the window if there is only one account: the provider numbers its rows, so
    /// the rows between need not be read.
    fn jump(&mut self) {
        if let [list] = self.lists.as_mut_slice()
            && self.row < self.page.offset
            && !list.is_exhausted()
        {
            list.seek(
                list.position().saturating_add(self.page.offset - self.row),
                list.stated_total(),
            );
            self.row = self.page.offset;
            self.jumped = true;
        }
    }

    async fn advance(&mut self, index: &Mutex<TradeCursorIndex>) -> Result<More, Error> {
        let window_end = self.page.end();
        loop {
            self.record_positions(index);
            match self.fill(window_end + 1 - self.row).await {
                // The window is complete. Only `has_more` stays unknown.
                Err(error) if self.row == window_end && error.is_transient() => {
                    return Ok(More::Unknown);
                }
                outcome => outcome?,
            }
            while self.row < window_end && self.lists.iter().all(AccountTrades::is_ready) {
                let Some(json) = self.take() else { break };
                self.record_positions(index);
                if self.row > self.page.offset {
                    if !self.written.is_empty() {
                        self.written.push(b',');
                    }
                    self.written.extend_from_slice(&json);
                }
            }
            if self.row == window_end && self.lists.iter().any(|list| list.head().is_some()) {
                return Ok(More::Yes);
            }
            if self.lists.iter().all(AccountTrades::is_exhausted) {
                self.record_positions(index);
                return Ok(More::No);
            }
        }
    }

    /// Stores the positions of the lists at both ends of the window, after each used-up page, and
    /// at the end of the list.
    fn record_positions(&mut self, index: &Mutex<TradeCursorIndex>) {
        let at_window = self.row == self.page.offset || self.row == self.page.end();
        let used_up = self.lists.iter().any(|list| !list.is_ready());
        if !at_window && !used_up && !self.lists.iter().all(AccountTrades::is_exhausted) {
            return;
        }
        let positions: Box<[u64]> = self.lists.iter().map(AccountTrades::position).collect();
        if self.row == self.page.offset {
            self.window_start = Some(positions.clone());
            if self.jumped {
                // This row may not exist.
                return;
            }
        }
        let mut index = index.lock();
        index.set_totals(&self.totals());
        index.learn(self.row, positions, !self.jumped);
    }

    /// Fetches the next page of each account whose next row is unknown, concurrently.
    async fn fill(&mut self, needed: u64) -> Result<(), Error> {
        let spare = if self.query.span.is_open() {
            0
        } else {
            ROWS_SPARE
        };
        let rows_max = self.query.brokerage.trades_rows_max();
        let rows = u32::try_from(needed + spare)
            .unwrap_or(u32::MAX)
            .min(rows_max);
        let query = &self.query;
        let empty = self.lists.iter_mut().filter(|list| !list.is_ready());
        try_join_all(empty.map(|list| list.fetch(query, rows))).await?;
        Ok(())
    }

    /// Takes the newest row of all lists.
    fn take(&mut self) -> Option<Vec<u8>> {
        let heads = self
            .lists
            .iter()
            .enumerate()
            .filter_map(|(at, list)| Some((list.head()?, at)));
        // Of rows with equal instants, the first list wins.
        let (_, at) = heads.reduce(|best, other| if other.0 > best.0 { other } else { best })?;
        self.row += 1;
        self.lists[at].take()
    }

    fn extent(&self, more: &More, row_cap: u64) -> Extent {
        let window_start = self.window_start.as_deref().unwrap_or_default();
        let lists = self.lists.iter().zip(window_start);
        let remaining = lists
            .map(|(list, start)| list.remaining_from(*start))
            .fold(0, u64::saturating_add);
        let total = match self.lists.as_slice() {
            // The window lies behind the end and nothing was read, so the provider's total counts.
            [list] if self.jumped && self.row == self.page.offset => list.total().min(self.row),
            _ => self.row,
        };
        let has_more = !matches!(more, More::No);
        let truncated = matches!(more, More::Unknown) || has_more && remaining > row_cap;
        Extent {
            total,
            has_more,
            truncated,
        }
    }
}

#[cfg(test)]
mod tests;
