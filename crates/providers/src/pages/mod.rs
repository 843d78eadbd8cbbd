//! Reads a provider's transactions and trades page by page. All reads of rows go through here.
//!
//! A page reader holds where the next page begins, and no row. It passes on the rows of the query's
//! range as each page comes in. After an error, or if the future is dropped, the next call reads
//! the same page again, so the caller must discard the rows of the failed call. A list that cannot
//! be read on fails for good ([`Pages::is_broken`]). Deadline and budget are those of the
//! [`CallContext`] of each call.

mod kind;

use std::ops::ControlFlow;

use jiff::Timestamp;
use secrecy::SecretString;

use crate::{CallContext, Cursor, Error, Page, PageRequest};
pub use kind::{RowKind, RowSink, Trades, Transactions};

/// A list fails after this many pages. Akahu has the smallest pages, 100 rows
/// (docs/providers/akahu.md#pages): there the limit is 200,000 rows.
pub const PAGES_MAX: u32 = 2_000;

const TOO_MANY_PAGES: Error = Error::Malformed("too many pages");

/// A provider's list of rows: of a connection or of one account, within dates.
pub struct List<'l, K: RowKind> {
    pub provider: K::Provider<'l>,
    pub credentials: &'l SecretString,
    pub query: K::Query<'l>,
    /// Leaves out later rows than this, and does not ask the provider for them.
    pub until: Option<Timestamp>,
}

/// Reads the pages of a list, newest row first. A transaction that moves to the next page meanwhile
/// comes twice.
///
/// Where the provider states how many rows it lists, as for trades, and that changes between two
/// pages, the list fails for good with [`Error::Unavailable`]. Equal trades have equal ids, so one
/// that moved to the next page could not be distinguished from a second equal trade. The caller can
/// begin again.
#[derive(Default)]
pub struct Pages {
    /// Of the next page. `None` for the first.
    cursor: Option<Cursor>,
    is_ended: bool,
    /// As the provider stated it with the last page.
    total: Option<u64>,
    pages_read: u32,
    broken: Option<Error>,
}

impl Pages {
    /// Starts at the page of a cursor, or at the first.
    pub fn at(cursor: Option<Cursor>) -> Self {
        Self {
            cursor,
            ..Self::default()
        }
    }

    /// The cursor of the next page. `None` for the first page, and at the end.
    pub fn cursor(&self) -> Option<&Cursor> {
        self.cursor.as_ref()
    }

    /// Whether no page was read yet.
    pub fn is_unread(&self) -> bool {
        self.pages_read == 0
    }

    pub fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// The number of rows in the provider's list, as it stated with the last page.
    pub fn total(&self) -> Option<u64> {
        self.total
    }

    /// Whether every further call fails.
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Reads the next page, of at most `rows` rows, and passes its rows of the query's range to
    /// `sink`. Returns whether pages may follow. A page may have no rows.
    pub async fn next<K: RowKind>(
        &mut self,
        list: &List<'_, K>,
        context: &CallContext,
        rows: u32,
        sink: &mut RowSink<'_, K>,
    ) -> Result<bool, Error> {
        if self.is_ended {
            return Ok(false);
        }
        if self.broken.is_none() && self.pages_read == PAGES_MAX {
            self.broken = Some(TOO_MANY_PAGES);
        }
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let page = PageRequest {
            cursor: self.cursor.as_ref(),
            rows: rows.min(K::page_rows_max(list.provider)),
        };
        let Page { next, total } = K::read_page(list, context, page, sink).await?;
        self.pages_read += 1;
        let before = std::mem::replace(&mut self.total, total);
        if next.is_some() && next == self.cursor {
            return self.fail(Error::Malformed("the next page is the current page"));
        }
        if before.is_some() && before != total {
            return self.fail(Error::unavailable("the list changed while it was read"));
        }
        (self.is_ended, self.cursor) = (next.is_none(), next);
        Ok(!self.is_ended)
    }

    fn fail(&mut self, error: Error) -> Result<bool, Error> {
        self.broken = Some(error.clone());
        Err(error)
    }

    /// Reads all further pages, of the largest size. After [`ControlFlow::Break`] no row is passed
    /// and no page read.
    pub async fn read_to_end<K: RowKind>(
        &mut self,
        list: &List<'_, K>,
        context: &CallContext,
        rows: &mut (dyn for<'row> FnMut(&K::Row<'row>) -> ControlFlow<()> + Send),
    ) -> Result<(), Error> {
        loop {
            let mut flow = ControlFlow::Continue(());
            let mut sink = |row: &K::Row<'_>, _: K::Place| {
                if flow.is_continue() {
                    flow = rows(row);
                }
            };
            let has_next = self.next(list, context, u32::MAX, &mut sink).await;
            if flow.is_break() || !has_next? {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests;
