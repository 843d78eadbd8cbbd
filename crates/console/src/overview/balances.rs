//! Net worth by currency, and the balances of each institution, from `/v1/balances`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use askama::Template;
use bellbird_domain::{
    Account, Connection, ConnectionCategory, ConnectionStatus, Currency, Decimal, ExactSum,
};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::query::OverviewQuery;
use crate::api_client::{Aged, ApiError, List};
use crate::pages::names::sanitized;
use crate::pages::{BankNames, BankTrouble, Frame, Money, Number, rendered_part};
use crate::session::Session;

/// Accounts of one request for balances.
const ACCOUNTS_MAX: usize = 100;
/// Accounts that show at once. Those of more are behind their institutions.
const OPEN_ACCOUNTS_MAX: usize = 8;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Balance {
    account_id: String,
    current_balance: Option<String>,
    currency: Option<String>,
    error: Option<String>,
}

/// The balances of all accounts, and the time of the oldest.
struct Balances {
    list: Vec<Balance>,
    as_of: Timestamp,
}

#[derive(Template)]
#[template(path = "overview_balances.html")]
struct BalancesPart<'a> {
    frame: &'a Frame,
    query: &'a OverviewQuery,
    state: BalancesState,
    net_worth: Vec<Money>,
    /// Whether the accounts show at once.
    is_open: bool,
    institutions: Vec<InstitutionBalances>,
    /// Institutions that could not be read, unless the page says already that they need the user.
    troubles: Vec<BankTrouble>,
    /// Accounts without a balance, which are in no sum.
    missing: usize,
}

impl BalancesPart<'_> {
    fn is_awaited(&self) -> bool {
        matches!(self.state, BalancesState::Awaited)
    }
}

enum BalancesState {
    /// The balances are still being read, so that each has an ellipsis in its place.
    Awaited,
    Failed(String),
    Read {
        as_of: String,
        /// The query of the page that reads them again.
        refresh: String,
    },
}

struct InstitutionBalances {
    name: String,
    is_sandbox: bool,
    sums: Vec<Money>,
    rows: Vec<BalanceRow>,
}

struct BalanceRow {
    name: String,
    number: Option<String>,
    /// The page with what is in the account.
    path: String,
    /// None: the provider gave none.
    amount: Option<Money>,
}

/// What the part is about.
pub(super) struct BalancesOf {
    pub(super) session: Arc<Session>,
    pub(super) query: OverviewQuery,
    pub(super) connections: Vec<Connection>,
    pub(super) names: Arc<BankNames>,
    pub(super) accounts: Vec<Account>,
}

impl BalancesOf {
    pub(super) async fn part(self) -> String {
        match self.read().await {
            Ok(balances) => rendered_part(&self.view(&balances)),
            Err(error) => rendered_part(&self.empty(BalancesState::Failed(error.message))),
        }
    }

    /// The part before the balances are there, as high as with them: every institution, with the
    /// currencies of its accounts, and the accounts that show at once.
    pub(super) fn expected(&self) -> String {
        let amounts = |currencies: BTreeSet<String>| -> Vec<Money> {
            currencies.into_iter().map(awaited).collect()
        };
        let institutions = self.connections.iter().map(|connection| {
            let own = || self.accounts_of(connection);
            let shown = own().filter(|_| self.shows_accounts());
            let rows = shown.map(|account| {
                let amount = awaited(account.currency.to_string());
                row(connection, account, Some(amount))
            });
            self.institution(
                connection,
                amounts(own().map(|account| account.currency.to_string()).collect()),
                rows.collect(),
            )
        });
        let all = self.accounts.iter();
        rendered_part(&BalancesPart {
            net_worth: amounts(all.map(|account| account.currency.to_string()).collect()),
            institutions: institutions.collect(),
            ..self.empty(BalancesState::Awaited)
        })
    }

    async fn read(&self) -> Result<Balances, ApiError> {
        let mut list = Vec::with_capacity(self.accounts.len());
        let mut age = SignedDuration::ZERO;
        for some in self.accounts.chunks(ACCOUNTS_MAX) {
            let ids: Vec<String> = some.iter().map(|account| account.id.to_string()).collect();
            let path = format!("/v1/balances?accountIds={}", ids.join(","));
            let api = &self.session.api;
            let read: Aged<List<Balance>> = api
                .get(&self.session.caller, &path, self.query.not_before)
                .await?;
            age = age.max(read.age);
            list.extend(read.value.data);
        }
        let as_of = self
            .session
            .now
            .checked_sub(age)
            .unwrap_or(self.session.now);
        Ok(Balances { list, as_of })
    }

    fn shows_accounts(&self) -> bool {
        self.accounts.len() <= OPEN_ACCOUNTS_MAX
    }

    fn accounts_of(&self, connection: &Connection) -> impl Iterator<Item = &Account> {
        let id = connection.id;
        self.accounts
            .iter()
            .filter(move |account| account.connection_id == id)
    }

    fn empty(&self, state: BalancesState) -> BalancesPart<'_> {
        BalancesPart {
            frame: &self.session.frame,
            query: &self.query,
            state,
            net_worth: Vec::new(),
            is_open: self.shows_accounts(),
            institutions: Vec::new(),
            troubles: Vec::new(),
            missing: 0,
        }
    }

    fn institution(
        &self,
        connection: &Connection,
        sums: Vec<Money>,
        rows: Vec<BalanceRow>,
    ) -> InstitutionBalances {
        InstitutionBalances {
            name: self.names.of(connection),
            is_sandbox: self
                .session
                .frame
                .providers
                .is_sandbox(&connection.provider),
            sums,
            rows,
        }
    }

    fn view(&self, balances: &Balances) -> BalancesPart<'_> {
        let of_account: BTreeMap<&str, &Balance> = balances
            .list
            .iter()
            .map(|balance| (balance.account_id.as_str(), balance))
            .collect();
        let zone = self.session.zone();
        // The age has whole seconds, so the time may be a second late.
        let after = balances.as_of.as_second().saturating_add(1);
        let after = Timestamp::from_second(after).unwrap_or(balances.as_of);
        let mut part = self.empty(BalancesState::Read {
            as_of: zone.time(balances.as_of),
            refresh: self.query.link_not_before(after),
        });
        let mut net_worth = Sums::default();
        for connection in &self.connections {
            let mut sums = Sums::default();
            let mut rows = Vec::new();
            let mut failed = None;
            // What a cache still has of a bank that needs the user is in no sum.
            let is_broken = connection.status != ConnectionStatus::Active;
            for account in self.accounts_of(connection) {
                let balance = of_account.get(account.id.to_string().as_str());
                let read = balance.filter(|_| !is_broken);
                let (value, currency) = read.map_or((None, None), |one| {
                    (one.current_balance.as_deref(), one.currency.as_deref())
                });
                failed = failed.or(balance.and_then(|one| one.error.as_deref()));
                let amount = value.zip(currency).map(|(value, currency)| {
                    sums.add(currency, value);
                    net_worth.add(currency, value);
                    Money::new(currency, value)
                });
                if amount.is_none() {
                    part.missing += 1;
                    sums.miss(account);
                    net_worth.miss(account);
                }
                rows.push(row(connection, account, amount));
            }
            if let Some(code) = failed.filter(|_| !is_broken) {
                let trouble = self.session.trouble_of_code(connection, code, None);
                part.troubles.push(trouble.among(&self.names));
            }
            let institution = self.institution(connection, sums.amounts(), rows);
            part.institutions.push(institution);
        }
        part.net_worth = net_worth.amounts();
        part
    }
}

fn row(connection: &Connection, account: &Account, amount: Option<Money>) -> BalanceRow {
    let page = match connection.category {
        ConnectionCategory::Banking => "/transactions",
        ConnectionCategory::Brokerage => "/investments",
    };
    let number = account.number.as_ref();
    BalanceRow {
        name: sanitized(&account.name),
        number: number.map(|number| number.as_str().to_owned()),
        path: format!("{page}?account={}", account.id),
        amount,
    }
}

fn awaited(currency: String) -> Money {
    without_amount(currency, "…")
}

fn without_amount(currency: String, mark: &str) -> Money {
    Money {
        currency,
        number: Number {
            text: mark.to_owned(),
            exact: None,
        },
    }
}

/// Exact sums by currency. None: no balance is known in it.
#[derive(Default)]
struct Sums(BTreeMap<String, Option<ExactSum>>);

impl Sums {
    fn add(&mut self, currency: &str, value: &str) {
        if let Ok(value) = Decimal::parse(value) {
            // The API gives no longer numbers.
            let sum = self.0.entry(currency.to_owned()).or_default();
            let _ = sum.get_or_insert_default().add(&value);
        }
    }

    /// The currency of an account stays, although its balance is missing.
    fn miss(&mut self, account: &Account) {
        if account.currency != Currency::UNKNOWN {
            self.0.entry(account.currency.to_string()).or_default();
        }
    }

    fn amounts(&self) -> Vec<Money> {
        let amount = |(currency, sum): (&String, &Option<ExactSum>)| match sum {
            Some(sum) => Money::new(currency, sum.to_decimal().as_str()),
            None => without_amount(currency.clone(), "–"),
        };
        self.0.iter().map(amount).collect()
    }
}
