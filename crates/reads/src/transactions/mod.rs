//! Reads one window of a connection's transactions.
//!
//! Providers page by cursor, the public API by offset. So a read passes on the rows of the window,
//! counts the others, and stores the cursors of the pages in a cursor index.

mod cursor_index;

use bellbird_domain::{Caller, DateRange, Transaction};
use bellbird_providers::pages::{List, Pages, RowSink, Transactions};
use bellbird_providers::{CallContext, Cursor, Error, TransactionQuery};
use jiff::civil::Date;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::connection_context::lister;
use crate::window::{Window, WindowTotals};
use crate::{ConnectionContext, ReadError, Reads, WindowKey};
pub(crate) use cursor_index::CursorIndex;

/// Counting stops when less than this fraction of the request's deadline is left: 5 means one
/// fifth.
const RESERVED_TIME_SHARE: u32 = 5;

impl Reads {
    /// Passes each row of the window to `rows`, newest first, and returns the pagination fields.
    ///
    /// After an error the caller must discard the rows passed so far. The cursor index keeps the
    /// cursors, so the same request continues from there: [`ReadError::Unavailable`] may mean that
    /// the window was not complete in time.
    pub async fn transactions(
        &self,
        call: &CallContext,
        caller: &Caller,
        context: &ConnectionContext,
        key: WindowKey,
        rows: &mut RowSink<'_, Transactions>,
    ) -> Result<WindowTotals, ReadError> {
        let WindowKey { query, page } = key;
        let (accounts, zone) = (context.accounts_of(query.account_id)?, &caller.timezone);
        let new = || {
            let dates = DateRange::resolve(query.dates.from, query.dates.to, call.now);
            CursorIndex::new(dates, zone.clone(), call.now)
        };
        let cursors = &self.inner.transaction_cursors;
        let cached = cursors
            .find_or_insert(key, call.now, |index| index.is_in_zone(zone), new)
            .await;
        let index = &cached.index;
        let dates = index.lock().dates;
        let (first, last) = dates.instants(zone);
        if first > last || accounts.is_empty() {
            return Ok(Window::new(page, 0).totals(0, Some(0)));
        }
        let one_account = query.account_id.is_some();
        let listed = TransactionQuery {
            accounts,
            one_account,
            dates: &dates,
            zone,
        };
        let provider = self.provider(&context.connection)?;
        let mut read = WindowRead {
            list: List {
                provider: lister::<Transactions>(provider.as_ref())?,
                credentials: &context.credentials,
                query: listed,
                until: None,
            },
            call,
            pages: Pages::default(),
            window: Window::new(page, self.inner.limits.row_cap),
            index,
            seen: 0,
            end: None,
        };
        let outcome = read.complete(rows).await;
        if outcome.is_ok() {
            if call.calls() > 0 {
                self.record_refresh(context);
            }
            read.count(call.deadline - self.inner.limits.deadline / RESERVED_TIME_SHARE)
                .await;
        }
        cursors.store(key, &cached, call.now).await;
        outcome.map_err(|error| ReadError::from_provider(&error, context.connection.status))?;
        Ok(read.totals())
    }
}

/// How one request reads its window.
struct WindowRead<'w> {
    list: List<'w, Transactions>,
    call: &'w CallContext,
    pages: Pages,
    /// At the first row of the next page.
    window: Window,
    index: &'w Mutex<CursorIndex>,
    /// The rows before the last page that was read, and those in it.
    seen: u64,
    /// Where the list ended, if this read has come there.
    end: Option<u64>,
}

impl WindowRead<'_> {
    /// Reads pages until the window is complete or the list ends.
    ///
    /// If the provider fails for a stored cursor, the cursor may have expired. Then the read
    /// restarts from the beginning of the list, and resets the index if that succeeds.
    async fn complete(&mut self, rows: &mut RowSink<'_, Transactions>) -> Result<(), Error> {
        let Some(start) = self.start() else {
            return Ok(());
        };
        let mut is_stored_cursor = start.1.is_some();
        self.seek(start);
        let mut page_rows = self.rows_needed();
        while !self.window.is_complete() && !self.pages.is_ended() {
            match self.read_page(page_rows, rows).await {
                // Rows of a broken list were passed already, so it must not be read again.
                Err(Error::Unavailable { .. } | Error::Rejected { .. } | Error::Malformed(_))
                    if is_stored_cursor && !self.pages.is_broken() =>
                {
                    self.seek((0, None));
                    self.read_page(self.rows_needed(), rows).await?;
                    self.index.lock().reset();
                }
                outcome => outcome?,
            }
            self.learn();
            is_stored_cursor = false;
            // Rows did not match, or the window lies far ahead. The largest page needs the fewest
            // calls.
            page_rows = self.list.provider.page_rows_max();
        }
        Ok(())
    }

    /// The row to start at and its cursor. `None` if the window lies behind the known end of the
    /// list.
    fn start(&self) -> Option<(u64, Option<Cursor>)> {
        let index = self.index.lock();
        let beyond = index.end.is_some_and(|end| end <= self.window.offset());
        (!beyond).then(|| index.nearest(self.window.offset()))
    }

    fn seek(&mut self, (row, cursor): (u64, Option<Cursor>)) {
        self.window.seek(row);
        self.pages = Pages::at(cursor);
    }

    /// Page size that ends the page with the window, so that the next window starts at a cursor.
    fn rows_needed(&self) -> u32 {
        u32::try_from(self.window.missing())
            .unwrap_or(u32::MAX)
            .min(self.list.provider.page_rows_max())
    }

    /// Counts the rows behind the window, until enough are known, the list ends, `deadline` is
    /// reached, or a page fails.
    async fn count(&mut self, deadline: Instant) {
        while Instant::now() < deadline {
            let frontier = {
                let index = self.index.lock();
                if index.end.is_some()
                    || self.end.is_some()
                    || self.window.uncounted(index.counted) == 0
                {
                    return;
                }
                index.frontier()
            };
            if frontier.0 < self.window.row() {
                // The index is full, so the read passed its last cursor. The rest is not counted.
                return;
            }
            let page_rows = self.rows_to_count(frontier.0);
            self.seek(frontier);
            let page =
                tokio::time::timeout_at(deadline, self.read_page(page_rows, &mut |_, _| {})).await;
            if !matches!(page, Ok(Ok(()))) {
                tracing::debug!("counting stopped early");
                return;
            }
            self.learn();
        }
    }

    /// Page size for counting: the largest, since that needs the fewest calls. For offset 0 the
    /// last page ends at the cap, which distinguishes a list that ends at the cap from a longer
    /// one.
    fn rows_to_count(&self, row: u64) -> u32 {
        let max = self.list.provider.page_rows_max();
        if self.window.offset() > 0 {
            return max;
        }
        let needed = u32::try_from(self.window.uncounted(row)).unwrap_or(u32::MAX);
        needed.clamp(max / 10, max)
    }

    /// Reads the next page, and passes on its rows that belong to the window.
    async fn read_page(
        &mut self,
        page_rows: u32,
        rows: &mut RowSink<'_, Transactions>,
    ) -> Result<(), Error> {
        let window = &mut self.window;
        // The first window shows every row. Later windows skip rows that appeared after it.
        let (is_first_window, as_of) = (window.offset() == 0, self.index.lock().as_of);
        let mut newest = as_of;
        let mut sink = |row: &Transaction<'_>, day: Date| {
            match row.seen_at {
                Some(seen_at) if is_first_window => newest = newest.max(seen_at),
                Some(seen_at) if seen_at > as_of => return,
                _ => {}
            }
            if window.take() {
                rows(row, day);
            }
        };
        self.pages
            .next(&self.list, self.call, page_rows, &mut sink)
            .await?;
        self.index.lock().extend_as_of(newest);
        Ok(())
    }

    /// Stores the cursor of the next page, or the end of the list. An empty list is read again,
    /// because it may be that of a consent that has just ended.
    fn learn(&mut self) {
        let (mut index, row) = (self.index.lock(), self.window.row());
        self.seen = self.seen.max(row);
        match self.pages.cursor() {
            Some(cursor) => index.learn(row, cursor.clone()),
            None => {
                self.end = Some(row);
                if row > 0 {
                    index.learn_end(row);
                }
            }
        }
    }

    /// A concurrent request may have reset the index. What was seen here still counts.
    fn totals(&self) -> WindowTotals {
        let index = self.index.lock();
        let end = index.end.or(self.end);
        self.window.totals(index.counted.max(self.seen), end)
    }
}

#[cfg(test)]
mod tests;
