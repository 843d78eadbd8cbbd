//! Adds, changes and removes rows at the simulated providers.

use bellbird_domain::Connection;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::support::harness::App;
use crate::support::process::text;
use crate::support::provider_spec::spec;
use crate::support::receiver::ReceivedEvent;

impl App {
    /// The provider's id of an account of the connection that has rows.
    pub(crate) async fn account_at(&self, connection: &Connection) -> String {
        let accounts = self
            .storage
            .accounts()
            .list_of_connection(connection.user_id, connection.id)
            .await
            .unwrap();
        let found = accounts
            .iter()
            .find(|account| matches!(account.account_type.as_str(), "transaction" | "investment"));
        found.expect("an account").provider_account_id.clone()
    }

    /// Adds a row with that time to an account of the connection, at the provider. Returns the
    /// provider's id of it.
    pub(crate) async fn add_row(
        &self,
        connection: &Connection,
        text: &str,
        at: Timestamp,
    ) -> String {
        self.add_row_to(connection, &self.account_at(connection).await, text, at)
            .await
    }

    /// As [`App::add_row`], to an account that need not be visible.
    pub(crate) async fn add_row_to(
        &self,
        connection: &Connection,
        account: &str,
        text: &str,
        at: Timestamp,
    ) -> String {
        self.put_row(
            connection,
            spec(&connection.provider).row_at(account, at, text),
        )
        .await
    }

    /// Adds a row in the provider's own form. Returns the provider's id of it.
    pub(crate) async fn put_row(&self, connection: &Connection, row: Value) -> String {
        let spec = spec(&connection.provider);
        let row = self
            .control_of(spec.name, Method::POST, "/transactions", row)
            .await;
        text(&row, spec.row_id).to_owned()
    }

    pub(crate) async fn change_row(&self, connection: &Connection, id: &str, members: Value) {
        self.control_row(connection, Method::PATCH, id, members)
            .await;
    }

    pub(crate) async fn remove_row(&self, connection: &Connection, id: &str) {
        self.control_row(connection, Method::DELETE, id, json!({}))
            .await;
    }

    async fn control_row(&self, connection: &Connection, method: Method, id: &str, body: Value) {
        let spec = spec(&connection.provider);
        self.control_of(spec.name, method, &format!("/transactions/{id}"), body)
            .await;
    }
}

/// The rows of a list, over all events.
pub(crate) fn all_rows<'t>(received: &'t [ReceivedEvent], list: &str) -> Vec<&'t Value> {
    received.iter().flat_map(|event| event.rows(list)).collect()
}
