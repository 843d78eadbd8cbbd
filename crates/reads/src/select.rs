//! Selects the accounts of the caller that a request is about, for every interface.

use std::sync::Arc;

use bellbird_domain::{Account, AccountId, Caller, Connection, ConnectionCategory, ConnectionId};

use crate::{ConnectionContext, ReadError, Reads};

/// Which of the caller's accounts to select. Without ids, all of the category.
#[derive(Debug, Clone, Copy, Default)]
pub struct Selection<'s> {
    pub connection_id: Option<ConnectionId>,
    /// Each once.
    pub account_ids: Option<&'s [AccountId]>,
    /// `None` for both.
    pub category: Option<ConnectionCategory>,
}

/// The selected accounts of one connection.
#[derive(Clone)]
pub struct SelectedAccounts {
    pub context: Arc<ConnectionContext>,
    /// `None` for all accounts of the connection.
    account_ids: Option<Vec<AccountId>>,
}

/// A connection whose credentials or accounts could not be loaded, or that was removed meanwhile.
pub struct UnreadableConnection {
    pub connection: Connection,
    /// The requested accounts of the connection. Empty if the request names no accounts.
    pub account_ids: Vec<AccountId>,
    pub error: ReadError,
}

/// What a selection names cannot be selected. Ids of other users are like unknown ids.
#[derive(Debug)]
pub enum SelectError {
    /// The connection is unknown or of another category, or the list of connections could not be read.
    Connection(ReadError),
    /// An account is unknown or of another category.
    Account(ReadError),
}

impl Reads {
    /// Finds the accounts and loads their connections, in the order of `/v1/connections`. Calls no provider.
    ///
    /// If the selection names a connection, the result is that connection. Otherwise one connection may fail to load
    /// while the others succeed.
    pub async fn select(
        &self,
        caller: &Caller,
        selection: Selection<'_>,
    ) -> Result<Vec<Result<SelectedAccounts, UnreadableConnection>>, SelectError> {
        let Selection { connection_id, account_ids, category } = selection;
        if let Some(id) = connection_id {
            let context = self.connection_context(caller, id).await.map_err(SelectError::Connection)?;
            category.map_or(Ok(()), |category| context.require_category(category)).map_err(SelectError::Connection)?;
            let selected = SelectedAccounts::new(context, account_ids.map(<[AccountId]>::to_vec))?;
            return Ok(vec![Ok(selected)]);
        }
        let accounts = match account_ids {
            Some(ids) => Some(self.own_accounts(caller, ids).await.map_err(SelectError::Account)?),
            None => None,
        };
        let connections = self.inner.storage.connections().list(caller.user_id).await;
        let connections = connections.map_err(|error| SelectError::Connection(error.into()))?;
        let mut found = Vec::new();
        for connection in connections {
            let account_ids: Option<Vec<AccountId>> = accounts.as_ref().map(|accounts| {
                let own = accounts.iter().filter(|account| account.connection_id == connection.id);
                own.map(|account| account.id).collect()
            });
            if account_ids.as_ref().is_some_and(Vec::is_empty) {
                continue;
            }
            match category {
                Some(category) if category != connection.category && account_ids.is_some() => {
                    return Err(SelectError::Account(ReadError::WrongCategory));
                }
                Some(category) if category != connection.category => continue,
                _ => {}
            }
            found.push(match self.connection_context(caller, connection.id).await {
                Ok(context) => Ok(SelectedAccounts::new(context, account_ids)?),
                Err(error) => {
                    Err(UnreadableConnection { connection, account_ids: account_ids.unwrap_or_default(), error })
                }
            });
        }
        // An account may have been removed between the statements.
        if found.is_empty() && accounts.is_some_and(|accounts| !accounts.is_empty()) {
            return Err(SelectError::Account(ReadError::NotFound));
        }
        Ok(found)
    }

    /// Loads the caller's accounts with these ids. Fails with [`ReadError::NotFound`] if one does not exist or belongs
    /// to another user.
    pub async fn own_accounts(&self, caller: &Caller, ids: &[AccountId]) -> Result<Vec<Account>, ReadError> {
        let accounts = self.inner.storage.accounts().find(caller.user_id, ids).await?;
        if accounts.len() == ids.len() { Ok(accounts) } else { Err(ReadError::NotFound) }
    }
}

impl SelectedAccounts {
    fn new(context: Arc<ConnectionContext>, account_ids: Option<Vec<AccountId>>) -> Result<Self, SelectError> {
        for id in account_ids.iter().flatten() {
            context.accounts_of(Some(*id)).map_err(SelectError::Account)?;
        }
        Ok(Self { context, account_ids })
    }

    /// By name, then id.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        let is_selected = |account: &&Account| self.account_ids.as_ref().is_none_or(|ids| ids.contains(&account.id));
        self.context.accounts.iter().filter(is_selected)
    }

    /// The account, if the request names exactly one of the connection.
    pub fn account_id(&self) -> Option<AccountId> {
        let [id] = self.account_ids.as_deref()? else { return None };
        Some(*id)
    }

    /// Whether these are all accounts of the connection.
    pub fn is_whole(&self) -> bool {
        self.accounts().count() == self.context.accounts.len()
    }

    /// Selects other accounts of the same connection.
    pub fn with_accounts(&self, account_ids: Vec<AccountId>) -> Self {
        Self { context: Arc::clone(&self.context), account_ids: Some(account_ids) }
    }

    /// The lists to read: that of the whole connection, or one for each account if not all are selected.
    pub fn lists(&self) -> Vec<Self> {
        if self.is_whole() {
            return vec![Self { context: Arc::clone(&self.context), account_ids: None }];
        }
        self.accounts().map(|account| self.with_accounts(vec![account.id])).collect()
    }
}
