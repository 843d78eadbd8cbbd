//! What an account set says about accounts and connections that it does not show as they should be.

use bellbird_domain::{AccountId, Connection, ConnectionId, ConnectionStatus};
use serde::Serialize;

const ATTENTION_CODE: &str = "con.auth";

/// An entry of `errlist`, version 2. `text` is an entry of `errors`, version 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    code: &'static str,
    msg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    conn_id: Option<ConnectionId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account_id: Option<AccountId>,
    /// Version 1, if it differs from `msg`.
    #[serde(skip)]
    text: Option<String>,
}

impl Finding {
    fn new(code: &'static str, msg: impl Into<String>) -> Self {
        Self {
            code,
            msg: msg.into(),
            conn_id: None,
            account_id: None,
            text: None,
        }
    }

    fn of_account(code: &'static str, msg: String, connection: &Connection, id: AccountId) -> Self {
        Self {
            conn_id: Some(connection.id),
            account_id: Some(id),
            ..Self::new(code, msg)
        }
    }

    pub(super) fn text(&self) -> &str {
        self.text.as_deref().unwrap_or(&self.msg)
    }

    /// Whether it says that the user has to reconnect this connection.
    pub(super) fn is_attention_to(&self, connection_id: ConnectionId) -> bool {
        self.code == ATTENTION_CODE && self.conn_id == Some(connection_id)
    }

    /// The user has to act. Actual and simplefin4py recognize this text, with the account's
    /// `org.name`. Nothing may follow it for simplefin4py, so only version 2 has the reason.
    pub(super) fn attention(connection: &Connection, status: ConnectionStatus) -> Self {
        let name = &connection.institution_name;
        let what = match status {
            ConnectionStatus::PendingMfa => "the institution waits for your reply",
            ConnectionStatus::Revoked => "its consent was withdrawn, so it has to be linked again",
            _ => "its consent has expired, so it has to be linked again",
        };
        let text = format!("Connection to {name} may need attention");
        let msg = format!("{text}: {what}");
        Self {
            conn_id: Some(connection.id),
            text: Some(text),
            ..Self::new(ATTENTION_CODE, msg)
        }
    }

    /// The account is left out.
    pub(super) fn failed(connection: &Connection, id: AccountId, name: &str) -> Self {
        let msg = format!(
            "The account {name} of {} could not be read and is left out",
            connection.institution_name
        );
        Self::of_account("act.failed", msg, connection, id)
    }

    /// The oldest rows of the window are left out.
    pub(super) fn cut(connection: &Connection, id: AccountId, name: &str, rows: usize) -> Self {
        let msg = format!(
            "The account {name} of {} has more transactions in this time: the newest {rows} are shown",
            connection.institution_name
        );
        Self::of_account("act.missingdata", msg, connection, id)
    }

    /// A requested account does not exist, or belongs to another user. Clients cannot distinguish
    /// the two.
    pub(super) fn unknown_account() -> Self {
        Self::new(
            "gen.api",
            "A requested account is unknown: it was removed, or it never was one of yours",
        )
    }

    /// The window can have no rows. Not a failure: a client that starts from its own rows may ask
    /// so.
    pub(super) fn mistaken_window() -> Self {
        Self::new(
            "gen.api",
            "start-date is after end-date, or not in seconds: no transaction can be shown",
        )
    }

    /// The user has more accounts than one response shows.
    pub(super) fn too_many_accounts(shown: usize) -> Self {
        Self::new(
            "gen.",
            format!("Only the first {shown} accounts are shown: ask for the others by their ids"),
        )
    }
}
