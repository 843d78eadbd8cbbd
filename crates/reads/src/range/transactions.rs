//! Reads the transactions of one connection, of one account or of all.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use bellbird_domain::{AccountId, Caller, DateFilter, DateRange, Transaction};
use bellbird_providers::pages::{TransactionList, TransactionPages};
use bellbird_providers::{CallContext, RowSink, TransactionQuery};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;

use crate::{ConnectionContext, ReadError, Reads};

impl Reads {
    /// Prepares the read of all transactions of one account, or of all accounts of a connection. It
    /// calls no provider yet.
    ///
    /// Without bounds, the range is that of `/v1/transactions`: the last 30 days. `now` resolves it
    /// once.
    pub fn transaction_range(
        &self,
        caller: &Caller,
        context: Arc<ConnectionContext>,
        account_id: Option<AccountId>,
        span: DateFilter,
        now: Timestamp,
    ) -> Result<TransactionRange, ReadError> {
        self.banking(&context.connection)?;
        let interval = DateRange::resolve(span.from, span.to, now);
        let (first, last) = interval.instants(&caller.timezone);
        let is_empty = first > last || context.accounts_of(account_id)?.is_empty();
        Ok(TransactionRange {
            reads: self.clone(),
            context,
            account_id,
            zone: caller.timezone.clone(),
            interval,
            until: None,
            first_page_rows: None,
            as_of: now,
            pages: if is_empty {
                TransactionPages::at_end()
            } else {
                TransactionPages::default()
            },
            last_page: LastPage::default(),
        })
    }
}

/// All transactions of a range, newest first.
pub struct TransactionRange {
    reads: Reads,
    context: Arc<ConnectionContext>,
    account_id: Option<AccountId>,
    /// The user's.
    zone: TimeZone,
    interval: DateRange,
    /// Leaves out later rows than this, and those outside of `interval`.
    until: Option<Timestamp>,
    first_page_rows: Option<u32>,
    /// Rows that the provider first saw after this time are left out, as by later windows of
    /// `/v1/transactions`.
    as_of: Timestamp,
    pages: TransactionPages,
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
    fn hash(&self, row: &Transaction<'_>) -> u64 {
        self.hasher.hash_one((row.account.id, row.id.as_ref()))
    }
}

impl TransactionRange {
    /// Asks for a smaller first page, where the provider lets the caller decide. Later pages have
    /// the largest size.
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

    /// `None` for all accounts.
    pub(crate) fn account_id(&self) -> Option<AccountId> {
        self.account_id
    }

    pub fn context(&self) -> &Arc<ConnectionContext> {
        &self.context
    }

    /// Reads the next page and passes each of its rows to `rows`, with the row's day in the user's
    /// timezone. Returns whether pages may follow. A page may have no rows.
    ///
    /// After an error, or if the future is dropped, the caller must discard the rows of this call:
    /// the next call reads the same page again. No row comes twice otherwise. A cursor that the
    /// provider does not accept any more fails, because a new start would repeat rows. A page with
    /// an unreadable row fails, as in `/v1/transactions`.
    pub async fn next_page(
        &mut self,
        call: &CallContext,
        rows: &mut RowSink<'_>,
    ) -> Result<bool, ReadError> {
        if self.pages.is_ended() {
            return Ok(false);
        }
        let provider = self.reads.banking(&self.context.connection)?;
        let accounts = self.context.accounts_of(self.account_id)?;
        let one_account = self.account_id.is_some();
        let query = TransactionQuery {
            accounts,
            one_account,
            interval: &self.interval,
            zone: &self.zone,
        };
        let list = TransactionList {
            provider,
            credentials: &self.context.credentials,
            query,
            until: self.until,
        };
        let is_first = self.pages.cursor().is_none();
        let page_rows = self
            .first_page_rows
            .filter(|_| is_first)
            .unwrap_or(u32::MAX);
        let (last_page, as_of) = (&self.last_page, self.as_of);
        let (mut newest, mut hashes) = (as_of, HashSet::new());
        let mut sink = |row: &Transaction<'_>, day: Date| {
            match row.seen_at {
                // Clocks differ, and the first page shows every row.
                Some(seen_at) if is_first => newest = newest.max(seen_at),
                Some(seen_at) if seen_at > as_of => return,
                _ => {}
            }
            let hash = last_page.hash(row);
            hashes.insert(hash);
            if !last_page.rows.contains(&hash) {
                rows(row, day);
            }
        };
        let has_next = self.pages.next(&list, call, page_rows, &mut sink).await;
        let status = self.context.connection.status;
        let has_next = has_next
            .map_err(|error| ReadError::from_page(&error, status, self.pages.is_broken()))?;
        self.as_of = newest;
        if !hashes.is_empty() {
            self.last_page.rows = hashes;
        }
        self.reads.record_refresh(&self.context);
        Ok(has_next)
    }
}
