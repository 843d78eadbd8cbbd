//! Net worth by currency, and the balances of each institution, from `/v1/balances`.

use std::collections::{BTreeMap, BTreeSet};

use bellbird_domain::{Account, Caller, Connection, Decimal, ExactSum};
use bellbird_providers::Registry;
use serde::Deserialize;

use super::view::{Amount, BalanceRow, Balances, InstitutionBalances};
use crate::api_client::{ApiClient, ApiError};
use crate::pages::names::{institution_name, sanitized};
use crate::pages::rendered_part;

/// Accounts of one request for balances.
const ACCOUNTS_MAX: usize = 100;

#[derive(Deserialize)]
struct List<T> {
    data: Vec<T>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Balance {
    account_id: String,
    current_balance: Option<String>,
    currency: Option<String>,
}

pub(super) async fn part(
    api: &ApiClient,
    registry: &Registry,
    caller: &Caller,
    connections: &[Connection],
    accounts: &[Account],
) -> String {
    rendered_part(&match read(api, caller, accounts).await {
        Ok(balances) => view(registry, connections, accounts, &balances),
        Err(error) => Balances::failed(error.message),
    })
}

/// The part before the balances are there: every institution, with the currencies of its accounts.
pub(super) fn expected(
    registry: &Registry,
    connections: &[Connection],
    accounts: &[Account],
) -> String {
    let amounts = |currencies: BTreeSet<String>| {
        currencies
            .iter()
            .map(|currency| Amount::new(currency, "…"))
            .collect::<Vec<_>>()
    };
    let institutions = connections.iter().map(|connection| {
        let own = accounts
            .iter()
            .filter(|account| account.connection_id == connection.id);
        let sums = amounts(own.map(|account| account.currency.to_string()).collect());
        InstitutionBalances {
            name: institution_name(connection),
            is_sandbox: registry.is_sandbox(&connection.provider),
            sums,
            rows: Vec::new(),
        }
    });
    rendered_part(&Balances {
        is_awaited: true,
        error: None,
        net_worth: amounts(
            accounts
                .iter()
                .map(|account| account.currency.to_string())
                .collect(),
        ),
        institutions: institutions.collect(),
        missing: 0,
    })
}

async fn read(
    api: &ApiClient,
    caller: &Caller,
    accounts: &[Account],
) -> Result<Vec<Balance>, ApiError> {
    let mut balances = Vec::with_capacity(accounts.len());
    for some in accounts.chunks(ACCOUNTS_MAX) {
        let ids: Vec<String> = some.iter().map(|account| account.id.to_string()).collect();
        let read: List<Balance> = api
            .get(
                caller,
                &format!("/v1/balances?accountIds={}", ids.join(",")),
            )
            .await?;
        balances.extend(read.data);
    }
    Ok(balances)
}

fn view(
    registry: &Registry,
    connections: &[Connection],
    accounts: &[Account],
    balances: &[Balance],
) -> Balances {
    let of_account: BTreeMap<&str, &Balance> = balances
        .iter()
        .map(|balance| (balance.account_id.as_str(), balance))
        .collect();
    let mut net_worth = Sums::default();
    let mut institutions = Vec::new();
    let mut missing = 0;
    for connection in connections {
        let mut sums = Sums::default();
        let mut rows = Vec::new();
        for account in accounts
            .iter()
            .filter(|account| account.connection_id == connection.id)
        {
            let balance = of_account.get(account.id.to_string().as_str());
            let (value, currency) = balance.map_or((None, None), |one| {
                (one.current_balance.as_deref(), one.currency.as_deref())
            });
            let amount = match (value, currency) {
                (Some(value), Some(currency)) => {
                    sums.add(currency, value);
                    net_worth.add(currency, value);
                    Some(Amount::new(currency, value))
                }
                _ => {
                    missing += 1;
                    None
                }
            };
            let number = account
                .number
                .as_ref()
                .map(|number| number.as_str().to_owned());
            rows.push(BalanceRow {
                name: sanitized(&account.name),
                number,
                amount,
            });
        }
        institutions.push(InstitutionBalances {
            name: institution_name(connection),
            is_sandbox: registry.is_sandbox(&connection.provider),
            sums: sums.amounts(),
            rows,
        });
    }
    Balances {
        is_awaited: false,
        error: None,
        net_worth: net_worth.amounts(),
        institutions,
        missing,
    }
}

/// Exact sums by currency.
#[derive(Default)]
struct Sums(BTreeMap<String, ExactSum>);

impl Sums {
    fn add(&mut self, currency: &str, value: &str) {
        if let Ok(value) = Decimal::parse(value) {
            // The API gives no longer numbers.
            let _ = self.0.entry(currency.to_owned()).or_default().add(&value);
        }
    }

    fn amounts(&self) -> Vec<Amount> {
        self.0
            .iter()
            .map(|(currency, sum)| Amount::new(currency, sum.to_decimal().as_str()))
            .collect()
    }
}
