//! Adds, changes and removes rows at the simulated providers.

use bellbird_domain::Connection;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::support::harness::App;
use crate::support::process::text;
use crate::support::provider_spec::spec;
use crate::support::receiver::{Hook, ReceivedEvent};

impl App {
    /// The provider's id of an account of the connection that has rows.
    pub(crate) async fn account_at(&self, connection: &Connection) -> String {
        let accounts = self
            .stored_accounts(connection.user_id, connection.id)
            .await;
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
    }

    /// As [`App::add_row`], with a time an hour ago.
    pub(crate) async fn add_recent_row(&self, connection: &Connection, text: &str) -> String {
        let hour_ago = self.clock.now() - SignedDuration::from_hours(1);
        self.add_row(connection, text, hour_ago).await
    }

    /// As [`App::add_row`], to an account that need not be visible.
    pub(crate) fn add_row_to(
        &self,
        connection: &Connection,
        account: &str,
        text: &str,
        at: Timestamp,
    ) -> String {
        let row = spec(&connection.provider).row_at(account, at, text);
        self.put_row(connection, row)
    }

    /// Adds a row in the provider's own form. Returns the provider's id of it.
    pub(crate) fn put_row(&self, connection: &Connection, row: Value) -> String {
        let row = self.bank(&connection.provider).add_row(&row).unwrap();
        text(&row, spec(&connection.provider).row_id).to_owned()
    }

    /// Puts a row back that was removed.
    pub(crate) fn put_row_back(&self, connection: &Connection, mut row: Value, id: &str) {
        row[spec(&connection.provider).row_id] = id.into();
        self.put_row(connection, row);
    }

    pub(crate) fn change_row(&self, connection: &Connection, id: &str, members: Value) {
        let bank = self.bank(&connection.provider);
        bank.change_row(id, &members).unwrap();
    }

    pub(crate) fn set_amount(&self, connection: &Connection, row: &str, cents: u64) {
        let change = (spec(&connection.provider).set_amount)(cents);
        self.change_row(connection, row, change.members);
    }

    /// The descriptions of the new rows that a hook gets.
    pub(crate) async fn announced_to(&self, hook: &Hook) -> Vec<String> {
        descriptions(&self.delivered_to(hook).await, "new")
    }

    pub(crate) fn remove_row(&self, connection: &Connection, id: &str) {
        self.bank(&connection.provider).remove_row(id).unwrap();
    }
}

/// The rows of a list, over all events.
pub(crate) fn all_rows<'t>(received: &'t [ReceivedEvent], list: &str) -> Vec<&'t Value> {
    received.iter().flat_map(|event| event.rows(list)).collect()
}

/// The descriptions of the rows of a list, over all events.
pub(crate) fn descriptions(received: &[ReceivedEvent], list: &str) -> Vec<String> {
    let rows = all_rows(received, list).into_iter();
    rows.map(|row| text(row, "description").to_owned())
        .collect()
}
