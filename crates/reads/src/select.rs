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

/// A connection with selected accounts. One may fail to load while the others succeed.
pub type FoundConnection = Result<SelectedAccounts, UnreadableConnection>;

/// What a selection finds.
pub struct Selected {
    /// In the order of `/v1/connections`. If the selection names one that fails to load, the whole
    /// selection fails.
    pub connections: Vec<FoundConnection>,
    /// Requested accounts that do not exist, or belong to another user or connection.
    pub unknown: Vec<AccountId>,
}

/// A selection fails as a whole.
#[derive(Debug)]
pub enum SelectError {
    /// The connection is unknown or of another category, or the list of connections could not be
    /// read.
    Connection(ReadError),
    /// An account is unknown or of another category.
    Account(ReadError),
}

impl Selected {
    fn new(connections: Vec<FoundConnection>, requested: Option<&[AccountId]>) -> Self {
        let is_found = |id: AccountId| {
            connections.iter().any(|connection| match connection {
                Ok(selected) => selected.accounts().any(|account| account.id == id),
                Err(unreadable) => unreadable.account_ids.contains(&id),
            })
        };
        let unknown = requested
            .unwrap_or_default()
            .iter()
            .copied()
            .filter(|id| !is_found(*id))
            .collect();
        Self {
            connections,
            unknown,
        }
    }

    /// For a request that fails as a whole if one of its accounts is unknown.
    pub fn require_known(self) -> Result<Vec<FoundConnection>, SelectError> {
        if self.unknown.is_empty() {
            Ok(self.connections)
        } else {
            Err(SelectError::Account(ReadError::NotFound))
        }
    }
}

impl Reads {
    /// Finds the accounts and loads their connections. Calls no provider.
    pub async fn select(
        &self,
        caller: &Caller,
        selection: Selection<'_>,
    ) -> Result<Selected, SelectError> {
        let Selection {
            connection_id,
            account_ids,
            category,
        } = selection;
        if let Some(id) = connection_id {
            let context = self.load_context(caller, id).await;
            let context = context.map_err(SelectError::Connection)?;
            category
                .map_or(Ok(()), |category| context.require_category(category))
                .map_err(SelectError::Connection)?;
            let consent = self.require_consent(&context);
            let selected = SelectedAccounts {
                context,
                account_ids: account_ids.map(<[AccountId]>::to_vec),
            };
            let selected = Selected::new(vec![Ok(selected)], account_ids);
            // An unknown account counts first.
            if selected.unknown.is_empty() {
                consent.map_err(SelectError::Connection)?;
            }
            return Ok(selected);
        }
        let storage = &self.inner.storage;
        let accounts = match account_ids {
            Some(ids) => Some(storage.accounts().find(caller.user_id, ids).await),
            None => None,
        };
        let accounts = accounts
            .transpose()
            .map_err(|error| SelectError::Account(error.into()))?;
        let is_unknown = accounts.as_ref().map(Vec::len) < account_ids.map(<[AccountId]>::len);
        let listed = storage.connections().list(caller.user_id).await;
        let mut connections = Vec::new();
        for connection in listed.map_err(|error| SelectError::Connection(error.into()))? {
            let account_ids: Option<Vec<AccountId>> = accounts.as_ref().map(|accounts| {
                let own = accounts
                    .iter()
                    .filter(|account| account.connection_id == connection.id);
                own.map(|account| account.id).collect()
            });
            let is_other = category.is_some_and(|category| category != connection.category);
            match &account_ids {
                Some(ids) if ids.is_empty() => continue,
                // An unknown account counts first.
                Some(_) if is_other && !is_unknown => {
                    return Err(SelectError::Account(ReadError::WrongCategory));
                }
                _ if is_other => continue,
                _ => {}
            }
            connections.push(match self.connection_context(caller, connection.id).await {
                Ok(context) => Ok(SelectedAccounts {
                    context,
                    account_ids,
                }),
                Err(error) => Err(UnreadableConnection {
                    connection,
                    account_ids: account_ids.unwrap_or_default(),
                    error,
                }),
            });
        }
        Ok(Selected::new(connections, account_ids))
    }

    /// Loads the caller's accounts with these ids. Fails with [`ReadError::NotFound`] if one does
    /// not exist or belongs to another user.
    pub async fn own_accounts(
        &self,
        caller: &Caller,
        ids: &[AccountId],
    ) -> Result<Vec<Account>, ReadError> {
        let accounts = self
            .inner
            .storage
            .accounts()
            .find(caller.user_id, ids)
            .await?;
        if accounts.len() == ids.len() {
            Ok(accounts)
        } else {
            Err(ReadError::NotFound)
        }
    }
}

impl SelectedAccounts {
    /// All accounts of a connection.
    pub fn all(context: Arc<ConnectionContext>) -> Self {
        Self {
            context,
            account_ids: None,
        }
    }

    /// By name, then id.
    pub fn accounts(&self) -> impl Iterator<Item = &Account> {
        let is_selected = |account: &&Account| {
            self.account_ids
                .as_ref()
                .is_none_or(|ids| ids.contains(&account.id))
        };
        self.context.accounts.iter().filter(is_selected)
    }

    /// The account, if the request names exactly one of the connection.
    pub fn account_id(&self) -> Option<AccountId> {
        let [id] = self.account_ids.as_deref()? else {
            return None;
        };
        Some(*id)
    }

    /// Whether these are all accounts of the connection.
    pub fn is_whole(&self) -> bool {
        self.accounts().count() == self.context.accounts.len()
    }

    /// Selects other accounts of the same connection.
    pub fn with_accounts(&self, account_ids: Vec<AccountId>) -> Self {
        Self {
            context: Arc::clone(&self.context),
            account_ids: Some(account_ids),
        }
    }

    /// The lists to read: that of the whole connection, or one for each account if not all are
    /// selected.
    pub fn lists(&self) -> Vec<Self> {
        if self.is_whole() {
            return vec![Self::all(Arc::clone(&self.context))];
        }
        self.accounts()
            .map(|account| self.with_accounts(vec![account.id]))
            .collect()
    }
}
