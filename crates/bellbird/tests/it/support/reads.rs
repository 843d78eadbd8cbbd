//! `/v1/balances` as a typed client reads it, and what is read of any response.

use bellbird_connections::{ConnectionsError, Imported};
use bellbird_domain::UserId;
use jiff::SignedDuration;
use secrecy::SecretString;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::support::client::Account;
use crate::support::harness::{App, Person, Response};
use crate::support::process::text;

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

    /// Where the response comes from: `HIT`, `MISS` or `BYPASS`.
    pub(crate) fn cache(&self) -> Option<&str> {
        self.header("x-cache")
    }

    /// The details of an error.
    pub(crate) fn details(&self) -> Value {
        self.json()["error"]["details"].clone()
    }
}

/// The path of the balances of these accounts.
pub(crate) fn balances_path<I: AsRef<str>>(ids: impl IntoIterator<Item = I>) -> String {
    let mut path = "/v1/balances?accountIds=".to_owned();
    for (at, id) in ids.into_iter().enumerate() {
        path.push_str(if at == 0 { "" } else { "," });
        path.push_str(id.as_ref());
    }
    path
}

impl App {
    /// A person's accounts, as the API lists them.
    pub(crate) async fn all_accounts(&self, person: &Person) -> Vec<Account> {
        let listed = self.get_as(&person.key, "/v1/accounts?limit=200").await;
        listed.rows()
    }

    pub(crate) async fn balances(&self, person: &Person, accounts: &[Account]) -> Vec<Balance> {
        let path = balances_path(accounts.iter().map(|account| &account.id));
        self.get_as(&person.key, &path).await.rows()
    }

    /// Imports what these credentials of the sandbox give access to.
    pub(crate) async fn import(
        &self,
        user: UserId,
        credentials: &Value,
    ) -> Result<Imported, ConnectionsError> {
        let provider = text(credentials, "provider");
        let credentials = SecretString::from(credentials.to_string());
        let imports = self.connections.imports();
        imports.import(user, provider, &credentials).await
    }

    /// Advances the clock of the service, and not those of the providers.
    pub(crate) fn advance_own_clock(&self, time: SignedDuration) {
        self.clock
            .set(self.clock.now().saturating_add(time).unwrap());
    }
}
