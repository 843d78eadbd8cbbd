//! The banks or brokers of a user and their accounts.

use bellbird_domain::{Account, AccountId, Connection, ConnectionCategory};
use bellbird_storage::StorageError;

use crate::pages::BankNames;
use crate::pages::names::{institution_name, sanitized, with_number};
use crate::session::Session;
use crate::state::Console;

/// A bank or broker and its accounts, for the list of accounts and for the rows.
pub(crate) struct Bank {
    pub(crate) connection: Connection,
    /// Of the institution. Beside it is an account.
    pub(crate) name: String,
    pub(crate) is_sandbox: bool,
    pub(crate) accounts: Vec<(AccountId, String)>,
}

/// What the user has linked, of one category.
pub(crate) struct Linked {
    pub(crate) banks: Vec<Bank>,
    /// Of all that the user has linked.
    pub(crate) names: BankNames,
}

/// All that the user has linked: connections, accounts, and what the banks are called.
pub(crate) async fn load_all(
    session: &Session,
) -> Result<(Vec<Connection>, Vec<Account>, BankNames), StorageError> {
    let storage = session.storage();
    let (connections, (accounts, _)) = tokio::try_join!(
        storage.connections().list(session.user()),
        storage.accounts().list(session.user(), u32::MAX, 0),
    )?;
    let names = BankNames::new(&connections, &accounts, &session.zone());
    Ok((connections, accounts, names))
}

impl Linked {
    pub(crate) async fn load(
        session: &Session,
        category: ConnectionCategory,
    ) -> Result<Self, StorageError> {
        let (connections, accounts, names) = load_all(session).await?;
        let banks = connections
            .into_iter()
            .filter(|connection| connection.category == category)
            .map(|connection| Bank::new(session, connection, &accounts));
        Ok(Self {
            banks: banks.collect(),
            names,
        })
    }

    /// The bank of an account, and the account's name.
    pub(super) fn find(&self, id: AccountId) -> Option<(&Bank, &str)> {
        let mut banks = self.banks.iter();
        banks.find_map(|bank| Some((bank, bank.name_of(id)?)))
    }
}

impl Bank {
    /// Of an account. None: it is not at this bank.
    pub(crate) fn name_of(&self, id: AccountId) -> Option<&str> {
        let mut accounts = self.accounts.iter();
        let (_, name) = accounts.find(|(account, _)| *account == id)?;
        Some(name)
    }

    fn new(console: &Console, connection: Connection, accounts: &[Account]) -> Self {
        let own = accounts
            .iter()
            .filter(|account| account.connection_id == connection.id);
        let name_of = |account: &Account| with_number(&sanitized(&account.name), account);
        let registry = &console.frame.providers;
        Self {
            name: institution_name(&connection),
            is_sandbox: registry.is_sandbox(&connection.provider),
            accounts: own.map(|account| (account.id, name_of(account))).collect(),
            connection,
        }
    }
}
