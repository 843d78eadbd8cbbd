//! Lists and finds accounts: names, types, currencies and masked numbers, without amounts. Also
//! fills in a currency that was unknown.
//!
//! An account that its provider stopped listing is hidden after a while, and deleted later
//! (`account_merge.rs`).

use std::collections::BTreeMap;

use bellbird_domain::{
    Account, AccountId, AccountType, ConnectionId, Currency, MaskedNumber, UserId,
};

use crate::Accounts;
use crate::db::{Param, from_row, pair, params, statements};
use crate::error::Result;
use crate::locks::bump_revision_if_exists;

/// Placeholders for ids in [`FIND_FEW`].
const FIND_FEW_MAX: usize = 8;

/// The columns that [`account`] expects, in its order. Includes hidden accounts.
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
    /// `CROSS JOIN` makes SQLite read accounts by name and look up their connections, whatever its
    /// statistics say. A page then costs one step for each row.
    LIST = select_accounts!("AND a.hidden_at IS NULL ORDER BY a.name, a.id LIMIT $2 OFFSET $3");

    COUNT = "SELECT COUNT(*) FROM accounts a CROSS JOIN connections c
        WHERE a.user_id = $1 AND c.user_id = a.user_id AND c.id = a.connection_id AND c.status <> 'deleting'
            AND a.hidden_at IS NULL";

    /// Sorted in Rust: with ORDER BY, SQLite would read all accounts of the user by name.
    LIST_OF_CONNECTION = select_accounts!("AND a.hidden_at IS NULL AND a.connection_id = $2");

    LIST_LISTED = select_accounts!("AND a.missing_since IS NULL AND a.connection_id = $2");

    LIST_WITH_HIDDEN = select_accounts!("AND a.connection_id = $2");

    /// Sorted in Rust, for the same reason.
    FIND_FEW = select_accounts!("AND a.hidden_at IS NULL AND a.id IN ($2, $3, $4, $5, $6, $7, $8, $9)");

    COUNT_OF_CONNECTIONS = "SELECT connection_id, COUNT(*) FROM accounts WHERE hidden_at IS NULL
        GROUP BY connection_id";

    SET_UNKNOWN_CURRENCY = "UPDATE accounts SET currency = $3 WHERE user_id = $1 AND id = $2 AND currency = 'XXX'";
}

/// An account as its provider lists it.
#[derive(Debug, Clone, Copy)]
pub struct NewAccount<'a> {
    /// The provider's id, which identifies the account within its connection.
    pub provider_account_id: &'a str,
    pub name: &'a str,
    pub account_type: AccountType,
    pub number: Option<&'a MaskedNumber>,
    /// None or [`Currency::UNKNOWN`] keeps a known currency.
    pub currency: Option<Currency>,
    /// The stored account that this one continues under a new provider id. Ignored if that account
    /// belongs to another connection, or is still listed under its old id.
    pub known_as: Option<AccountId>,
}

impl Accounts<'_> {
    /// Returns a page of the user's accounts by name (code points), then id, and the total count.
    /// Skips hidden accounts, and accounts of connections that are being deleted.
    ///
    /// One indexed statement reads the page. A second one counts, but only if the page does not
    /// show where the list ends.
    pub async fn list(self, user: UserId, limit: u32, offset: u64) -> Result<(Vec<Account>, u64)> {
        let skipped = i64::try_from(offset).unwrap_or(i64::MAX);
        let page = self
            .db
            .all(LIST, params![user, limit, skipped], account)
            .await?;
        let end = offset.saturating_add(page.len() as u64);
        if page.len() < limit as usize && (offset == 0 || !page.is_empty()) {
            return Ok((page, end));
        }
        let counted = self.db.count(COUNT, params![user]).await?;
        // An account may be deleted between the statements. The count is never lower than what the
        // page shows.
        let seen = if page.is_empty() { 0 } else { end };
        Ok((page, counted.max(seen)))
    }

    /// The visible accounts of one connection, by name, then id. Empty if the connection belongs to
    /// another user or is being deleted.
    pub async fn list_of_connection(
        self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Vec<Account>> {
        self.db
            .all(LIST_OF_CONNECTION, params![user, connection], account)
            .await
            .map(sorted)
    }

    /// The number of visible accounts of each connection that has some, of all users. For the
    /// command line.
    pub async fn count(self) -> Result<BTreeMap<ConnectionId, u64>> {
        Ok(self
            .db
            .all(COUNT_OF_CONNECTIONS, params![], pair)
            .await?
            .into_iter()
            .collect())
    }

    /// As [`Self::list_of_connection`], without those that the provider's last list lacks. It may
    /// reject a query that names one of these.
    pub async fn list_visible(
        self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Vec<Account>> {
        self.db
            .all(LIST_LISTED, params![user, connection], account)
            .await
            .map(sorted)
    }

    /// As [`Self::list_of_connection`], and the hidden ones, which a found account may match.
    pub async fn list_with_hidden(
        self,
        user: UserId,
        connection: ConnectionId,
    ) -> Result<Vec<Account>> {
        self.db
            .all(LIST_WITH_HIDDEN, params![user, connection], account)
            .await
            .map(sorted)
    }

    /// Finds the user's accounts with these ids, each once, by name, then id. Skips hidden
    /// accounts, and accounts of connections that are being deleted.
    ///
    /// Up to eight ids take one statement with eight lookups. More ids read all accounts of the
    /// user, because the databases have no common syntax for a list of values. A caller with more
    /// than eight ids rarely has many more accounts.
    pub async fn find(self, user: UserId, ids: &[AccountId]) -> Result<Vec<Account>> {
        let Some(last) = ids.last() else {
            return Ok(Vec::new());
        };
        if ids.len() <= FIND_FEW_MAX {
            let mut values = [Param::from(*last); FIND_FEW_MAX + 1];
            values[0] = Param::from(user);
            for (value, id) in values[1..].iter_mut().zip(ids) {
                *value = Param::from(*id);
            }
            return self.db.all(FIND_FEW, &values, account).await.map(sorted);
        }
        let (mut accounts, _) = self.list(user, u32::MAX, 0).await?;
        accounts.retain(|account| ids.contains(&account.id));
        Ok(accounts)
    }

    /// Stores the currency of an account whose currency is unknown. Keeps a known one. Does nothing
    /// if the account is gone.
    pub async fn set_currency(
        self,
        user: UserId,
        account: AccountId,
        currency: Currency,
    ) -> Result<()> {
        if currency == Currency::UNKNOWN {
            return Ok(());
        }
        let mut tx = self.db.begin().await?;
        if bump_revision_if_exists(&mut tx, user).await?
            && tx
                .changes(SET_UNKNOWN_CURRENCY, params![user, account, &currency])
                .await?
        {
            return tx.commit().await;
        }
        tx.rollback().await;
        Ok(())
    }
}

/// Sorts as [`LIST`] does: Rust and both databases compare text by bytes.
fn sorted(mut accounts: Vec<Account>) -> Vec<Account> {
    accounts.sort_unstable_by(|one, other| (&one.name, one.id).cmp(&(&other.name, other.id)));
    accounts
}

from_row! {
    fn account(row) -> Account {
        id, user_id, connection_id, provider, provider_account_id, name, account_type,
        institution_name, number, currency,
    }
}
