//! What a file is made of: connections of the caller, one after the other, each of one category.

use std::sync::Arc;

use bellbird_domain::{AccountId, Caller, Connection, ConnectionCategory, ConnectionId, ConnectionStatus};
use bellbird_reads::{ConnectionContext, ReadError, Reads};
use bellbird_storage::Storage;

use super::formats::FormatError;
use super::request::Selection;

/// A file that cannot be made.
#[derive(Debug)]
pub enum OpenError {
    /// The caller has no such connection, or it is of another category.
    Connection(ReadError),
    /// The caller, or the connection, has no such account, or it is of another category.
    Account(ReadError),
    /// The format cannot hold what was requested.
    Format(FormatError),
}

/// A connection to read, and whether to read one account of it or all.
pub(crate) struct Source {
    pub(crate) context: Arc<ConnectionContext>,
    pub(crate) account_id: Option<AccountId>,
}

/// Finds the connections to read and checks that they are the caller's.
///
/// Of several, those that are not active come first: one that cannot be read then fails before the first byte, not in
/// the middle.
pub(crate) async fn find_sources(
    reads: &Reads,
    storage: &Storage,
    caller: &Caller,
    category: ConnectionCategory,
    selection: Selection,
) -> Result<Vec<Source>, OpenError> {
    let account_id = selection.account_id;
    let connection_ids = match (selection.connection_id, account_id) {
        (Some(id), _) => vec![id],
        (None, Some(id)) => {
            let accounts = reads.own_accounts(caller, &[id]).await.map_err(OpenError::Account)?;
            accounts.iter().map(|account| account.connection_id).collect()
        }
        (None, None) => {
            let connections = storage.connections().list(caller.user_id).await;
            of_category(connections.map_err(|error| OpenError::Connection(error.into()))?, category)
        }
    };
    let mut sources = Vec::with_capacity(connection_ids.len());
    for id in connection_ids {
        // A connection that was named is at fault itself; else the account is.
        let error = |error| match selection.connection_id {
            Some(_) => OpenError::Connection(error),
            None => OpenError::Account(error),
        };
        let context = reads.connection_context(caller, id).await.map_err(error)?;
        context.require_category(category).map_err(error)?;
        context.accounts_of(account_id).map_err(OpenError::Account)?;
        sources.push(Source { context, account_id });
    }
    Ok(sources)
}

/// In the order of `/v1/connections`, those that are not active first.
fn of_category(mut connections: Vec<Connection>, category: ConnectionCategory) -> Vec<ConnectionId> {
    connections.retain(|connection| connection.category == category);
    connections.sort_by_key(|connection| connection.status == ConnectionStatus::Active);
    connections.iter().map(|connection| connection.id).collect()
}
