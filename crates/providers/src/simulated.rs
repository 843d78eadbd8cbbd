//! Simulated providers in memory, for the tests of this crate and of those that read from
//! providers.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{
    Account, AccountId, AccountType, Balance, Bound, Category, ConnectionCategory, ConnectionId,
    Currency, DateRange, Decimal, ProviderName, Trade, TradeTime, TradeType, Transaction, UserId,
};
use jiff::Timestamp;
use jiff::civil::Date;
use parking_lot::Mutex;
use secrecy::SecretString;

use crate::{
    BalancesQuery, Banking, Brokerage, CallContext, Consent, Cursor, Error, FoundAccount,
    FoundConnection, HoldingSink, Kind, Page, PageRequest, Provider, TradeQuery, TradeSink,
    TransactionQuery, TransactionSink,
};

pub const NOW: i64 = 1_800_000_000;
pub const UNAVAILABLE: Error = Error::Unavailable {
    reason: "simulated",
    retry_after: None,
};

pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).expect("an instant")
}

/// An account in Australian dollars, of any user.
pub fn account(provider_account_id: &str) -> Account {
    Account {
        id: AccountId::new(),
        user_id: UserId::new(),
        connection_id: ConnectionId::new(),
        provider: "bank".to_owned(),
        provider_account_id: provider_account_id.to_owned(),
        name: "Everyday".to_owned(),
        account_type: AccountType::Transaction,
        institution_name: None,
        number: None,
        currency: Currency::parse("AUD").expect("a currency"),
    }
}

/// A row of a simulated list. Trades have the id as their symbol, and the merchant as its name.
#[derive(Debug, Clone)]
pub struct Row {
    pub id: String,
    /// The provider's id of the account.
    pub account: String,
    /// The place in the list.
    pub second: i64,
    /// The row's own time, if it is another.
    pub own_second: Option<i64>,
    /// The adapter leaves it out.
    pub is_left_out: bool,
    pub day: Option<Date>,
    pub seen_at: Option<i64>,
    pub description: String,
    pub amount: String,
    pub category: Option<Category>,
    pub merchant: Option<String>,
    pub currency: Option<Currency>,
}

impl Row {
    pub fn new(account: &str, id: impl ToString, second: i64) -> Self {
        Self {
            id: id.to_string(),
            account: account.to_owned(),
            second,
            own_second: None,
            is_left_out: false,
            day: None,
            seen_at: None,
            description: "a row".to_owned(),
            amount: "-1.00".to_owned(),
            category: None,
            merchant: None,
            currency: None,
        }
    }

    fn instant(&self) -> Timestamp {
        at(self.own_second.unwrap_or(self.second))
    }

    pub fn transaction<'a>(&'a self, account: &'a Account) -> Transaction<'a> {
        Transaction {
            id: self.id.as_str().into(),
            account,
            instant: self.instant(),
            day: self.day,
            seen_at: self.seen_at.map(at),
            datetime: "".into(),
            description: self.description.as_str().into(),
            amount: Decimal::parse(&self.amount).expect("an amount"),
            category: self.category,
            merchant_name: self.merchant.as_deref().map(Into::into),
            merchant_category_code: None,
            currency: self.currency,
            provider_type: None,
            executed: None,
            reference: None,
            extended_description: None,
        }
    }

    pub fn trade<'a>(&'a self, account: &'a Account) -> Trade<'a> {
        Trade {
            account,
            symbol: self.id.as_str().into(),
            name: self.merchant.as_deref().map(Into::into),
            trade_type: TradeType::Buy,
            provider_type: "BUY".into(),
            quantity: None,
            price: None,
            currency: "AUD".into(),
            total_amount: None,
            fees: None,
            trade_date: "".into(),
            time: TradeTime::Instant(self.instant()),
            settlement_date: None,
            description: None,
        }
    }
}

/// A bank or a broker. A cursor has the number of the row, so a row that is posted pushes others to
/// the next page.
pub struct Simulated {
    pub name: ProviderName,
    pub category: ConnectionCategory,
    pub rows_max: u32,
    /// Every such call for transactions is answered with a page without rows. 0 for none.
    pub empty_every: usize,
    /// Whether rows outside of the query's range are left out.
    pub filters_range: bool,
    /// Newest first.
    pub rows: Mutex<Vec<Row>>,
    /// The outcomes of the next calls: `None` succeeds. Further calls succeed.
    pub script: Mutex<VecDeque<Option<Error>>>,
    /// The account, the first row and the size of each call.
    pub calls: Mutex<Vec<(Option<String>, u64, u32)>>,
    /// How long each call takes.
    delay: Duration,
    running: AtomicUsize,
    /// The most calls that ran at once.
    pub running_max: AtomicUsize,
    /// As [`Provider::syncs_wait`].
    pub syncs_wait: AtomicBool,
}

impl Simulated {
    pub fn new(
        name: &'static str,
        category: ConnectionCategory,
        rows_max: u32,
        rows: Vec<Row>,
    ) -> Self {
        Self {
            name: ProviderName::new(name),
            category,
            rows_max,
            empty_every: 0,
            filters_range: true,
            rows: Mutex::new(rows),
            script: Mutex::default(),
            calls: Mutex::default(),
            delay: Duration::ZERO,
            running: AtomicUsize::new(0),
            running_max: AtomicUsize::new(0),
            syncs_wait: AtomicBool::new(false),
        }
    }

    pub fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub fn bank(rows_max: u32, rows: Vec<Row>) -> Self {
        Self::new("bank", ConnectionCategory::Banking, rows_max, rows)
    }

    pub fn broker(rows_max: u32, rows: Vec<Row>) -> Self {
        Self::new("broker", ConnectionCategory::Brokerage, rows_max, rows)
    }

    pub fn fail_next(&self, outcomes: impl IntoIterator<Item = Option<Error>>) {
        self.script.lock().extend(outcomes);
    }

    /// Adds a row in its place, behind rows of the same instant.
    pub fn post(&self, row: Row) {
        let mut rows = self.rows.lock();
        let at = rows.partition_point(|other| other.second >= row.second);
        rows.insert(at, row);
    }

    /// The number of calls since it was asked last.
    pub fn take_calls(&self) -> usize {
        std::mem::take(&mut *self.calls.lock()).len()
    }

    async fn call(&self, account: Option<String>, first: u64, rows: u32) -> Result<(), Error> {
        assert!((1..=self.rows_max).contains(&rows), "requested {rows} rows");
        self.calls.lock().push((account, first, rows));
        let running = self.running.fetch_add(1, Ordering::Relaxed) + 1;
        self.running_max.fetch_max(running, Ordering::Relaxed);
        tokio::time::sleep(self.delay).await;
        self.running.fetch_sub(1, Ordering::Relaxed);
        self.script.lock().pop_front().flatten().map_or(Ok(()), Err)
    }

    /// Passes on a page of the rows of the range, and of two seconds behind its end. Returns how
    /// many rows there are.
    fn page(
        &self,
        accounts: &[Account],
        (first, last): (Timestamp, Timestamp),
        page: Range<usize>,
        sink: &mut dyn FnMut(usize, &Row, &Account),
    ) -> usize {
        let range = first.as_second()..=last.as_second().saturating_add(2);
        let mut listed = 0;
        for row in &*self.rows.lock() {
            let account = accounts
                .iter()
                .find(|account| account.provider_account_id == row.account);
            let Some(account) =
                account.filter(|_| !self.filters_range || range.contains(&row.second))
            else {
                continue;
            };
            if page.contains(&listed) && !row.is_left_out {
                sink(listed - page.start, row, account);
            }
            listed += 1;
        }
        listed
    }
}

#[async_trait]
impl Provider for Simulated {
    fn name(&self) -> ProviderName {
        self.name
    }

    fn kind(&self) -> Kind<'_> {
        match self.category {
            ConnectionCategory::Banking => Kind::Banking(self),
            ConnectionCategory::Brokerage => Kind::Brokerage(self),
        }
    }

    fn syncs_wait(&self) -> bool {
        self.syncs_wait.load(Ordering::SeqCst)
    }

    async fn check(&self, _: &CallContext) -> Result<(), Error> {
        unreachable!("not simulated")
    }

    async fn discover(
        &self,
        _: &CallContext,
        _: &SecretString,
    ) -> Result<Vec<FoundConnection>, Error> {
        unreachable!("not simulated")
    }

    async fn consent(&self, _: &CallContext, _: &SecretString) -> Result<Consent, Error> {
        unreachable!("not simulated")
    }

    async fn accounts(
        &self,
        _: &CallContext,
        _: &SecretString,
    ) -> Result<Vec<FoundAccount>, Error> {
        unreachable!("not simulated")
    }

    async fn balances(
        &self,
        _: &CallContext,
        _: &[BalancesQuery<'_>],
    ) -> Vec<Vec<Result<Balance, Error>>> {
        unreachable!("not simulated")
    }

    async fn withdraw(&self, _: &CallContext, _: &SecretString) -> Result<(), Error> {
        unreachable!("not simulated")
    }
}

#[async_trait]
impl Banking for Simulated {
    fn page_rows_max(&self) -> u32 {
        self.rows_max
    }

    async fn transactions(
        &self,
        _: &CallContext,
        _: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TransactionSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        // The row, and how many empty pages came before it.
        let (first, empty_pages): (usize, usize) = page.cursor.map_or((0, 0), |cursor| {
            let (row, empty_pages) = cursor.0.split_once('.').expect("a cursor of this provider");
            (
                row.parse().expect("a row"),
                empty_pages.parse().expect("a number"),
            )
        });
        let account = query
            .one_account
            .then(|| query.accounts[0].provider_account_id.clone());
        self.call(account, first as u64, page.rows).await?;
        if self.empty_every > 0 && self.calls.lock().len().is_multiple_of(self.empty_every) {
            return Ok(Some(Cursor(format!("{first}.{}", empty_pages + 1))));
        }
        let end = first + page.rows as usize;
        let mut sink = |_: usize, row: &Row, account: &Account| rows(row.transaction(account));
        let listed = self.page(
            query.accounts,
            query.dates.instants(query.zone),
            first..end,
            &mut sink,
        );
        Ok((end < listed).then(|| Cursor(format!("{end}.0"))))
    }
}

#[async_trait]
impl Brokerage for Simulated {
    async fn holdings(
        &self,
        _: &CallContext,
        _: &SecretString,
        _: &Account,
        _: &mut HoldingSink<'_>,
    ) -> Result<(), Error> {
        unreachable!("not simulated")
    }

    fn trades_rows_max(&self) -> u32 {
        self.rows_max
    }

    fn trades_cursor(&self, number: u64) -> Cursor {
        Cursor(number.to_string())
    }

    async fn trades(
        &self,
        _: &CallContext,
        _: &SecretString,
        query: &TradeQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TradeSink<'_>,
    ) -> Result<Page, Error> {
        let first: usize = page.cursor.map_or(0, |cursor| {
            cursor.0.parse().expect("a cursor of this provider")
        });
        let account = query.account.provider_account_id.clone();
        self.call(Some(account), first as u64, page.rows).await?;
        let end = first.saturating_add(page.rows as usize);
        let dates = DateRange {
            from: query.dates.from.unwrap_or(Bound::Instant(at(0))),
            to: query.dates.to.unwrap_or(Bound::Instant(at(NOW * 2))),
        };
        let mut sink =
            |at: usize, row: &Row, account: &Account| rows((first + at) as u64, row.trade(account));
        let accounts = std::slice::from_ref(query.account);
        let listed = self.page(accounts, dates.instants(query.zone), first..end, &mut sink);
        Ok(Page {
            next: (end < listed).then(|| Brokerage::trades_cursor(self, end as u64)),
            total: Some(listed as u64),
        })
    }
}
