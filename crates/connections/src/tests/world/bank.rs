//! The simulated provider: connections with two accounts each, whose rows appear, change and go.

use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::{Account, AccountType, Balance, Currency, ProviderName};
use bellbird_providers::simulated::Row;
use bellbird_providers::{
    BalancesQuery, Banking, CallContext, Consent, ConsentStatus, Cursor, Error, FoundAccount, FoundConnection, Kind,
    PageRequest, PageRowSink, Provider, ProviderHealth, TransactionQuery,
};
use secrecy::{ExposeSecret as _, SecretString};

use super::scene::{Chance, Process, Scene};

pub(super) const NAME: &str = "fiskil";
/// So few that a read takes several pages.
const ROWS_MAX: u32 = 6;
/// Rows may appear so late.
const LATE_SECONDS_MAX: u64 = 5 * 86_400;

/// A row of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct BankRow {
    pub(super) number: u64,
    pub(super) account: String,
    second: i64,
    /// Changes with its description.
    pub(super) version: u64,
}

#[derive(Debug, Default)]
pub(super) struct BankConnection {
    /// Newest first.
    pub(super) rows: Vec<BankRow>,
    /// Rows that are gone.
    pub(super) gone: Vec<BankRow>,
    rows_ever: u64,
}

/// Everything at the provider, by the number of the connection.
#[derive(Debug, Default)]
pub(super) struct Bank(pub(super) Vec<BankConnection>);

pub(super) fn row_id(connection: usize, row: u64) -> String {
    format!("c{connection}-r{row}")
}

pub(super) fn accounts(connection: usize) -> [String; 2] {
    ["a", "b"].map(|account| format!("c{connection}-{account}"))
}

impl BankConnection {
    /// Adds a row, of now or of a few days ago.
    pub(super) fn post(&mut self, connection: usize, now: i64, chance: &mut Chance) -> String {
        let late = if chance.per_mille(300) { chance.below(LATE_SECONDS_MAX) } else { 0 };
        self.rows_ever += 1;
        let account = accounts(connection)[chance.below(2) as usize].clone();
        let second = now - i64::try_from(late).expect("days");
        let row = BankRow { number: self.rows_ever, account, second, version: 1 };
        let at = self.rows.partition_point(|other| other.second >= row.second);
        self.rows.insert(at, row);
        format!("row {} {late} seconds late", row_id(connection, self.rows_ever))
    }
}

/// The provider as a process reaches it.
pub(super) struct Link {
    pub(super) scene: Scene,
    pub(super) process: Process,
}

impl Link {
    async fn call(&self) -> Result<(), Error> {
        let delay = {
            let mut state = self.scene.state.lock();
            let slow = state.is_rough && state.chance.per_mille(50);
            if slow { state.chance.millis(8_000) } else { Duration::ZERO }
        };
        tokio::time::sleep(delay).await;
        let failed = Error::Unavailable { reason: "simulated", retry_after: None };
        if self.scene.wait(self.process, "calls the bank").await { Ok(()) } else { Err(failed) }
    }
}

fn connection_of(credentials: &SecretString) -> usize {
    credentials.expose_secret().parse().expect("the number of a connection")
}

#[async_trait]
impl Provider for Link {
    fn name(&self) -> ProviderName {
        ProviderName::new(NAME)
    }

    fn kind(&self) -> Kind<'_> {
        Kind::Banking(self)
    }

    fn health(&self) -> ProviderHealth {
        ProviderHealth::default()
    }

    async fn check(&self, _: &CallContext) -> Result<(), Error> {
        unreachable!("not simulated")
    }

    async fn discover(&self, _: &CallContext, _: &SecretString) -> Result<Vec<FoundConnection>, Error> {
        unreachable!("not simulated")
    }

    async fn consent(&self, _: &CallContext, _: &SecretString) -> Result<Consent, Error> {
        self.call().await?;
        Ok(ConsentStatus::Active.into())
    }

    async fn accounts(&self, _: &CallContext, credentials: &SecretString) -> Result<Vec<FoundAccount>, Error> {
        self.call().await?;
        let account = |id: String| FoundAccount {
            name: id.clone(),
            provider_account_id: id,
            account_type: AccountType::Transaction,
            number: None,
            currency: Currency::parse("AUD"),
        };
        Ok(accounts(connection_of(credentials)).map(account).into())
    }

    async fn balances(&self, _: &CallContext, _: &[BalancesQuery<'_>]) -> Vec<Vec<Result<Balance, Error>>> {
        unreachable!("not simulated")
    }

    async fn withdraw(&self, _: &CallContext, _: &SecretString) -> Result<(), Error> {
        unreachable!("not simulated")
    }
}

#[async_trait]
impl Banking for Link {
    fn page_rows_max(&self) -> u32 {
        ROWS_MAX
    }

    async fn transactions(
        &self,
        _: &CallContext,
        credentials: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut PageRowSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        self.call().await?;
        let connection = connection_of(credentials);
        let (from, to) = query.interval.instants(query.zone);
        let first: usize = page.cursor.map_or(0, |cursor| cursor.0.parse().expect("a cursor of this provider"));
        let state = self.scene.state.lock();
        let is_asked_for = |row: &&BankRow| {
            (from.as_second()..=to.as_second()).contains(&row.second) && account_of(query.accounts, row).is_some()
        };
        let list: Vec<&BankRow> = state.bank.0[connection].rows.iter().filter(is_asked_for).collect();
        let end = first + page.rows as usize;
        for row in list.iter().skip(first).take(page.rows as usize) {
            let account = account_of(query.accounts, row).expect("filtered");
            let mut shown = Row::new(&row.account, row_id(connection, row.number), row.second);
            shown.description = format!("connection {connection} version {}", row.version);
            // Another day or amount, so that none looks like another one under a new id.
            shown.amount = format!("-{}.00", row.number);
            rows(shown.transaction(account));
        }
        Ok((end < list.len()).then(|| Cursor(end.to_string())))
    }
}

fn account_of<'a>(accounts: &'a [Account], row: &BankRow) -> Option<&'a Account> {
    accounts.iter().find(|account| account.provider_account_id == row.account)
}
