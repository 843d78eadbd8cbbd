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
    index: usize,
}

/// Reads the list of each provider user once, all at the same time.
///
/// `provider_user_of` returns the provider user and the provider's id of the connection. `list`
/// reads the balances of one provider user: for each request one outcome per account, in their
/// order.
pub(crate) async fn by_provider_user<'a, F>(
    queries: &'a [BalancesQuery<'a>],
    provider_user_of: impl Fn(&BalancesQuery<'_>) -> Result<(String, String), Error>,
    list: impl Fn(String, Vec<BalanceRequest<'a>>) -> F,
) -> Vec<Vec<Result<Balance, Error>>>
where
    F: Future<Output = Vec<(BalanceRequest<'a>, Vec<Result<Balance, Error>>)>>,
{
    let mut outcomes = vec![Vec::new(); queries.len()];
    let mut by_user: BTreeMap<String, Vec<BalanceRequest<'a>>> = BTreeMap::new();
    for (index, query) in queries.iter().enumerate() {
        match provider_user_of(query) {
            Ok((provider_user, id)) => {
                by_user
                    .entry(provider_user)
                    .or_default()
                    .push(BalanceRequest {
                        id,
                        accounts: query.accounts,
                        index,
                    });
            }
            Err(error) => outcomes[index] = vec![Err(error); query.accounts.len()],
        }
    }
    let lists = by_user
        .into_iter()
        .map(|(provider_user, requests)| list(provider_user, requests));
    for (request, balances) in join_all(lists).await.into_iter().flatten() {
        outcomes[request.index] = balances;
    }
    outcomes
}
