//! Reads the trades of one connection: account after account, each newest first.

use std::sync::Arc;

use bellbird_domain::{Account, AccountId, Caller, DateFilter};
use bellbird_providers::pages::{TradeList, TradePages};
use bellbird_providers::{CallContext, TradeQuery, TradeSink};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::{ConnectionContext, ReadError, Reads};

impl Reads {
    /// Prepares the read of all trades of one account, or of all accounts of a connection. It calls
    /// no provider yet.
    ///
    /// Several accounts come one after the other, sorted by id. An absent bound leaves the range
    /// open.
    pub fn trade_range(
        &self,
        caller: &Caller,
        context: Arc<ConnectionContext>,
        account_id: Option<AccountId>,
        span: DateFilter,
    ) -> Result<TradeRange, ReadError> {
        self.brokerage(&context.connection)?;
        let mut accounts = context.accounts_of(account_id)?.to_vec();
        accounts.sort_by_key(|account| account.id);
        if span.is_empty(&caller.timezone) {
            accounts.clear();
        }
        Ok(TradeRange {
            reads: self.clone(),
            context,
            accounts,
            zone: caller.timezone.clone(),
            span,
            until: None,
            first_page_rows: None,
            at: 0,
            pages: TradePages::default(),
        })
    }
}

/// All trades of a range.
pub struct TradeRange {
    reads: Reads,
    context: Arc<ConnectionContext>,
    accounts: Vec<Account>,
    /// The user's.
    zone: TimeZone,
    span: DateFilter,
    /// Leaves out later rows than this, and those outside of `span`.
    until: Option<Timestamp>,
    first_page_rows: Option<u32>,
    /// Which of the accounts is read now.
    at: usize,
    /// Of that account.
    pages: TradePages,
}

impl TradeRange {
    /// Asks for a smaller first page of each account. Later pages have the largest size.
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

    /// The same range, as one for each account.
    pub(crate) fn split(self) -> impl Iterator<Item = Self> {
        let Self {
            reads,
            context,
            accounts,
            zone,
            span,
            until,
            first_page_rows,
            ..
        } = self;
        accounts.into_iter().map(move |account| Self {
            reads: reads.clone(),
            context: Arc::clone(&context),
            accounts: vec![account],
            zone: zone.clone(),
            span,
            until,
            first_page_rows,
            at: 0,
            pages: TradePages::default(),
        })
    }

    /// The account, if it is the only one.
    pub(crate) fn account_id(&self) -> Option<AccountId> {
        let [account] = self.accounts.as_slice() else {
            return None;
        };
        Some(account.id)
    }

    pub fn context(&self) -> &Arc<ConnectionContext> {
        &self.context
    }

    /// Reads the next page and passes each of its rows to `rows`. Returns whether pages may follow.
    /// A page may have no rows.
    ///
    /// After an error, or if the future is dropped, the caller must discard the rows of this call:
    /// the next call reads the same page again. A list that changes while it is read fails for
    /// good: equal trades have equal ids, so a row that moved could not be distinguished from a
    /// second equal trade.
    pub async fn next_page(
        &mut self,
        call: &CallContext,
        rows: &mut TradeSink<'_>,
    ) -> Result<bool, ReadError> {
        let Some(account) = self.accounts.get(self.at) else {
            return Ok(false);
        };
        let provider = self.reads.brokerage(&self.context.connection)?;
        let query = TradeQuery {
            account,
            span: &self.span,
            zone: &self.zone,
        };
        let list = TradeList {
            provider,
            credentials: &self.context.credentials,
            query,
            until: self.until,
        };
        let page_rows = self
            .first_page_rows
            .filter(|_| self.pages.row() == 0)
            .unwrap_or(u32::MAX);
        let more = self.pages.next(&list, call, page_rows, rows).await;
        let status = self.context.connection.status;
        if !more.map_err(|error| ReadError::from_page(&error, status, self.pages.is_broken()))? {
            (self.at, self.pages) = (self.at + 1, TradePages::default());
        }
        self.reads.record_refresh(&self.context);
        Ok(self.at < self.accounts.len())
    }
}
