//! Adds, changes and removes rows at the simulated providers.

use bellbird_domain::Connection;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::harness::App;
use crate::support::receiver::ReceivedEvent;

impl App {
    /// The provider's id of an account of the connection that has rows.
    pub(crate) async fn account_at(&self, connection: &Connection) -> String {
        let accounts = self.storage.accounts().list_of_connection(connection.user_id, connection.id).await.unwrap();
        let found =
            accounts.iter().find(|account| matches!(account.account_type.as_str(), "transaction" | "investment"));
        found.expect("an account").provider_account_id.clone()
    }

    /// Adds a row with that time to an account of the connection, at the provider. Returns the provider's id of it.
    pub(crate) async fn add_row(&self, connection: &Connection, text: &str, at: Timestamp) -> String {
        self.add_row_to(connection, &self.account_at(connection).await, text, at).await
    }

    /// As [`App::add_row`], to an account that need not be visible.
    pub(crate) async fn add_row_to(&self, connection: &Connection, account: &str, text: &str, at: Timestamp) -> String {
        let at = at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        let row = match connection.provider.as_str() {
            "fiskil" => {
                json!({"account_id": account, "amount": "-12.34", "description": text, "posting_date_time": at})
            }
            "akahu" => json!({"_account": account, "amount": -12.34, "description": text, "date": at}),
            _ => json!({"account": account, "trade_date": at, "description": text, "units": 1.5, "price": 2}),
        };
        self.put_row(connection, row).await
    }

    /// Adds a row in the provider's own form. Returns the provider's id of it.
    pub(crate) async fn put_row(&self, connection: &Connection, row: Value) -> String {
        let provider = connection.provider.as_str();
        let row = self.control_of(provider, Method::POST, rows_at(provider), row).await;
        let id = ["fiskil_id", "_id", "id"].iter().find_map(|name| row[*name].as_str());
        id.unwrap_or_else(|| panic!("no id in {row}")).to_owned()
    }

    pub(crate) async fn change_row(&self, connection: &Connection, id: &str, members: Value) {
        let path = format!("{}/{id}", rows_at(&connection.provider));
        self.control_of(&connection.provider, Method::PATCH, &path, members).await;
    }

    pub(crate) async fn remove_row(&self, connection: &Connection, id: &str) {
        let path = format!("{}/{id}", rows_at(&connection.provider));
        self.control_of(&connection.provider, Method::DELETE, &path, json!({})).await;
    }
}

fn rows_at(provider: &str) -> &'static str {
    if provider == "snaptrade" { "/trades" } else { "/transactions" }
}

/// The rows of a list, over all events.
pub(crate) fn all_rows<'t>(received: &'t [ReceivedEvent], list: &str) -> Vec<&'t Value> {
    received.iter().flat_map(|event| event.rows(list)).collect()
}
