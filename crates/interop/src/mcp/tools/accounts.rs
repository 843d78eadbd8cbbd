//! `list_accounts`: connections and accounts from the database, balances from the providers.

use std::collections::BTreeMap;

use bellbird_api::http::Problem;
use bellbird_api::http::problem::problem_from_read;
use bellbird_domain::{
    Account, AccountId, AccountType, Balance, Connection, ConnectionCategory, ConnectionId,
    ConnectionStatus, Currency, Decimal,
};
use bellbird_reads::ReadError;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Missing, ToolCall, Total, advice, institution, storage};
use crate::mcp::cursor::Resumed;
use crate::mcp::output::{self, Room, Rows};
use crate::mcp::texts::{CELL_CHARS_MAX, cell, clean};

/// Accounts of one result: balances of all of them are read.
const ACCOUNTS_MAX: u32 = 100;
const COLUMNS: &str =
    "| account | type | number | current | available | currency | institution | id |";
const CHANGED: &str = "cursor: the accounts have changed. Call again without it, to begin again.";

#[derive(Default, Serialize, Deserialize)]
struct Position {
    offset: u64,
    /// The list has changed if the user's revision has.
    revision: i64,
}

#[derive(Serialize)]
struct AccountRow<'a> {
    id: AccountId,
    connection_id: ConnectionId,
    name: String,
    r#type: AccountType,
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<&'a str>,
    currency: Currency,
    #[serde(skip_serializing_if = "Option::is_none")]
    current_balance: Option<&'a Decimal<'static>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    available_balance: Option<&'a Decimal<'static>>,
}

#[derive(Serialize)]
struct ConnectionRow {
    id: ConnectionId,
    institution: String,
    category: ConnectionCategory,
    status: ConnectionStatus,
}

/// The balances that were read, and what could not be.
#[derive(Default)]
struct Balances {
    found: BTreeMap<AccountId, Balance>,
    missing: Vec<Missing>,
}

#[derive(Deserialize)]
struct AccountsArguments {
    include_balances: Option<bool>,
}

pub(super) async fn list_accounts(
    call: &ToolCall<'_>,
    arguments: Map<String, Value>,
) -> Result<Vec<u8>, String> {
    let resumed = Resumed::<Position>::of(&call.seal(), arguments, call.now)?;
    let arguments: AccountsArguments = resumed.read()?;
    let include_balances = arguments.include_balances.unwrap_or(true);
    let (offset, revision) = (resumed.position.offset, call.caller.revision);
    if offset > 0 && resumed.position.revision != revision {
        return Err(CHANGED.to_owned());
    }
    let permit = if include_balances {
        call.admit(|quotas| &quotas.balances).await?
    } else {
        None
    };
    let (stored, user_id) = (call.interop.context.storage(), call.caller.user_id);
    let (accounts, total) = stored
        .accounts()
        .list(user_id, ACCOUNTS_MAX, offset)
        .await
        .map_err(storage)?;
    let connections: Vec<Connection> = stored.connections().list(user_id).await.map_err(storage)?;
    let Balances { found, mut missing } = if include_balances {
        balances(call, &accounts, &connections).await
    } else {
        Balances::default()
    };
    drop(permit);
    let left_out = super::fit(&mut missing);
    let shown: Vec<&Connection> = connections
        .iter()
        .filter(|found| {
            accounts
                .iter()
                .any(|account| account.connection_id == found.id)
        })
        .collect();
    let broken = broken_lines(&shown) + &left_out;
    let connection_rows = json!(
        shown
            .iter()
            .map(|connection| ConnectionRow::of(connection))
            .collect::<Vec<_>>()
    );
    let reserved =
        super::HEAD_BYTES + super::missing_bytes(&missing) + broken.len() + resumed.cursor_bytes();
    let mut rows = Rows::new(ACCOUNTS_MAX, reserved + connection_rows.to_string().len());
    for account in &accounts {
        let row = AccountRow::of(account, found.get(&account.id));
        let connection = shown
            .iter()
            .find(|connection| connection.id == account.connection_id);
        if rows.push(&row.line(connection.copied()), &row) == Room::Full {
            break;
        }
    }
    let next = offset + u64::from(rows.shown);
    if rows.shown == 0 && next < total {
        return Err(super::TOO_LONG.to_owned());
    }
    let position = Position {
        offset: next,
        revision,
    };
    let cursor = (next < total)
        .then(|| resumed.cursor(&call.seal(), position))
        .transpose()?;
    let total = Total::Exact(total);
    let (head, mut others) = call.outline("accounts", "", rows.shown, total, cursor, &missing);
    others.insert("connections".to_owned(), connection_rows);
    let head = head + &broken;
    Ok(output::members(&head, COLUMNS, &rows, "accounts", &others))
}

/// Connections that the user must reconnect, a line each.
fn broken_lines(connections: &[&Connection]) -> String {
    const LINES_MAX: usize = 20;
    let broken = connections
        .iter()
        .filter(|connection| connection.status != ConnectionStatus::Active);
    let line = |connection: &&Connection| {
        format!(
            "\n{} is {}: the user must reconnect it.",
            cell(&connection.institution_name),
            connection.status
        )
    };
    broken.take(LINES_MAX).map(line).collect()
}

/// Reads all balances. A connection that fails leaves its accounts without balances.
async fn balances(
    call: &ToolCall<'_>,
    accounts: &[Account],
    connections: &[Connection],
) -> Balances {
    let read = call
        .interop
        .context
        .balances(&call.context, call.caller, accounts.to_vec())
        .await;
    let failed = read
        .as_ref()
        .err()
        .map(|error| problem_from_read(error, "Account", ""));
    let failed = failed.unwrap_or(Problem::unavailable(60));
    let mut reads: BTreeMap<AccountId, _> = read
        .into_iter()
        .flatten()
        .map(|(account, balance)| (account.id, balance))
        .collect();
    let (mut found, mut missing) = (BTreeMap::new(), BTreeMap::<ConnectionId, Missing>::new());
    for account in accounts {
        let problem = match reads.remove(&account.id) {
            Some(Ok(balance)) => {
                found.insert(account.id, balance);
                continue;
            }
            Some(Err(ReadError::Reconnect(status))) => &Problem::reconnect(status),
            _ => &failed,
        };
        let of_connection = missing.entry(account.connection_id).or_insert_with(|| {
            let mut connections = connections.iter();
            let connection = connections.find(|connection| connection.id == account.connection_id);
            Missing {
                key: None,
                account_ids: Vec::new(),
                institution: connection.map(institution).unwrap_or_default(),
                message: format!("no balance. {}", advice(problem)),
            }
        });
        of_connection.account_ids.push(account.id);
    }
    Balances {
        found,
        missing: missing.into_values().collect(),
    }
}

impl ConnectionRow {
    fn of(connection: &Connection) -> Self {
        Self {
            id: connection.id,
            institution: institution(connection),
            category: connection.category,
            status: connection.status,
        }
    }
}

impl<'a> AccountRow<'a> {
    fn of(account: &'a Account, balance: Option<&'a Balance>) -> Self {
        Self {
            id: account.id,
            connection_id: account.connection_id,
            name: clean(&account.name, CELL_CHARS_MAX),
            r#type: account.account_type,
            number: account.number.as_ref().map(|number| number.as_str()),
            currency: balance
                .and_then(|balance| balance.currency)
                .unwrap_or(account.currency),
            current_balance: balance.and_then(|balance| balance.current.as_ref()),
            available_balance: balance.and_then(|balance| balance.available.as_ref()),
        }
    }

    fn line(&self, connection: Option<&Connection>) -> String {
        let amount =
            |amount: Option<&Decimal<'_>>| amount.map_or_else(String::new, ToString::to_string);
        output::line(&[
            &cell(&self.name),
            self.r#type.as_str(),
            self.number.unwrap_or(""),
            &amount(self.current_balance),
            &amount(self.available_balance),
            &self.currency.to_string(),
            &connection.map_or_else(String::new, |connection| cell(&connection.institution_name)),
            &self.id.to_string(),
        ])
    }
}
