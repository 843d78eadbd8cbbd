//! Updates the stored accounts of a connection to match the provider's list. A refresh may delete accounts that are
//! missing from the list, an import never does.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bellbird_domain::{AccountId, AccountType, ConnectionId, Currency, MaskedNumber, UserId};

use crate::connections::accounts::{NewAccount, currency, masked};
use crate::db::{Row, Tx, params, statements, strip_nul};
use crate::error::Result;

statements! {
    LIST_STORED = "SELECT id, provider_account_id, name, account_type, masked_number, currency
        FROM accounts WHERE user_id = $1 AND connection_id = $2";

    INSERT = "INSERT INTO accounts
            (user_id, id, connection_id, provider_account_id, name, account_type, masked_number, currency)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

    UPDATE = "UPDATE accounts SET provider_account_id = $3, name = $4, account_type = $5, masked_number = $6,
            currency = $7
        WHERE user_id = $1 AND id = $2";

    DELETE = "DELETE FROM accounts WHERE user_id = $1 AND id = $2";
}

/// An account before the merge.
struct Stored {
    id: AccountId,
    provider_account_id: String,
    name: String,
    account_type: AccountType,
    number: Option<MaskedNumber>,
    currency: Currency,
}

/// Writes the differences, and returns whether there were any. The caller holds the lock on the user's row.
///
/// If the list names an account twice, the first entry counts. A listed account matches the stored one with the same
/// provider id, or else the one in `known_as`.
pub(crate) async fn merge_accounts(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    accounts: &[NewAccount<'_>],
    remove_missing: bool,
) -> Result<bool> {
    let before = tx.all(LIST_STORED, params![user, connection], stored_account).await?;
    let keys: Vec<Cow<'_, str>> = accounts.iter().map(|account| strip_nul(account.provider_account_id)).collect();
    // Splits the stored accounts: those listed under their provider id, and those missing from the list. Each missing
    // one can match at most one `known_as`.
    let listed: HashSet<&str> = keys.iter().map(Cow::as_ref).collect();
    let (same, mut missing): (Vec<Stored>, Vec<Stored>) =
        before.into_iter().partition(|stored| listed.contains(stored.provider_account_id.as_str()));
    let mut same: HashMap<String, Stored> =
        same.into_iter().map(|stored| (stored.provider_account_id.clone(), stored)).collect();
    let mut seen = HashSet::new();
    let mut changed = false;
    for (account, key) in accounts.iter().zip(&keys) {
        if !seen.insert(key.as_ref()) {
            continue;
        }
        let known = same.remove(key.as_ref()).or_else(|| take_known(&mut missing, account.known_as));
        changed |= match known {
            Some(stored) => update(tx, user, &stored, key, account).await?,
            None => insert(tx, user, connection, key, account).await?,
        };
    }
    if remove_missing {
        for stored in &missing {
            tx.run(DELETE, params![user, stored.id]).await?;
            changed = true;
        }
    }
    Ok(changed)
}

fn take_known(missing: &mut Vec<Stored>, known_as: Option<AccountId>) -> Option<Stored> {
    let index = missing.iter().position(|stored| Some(stored.id) == known_as)?;
    Some(missing.swap_remove(index))
}

async fn insert(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    provider_account_id: &str,
    account: &NewAccount<'_>,
) -> Result<bool> {
    let name = strip_nul(account.name);
    let kind = account.account_type.as_str();
    let number = account.number.map(MaskedNumber::as_str);
    let currency = account.currency.unwrap_or(Currency::UNKNOWN);
    let id = AccountId::new();
    let values = params![user, id, connection, provider_account_id, &*name, kind, number, &currency];
    tx.run(INSERT, values).await.map(|_| true)
}

async fn update(
    tx: &mut Tx,
    user: UserId,
    stored: &Stored,
    provider_account_id: &str,
    account: &NewAccount<'_>,
) -> Result<bool> {
    let name = strip_nul(account.name);
    let currency = account.currency.filter(|currency| *currency != Currency::UNKNOWN).unwrap_or(stored.currency);
    let same = stored.provider_account_id == provider_account_id
        && stored.name == *name
        && stored.account_type == account.account_type
        && stored.number.as_ref() == account.number
        && stored.currency == currency;
    if same {
        return Ok(false);
    }
    let number = account.number.map(MaskedNumber::as_str);
    let kind = account.account_type.as_str();
    let values = params![user, stored.id, provider_account_id, &*name, kind, number, &currency];
    tx.run(UPDATE, values).await.map(|_| true)
}

fn stored_account(row: &Row<'_>) -> Result<Stored> {
    Ok(Stored {
        id: row.id(0)?,
        provider_account_id: row.text(1)?.to_owned(),
        name: row.text(2)?.to_owned(),
        account_type: row.word(3, "an account type")?,
        number: masked(row, 4)?,
        currency: currency(row, 5)?,
    })
}
