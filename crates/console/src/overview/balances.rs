//! Net worth by currency, and the balances of each institution, from `/v1/balances`.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use askama::Template;
use bellbird_domain::{
    Account, AccountId, Connection, ConnectionCategory, ConnectionStatus, Currency, ExactSum,
};
use futures_util::future::{self, Either};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::query::OverviewQuery;
use crate::api_client::{Aged, ApiError, List};
use crate::pages::{BankNames, BankTrouble, Frame, Money, Number, rendered_part};
use crate::session::Session;

/// Accounts of one request for balances.
const ACCOUNTS_MAX: usize = 100;
/// Accounts that show at once. Those of more are behind their institutions.
const OPEN_ACCOUNTS_MAX: usize = 8;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Balance {
    account_id: AccountId,
    current_balance: Option<String>,
    currency: Option<String>,
    error: Option<String>,
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
    institutions: Vec<InstitutionBalances<'a>>,
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

struct InstitutionBalances<'a> {
    name: String,
    is_sandbox: bool,
    /// The page with what is in its accounts.
    page: &'static str,
    sums: Vec<Money>,
    /// Without an amount, the provider gave none, or it is awaited.
    rows: Vec<(&'a Account, Option<Money>)>,
}

/// A balance, and when it was read. An error: it was not there in time.
pub(crate) type ReadBalance = Result<(Money, String), ()>;

/// What is read for a page, and the balance of the account that it is about, which keeps the rest
/// waiting for a moment only. None: there is none now.
pub(crate) async fn with_balance_of<T>(
    session: &Session,
    account: Option<AccountId>,
    rest: impl Future<Output = T>,
) -> (T, Option<ReadBalance>) {
    let balance = async {
        let (balances, as_of) = read(session, &[account?], None).await.ok()?;
        Some((balances.first()?.amount()?, session.zone().time(as_of)))
    };
    match future::select(pin!(rest), pin!(balance)).await {
        Either::Left((rest, balance)) => {
            let within = session.settings.first_rows_within;
            let balance = tokio::time::timeout(within, balance).await;
            (rest, balance.map_err(drop).transpose())
        }
        Either::Right((balance, rest)) => (rest.await, balance.map(Ok)),
    }
}

/// The balances of accounts, and the time of the oldest.
async fn read(
    session: &Session,
    accounts: &[AccountId],
    not_before: Option<Timestamp>,
) -> Result<(Vec<Balance>, Timestamp), ApiError> {
    let Session { caller, now, .. } = session;
    let mut list = Vec::with_capacity(accounts.len());
    let mut age = SignedDuration::ZERO;
    for some in accounts.chunks(ACCOUNTS_MAX) {
        let ids: Vec<String> = some.iter().map(ToString::to_string).collect();
        let path = format!("/v1/balances?accountIds={}", ids.join(","));
        let read: Aged<List<Balance>> = session.api.get(caller, &path, not_before).await?;
        age = age.max(read.age);
        list.extend(read.value.data);
    }
    Ok((list, now.checked_sub(age).unwrap_or(*now)))
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
        let accounts: Vec<AccountId> = self.accounts.iter().map(|account| account.id).collect();
        match read(&self.session, &accounts, self.query.not_before).await {
            Ok((balances, as_of)) => {
                // The age has whole seconds, so the time may be a second late.
                let after = as_of.as_second().saturating_add(1);
                let state = BalancesState::Read {
                    as_of: self.session.zone().time(as_of),
                    refresh: self.query.link("not-before", after),
                };
                self.rendered(state, &balances)
            }
            Err(error) => self.rendered(BalancesState::Failed(error.message), &[]),
        }
    }

    /// The part before the balances are there, as high as with them: every institution, with the
    /// currencies of its accounts, and the accounts that show at once.
    pub(super) fn expected(&self) -> String {
        self.rendered(BalancesState::Awaited, &[])
    }

    fn rendered(&self, state: BalancesState, balances: &[Balance]) -> String {
        let of_account: BTreeMap<AccountId, &Balance> = balances
            .iter()
            .map(|balance| (balance.account_id, balance))
            .collect();
        let mut part = BalancesPart {
            frame: &self.session.frame,
            query: &self.query,
            state,
            net_worth: Vec::new(),
            is_open: self.accounts.len() <= OPEN_ACCOUNTS_MAX,
            institutions: Vec::new(),
            troubles: Vec::new(),
            missing: 0,
        };
        if matches!(part.state, BalancesState::Failed(_)) {
            return rendered_part(&part);
        }
        let mark = if part.is_awaited() { "…" } else { "–" };
        let mut net_worth = Sums::default();
        for connection in &self.connections {
            let (mut sums, mut rows) = (Sums::default(), Vec::new());
            let mut failed = None;
            // What a cache still has of a bank that needs the user is in no sum.
            let is_broken = connection.status != ConnectionStatus::Active;
            let is_own = |account: &&Account| account.connection_id == connection.id;
            for account in self.accounts.iter().filter(is_own) {
                let read = of_account.get(&account.id).filter(|_| !is_broken);
                failed = failed.or(read.and_then(|one| one.error.as_deref()));
                let amount = read.and_then(|one| one.amount());
                sums.add(account, amount.as_ref());
                net_worth.add(account, amount.as_ref());
                part.missing += usize::from(amount.is_none());
                rows.push((account, amount));
            }
            if let Some(code) = failed {
                let bank = self.session.asked(connection, &self.names);
                part.troubles.push(bank.failed_by_api(code, None));
            }
            let providers = &self.session.frame.providers;
            part.institutions.push(InstitutionBalances {
                name: self.names.of(connection),
                is_sandbox: providers.is_sandbox(&connection.provider),
                page: match connection.category {
                    ConnectionCategory::Banking => "/transactions",
                    ConnectionCategory::Brokerage => "/investments",
                },
                sums: sums.amounts(mark),
                rows,
            });
        }
        part.net_worth = net_worth.amounts(mark);
        rendered_part(&part)
    }
}

impl Balance {
    fn amount(&self) -> Option<Money> {
        let (value, currency) = (self.current_balance.as_ref()?, self.currency.as_ref()?);
        Some(Money::new(currency, value))
    }
}

/// Exact sums by currency. None: no balance is known in it.
#[derive(Default)]
struct Sums(BTreeMap<String, Option<ExactSum>>);

impl Sums {
    /// Adds the balance of an account. Its currency stays without one too.
    fn add(&mut self, account: &Account, amount: Option<&Money>) {
        if let Some(amount) = amount {
            if let Some(value) = amount.number.to_decimal() {
                // The API gives no longer numbers.
                let sum = self.0.entry(amount.currency.clone()).or_default();
                let _ = sum.get_or_insert_default().add(&value);
            }
        } else if account.currency != Currency::UNKNOWN {
            self.0.entry(account.currency.to_string()).or_default();
        }
    }

    /// `mark` stands for what is not known.
    fn amounts(&self, mark: &str) -> Vec<Money> {
        let amount = |(currency, sum): (&String, &Option<ExactSum>)| match sum {
            Some(sum) => Money::sum(currency, sum),
            None => Money {
                currency: currency.clone(),
                number: Number {
                    text: mark.to_owned(),
                    exact: None,
                },
            },
        };
        self.0.iter().map(amount).collect()
    }
}
