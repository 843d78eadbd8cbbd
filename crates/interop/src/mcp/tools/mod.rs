//! The tools. Each reads with the limits, the plan and the ownership checks of the path of `/v1`
//! that it resembles.

mod accounts;
mod holdings;
mod left_out;
mod merged;
mod new_transactions;
mod summary;
mod trades;
mod transactions;

use std::collections::BTreeMap;

use bellbird_api::http::log::add_provider_calls;
use bellbird_api::http::problem::problem_from_read;
use bellbird_api::http::quota::Quotas;
use bellbird_api::http::{LivePermit, Problem, QuotaClass};
use bellbird_domain::date::DEFAULT_RANGE;
use bellbird_domain::{Account, AccountId, Caller, Connection, ConnectionCategory};
use bellbird_reads::{
    CallContext, ReadError, SelectError, Selected, SelectedAccounts, Selection,
    UnreadableConnection,
};
use bellbird_storage::StorageError;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use super::arguments::Accounts;
use super::cursor::Seal;
use super::definitions::Tool;
use super::output::{self, Room, Rows};
use super::texts::{CELL_CHARS_MAX, clean};
use crate::Interop;
use left_out::{Key, LeftOut};
use merged::ResultRow;

/// Lists that are read from providers at the same time.
const LISTS_AT_ONCE: usize = 4;
/// Size of what a result says about connections that failed. Those without room are counted.
const PROBLEM_BYTES_MAX: usize = 8_000;
/// Room for the text above the rows, and for the members around them.
const HEAD_BYTES: usize = 800;

const LEFT_OUT: &str = "not read for an earlier result, so the rows stay left out. Call again without the cursor, and \
    with the other arguments, to begin again.";
const TOO_LONG: &str = "The next row is too long for a result. /v1 of the service shows it.";

/// Runs a tool. Returns the members of the result: what went wrong with a tool is a result too, for
/// the model.
pub(super) async fn call(
    interop: &Interop,
    caller: &Caller,
    now: Timestamp,
    tool: Tool,
    arguments: Map<String, Value>,
) -> Vec<u8> {
    let call = ToolCall {
        interop,
        caller,
        now,
        tool,
        context: interop.context.call_context(caller),
    };
    let outcome = match tool {
        Tool::ListAccounts => accounts::list_accounts(&call, arguments).await,
        Tool::ListTransactions => transactions::list_transactions(&call, arguments).await,
        Tool::ListNewTransactions => {
            new_transactions::list_new_transactions(&call, arguments).await
        }
        Tool::SummarizeTransactions => summary::summarize(&call, arguments).await,
        Tool::ListHoldings => holdings::list_holdings(&call, arguments).await,
        Tool::ListTrades => trades::list_trades(&call, arguments).await,
    };
    add_provider_calls(call.context.calls());
    outcome.unwrap_or_else(|text| output::failure(&text))
}

struct ToolCall<'a> {
    interop: &'a Interop,
    caller: &'a Caller,
    now: Timestamp,
    tool: Tool,
    context: CallContext,
}

/// Accounts that a result lacks.
#[derive(Serialize)]
struct Missing {
    /// What the results that follow have to leave out too.
    #[serde(skip)]
    key: Option<Key>,
    account_ids: Vec<AccountId>,
    institution: String,
    message: String,
}

impl Missing {
    fn of(selected: &SelectedAccounts, message: String) -> Self {
        let account_ids: Vec<AccountId> = selected.accounts().map(|account| account.id).collect();
        let key = match account_ids.as_slice() {
            [id] if !selected.is_whole() => (*id).into(),
            _ => selected.context.connection.id.into(),
        };
        Self {
            key: Some(key),
            account_ids,
            institution: institution(&selected.context.connection),
            message,
        }
    }

    /// Accounts that an earlier result lacks.
    fn since_earlier(selected: &SelectedAccounts) -> Self {
        Self {
            key: None,
            ..Self::of(selected, LEFT_OUT.to_owned())
        }
    }

    /// Its bytes in a result: as JSON, and as a line of text.
    fn bytes(&self) -> usize {
        json!(self).to_string().len() + 1 + 2 * missing_lines(std::slice::from_ref(self)).len()
    }
}

impl<'a> ToolCall<'a> {
    fn seal(&self) -> Seal<'a> {
        Seal {
            storage: self.interop.context.storage(),
            caller: self.caller,
            tool: self.tool,
        }
    }

    /// Takes limit, plan and permit of what a tool reads. Hold the permit while it reads.
    async fn admit(&self, quota: fn(&Quotas) -> &QuotaClass) -> Result<LivePermit, String> {
        let api = &self.interop.context;
        api.admit(quota(api.quotas()), self.caller, self.now)
            .await
            .map_err(|problem| advice(&problem))
    }

    /// The accounts that a call is about, by connection. Other users' ids are like unknown ones.
    /// What an earlier result lacks is missing.
    async fn select(
        &self,
        requested: Option<Accounts>,
        category: ConnectionCategory,
        left_out: &LeftOut,
    ) -> Result<(Vec<SelectedAccounts>, Vec<Missing>), String> {
        let account_ids = match &requested {
            None => None,
            Some(Accounts::Unknown) => return Err(unknown_account()),
            Some(Accounts::These(ids)) => Some(ids.as_slice()),
        };
        let selection = Selection {
            connection_id: None,
            account_ids,
            category: Some(category),
        };
        let found = self
            .interop
            .context
            .reads()
            .select(self.caller, selection)
            .await;
        let found = found
            .and_then(Selected::require_known)
            .map_err(|error| match error {
                SelectError::Account(ReadError::NotFound) => unknown_account(),
                SelectError::Account(ReadError::WrongCategory) => wrong_category(category),
                SelectError::Account(other) | SelectError::Connection(other) => self.say(&other),
            })?;
        let (mut selected, mut missing) = (Vec::new(), Vec::new());
        for found in found {
            match found {
                Ok(found) => {
                    let connection_id = found.context.connection.id;
                    let is_left_out =
                        |id: &AccountId| left_out.has(connection_id) || left_out.has(*id);
                    let (lost, rest): (Vec<_>, Vec<_>) = found
                        .accounts()
                        .map(|account| account.id)
                        .partition(is_left_out);
                    if !lost.is_empty() {
                        missing.push(Missing::since_earlier(&found.with_accounts(lost)));
                    }
                    if !rest.is_empty() {
                        selected.push(found.with_accounts(rest));
                    }
                }
                // Removed meanwhile.
                Err(UnreadableConnection {
                    error: ReadError::NotFound,
                    ..
                }) => {}
                Err(UnreadableConnection {
                    connection,
                    account_ids,
                    error,
                }) => missing.push(Missing {
                    key: Some(connection.id.into()),
                    account_ids,
                    institution: institution(&connection),
                    message: self.say(&error),
                }),
            }
        }
        Ok((selected, missing))
    }

    /// What to do about accounts that could not be read. Requests a refresh if its consent is gone.
    async fn missing(&self, selected: &SelectedAccounts, error: &ReadError) -> Missing {
        let problem = self
            .interop
            .context
            .after_failed_read(self.caller, &selected.context, error)
            .await;
        Missing::of(selected, advice(&problem))
    }

    fn say(&self, error: &ReadError) -> String {
        advice(&problem_from_read(error, "Account", ""))
    }

    /// What surrounds the rows of a list: the first lines of the result, which say how many rows
    /// there are, in which `order`, how to go on, and what is missing, and the members beside the
    /// rows.
    fn outline(
        &self,
        what: &str,
        order: &str,
        shown: u32,
        total: Total,
        cursor: Option<String>,
        missing: &[Missing],
    ) -> (String, Map<String, Value>) {
        let mut others = Map::new();
        others.insert("shown".to_owned(), shown.into());
        let mut head = match total {
            Total::Exact(total) => {
                others.insert("total".to_owned(), total.into());
                format!("{shown} of {total} {what}{order}.")
            }
            Total::AtLeast(total) => {
                others.insert("at_least".to_owned(), total.into());
                match total {
                    0 => format!("NOT complete: no {what} were found, but not all could be read."),
                    total => format!("{shown} of at least {total} {what}{order}."),
                }
            }
        };
        if let Some(cursor) = cursor {
            head += &format!(
                " More follow: to go on, call {} with cursor \"{cursor}\".",
                self.tool.name()
            );
            others.insert("next_cursor".to_owned(), cursor.into());
        }
        others.insert("problems".to_owned(), json!(missing));
        (head + &missing_lines(missing), others)
    }
}

/// How many rows a list has altogether.
#[derive(Debug, Clone, Copy)]
enum Total {
    Exact(u64),
    AtLeast(u64),
}

fn missing_lines(missing: &[Missing]) -> String {
    let mut lines = String::new();
    for missing in missing {
        let (institution, message) = (super::texts::cell(&missing.institution), &missing.message);
        let accounts = match missing.account_ids.len() {
            1 => "1 account".to_owned(),
            count => format!("{count} accounts"),
        };
        lines += &format!("\nMissing: {accounts} of {institution}: {message}");
    }
    lines
}

/// What a problem means for a model, and what to do.
fn advice(problem: &Problem) -> String {
    match problem {
        Problem::TooManyRequests(seconds) | Problem::BudgetUsedUp(seconds) => {
            format!(
                "Too many requests: call again in {} seconds",
                (*seconds).max(1)
            )
        }
        Problem::ProviderUnavailable {
            retry_after,
            needs_operator: false,
            ..
        } => {
            format!(
                "The bank or broker does not respond: call again in {} seconds",
                (*retry_after).max(1)
            )
        }
        Problem::NotFound("Connection") => "The connection was removed".to_owned(),
        problem => problem.message(),
    }
}

fn unknown_account() -> String {
    "account_ids: one or more accounts do not exist. list_accounts has the ids.".to_owned()
}

fn wrong_category(category: ConnectionCategory) -> String {
    match category {
        ConnectionCategory::Banking => {
            "account_ids: one or more are brokerage accounts, which have no transactions. Use list_trades for them."
        }
        ConnectionCategory::Brokerage => {
            "account_ids: one or more are bank accounts, which have no holdings or trades. Use list_transactions for \
             them."
        }
    }
    .to_owned()
}

fn storage(error: StorageError) -> String {
    advice(&Problem::from(error))
}

/// What rows of a question without `from` are, as ` of ...`.
fn default_range(arguments: &Map<String, Value>) -> Option<String> {
    let is_default = !arguments.contains_key("from");
    is_default.then(|| format!(" of the last {} days", DEFAULT_RANGE.as_hours() / 24))
}

/// Leaves out what has no room in a result. Returns a line about it.
fn fit(missing: &mut Vec<Missing>) -> String {
    let mut bytes = 0;
    let kept = missing.iter().take_while(|missing| {
        bytes += missing.bytes();
        bytes <= PROBLEM_BYTES_MAX
    });
    let kept = kept.count();
    let left_out = missing.len() - kept;
    missing.truncate(kept);
    if left_out == 0 {
        String::new()
    } else {
        format!("\nMissing: {left_out} more connections or accounts.")
    }
}

/// Bytes of missing accounts in a result: as JSON, and as lines of text.
fn missing_bytes(missing: &[Missing]) -> usize {
    missing.iter().map(Missing::bytes).sum()
}

fn institution(connection: &Connection) -> String {
    clean(&connection.institution_name, CELL_CHARS_MAX)
}

fn find_account(
    selected: &[SelectedAccounts],
    id: AccountId,
) -> Option<(&SelectedAccounts, &Account)> {
    selected.iter().find_map(|selected| {
        let mut accounts = selected.accounts();
        Some((selected, accounts.find(|account| account.id == id)?))
    })
}

/// Names of the accounts whose rows a result shows. Each is in it once, and rows have the id.
struct AccountNames<'s> {
    selected: &'s [SelectedAccounts],
    shown: BTreeMap<AccountId, (String, Value)>,
}

impl<'s> AccountNames<'s> {
    fn new(selected: &'s [SelectedAccounts]) -> Self {
        Self {
            selected,
            shown: BTreeMap::new(),
        }
    }

    /// Adds a row, and the name of its account with the first row of that.
    fn push(&mut self, rows: &mut Rows, row: &impl ResultRow) -> Room {
        let id = row.account_id();
        if let Some((cell, _)) = self.shown.get(&id) {
            return rows.push(&row.line(cell), row);
        }
        let Some((selected, account)) = find_account(self.selected, id) else {
            return rows.push(&row.line(""), row);
        };
        let name = clean(&account.name, CELL_CHARS_MAX);
        let institution = institution(&selected.context.connection);
        let named = json!({"id": id, "name": name, "institution": institution});
        rows.reserve(named.to_string().len() + 1);
        let cell = super::texts::cell(&account.name);
        let room = rows.push(&row.line(&cell), row);
        if room == Room::Left {
            self.shown.insert(id, (cell, named));
        }
        room
    }

    fn into_json(self) -> Value {
        self.shown
            .into_values()
            .map(|(_, named)| named)
            .collect::<Vec<_>>()
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_accounts_are_counted() {
        let missing = |count: usize| Missing {
            key: None,
            account_ids: (0..count).map(|_| AccountId::new()).collect(),
            institution: "Ironbark".to_owned(),
            message: "try later".to_owned(),
        };
        assert_eq!(
            missing_lines(&[missing(1), missing(4)]),
            [
                "",
                "Missing: 1 account of Ironbark: try later",
                "Missing: 4 accounts of Ironbark: try later",
            ]
            .join("\n")
        );
    }
}
