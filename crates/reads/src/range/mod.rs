//! Reads all rows of a range, page by page of the provider, newest first.
//!
//! A range belongs to one request or command and borrows nothing of it, so a streamed response can
//! own it. Its caller decides when the next page is read. Memory holds one page, and hashes of the
//! ids of the page before.

mod attempts;

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::Arc;

use bellbird_domain::{AccountId, Caller, DateFilter};
use bellbird_providers::CallContext;
use bellbird_providers::pages::{List, Pages, RowKind, RowSink, Trades};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::connection_context::lister;
use crate::{ConnectionContext, ReadError, Reads};
pub use attempts::{Attempts, NewCall};

impl Reads {
    /// Prepares the read of all rows of one account, or of all accounts of a connection. It calls
    /// no provider yet.
    ///
    /// Trades come account by account, sorted by id, and an absent bound leaves their range open.
    /// Without bounds, the range of transactions is that of `/v1/transactions`: the last 30 days.
    /// `now` resolves it once.
    pub fn range<K: RowKind>(
        &self,
        caller: &Caller,
        context: Arc<ConnectionContext>,
        account_id: Option<AccountId>,
        filter: DateFilter,
        now: Timestamp,
    ) -> Result<Range<K>, ReadError> {
        lister::<K>(self.provider(&context.connection)?.as_ref())?;
        let accounts = context.accounts_of(account_id)?;
        let (dates, is_empty) = K::dates(filter, &caller.timezone, now);
        let mut lists: Vec<Option<AccountId>> = match accounts {
            [] => Vec::new(),
            _ if is_empty => Vec::new(),
            _ if K::IS_LISTED_BY_ACCOUNT => accounts.iter().map(|one| Some(one.id)).collect(),
            _ => vec![account_id],
        };
        lists.sort_unstable();
        Ok(Range {
            reads: self.clone(),
            lists: lists.into(),
            context,
            zone: caller.timezone.clone(),
            dates,
            until: None,
            first_page_rows: None,
            as_of: now,
            pages: Pages::default(),
            last_page: LastPage::default(),
        })
    }
}

/// All transactions or all trades of a range.
pub struct Range<K: RowKind> {
    reads: Reads,
    context: Arc<ConnectionContext>,
    /// The lists that are left to read, the present one first. `None` is that of all accounts.
    lists: VecDeque<Option<AccountId>>,
    /// The user's.
    zone: TimeZone,
    dates: K::Dates,
    /// Leaves out later rows than this, and those outside of `dates`.
    until: Option<Timestamp>,
    first_page_rows: Option<u32>,
    /// Rows that the provider first saw after this time are left out, as by later windows of
    /// `/v1/transactions`.
    as_of: Timestamp,
    /// Of the present list.
    pages: Pages,
    last_page: LastPage,
}

/// The ids of the rows of the last page that had rows. A row that was posted meanwhile pushes rows
/// to the next page.
#[derive(Default)]
struct LastPage {
    hasher: RandomState,
    rows: HashSet<u64>,
}

impl LastPage {
    fn hash<K: RowKind>(&self, row: &K::Row<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        K::hash_id(row, &mut hasher);
        hasher.finish()
    }
}

impl<K: RowKind> Range<K> {
    /// Asks for a smaller first page of each list, where the provider lets the caller decide. Later
    /// pages have the largest size.
    pub fn with_first_page_rows(self, rows: u32) -> Self {
        Self {
            first_page_rows: Some(rows.max(1)),
            ..self
        }
    }

    /// Begins at the rows of this instant.
    pub(crate) fn starting_at(self, until: Timestamp) -> Self {
        Self {
            until: Some(until),
            ..self
        }
    }

    /// The same range, as one for each list.
    pub(crate) fn split(self) -> impl Iterator<Item = Self> {
        let rest = move |list| Self {
            reads: self.reads.clone(),
            context: Arc::clone(&self.context),
            lists: VecDeque::from([list]),
            zone: self.zone.clone(),
            dates: self.dates,
            until: self.until,
            first_page_rows: self.first_page_rows,
            as_of: self.as_of,
            pages: Pages::at(self.pages.cursor().cloned()),
            last_page: LastPage::default(),
        };
        self.lists.into_iter().map(rest)
    }

    /// The account of the present list. `None` if it is of all accounts, and at the end.
    pub(crate) fn account_id(&self) -> Option<AccountId> {
        self.lists.front().copied().flatten()
    }

    /// The number of rows in the provider's present list, as last stated.
    pub(crate) fn total(&self) -> Option<u64> {
        self.pages.total()
    }

    pub fn context(&self) -> &Arc<ConnectionContext> {
        &self.context
    }

    /// Reads the next page and passes each of its rows to `rows`. Returns whether pages may follow.
    /// A page may have no rows.
    ///
    /// After an error, or if the future is dropped, the caller must discard the rows of this call:
    /// the next call reads the same page again. No transaction comes twice otherwise. A list of
    /// trades that changes while it is read fails for good ([`Pages`]), and so does a cursor that
    /// the provider does not accept any more, because a new start would repeat rows. A page with an
    /// unreadable row fails, as in `/v1`.
    pub async fn next_page(
        &mut self,
        call: &CallContext,
        rows: &mut RowSink<'_, K>,
    ) -> Result<bool, ReadError> {
        let Some(&account_id) = self.lists.front() else {
            return Ok(false);
        };
        let accounts = self.context.accounts_of(account_id)?;
        let provider = self.reads.provider(&self.context.connection)?;
        let list: List<'_, K> = List {
            provider: lister::<K>(provider.as_ref())?,
            credentials: &self.context.credentials,
            query: K::query(accounts, account_id.is_some(), &self.dates, &self.zone),
            until: self.until,
        };
        let is_first = self.pages.is_unread();
        let page_rows = self
            .first_page_rows
            .filter(|_| is_first)
            .unwrap_or(u32::MAX);
        let (last_page, as_of) = (&self.last_page, self.as_of);
        let (mut newest, mut hashes) = (as_of, HashSet::new());
        let mut sink = |row: &K::Row<'_>, place: K::Place| {
            match K::seen_at(row) {
                // Clocks differ, and the first page shows every row.
                Some(seen_at) if is_first => newest = newest.max(seen_at),
                Some(seen_at) if seen_at > as_of => return,
                _ => {}
            }
            if K::HAS_DISTINCT_IDS {
                let hash = last_page.hash::<K>(row);
                hashes.insert(hash);
                if last_page.rows.contains(&hash) {
                    return;
                }
            }
            rows(row, place);
        };
        let has_next = self.pages.next(&list, call, page_rows, &mut sink).await;
        let status = self.context.connection.status;
        let has_next = has_next
            .map_err(|error| ReadError::from_page(&error, status, self.pages.is_broken()))?;
        self.as_of = newest;
        if !hashes.is_empty() {
            self.last_page.rows = hashes;
        }
        if !has_next {
            self.lists.pop_front();
            if !self.lists.is_empty() {
                self.pages = Pages::default();
            }
        }
        self.reads.record_refresh(&self.context);
        Ok(!self.lists.is_empty())
    }
}

impl Range<Trades> {
    /// Begins each list at a row, by its number in the provider's list.
    pub(crate) fn at_number(self, number: u64) -> Result<Self, ReadError> {
        let provider = self.reads.provider(&self.context.connection)?;
        let brokerage = lister::<Trades>(provider.as_ref())?;
        let pages = Pages::at((number > 0).then(|| brokerage.trades_cursor(number)));
        Ok(Self { pages, ..self })
    }
}

#[cfg(test)]
mod tests;
