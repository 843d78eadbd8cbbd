//! Walks through the transactions of one connection, of one account or of all.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use bellbird_domain::date::DayFinder;
use bellbird_domain::{AccountId, Bound, Caller, DateFilter, DateRange, Transaction};
use bellbird_providers::sweep::PAGES_MAX;
use bellbird_providers::{CallContext, Cursor, Error, PageRequest, TransactionQuery};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::patience::{Patience, WALK_MAX};
use super::{NEXT_PAGE_IS_THIS_PAGE, TOO_MANY_PAGES};
use crate::transactions::KeepRow;
use crate::{ConnectionContext, ReadError, Reads};

impl Reads {
    /// Prepares a walk through the transactions of one account, or of all accounts of a connection. It calls no
    /// provider yet.
    ///
    /// Without bounds, the range is that of `/v1/transactions`: the last 30 days. `now` resolves it once.
    pub fn walk_transactions(
        &self,
        caller: &Caller,
        context: Arc<ConnectionContext>,
        account_id: Option<AccountId>,
        span: DateFilter,
        now: Timestamp,
    ) -> Result<TransactionWalk, ReadError> {
        self.banking(&context.connection)?;
        let interval = DateRange::resolve(span.from, span.to, now);
        let (first, last) = interval.instants(&caller.timezone);
        let is_empty = first > last || context.accounts_of(account_id)?.is_empty();
        Ok(TransactionWalk {
            reads: self.clone(),
            context,
            account_id,
            zone: caller.timezone.clone(),
            interval,
            until: None,
            first_page_rows: None,
            as_of: now,
            place: if is_empty { Place::End } else { Place::Page(None) },
            pages_read: 0,
            last_page: LastPage::default(),
            give_up_at: Instant::now() + WALK_MAX,
        })
    }
}

/// All transactions of a range, newest first.
pub struct TransactionWalk {
    reads: Reads,
    context: Arc<ConnectionContext>,
    account_id: Option<AccountId>,
    /// The user's.
    zone: TimeZone,
    interval: DateRange,
    /// Leaves out later rows than this, beside those outside of `interval`.
    until: Option<Timestamp>,
    first_page_rows: Option<u32>,
    /// Rows that the provider first saw after this time are left out, as by later windows of `/v1/transactions`.
    as_of: Timestamp,
    place: Place,
    pages_read: u32,
    last_page: LastPage,
    give_up_at: Instant,
}

enum Place {
    /// The page at a cursor, or the first.
    Page(Option<Cursor>),
    End,
    /// The list cannot be read on. Every further call fails so.
    Broken(Error),
}

/// The ids of the rows of the last page that had rows. A row that was posted meanwhile pushes rows to the next page.
#[derive(Default)]
struct LastPage {
    hasher: RandomState,
    rows: HashSet<u64>,
}

impl LastPage {
    fn hash(&self, row: &Transaction<'_>) -> u64 {
        self.hasher.hash_one((row.account.id, row.id.as_ref()))
    }
}

impl TransactionWalk {
    /// Asks for a smaller first page, where the provider lets the caller decide. Later pages have the largest size.
    #[must_use]
    pub fn with_first_page_rows(self, rows: u32) -> Self {
        Self { first_page_rows: Some(rows.max(1)), ..self }
    }

    /// Begins at the rows of this instant.
    pub(crate) fn starting_at(self, until: Timestamp) -> Self {
        Self { until: Some(until), ..self }
    }

    /// `None` for all accounts.
    pub(crate) fn account_id(&self) -> Option<AccountId> {
        self.account_id
    }

    #[must_use]
    pub fn context(&self) -> &Arc<ConnectionContext> {
        &self.context
    }

    /// Reads the next page and passes each of its rows to `keep`, with the row's day in the user's timezone. Returns
    /// whether pages may follow. A page may have no rows.
    ///
    /// After an error, or if the future is dropped, the caller must discard the rows of this call: the next call reads
    /// the same page again. No row comes twice otherwise. A cursor that the provider does not accept any more fails,
    /// because a new start would repeat rows. A page with an unreadable row fails, as in `/v1/transactions`.
    pub async fn next_page(&mut self, call: &CallContext, keep: &mut KeepRow<'_>) -> Result<bool, ReadError> {
        self.read_page(call, keep).await.map_err(|error| self.read_error(&error))
    }

    /// As [`Self::next_page`], for long reads: tries again after a transient failure, and waits for the user's budget
    /// of provider calls. Each attempt has a call context of its own. Gives up after three failed attempts, after two
    /// minutes for one page, and after an hour for the whole walk.
    pub async fn next_page_waiting(
        &mut self,
        new_call: &mut (dyn FnMut() -> CallContext + Send),
        keep: &mut KeepRow<'_>,
    ) -> Result<bool, ReadError> {
        let mut patience = Patience::new(self.give_up_at).map_err(|error| self.read_error(&error))?;
        loop {
            let call = new_call();
            match self.read_page(&call, keep).await {
                Err(error) if !matches!(self.place, Place::Broken(_)) => {
                    patience.wait(error).await.map_err(|error| self.read_error(&error))?;
                }
                outcome => return outcome.map_err(|error| self.read_error(&error)),
            }
        }
    }

    fn read_error(&self, error: &Error) -> ReadError {
        ReadError::from_provider(error, self.context.connection.status)
    }

    async fn read_page(&mut self, call: &CallContext, keep: &mut KeepRow<'_>) -> Result<bool, Error> {
        let cursor = match &self.place {
            Place::Page(_) if self.pages_read == PAGES_MAX => return Err(self.broken(TOO_MANY_PAGES)),
            Place::Page(cursor) => cursor.clone(),
            Place::End => return Ok(false),
            Place::Broken(error) => return Err(error.clone()),
        };
        let next = self.read_page_at(call, cursor.as_ref(), keep).await?;
        self.pages_read += 1;
        self.reads.record_refresh(&self.context);
        if next.is_some() && next == cursor {
            return Err(self.broken(NEXT_PAGE_IS_THIS_PAGE));
        }
        let has_next = next.is_some();
        self.place = if has_next { Place::Page(next) } else { Place::End };
        Ok(has_next)
    }

    fn broken(&mut self, error: Error) -> Error {
        self.place = Place::Broken(error.clone());
        error
    }

    async fn read_page_at(
        &mut self,
        call: &CallContext,
        cursor: Option<&Cursor>,
        keep: &mut KeepRow<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let unavailable = |_| Error::unavailable("the connection cannot be read");
        let provider = self.reads.banking(&self.context.connection).map_err(unavailable)?;
        let accounts = self.context.accounts_of(self.account_id).map_err(unavailable)?;
        let queried = DateRange { to: self.until.map_or(self.interval.to, Bound::Instant), ..self.interval };
        let one_account = self.account_id.is_some();
        let query = TransactionQuery { accounts, one_account, interval: &queried, zone: &self.zone };
        let rows_max = provider.page_rows_max();
        let first_page_rows = self.first_page_rows.filter(|_| cursor.is_none());
        let request = PageRequest { cursor, rows: first_page_rows.unwrap_or(rows_max).min(rows_max) };
        let (interval, until, last_page) = (&self.interval, self.until, &self.last_page);
        let (is_first, as_of) = (cursor.is_none(), self.as_of);
        let (mut newest, mut page_rows) = (as_of, HashSet::new());
        let mut days = DayFinder::new(&self.zone);
        let mut sink = |row: Transaction<'_>| {
            let day = row.day.unwrap_or_else(|| days.day_of(row.instant));
            if until.is_some_and(|until| row.instant > until) || !interval.contains(row.instant, || day) {
                return;
            }
            match row.seen_at {
                // Clocks differ, and the first page shows every row.
                Some(seen_at) if is_first => newest = newest.max(seen_at),
                Some(seen_at) if seen_at > as_of => return,
                _ => {}
            }
            let hash = last_page.hash(&row);
            page_rows.insert(hash);
            if !last_page.rows.contains(&hash) {
                keep(&row, day);
            }
        };
        let next = provider.transactions(call, &self.context.credentials, &query, request, &mut sink).await?;
        self.as_of = newest;
        if !page_rows.is_empty() {
            self.last_page.rows = page_rows;
        }
        Ok(next)
    }
}
