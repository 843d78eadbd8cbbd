//! Walks through the trades of one connection: account after account, each newest first.

use std::sync::Arc;

use bellbird_domain::{Account, AccountId, Bound, Caller, DateFilter, Trade};
use bellbird_providers::sweep::PAGES_MAX;
use bellbird_providers::{CallContext, Error, TradePage, TradeQuery};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use tokio::time::Instant;

use super::TOO_MANY_PAGES;
use super::patience::{Patience, WALK_MAX};
use crate::{ConnectionContext, ReadError, Reads};

/// Receives the trades of a page, newest first.
pub type KeepTrade<'k> = dyn for<'row> FnMut(&Trade<'row>) + Send + 'k;

impl Reads {
    /// Prepares a walk through the trades of one account, or of all accounts of a connection. It calls no provider yet.
    ///
    /// Several accounts come one after the other, sorted by id. An absent bound leaves the range open.
    pub fn walk_trades(
        &self,
        caller: &Caller,
        context: Arc<ConnectionContext>,
        account_id: Option<AccountId>,
        span: DateFilter,
    ) -> Result<TradeWalk, ReadError> {
        self.brokerage(&context.connection)?;
        let mut accounts = context.accounts_of(account_id)?.to_vec();
        accounts.sort_by_key(|account| account.id);
        if span.is_empty(&caller.timezone) {
            accounts.clear();
        }
        Ok(TradeWalk {
            reads: self.clone(),
            context,
            accounts,
            zone: caller.timezone.clone(),
            span,
            until: None,
            first_page_rows: None,
            place: Place::default(),
            pages_read: 0,
            broken: None,
            give_up_at: Instant::now() + WALK_MAX,
        })
    }
}

/// All trades of a range.
pub struct TradeWalk {
    reads: Reads,
    context: Arc<ConnectionContext>,
    accounts: Vec<Account>,
    /// The user's.
    zone: TimeZone,
    span: DateFilter,
    /// Leaves out later rows than this, beside those outside of `span`.
    until: Option<Timestamp>,
    first_page_rows: Option<u32>,
    place: Place,
    pages_read: u32,
    /// The list cannot be read on. Every further call fails so.
    broken: Option<Error>,
    give_up_at: Instant,
}

/// Where the next page begins.
#[derive(Default)]
struct Place {
    /// Which of the accounts.
    account: usize,
    /// The row in the provider's list of the account.
    row: u64,
    /// Rows of that list, once known.
    total: Option<u64>,
}

impl TradeWalk {
    /// Asks for a smaller first page of each account. Later pages have the largest size.
    #[must_use]
    pub fn with_first_page_rows(self, rows: u32) -> Self {
        Self { first_page_rows: Some(rows.max(1)), ..self }
    }

    /// Begins at the rows of this instant.
    pub(crate) fn starting_at(self, until: Timestamp) -> Self {
        Self { until: Some(until), ..self }
    }

    /// The same walk, as one for each account.
    pub(crate) fn split(self) -> impl Iterator<Item = Self> {
        let Self { reads, context, accounts, zone, span, until, first_page_rows, give_up_at, .. } = self;
        accounts.into_iter().map(move |account| Self {
            reads: reads.clone(),
            context: Arc::clone(&context),
            accounts: vec![account],
            zone: zone.clone(),
            span,
            until,
            first_page_rows,
            place: Place::default(),
            pages_read: 0,
            broken: None,
            give_up_at,
        })
    }

    /// The account, if it is the only one.
    pub(crate) fn account_id(&self) -> Option<AccountId> {
        let [account] = self.accounts.as_slice() else { return None };
        Some(account.id)
    }

    #[must_use]
    pub fn context(&self) -> &Arc<ConnectionContext> {
        &self.context
    }

    /// Reads the next page and passes each of its rows to `keep`. Returns whether pages may follow. A page may have no
    /// rows.
    ///
    /// After an error, or if the future is dropped, the caller must discard the rows of this call: the next call reads
    /// the same page again. A list that changes while it is read fails for good: equal trades have equal ids, so a row
    /// that moved could not be distinguished from a second equal trade.
    pub async fn next_page(&mut self, call: &CallContext, keep: &mut KeepTrade<'_>) -> Result<bool, ReadError> {
        self.read_page(call, keep).await.map_err(|error| self.read_error(&error))
    }

    /// As [`Self::next_page`], for long reads. See [`super::TransactionWalk::next_page_waiting`].
    pub async fn next_page_waiting(
        &mut self,
        new_call: &mut (dyn FnMut() -> CallContext + Send),
        keep: &mut KeepTrade<'_>,
    ) -> Result<bool, ReadError> {
        let mut patience = Patience::new(self.give_up_at).map_err(|error| self.read_error(&error))?;
        loop {
            let call = new_call();
            match self.read_page(&call, keep).await {
                Err(error) if self.broken.is_none() => {
                    patience.wait(error).await.map_err(|error| self.read_error(&error))?;
                }
                outcome => return outcome.map_err(|error| self.read_error(&error)),
            }
        }
    }

    fn read_error(&self, error: &Error) -> ReadError {
        ReadError::from_provider(error, self.context.connection.status)
    }

    async fn read_page(&mut self, call: &CallContext, keep: &mut KeepTrade<'_>) -> Result<bool, Error> {
        if let Some(error) = &self.broken {
            return Err(error.clone());
        }
        let Some(account) = self.accounts.get(self.place.account) else { return Ok(false) };
        if self.pages_read == PAGES_MAX {
            return Err(self.broken.insert(TOO_MANY_PAGES).clone());
        }
        let page = self.read_page_of(call, account, keep).await?;
        self.pages_read += 1;
        self.reads.record_refresh(&self.context);
        if self.place.total.is_some_and(|total| total != page.total) {
            return Err(self.broken.insert(Error::unavailable("the list changed while it was read")).clone());
        }
        let row = self.place.row + page.rows;
        // A page without rows is the last page, even if the total is larger.
        let is_last = page.rows == 0 || row >= page.total;
        self.place = if is_last {
            Place { account: self.place.account + 1, ..Place::default() }
        } else {
            Place { row, total: Some(page.total), ..self.place }
        };
        Ok(self.place.account < self.accounts.len())
    }

    async fn read_page_of(
        &self,
        call: &CallContext,
        account: &Account,
        keep: &mut KeepTrade<'_>,
    ) -> Result<TradePage, Error> {
        let unavailable = |_| Error::unavailable("the connection cannot be read");
        let provider = self.reads.brokerage(&self.context.connection).map_err(unavailable)?;
        let queried = DateFilter { to: self.until.map(Bound::Instant).or(self.span.to), ..self.span };
        let query = TradeQuery { account, span: &queried, zone: &self.zone };
        let rows_max = provider.trades_rows_max();
        let first_page_rows = self.first_page_rows.filter(|_| self.place.row == 0);
        let rows = first_page_rows.unwrap_or(rows_max).min(rows_max);
        let mut sink = |_: u64, row: Trade<'_>| {
            let is_later = self.until.is_some_and(|until| row.time.instant() > until);
            if !is_later && self.span.contains(row.time, &self.zone) {
                keep(&row);
            }
        };
        provider.trades(call, &self.context.credentials, &query, self.place.row, rows, &mut sink).await
    }
}
