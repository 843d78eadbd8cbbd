//! The simulated providers, a bank and a broker: connections with two accounts each, whose rows
//! appear, change and go.

use std::time::Duration;

use async_trait::async_trait;
use bellbird_domain::lab::Chance;
use bellbird_domain::{
    Account, AccountType, Balance, ConnectionCategory, ConnectionStatus, Currency, ProviderName,
};
use bellbird_providers::simulated::{Row, Simulated};
use bellbird_providers::{
    BalancesQuery, Banking, Brokerage, CallContext, Consent, ConsentStatus, Cursor, Error,
    FoundAccount, FoundConnection, HoldingSink, Kind, Page, PageRequest, Provider, TradeQuery,
    TradeSink, TransactionQuery, TransactionSink,
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::time::Instant;

use super::scene::{Process, Scene};

pub(super) const BANK: &str = "fiskil";
pub(super) const BROKER: &str = "snaptrade";
pub(super) const NAMES: [&str; 2] = [BANK, BROKER];
/// So few that a read takes several pages.
const ROWS_MAX: u32 = 6;
/// Rows may appear so late.
const LATE_SECONDS_MAX: u64 = 5 * 86_400;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeldRow {
    pub(super) number: u64,
    pub(super) account: String,
    second: i64,
    /// Changes with its merchant, or with the name of a trade.
    pub(super) version: u64,
    /// How often its bank has given it another id.
    pub(super) renewals: u32,
    /// Until then, the provider leaves it out.
    pub(super) is_hidden_until: Instant,
}

impl HeldRow {
    /// The ids that it has had, the present one last.
    pub(super) fn ids(&self, connection: usize) -> impl Iterator<Item = String> {
        let id = row_id(connection, self.number);
        (0..=self.renewals).map(move |renewal| {
            if renewal == 0 {
                id.clone()
            } else {
                format!("{id}.{renewal}")
            }
        })
    }

    fn is_listed(&self) -> bool {
        self.is_hidden_until <= Instant::now()
    }
}

/// A connection as its provider has it.
#[derive(Debug)]
pub(super) struct Consented {
    /// Newest first.
    pub(super) rows: Vec<HeldRow>,
    pub(super) gone: Vec<HeldRow>,
    rows_ever: u64,
    /// Until then, the user has to repair the consent.
    pub(super) is_broken_until: Instant,
    pub(super) is_withdrawn: bool,
}

/// The first id of a row. Later ones have a dot and a number behind it.
pub(super) fn row_id(connection: usize, row: u64) -> String {
    format!("c{connection}-r{row}")
}

pub(super) fn accounts(connection: usize) -> [String; 2] {
    ["a", "b"].map(|account| format!("c{connection}-{account}"))
}

impl Consented {
    pub(super) fn new() -> Self {
        let (rows, gone) = (Vec::new(), Vec::new());
        Self {
            rows,
            gone,
            rows_ever: 0,
            is_broken_until: Instant::now(),
            is_withdrawn: false,
        }
    }

    /// Adds a row, of now or of a few days ago.
    pub(super) fn post(&mut self, connection: usize, now: i64, chance: &mut Chance) -> String {
        let late = if chance.per_mille(300) {
            chance.below(LATE_SECONDS_MAX)
        } else {
            0
        };
        self.rows_ever += 1;
        let account = accounts(connection)[chance.below(2) as usize].clone();
        let second = now - i64::try_from(late).expect("days");
        let row = HeldRow {
            number: self.rows_ever,
            account,
            second,
            version: 1,
            renewals: 0,
            is_hidden_until: Instant::now(),
        };
        let at = self
            .rows
            .partition_point(|other| other.second >= row.second);
        self.rows.insert(at, row);
        format!(
            "row {} {late} seconds late",
            row_id(connection, self.rows_ever)
        )
    }
}

/// A provider as a process reaches it.
pub(super) struct Link {
    pub(super) name: &'static str,
    pub(super) scene: Scene,
    pub(super) process: Process,
}

impl Link {
    /// Returns the number of the connection, unless the call fails or the consent does not work.
    async fn call(&self, credentials: &SecretString) -> Result<usize, Error> {
        let delay = {
            let mut state = self.scene.state.lock();
            let slow = state.is_rough && state.chance.per_mille(50);
            if slow {
                state.chance.millis(8_000)
            } else {
                Duration::ZERO
            }
        };
        tokio::time::sleep(delay).await;
        if !self.scene.wait(self.process, "calls the provider").await {
            return Err(Error::Unavailable {
                reason: "simulated",
                retry_after: None,
            });
        }
        let number = connection_of(credentials);
        let state = self.scene.state.lock();
        match &state.consented[number] {
            Consented {
                is_withdrawn: true, ..
            } => Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)),
            Consented {
                is_broken_until, ..
            } if *is_broken_until > Instant::now() => {
                Err(Error::ReconnectNeeded(ConnectionStatus::Invalidated))
            }
            _ => Ok(number),
        }
    }
}

impl Link {
    /// The provider with the rows that it lists now, and nothing else to simulate.
    fn listed(&self, connection: usize) -> Simulated {
        let (name, category) = match self.kind() {
            Kind::Banking(_) => (BANK, ConnectionCategory::Banking),
            Kind::Brokerage(_) => (BROKER, ConnectionCategory::Brokerage),
        };
        let shown = |row: &HeldRow| {
            // A broker's rows have no ids, so they are never renewed.
            let id = match category {
                ConnectionCategory::Banking => row.ids(connection).last().expect("an id"),
                ConnectionCategory::Brokerage => row_id(connection, row.number),
            };
            let mut shown = Row::new(&row.account, id, row.second);
            shown.merchant = Some(format!("connection {connection} version {}", row.version));
            // Another amount for each, so that none looks like another one under a new id.
            shown.amount = format!("-{}.00", row.number);
            shown
        };
        let state = self.scene.state.lock();
        let rows = state.consented[connection].rows.iter();
        let rows = rows.filter(|row| row.is_listed()).map(shown).collect();
        let mut listed = Simulated::new(name, category, ROWS_MAX, rows);
        // A broker lists all rows of an account.
        listed.filters_range = category == ConnectionCategory::Banking;
        listed
    }
}

fn connection_of(credentials: &SecretString) -> usize {
    credentials
        .expose_secret()
        .parse()
        .expect("the number of a connection")
}

#[async_trait]
impl Provider for Link {
    fn name(&self) -> ProviderName {
        ProviderName::new(self.name)
    }

    fn kind(&self) -> Kind<'_> {
        if self.name == BROKER {
            Kind::Brokerage(self)
        } else {
            Kind::Banking(self)
        }
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

    async fn consent(&self, _: &CallContext, credentials: &SecretString) -> Result<Consent, Error> {
        match self.call(credentials).await {
            Ok(_) => Ok(ConsentStatus::Active.into()),
            Err(Error::ReconnectNeeded(status)) => Ok(ConsentStatus::Broken(status).into()),
            Err(error) => Err(error),
        }
    }

    async fn accounts(
        &self,
        _: &CallContext,
        credentials: &SecretString,
    ) -> Result<Vec<FoundAccount>, Error> {
        let number = self.call(credentials).await?;
        let account = |id: String| FoundAccount {
            name: id.clone(),
            provider_account_id: id,
            account_type: AccountType::Transaction,
            number: None,
            currency: Currency::parse("AUD"),
        };
        Ok(accounts(number).map(account).into())
    }

    async fn balances(
        &self,
        _: &CallContext,
        _: &[BalancesQuery<'_>],
    ) -> Vec<Vec<Result<Balance, Error>>> {
        unreachable!("not simulated")
    }

    async fn withdraw(&self, _: &CallContext, credentials: &SecretString) -> Result<(), Error> {
        match self.call(credentials).await {
            Ok(_) | Err(Error::ReconnectNeeded(ConnectionStatus::Invalidated)) => {}
            Err(error) => return Err(error),
        }
        self.scene.state.lock().consented[connection_of(credentials)].is_withdrawn = true;
        Ok(())
    }
}

#[async_trait]
impl Banking for Link {
    fn page_rows_max(&self) -> u32 {
        ROWS_MAX
    }

    async fn transactions(
        &self,
        call: &CallContext,
        credentials: &SecretString,
        query: &TransactionQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TransactionSink<'_>,
    ) -> Result<Option<Cursor>, Error> {
        let connection = self.call(credentials).await?;
        let listed = self.listed(connection);
        Banking::transactions(&listed, call, credentials, query, page, rows).await
    }
}

#[async_trait]
impl Brokerage for Link {
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
        ROWS_MAX
    }

    fn trades_cursor(&self, number: u64) -> Cursor {
        Cursor(number.to_string())
    }

    async fn trades(
        &self,
        call: &CallContext,
        credentials: &SecretString,
        query: &TradeQuery<'_>,
        page: PageRequest<'_>,
        rows: &mut TradeSink<'_>,
    ) -> Result<Page, Error> {
        let connection = self.call(credentials).await?;
        let listed = self.listed(connection);
        Brokerage::trades(&listed, call, credentials, query, page, rows).await
    }
}
