//! Balances of several connections in as few lists as their owners have.

use std::collections::BTreeMap;

use bellbird_domain::{Account, Balance};
use futures_util::future::join_all;

use crate::{BalancesQuery, Error};

/// The accounts of one connection whose balances are asked for.
pub(crate) struct Asked<'a> {
    /// The provider's id of the connection.
    pub(crate) id: String,
    pub(crate) accounts: &'a [Account],
    /// Its place among what is asked.
    at: usize,
}

/// Asks each owner's list once, all of them at the same time. `whose` reads a grant: owner, and the provider's id of the
/// connection. `list` answers for one owner, one list of outcomes for each connection asked for, in their order.
pub(crate) async fn by_owner<'a, F>(
    asked: &'a [BalancesQuery<'a>],
    whose: impl Fn(&BalancesQuery<'_>) -> Result<(String, String), Error>,
    list: impl Fn(String, Vec<Asked<'a>>) -> F,
) -> Vec<Vec<Result<Balance, Error>>>
where
    F: Future<Output = Vec<(Asked<'a>, Vec<Result<Balance, Error>>)>>,
{
    let mut outcomes = vec![Vec::new(); asked.len()];
    let mut owners: BTreeMap<String, Vec<Asked<'a>>> = BTreeMap::new();
    for (at, query) in asked.iter().enumerate() {
        match whose(query) {
            Ok((owner, id)) => owners.entry(owner).or_default().push(Asked { id, accounts: query.accounts, at }),
            Err(error) => outcomes[at] = vec![Err(error); query.accounts.len()],
        }
    }
    let lists = owners.into_iter().map(|(owner, connections)| list(owner, connections));
    for (connection, found) in join_all(lists).await.into_iter().flatten() {
        outcomes[connection.at] = found;
    }
    outcomes
}
