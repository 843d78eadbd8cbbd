//! Simulated providers in memory, and reads over them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::Clock;
use bellbird_domain::{
    Account, AccountId, AccountType, Balance, Caller, Category, Connection, ConnectionCategory, ConnectionId,
    ConnectionStatus, Currency, Decimal, KeyId, Plan, ProviderName, Trade, TradeTime, TradeType, Transaction, UserId,
};
use bellbird_providers::{
    BalancesQuery, Banking, Brokerage, CallContext, ConsentStatus, Cursor, Error, FoundAccount, FoundConnection,
    HoldingSink, Kind, PageRequest, PageRowSink, Provider, Registry, TradePage, TradeQuery, TradeSink,
    TransactionQuery,
};
use bellbird_storage::{Sealer, Storage};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use parking_lot::Mutex;
use secrecy::SecretString;
use tempfile::TempDir;
use tokio::time::Instant;

use crate::{ConnectionContext, Limits, Reads};

pub(crate) const NOW: i64 = 1_800_000_000;

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// An account in Australian dollars, of any user.
pub(crate) fn account(provider_account_id: &str) -> Account {
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
        currency: Currency::parse("AUD").unwrap(),
    }
}

/// A row of a simulated list. Trades have the id as their symbol.
#[derive(Debug, Clone)]
pub(crate) struct Row {
    pub(crate) id: String,
    /// The provider's id of the account.
    pub(crate) account: String,
    pub(crate) second: i64,
    pub(crate) day: Option<Date>,
    pub(crate) seen_at: Option<i64>,
    pub(crate) description: String,
    pub(crate) amount: String,
    pub(crate) category: Option<Category>,
    pub(crate) merchant: Option<String>,
    pub(crate) currency: Option<Currency>,
}

impl Row {
    pub(crate) fn new(account: &str, id: impl ToString, second: i64) -> Self {
        Self {
            id: id.to_string(),
            account: account.to_owned(),
            second,
            day: None,
            seen_at: None,
            description: "a row".to_owned(),
            amount: "-1.00".to_owned(),
            category: None,
            merchant: None,
            currency: None,
        }
    }

    pub(crate) fn transaction<'a>(&'a self, account: &'a Account) -> Transaction<'a> {
        Transaction {
            id: self.id.as_str().into(),
            account,
            instant: at(self.second),
            day: self.day,
            seen_at: self.seen_at.map(at),
            datetime: "".into(),
            description: self.description.as_str().into(),
            amount: Decimal::parse(&self.amount).unwrap(),
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

    fn trade<'a>(&'a self, account: &'a Account) -> Trade<'a> {
        Trade {
            account,
            symbol: self.id.as_str().into(),
            name: None,
            trade_type: TradeType::Buy,
            provider_type: "BUY".into(),
            quantity: None,
            price: None,
            currency: "AUD".into(),
            total_amount: None,
            fees: None,
            trade_date: "".into(),
            time: TradeTime::Instant(at(self.second)),
            settlement_date: None,
            description: None,
        }
    }
}

/// A bank or a broker. A cursor is the number of the row, so a row that is posted pushes others to the next page.
pub(crate) struct Simulated {
    name: ProviderName,
    category: ConnectionCategory,
    pub(crate) rows_max: u32,
    /// Newest first.
    pub(crate) rows: Mutex<Vec<Row>>,
    /// The outcomes of the next calls: `None` succeeds. Further calls succeed.
    pub(crate) script: Mutex<VecDeque<Option<Error>>>,
    /// The account, the first row and the size of each call.
    pub(crate) calls: Mutex<Vec<(Option<String>, u64, u32)>>,
    /// How long each call takes.
    delay: Duration,
    running: AtomicUsize,
    /// The most calls that ran at once.
    pub(crate) running_max: AtomicUsize,
}

impl Simulated {
    pub(crate) fn new(name: &'static str, category: ConnectionCategory, rows_max: u32, rows: Vec<Row>) -> Self {
        let (running, running_max) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let (rows, script, calls) = (Mutex::new(rows), Mutex::default(), Mutex::default());
        let (name, delay) = (ProviderName::new(name), Duration::ZERO);
        Self { name, category, rows_max, rows, script, calls, delay, running, running_max }
    }

    pub(crate) fn with_delay(self, delay: Duration) -> Self {
        Self { delay, ..self }
    }

    pub(crate) fn bank(rows_max: u32, rows: Vec<Row>) -> Self {
        Self::new("bank", ConnectionCategory::Banking, rows_max, rows)
    }

    pub(crate) fn broker(rows_max: u32, rows: Vec<Row>) -> Self {
        Self::new("broker", ConnectionCategory::Brokerage, rows_max, rows)
    }

    pub(crate) fn fail_next(&self, outcomes: impl IntoIterator<Item = Option<Error>>) {
        self.script.lock().extend(outcomes);
    }

    /// Adds a row in its place, behind rows of the same instant.
    pub(crate) fn post(&self, row: Row) {
        let mut rows = self.rows.lock();
        let at = rows.partition_point(|other| other.second >= row.second);
        rows.insert(at, row);
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

    /// The rows of the range, with two seconds more behind its end.
    fn listed(&self, accounts: &[Account], (first, last): (Timestamp, Timestamp)) -> Vec<Row> {
        let is_listed = |row: &&Row| {
            let is_own = accounts.iter().any(|account| account.provider_account_id == row.account);
            is_own && (first.as_second()..=last.as_second() + 2).contains(&row.second)
        };
        self.rows.lock().iter().filter(is_listed).cloned().collect()
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

    async fn check(&self, _: &CallContext) -> Result<(), Error> {
        unreachable!("not simulated")
    }

    async fn discover(&self, _: &CallContext, _: &SecretString) -> Result<Vec<FoundConnection>, Error> {
        unreachable!("not simulated")
    }

    async fn consent_status(&self, _: &CallContext, _: &SecretString) -> Result<ConsentStatus, Error> {
        unreachable!("not simulated")
    }

    async fn accounts(&self, _: &CallContext, _: &SecretString) -> Result<Vec<FoundAccount>, Error> {
        unreachable!("not simulated")
    }

    async fn balances(&self, _: &CallContext, _: &[BalancesQuery<'_>]) -> Vec<Vec<Result<Balance, Error>>> {
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
        rows: &mut PageRowSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let first: usize = page.cursor.map_or(0, |cursor| cursor.0.parse().unwrap());
        let account = query.one_account.then(|| query.accounts[0].provider_account_id.clone());
        self.call(account, first as u64, page.rows).await?;
        let listed = self.listed(query.accounts, query.interval.instants(query.zone));
        let end = (first + page.rows as usize).min(listed.len());
        for row in listed.iter().take(end).skip(first) {
            let account = query.accounts.iter().find(|account| account.provider_account_id == row.account).unwrap();
            rows(row.transaction(account));
        }
        Ok((end < listed.len()).then(|| Cursor(end.to_string())))
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

    async fn trades(
        &self,
        _: &CallContext,
        _: &SecretString,
        query: &TradeQuery<'_>,
        offset: u64,
        limit: u32,
        rows: &mut TradeSink<'_>,
    ) -> Result<TradePage, Error> {
        self.call(Some(query.account.provider_account_id.clone()), offset, limit).await?;
        let (first, last) = (query.span.from, query.span.to);
        let interval = bellbird_domain::DateRange {
            from: first.unwrap_or(bellbird_domain::Bound::Instant(at(0))),
            to: last.unwrap_or(bellbird_domain::Bound::Instant(at(NOW * 2))),
        };
        let listed = self.listed(std::slice::from_ref(query.account), interval.instants(query.zone));
        let page = listed.iter().skip(usize::try_from(offset).unwrap()).take(limit as usize);
        let mut given = 0;
        for row in page {
            rows(given, row.trade(query.account));
            given += 1;
        }
        Ok(TradePage { rows: given, total: listed.len() as u64 })
    }
}

/// Reads over simulated providers, with a database that only refresh times are written to.
pub(crate) struct World {
    pub(crate) reads: Reads,
    pub(crate) caller: Caller,
    _folder: TempDir,
}

impl World {
    pub(crate) async fn new(providers: &[&Arc<Simulated>]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("reads.db").display());
        let storage = Storage::open(&url, Sealer::random()).await.unwrap();
        let providers = providers.iter().map(|provider| Arc::clone(provider) as Arc<dyn Provider>).collect::<Vec<_>>();
        let limits = Limits { deadline: Duration::from_secs(25), row_cap: 5_000 };
        let reads = Reads::new(storage, Registry::of(providers), Clock::manual(at(NOW)), limits);
        let caller = Caller {
            key_id: KeyId::new(),
            user_id: UserId::new(),
            plan: Plan::Professional,
            timezone: TimeZone::UTC,
            revision: 1,
        };
        Self { reads, caller, _folder: folder }
    }

    /// A connection with these accounts, by the provider's ids.
    pub(crate) fn connection(&self, provider: &Simulated, accounts: &[&str]) -> Arc<ConnectionContext> {
        let (id, user_id) = (ConnectionId::new(), self.caller.user_id);
        let account = |provider_account_id: &&str| Account {
            user_id,
            connection_id: id,
            provider: provider.name.as_str().to_owned(),
            ..account(provider_account_id)
        };
        let connection = Connection {
            id,
            user_id,
            provider: provider.name.as_str().to_owned(),
            category: provider.category,
            institution_id: "1".to_owned(),
            institution_name: "Bank".to_owned(),
            institution_logo: None,
            status: ConnectionStatus::Active,
            last_refreshed_at: None,
            created_at: at(0),
        };
        Arc::new(ConnectionContext {
            connection,
            accounts: accounts.iter().map(account).collect(),
            credentials: SecretString::from(""),
            revision: 1,
            refreshed_us: AtomicI64::new(i64::MIN),
        })
    }

    pub(crate) fn call(&self) -> CallContext {
        CallContext::new(Instant::now() + Duration::from_secs(25), at(NOW))
    }
}
