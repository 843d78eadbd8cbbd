//! A window of a connection's transactions: walk the provider's pages newest first, keep the window's rows, count the
//! others, remember where pages begin.

use std::sync::Arc;

use bellbird_domain::{Bound, Caller, Interval, Page, Transaction};
use bellbird_providers::{Banking, Call, Cursor, Error, PageRequest, TransactionQuery};
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use secrecy::SecretString;
use tokio::time::Instant;

use crate::page_map::{Mark, PageMap};
use crate::window::{Extent, Window};
use crate::{ListKey, ReadError, Reads, Scope};

/// A page that only counts is not begun when less than this share of the request's time is left (one part of so many).
const TIME_KEPT_BACK: u32 = 5;

/// Which rows, as asked.
pub struct TransactionsRequest {
    /// The list; also the key of its page map.
    pub list: ListKey,
    /// `from`, read.
    pub from: Option<Bound>,
    /// `to`, read.
    pub to: Option<Bound>,
    /// The window.
    pub page: Page,
}

/// What takes the window's rows, newest first.
pub type KeepRow<'k> = dyn for<'row> FnMut(&Transaction<'row>) + Send + 'k;

impl Reads {
    /// Gives the window's rows to `keep`, each once, newest first, and says what is known of the whole list.
    /// When it fails, the rows given so far are worth nothing.
    ///
    /// # Errors
    /// [`ReadError::NotFound`] for an account that is not the connection's; [`ReadError::Reconnect`];
    /// [`ReadError::Unavailable`] when the window could not be completed in time. What was learned on the way is kept, so
    /// that the same request goes on from there.
    pub async fn transactions(
        &self,
        call: &Call,
        caller: &Caller,
        scope: &Scope,
        request: &TransactionsRequest,
        keep: &mut KeepRow<'_>,
    ) -> Result<Extent, ReadError> {
        let accounts = scope.accounts_of(request.list.account_id)?;
        let map = self.page_map(call, request, &caller.timezone);
        let interval = map.lock().interval();
        let (first, last) = interval.instants(&caller.timezone);
        if first > last || accounts.is_empty() {
            return Ok(Window::new(request.page, 0).extent(0, Some(0)));
        }
        let one_account = request.list.account_id.is_some();
        let mut walk = Walk {
            provider: self.banking(&scope.connection)?,
            grant: &scope.grant,
            call,
            query: TransactionQuery { accounts, one_account, interval: &interval, zone: &caller.timezone },
            window: Window::new(request.page, self.inner.limits.row_cap),
            map: &map,
        };
        let outcome = walk.complete(keep).await;
        if let Err(error) = outcome {
            return Err(ReadError::from_provider(&error, scope.connection.status));
        }
        let seen = walk.window.row();
        if call.calls() > 0 {
            self.note_answered(scope);
        }
        walk.count(call.deadline - self.inner.limits.deadline / TIME_KEPT_BACK).await;
        let map = map.lock();
        // Another window of the list may have begun the map anew meanwhile; what was seen here is known all the same.
        Ok(walk.window.extent(map.counted().max(seen), map.end()))
    }

    /// The map of the list; a request from the start begins a new one, with new instants, and so does one in another
    /// timezone than before.
    fn page_map(&self, call: &Call, request: &TransactionsRequest, zone: &TimeZone) -> Arc<Mutex<PageMap>> {
        let maps = &self.inner.page_maps;
        if request.page.offset > 0
            && let Some(map) = maps.renew(&request.list, call.now)
            && map.lock().is_in(zone)
        {
            return map;
        }
        let interval = Interval::resolve(request.from, request.to, call.now);
        let map = Arc::new(Mutex::new(PageMap::new(interval, zone.clone(), call.now)));
        maps.insert(request.list.clone(), Arc::clone(&map), call.now);
        map
    }
}

/// One request's way through a list.
struct Walk<'w> {
    provider: &'w dyn Banking,
    grant: &'w SecretString,
    call: &'w Call,
    query: TransactionQuery<'w>,
    window: Window,
    map: &'w Mutex<PageMap>,
}

/// Where a walk stands after a page.
enum Next {
    Page(Cursor),
    End,
}

impl Walk<'_> {
    /// Reads pages until the window is complete or the list ends. Where the provider fails for a cursor that was
    /// remembered, it may be that it no longer takes it: then once more from the start, and when that works, the map is
    /// begun anew.
    async fn complete(&mut self, keep: &mut KeepRow<'_>) -> Result<(), Error> {
        let Some(Mark { row, mut cursor }) = self.start() else { return Ok(()) };
        self.window.seek(row);
        let mut remembered = cursor.is_some();
        let mut rows = self.rows_wanted();
        while !self.window.is_complete() {
            let next = match self.page(cursor.as_ref(), rows, keep).await {
                Err(Error::Unavailable { .. } | Error::Rejected { .. } | Error::Malformed(_)) if remembered => {
                    self.window.seek(0);
                    let page = self.read(None, self.rows_wanted(), keep).await?;
                    self.map.lock().forget();
                    self.learn(page)
                }
                page => page?,
            };
            let Next::Page(next) = next else { return Ok(()) };
            cursor = Some(next);
            remembered = false;
            // Rows were left out, or the window lies far behind: the largest page gets there with the fewest calls.
            rows = self.provider.page_rows_max();
        }
        Ok(())
    }

    /// Where to begin, or none when the window lies behind the known end of the list.
    fn start(&self) -> Option<Mark> {
        let map = self.map.lock();
        let beyond = map.end().is_some_and(|end| end <= self.window.offset());
        (!beyond).then(|| map.nearest(self.window.offset()))
    }

    /// A page that ends where the window ends, so that a cursor stands where the next window starts.
    fn rows_wanted(&self) -> u32 {
        u32::try_from(self.window.missing()).unwrap_or(u32::MAX).min(self.provider.page_rows_max())
    }

    /// Counts on behind the window until enough rows are known, the list ends, the time kept back begins, or a page
    /// fails: then the answer says what is known.
    async fn count(&mut self, until: Instant) {
        while Instant::now() < until {
            let Mark { row, cursor } = {
                let map = self.map.lock();
                if map.end().is_some() || self.window.uncounted(map.counted()) == 0 {
                    return;
                }
                map.frontier()
            };
            if row < self.window.row() {
                // No room for marks was left: what lies behind is not known, and is not counted.
                return;
            }
            self.window.seek(row);
            let rows = self.rows_to_count(row);
            let page = tokio::time::timeout_at(until, self.page(cursor.as_ref(), rows, &mut |_| {})).await;
            if !matches!(page, Ok(Ok(_))) {
                tracing::debug!("counting stopped early");
                return;
            }
        }
    }

    /// The largest page: it counts with the fewest calls. In a request from the start of the list the last one ends at
    /// the cap, so that a list with more rows than the cap is told from one that ends there.
    fn rows_to_count(&self, row: u64) -> u32 {
        let max = self.provider.page_rows_max();
        if self.window.offset() > 0 {
            return max;
        }
        let needed = u32::try_from(self.window.uncounted(row)).unwrap_or(u32::MAX);
        needed.clamp(max / 10, max)
    }

    /// Reads one page from `cursor` on, and learns where the next begins; the window stands at its first row.
    async fn page(&mut self, cursor: Option<&Cursor>, rows: u32, keep: &mut KeepRow<'_>) -> Result<Next, Error> {
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
        // Only a walk's beginning shows whatever is there.
        let (beginning, as_of) = (window.offset() == 0, self.map.lock().as_of());
        let mut newest = as_of;
        let mut sink = |row: Transaction<'_>| {
            if !query.interval.contains(row.instant, || row.local_day(query.zone)) {
                return;
            }
            match row.seen_at {
                Some(seen_at) if beginning => newest = newest.max(seen_at),
                Some(seen_at) if seen_at > as_of => return,
                _ => {}
            }
            if window.take() {
                keep(&row);
            }
        };
        let request = PageRequest { cursor, rows };
        let next = self.provider.transactions(self.call, self.grant, query, request, &mut sink).await?;
        self.map.lock().shown(newest);
        Ok(next)
    }

    fn learn(&self, next: Option<Cursor>) -> Next {
        let mut map = self.map.lock();
        match next {
            Some(next) => {
                map.learn(self.window.row(), next.clone());
                Next::Page(next)
            }
            None => {
                map.learn_end(self.window.row());
                Next::End
            }
        }
    }
}

#[cfg(test)]
mod tests;
