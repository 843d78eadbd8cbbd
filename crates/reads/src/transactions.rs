//! Reads one window of a connection's transactions.
//!
//! Providers page by cursor, the public API by offset. A walk reads provider pages, newest first, keeps the rows of the
//! window, counts the others, and stores the cursors in a page map.

use std::sync::Arc;

use bellbird_domain::date::DayFinder;
use bellbird_domain::{Caller, DateRange, Page, Transaction};
use bellbird_providers::{Banking, CallContext, Cursor, Error, PageRequest, TransactionQuery};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::page_map::{PageCursor, PageMap};
use crate::window::{Extent, Window};
use crate::{ConnectionContext, ListKey, ReadError, Reads};

/// Counting stops when less than this fraction of the request's deadline is left: 5 means one fifth.
const RESERVED_TIME_SHARE: u32 = 5;

#[derive(Debug, Clone, Copy)]
pub struct TransactionsRequest {
    /// Also the key of the page map.
    pub list: ListKey,
    pub page: Page,
}

/// Receives the rows of the window, newest first, and the day of each in the caller's timezone.
pub type KeepRow<'k> = dyn for<'row> FnMut(&Transaction<'row>, Date) + Send + 'k;

impl Reads {
    /// Passes each row of the window to `keep`, newest first, and returns the pagination fields.
    ///
    /// After an error the caller must discard the rows passed so far. The page map keeps the cursors, so the same
    /// request continues from there: [`ReadError::Unavailable`] may mean that the window was not complete in time.
    pub async fn transactions(
        &self,
        call: &CallContext,
        caller: &Caller,
        context: &ConnectionContext,
        request: &TransactionsRequest,
        keep: &mut KeepRow<'_>,
    ) -> Result<Extent, ReadError> {
        let accounts = context.accounts_of(request.list.account_id)?;
        let map = self.page_map(call, request, &caller.timezone);
        let interval = map.lock().interval();
        let (first, last) = interval.instants(&caller.timezone);
        if first > last || accounts.is_empty() {
            return Ok(Window::new(request.page, 0).extent(0, Some(0)));
        }
        let one_account = request.list.account_id.is_some();
        let mut walk = Walk {
            provider: self.banking(&context.connection)?,
            credentials: &context.credentials,
            call,
            query: TransactionQuery { accounts, one_account, interval: &interval, zone: &caller.timezone },
            window: Window::new(request.page, self.inner.limits.row_cap),
            map: &map,
        };
        let outcome = walk.complete(keep).await;
        let seen = walk.window.row();
        if outcome.is_ok() {
            if call.calls() > 0 {
                self.record_refresh(context);
            }
            walk.count(call.deadline - self.inner.limits.deadline / RESERVED_TIME_SHARE).await;
        }
        self.inner.page_maps.measure(&request.list, call.now);
        outcome.map_err(|error| ReadError::from_provider(&error, context.connection.status))?;
        let map = map.lock();
        // A concurrent request may have reset the map. The rows seen here still count.
        Ok(walk.window.extent(map.counted().max(seen), map.end()))
    }

    /// Finds the page map of the list. A request with offset 0, or in another timezone than before, starts a new map
    /// with new instants.
    fn page_map(&self, call: &CallContext, request: &TransactionsRequest, zone: &TimeZone) -> Arc<Mutex<PageMap>> {
        let maps = &self.inner.page_maps;
        if request.page.offset > 0
            && let Some(map) = maps.find(&request.list, call.now)
            && map.lock().is_in_zone(zone)
        {
            return map;
        }
        let interval = DateRange::resolve(request.list.span.from, request.list.span.to, call.now);
        maps.insert(request.list, PageMap::new(interval, zone.clone(), call.now), call.now)
    }
}

/// The walk of one request through a list.
struct Walk<'w> {
    provider: &'w dyn Banking,
    credentials: &'w SecretString,
    call: &'w CallContext,
    query: TransactionQuery<'w>,
    window: Window,
    map: &'w Mutex<PageMap>,
}

impl Walk<'_> {
    /// Reads pages until the window is complete or the list ends.
    ///
    /// If the provider fails for a stored cursor, the cursor may have expired. Then the walk restarts from the
    /// beginning of the list, and resets the map if that succeeds.
    async fn complete(&mut self, keep: &mut KeepRow<'_>) -> Result<(), Error> {
        let Some(PageCursor { row, mut cursor }) = self.start() else { return Ok(()) };
        self.window.seek(row);
        let mut is_known_cursor = cursor.is_some();
        let mut rows = self.rows_needed();
        while !self.window.is_complete() {
            let next = match self.page(cursor.as_ref(), rows, keep).await {
                Err(Error::Unavailable { .. } | Error::Rejected { .. } | Error::Malformed(_)) if is_known_cursor => {
                    self.window.seek(0);
                    let page = self.read(None, self.rows_needed(), keep).await?;
                    self.map.lock().reset();
                    self.learn(page)
                }
                page => page?,
            };
            if next.is_none() {
                return Ok(());
            }
            cursor = next;
            is_known_cursor = false;
            // Rows did not match, or the window lies far ahead. The largest page needs the fewest calls.
            rows = self.provider.page_rows_max();
        }
        Ok(())
    }

    /// The cursor to start at. `None` if the window lies behind the known end of the list.
    fn start(&self) -> Option<PageCursor> {
        let map = self.map.lock();
        let beyond = map.end().is_some_and(|end| end <= self.window.offset());
        (!beyond).then(|| map.nearest(self.window.offset()))
    }

    /// Page size that ends the page with the window, so that the next window starts at a cursor.
    fn rows_needed(&self) -> u32 {
        u32::try_from(self.window.missing()).unwrap_or(u32::MAX).min(self.provider.page_rows_max())
    }

    /// Counts the rows behind the window, until enough are known, the list ends, `deadline` is reached, or a page
    /// fails.
    async fn count(&mut self, deadline: Instant) {
        while Instant::now() < deadline {
            let PageCursor { row, cursor } = {
                let map = self.map.lock();
                if map.end().is_some() || self.window.uncounted(map.counted()) == 0 {
                    return;
                }
                map.frontier()
            };
            if row < self.window.row() {
                // The map is full, so the walk passed its last cursor. The rest is not counted.
                return;
            }
            self.window.seek(row);
            let rows = self.rows_to_count(row);
            let page = tokio::time::timeout_at(deadline, self.page(cursor.as_ref(), rows, &mut |_, _| {})).await;
            if !matches!(page, Ok(Ok(_))) {
                tracing::debug!("counting stopped early");
                return;
            }
        }
    }

    /// Page size for counting: the largest, since that needs the fewest calls. For offset 0 the last page ends at the
    /// cap, which distinguishes a list that ends at the cap from a longer one.
    fn rows_to_count(&self, row: u64) -> u32 {
        let max = self.provider.page_rows_max();
        if self.window.offset() > 0 {
            return max;
        }
        let needed = u32::try_from(self.window.uncounted(row)).unwrap_or(u32::MAX);
        needed.clamp(max / 10, max)
    }

    /// Reads the page at `cursor` and stores where the next one begins. `self.window` must be at the first row of the
    /// page.
    async fn page(
        &mut self,
        cursor: Option<&Cursor>,
        rows: u32,
        keep: &mut KeepRow<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let next = self.read(cursor, rows, keep).await?;
        Ok(self.learn(next))
    }

    async fn read(
        &mut self,
        cursor: Option<&Cursor>,
        rows: u32,
        keep: &mut KeepRow<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let (window, query) = (&mut self.window, &self.query);
        // The first window shows every row. Later windows skip rows that appeared after it.
        let (is_first_window, as_of) = (window.offset() == 0, self.map.lock().as_of());
        let mut newest = as_of;
        let mut days = DayFinder::new(query.zone);
        let mut sink = |row: Transaction<'_>| {
            let day = row.day.unwrap_or_else(|| days.day_of(row.instant));
            if !query.interval.contains(row.instant, || day) {
                return;
            }
            match row.seen_at {
                Some(seen_at) if is_first_window => newest = newest.max(seen_at),
                Some(seen_at) if seen_at > as_of => return,
                _ => {}
            }
            if window.take() {
                keep(&row, day);
            }
        };
        let request = PageRequest { cursor, rows };
        let next = self.provider.transactions(self.call, self.credentials, query, request, &mut sink).await?;
        self.map.lock().extend_as_of(newest);
        Ok(next)
    }

    /// Stores the cursor of the next page, or the end of the list.
    fn learn(&self, next: Option<Cursor>) -> Option<Cursor> {
        let mut map = self.map.lock();
        match &next {
            Some(next) => map.learn(self.window.row(), next.clone()),
            None => map.learn_end(self.window.row()),
        }
        next
    }
}

#[cfg(test)]
mod tests;
