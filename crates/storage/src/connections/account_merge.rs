//! Updates the stored accounts of a connection to match the provider's list.
//!
//! A list may be incomplete by mistake. So an account that is missing from it stays visible until a
//! refresh an hour later misses it too, and is deleted only after a month. If it is listed again
//! before, it keeps its id.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use bellbird_domain::{AccountId, AccountType, ConnectionId, Currency, MaskedNumber, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::connections::accounts::NewAccount;
use crate::connections::syncs;
use crate::db::{Tx, from_row, params, statements, strip_nul};
use crate::error::Result;

/// How long an account is missing before a refresh hides it.
const HIDE_AFTER: SignedDuration = SignedDuration::from_hours(1);
/// How long an account is missing before a refresh deletes it, after an earlier one has hidden it.
const DELETE_AFTER: SignedDuration = SignedDuration::from_hours(30 * 24);

statements! {
    LIST_STORED = "SELECT id, provider_account_id, name, account_type, masked_number, currency, missing_since, hidden_at
        FROM accounts WHERE user_id = $1 AND connection_id = $2";

    INSERT = "INSERT INTO accounts
            (user_id, id, connection_id, provider_account_id, name, account_type, masked_number, currency)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

    UPDATE = "UPDATE accounts SET provider_account_id = $3, name = $4, account_type = $5, masked_number = $6,
            currency = $7, missing_since = NULL, hidden_at = NULL
        WHERE user_id = $1 AND id = $2";

    SET_MISSING = "UPDATE accounts SET missing_since = $3 WHERE user_id = $1 AND id = $2";

    HIDE = "UPDATE accounts SET hidden_at = $3 WHERE user_id = $1 AND id = $2";

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
    missing_since: Option<Timestamp>,
    is_hidden: bool,
}

/// Writes the differences, and returns whether users can see any. The caller holds the lock on the
/// user's row.
///
/// `missing_at` is the time of a list that should be complete: accounts that it lacks are missing
/// since then. If the list names an account twice, the first entry counts. A listed account matches
/// the stored one with the same provider id, or else the one in `known_as`.
pub(crate) async fn merge_accounts(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    accounts: &[NewAccount<'_>],
    missing_at: Option<Timestamp>,
) -> Result<bool> {
    let before = tx
        .all(LIST_STORED, params![user, connection], stored_account)
        .await?;
    let keys: Vec<Cow<'_, str>> = accounts
        .iter()
        .map(|account| strip_nul(account.provider_account_id))
        .collect();
    // Splits the stored accounts: those listed under their provider id, and those missing from the
    // list. Each missing one can match at most one `known_as`.
    let listed: HashSet<&str> = keys.iter().map(Cow::as_ref).collect();
    let (same, mut missing): (Vec<Stored>, Vec<Stored>) = before
        .into_iter()
        .partition(|stored| listed.contains(stored.provider_account_id.as_str()));
    let mut same: HashMap<String, Stored> = same
        .into_iter()
        .map(|stored| (stored.provider_account_id.clone(), stored))
        .collect();
    let mut seen = HashSet::new();
    let mut changed = false;
    for (account, key) in accounts.iter().zip(&keys) {
        if !seen.insert(key.as_ref()) {
            continue;
        }
        let known = same
            .remove(key.as_ref())
            .or_else(|| take_known(&mut missing, account.known_as));
        changed |= match known {
            Some(stored) => update(tx, user, connection, &stored, key, account).await?,
            None => insert(tx, user, connection, key, account).await?,
        };
    }
    if let Some(now) = missing_at {
        for stored in &missing {
            changed |= miss(tx, user, stored, now).await?;
        }
    }
    Ok(changed)
}

/// Handles an account that is missing from a list. Returns true if it was hidden or deleted.
async fn miss(tx: &mut Tx, user: UserId, stored: &Stored, now: Timestamp) -> Result<bool> {
    let Some(since) = stored.missing_since else {
        return tx
            .run(SET_MISSING, params![user, stored.id, now])
            .await
            .map(|_| false);
    };
    let missing_for = now.duration_since(since);
    if missing_for >= HIDE_AFTER && !stored.is_hidden {
        tx.run(HIDE, params![user, stored.id, now]).await?;
    } else if missing_for >= DELETE_AFTER {
        tx.run(DELETE, params![user, stored.id]).await?;
    } else {
        return Ok(false);
    }
    Ok(true)
}

fn take_known(missing: &mut Vec<Stored>, known_as: Option<AccountId>) -> Option<Stored> {
    let index = missing
        .iter()
        .position(|stored| Some(stored.id) == known_as)?;
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
    let currency = account.currency.unwrap_or(Currency::UNKNOWN);
    let id = AccountId::new();
    let values = params![
        user,
        id,
        connection,
        provider_account_id,
        &*name,
        account.account_type,
        account.number,
        &currency
    ];
    tx.run(INSERT, values).await.map(|_| true)
}

async fn update(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
    stored: &Stored,
    provider_account_id: &str,
    account: &NewAccount<'_>,
) -> Result<bool> {
    let name = strip_nul(account.name);
    let currency = account
        .currency
        .filter(|currency| *currency != Currency::UNKNOWN)
        .unwrap_or(stored.currency);
    let same = stored.provider_account_id == provider_account_id
        && stored.name == *name
        && stored.account_type == account.account_type
        && stored.number.as_ref() == account.number
        && stored.currency == currency;
    if same && stored.missing_since.is_none() {
        return Ok(false);
    }
    if let Some(since) = stored.missing_since {
        syncs::reread_from(tx, user, connection, since).await?;
    }
    let values = params![
        user,
        stored.id,
        provider_account_id,
        &*name,
        account.account_type,
        account.number,
        &currency
    ];
    tx.run(UPDATE, values)
        .await
        .map(|_| !same || stored.is_hidden)
}

from_row! {
    fn stored_account(row) -> Stored {
        id, provider_account_id, name, account_type, number, currency, missing_since,
        is_hidden = row.get::<Option<Timestamp>>(7)?.is_some(),
    }
}
