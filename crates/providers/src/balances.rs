//! Groups balance queries by provider user, because one list of Fiskil or Akahu has the balances of
//! all connections of a user.

use std::collections::BTreeMap;

use bellbird_domain::{Account, Balance};
use futures_util::future::join_all;

use crate::{BalancesQuery, Error};

/// The balance query for one connection.
pub(crate) struct BalanceRequest<'a> {
    /// The provider's id of the connection.
    pub(crate) id: String,
    pub(crate) accounts: &'a [Account],
}

/// Reads the list of each provider user once, all at the same time.
///
/// `provider_user_of` returns the provider user and the provider's id of the connection. `list`
/// reads the balances of one provider user: for each request one outcome per account, in their
/// order. If it fails, so does every account.
pub(crate) async fn by_provider_user<'a, F>(
    queries: &'a [BalancesQuery<'a>],
    provider_user_of: impl Fn(&BalancesQuery<'_>) -> Result<(String, String), Error>,
    list: impl Fn(String, Vec<BalanceRequest<'a>>) -> F,
) -> Vec<Vec<Result<Balance, Error>>>
where
    F: Future<Output = Result<Vec<Vec<Result<Balance, Error>>>, Error>>,
{
    let mut outcomes = vec![Vec::new(); queries.len()];
    let failed = |index: usize, error: Error| vec![Err(error); queries[index].accounts.len()];
    let mut by_user: BTreeMap<String, (Vec<usize>, Vec<BalanceRequest<'a>>)> = BTreeMap::new();
    for (index, query) in queries.iter().enumerate() {
        match provider_user_of(query) {
            Ok((provider_user, id)) => {
                let (indexes, requests) = by_user.entry(provider_user).or_default();
                indexes.push(index);
                requests.push(BalanceRequest {
                    id,
                    accounts: query.accounts,
                });
            }
            Err(error) => outcomes[index] = failed(index, error),
        }
    }
    let (indexes, lists): (Vec<_>, Vec<_>) = by_user
        .into_iter()
        .map(|(provider_user, (indexes, requests))| (indexes, list(provider_user, requests)))
        .unzip();
    for (indexes, read) in indexes.into_iter().zip(join_all(lists).await) {
        match read {
            Ok(balances) => {
                for (index, balances) in indexes.into_iter().zip(balances) {
                    outcomes[index] = balances;
                }
            }
            Err(error) => {
                for index in indexes {
                    outcomes[index] = failed(index, error.clone());
                }
            }
        }
    }
    outcomes
}
