//! `/v1/balances` as a typed client reads it, and the rows of any list.

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::support::client::Account;
use crate::support::harness::{App, Person, Response};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Balance {
    pub(crate) account_id: String,
    pub(crate) current_balance: Option<String>,
    pub(crate) available_balance: Option<String>,
    pub(crate) currency: Option<String>,
    /// Why its read failed.
    pub(crate) error: Option<String>,
}

impl Response {
    /// The rows of a list, with or without pagination.
    #[track_caller]
    pub(crate) fn rows<R: DeserializeOwned>(&self) -> Vec<R> {
        #[derive(Deserialize)]
        struct Rows<R> {
            data: Vec<R>,
        }
        self.read::<Rows<R>>().data
    }
}

/// The path of the balances of these accounts.
pub(crate) fn balances_path<'a>(accounts: impl IntoIterator<Item = &'a Account>) -> String {
    let ids = accounts.into_iter().map(|account| &*account.id);
    format!(
        "/v1/balances?accountIds={}",
        ids.collect::<Vec<_>>().join(",")
    )
}

impl App {
    /// A person's accounts, as the API lists them.
    pub(crate) async fn all_accounts(&self, person: &Person) -> Vec<Account> {
        let listed = self.get_as(&person.key, "/v1/accounts?limit=200").await;
        listed.rows()
    }

    pub(crate) async fn balances(&self, person: &Person, accounts: &[Account]) -> Vec<Balance> {
        let read = self.get_as(&person.key, &balances_path(accounts)).await;
        read.rows()
    }
}
