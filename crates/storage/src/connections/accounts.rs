//! Accounts: names and kinds, no amounts, no full numbers.

use bellbird_domain::{Account, AccountId, AccountType, ConnectionId, Currency, MaskedNumber, UserId};

use crate::db::{Param, Row, params, statements};
use crate::error::Result;
use crate::locks::bump_revision;
use crate::{Storage, StorageError};

/// How many ids [`FIND_FEW`] takes.
const FIND_FEW_MAX: usize = 8;

/// The columns and tables of every read of accounts, in the order that [`account`] expects.
macro_rules! select_accounts {
    ($rest:literal) => {
        concat!(
            "SELECT a.id, a.user_id, a.connection_id, c.provider, a.provider_account_id, a.name, a.account_type,
                c.institution_name, a.masked_number, a.currency
            FROM accounts a CROSS JOIN connections c
            WHERE a.user_id = $1 AND c.user_id = a.user_id AND c.id = a.connection_id AND c.status <> 'deleting' ",
            $rest
        )
    };
}

statements! {
    /// `CROSS JOIN` keeps SQLite walking the accounts by name and looking their connections up, whatever its
    /// statistics say: a page then costs as many steps as it has rows.
    LIST = select_accounts!("ORDER BY a.name, a.id LIMIT $2 OFFSET $3");

    COUNT = "SELECT COUNT(*) FROM accounts a CROSS JOIN connections c
        WHERE a.user_id = $1 AND c.user_id = a.user_id AND c.id = a.connection_id AND c.status <> 'deleting'";

    LIST_ALL = select_accounts!("ORDER BY a.name, a.id");

    /// Sorted by us: asked to sort, SQLite would rather walk all of the user's accounts by name than look up the few.
    LIST_OF_CONNECTION = select_accounts!("AND a.connection_id = $2");

    /// Sorted by us, for the same reason.
    FIND_FEW = select_accounts!("AND a.id IN ($2, $3, $4, $5, $6, $7, $8, $9)");

    SET_UNKNOWN_CURRENCY = "UPDATE accounts SET currency = $3 WHERE user_id = $1 AND id = $2 AND currency = 'XXX'";
}

/// An account as a provider tells it.
#[derive(Debug, Clone, Copy)]
pub struct NewAccount<'a> {
    /// The provider's own id; by it an account is known again within its connection.
    pub provider_account_id: &'a str,
    /// Display name.
    pub name: &'a str,
    /// One of the seven kinds.
    pub account_type: AccountType,
    /// Last four digits.
    pub number: Option<&'a MaskedNumber>,
    /// None, or [`Currency::UNKNOWN`], keeps a known one.
    pub currency: Option<Currency>,
    /// The account of ours that it is known to be, although the provider gave it a new id. One of another connection
    /// counts as none, and so does one that the provider lists under its old id.
    pub known_as: Option<AccountId>,
}

impl Storage {
    /// A page of the user's accounts by name (code points), then id, and how many there are in all. Accounts of
    /// connections being deleted do not count.
    ///
    /// One indexed statement; a second one counts, but only where the page does not show the end.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_accounts(&self, user: UserId, limit: u32, offset: u64) -> Result<(Vec<Account>, u64)> {
        let skipped = i64::try_from(offset).unwrap_or(i64::MAX);
        let page = self.db.all(LIST, params![user, i64::from(limit), skipped], account).await?;
        let end = offset.saturating_add(page.len() as u64);
        if page.len() < limit as usize && (offset == 0 || !page.is_empty()) {
            return Ok((page, end));
        }
        let counted = self.db.one(COUNT, params![user], |row| row.int(0)).await?.unwrap_or(0);
        // Should an account go between the two statements, the answer still does not contradict itself.
        let seen = if page.is_empty() { 0 } else { end };
        Ok((page, u64::try_from(counted).unwrap_or(0).max(seen)))
    }

    /// The accounts of one connection, by name, then id. None for a connection that is another user's, or is being
    /// deleted.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_connection_accounts(&self, user: UserId, connection: ConnectionId) -> Result<Vec<Account>> {
        self.db.all(LIST_OF_CONNECTION, params![user, connection], account).await.map(sorted)
    }

    /// Those of the accounts that are the user's and whose connection is not being deleted, by name, then id, each
    /// once.
    ///
    /// Up to eight ids are looked up one by one in one statement. For more, all of the user's accounts are read and
    /// those asked for are kept: a list of values has no form that both databases take, and who asks for nine
    /// accounts rarely has many more.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_accounts(&self, user: UserId, ids: &[AccountId]) -> Result<Vec<Account>> {
        let Some(last) = ids.last() else { return Ok(Vec::new()) };
        if ids.len() <= FIND_FEW_MAX {
            let mut values = [Param::from(*last); FIND_FEW_MAX + 1];
            values[0] = Param::from(user);
            for (value, id) in values[1..].iter_mut().zip(ids) {
                *value = Param::from(*id);
            }
            return self.db.all(FIND_FEW, &values, account).await.map(sorted);
        }
        let mut accounts = self.db.all(LIST_ALL, params![user], account).await?;
        accounts.retain(|account| ids.contains(&account.id));
        Ok(accounts)
    }

    /// Learns the currency of an account that had none. One that is known stays.
    ///
    /// # Errors
    /// Those of the database. An account that is gone is none.
    pub async fn set_account_currency(&self, user: UserId, account: AccountId, currency: Currency) -> Result<()> {
        if currency == Currency::UNKNOWN {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        match bump_revision(&mut tx, user).await {
            Err(StorageError::NotFound(_)) => return Ok(()),
            other => other?,
        }
        if tx.run(SET_UNKNOWN_CURRENCY, params![user, account, &currency]).await? == 0 {
            tx.rollback().await;
            return Ok(());
        }
        tx.commit().await
    }
}

/// In the order of the list: Rust compares texts by bytes, as the databases are told to.
fn sorted(mut accounts: Vec<Account>) -> Vec<Account> {
    accounts.sort_unstable_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
    accounts
}

fn account(row: &Row<'_>) -> Result<Account> {
    Ok(Account {
        id: row.id(0)?,
        user_id: row.id(1)?,
        connection_id: row.id(2)?,
        provider: row.text(3)?.to_owned(),
        provider_account_id: row.text(4)?.to_owned(),
        name: row.text(5)?.to_owned(),
        account_type: row.word(6, "an account type")?,
        institution_name: row.opt_text(7)?.map(str::to_owned),
        number: masked(row, 8)?,
        currency: currency(row, 9)?,
    })
}

pub(crate) fn masked(row: &Row<'_>, column: usize) -> Result<Option<MaskedNumber>> {
    let read = |text| MaskedNumber::mask(text).ok_or(StorageError::Corrupt("an account number"));
    row.opt_text(column)?.map(read).transpose()
}

pub(crate) fn currency(row: &Row<'_>, column: usize) -> Result<Currency> {
    Currency::parse(row.text(column)?).ok_or(StorageError::Corrupt("a currency"))
}
