//! Names of accounts in journals, and the other side of a row.

use std::collections::{HashMap, HashSet};

use bellbird_domain::{Account, AccountId, AccountType, Category, Transaction};

/// Where money came from or went to. A provider sends no more than a category.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OtherSide {
    Expenses(Category),
    UnknownExpenses,
    UnknownIncome,
    Transfers,
}

impl OtherSide {
    pub(super) fn of(row: &Transaction<'_>) -> Self {
        match row.category {
            Some(Category::TransferIn | Category::TransferOut) => Self::Transfers,
            Some(Category::Income) => Self::UnknownIncome,
            // A refund too: it makes the expenses smaller.
            Some(category) => Self::Expenses(category),
            None if row.amount.is_negative() => Self::UnknownExpenses,
            None => Self::UnknownIncome,
        }
    }
}

pub(super) const fn is_liability(account: &Account) -> bool {
    matches!(
        account.account_type,
        AccountType::CreditCard | AccountType::Loan
    )
}

/// The names of a user's accounts. Two accounts never share one, and each has the same in every
/// file of the user.
#[derive(Default)]
pub(super) struct AccountNames {
    names: HashMap<AccountId, String>,
    /// The accounts of each name without a suffix.
    accounts: HashMap<String, HashSet<AccountId>>,
}

impl AccountNames {
    pub(super) fn new(accounts: &[Account], make: impl Fn(&Account, &str) -> String) -> Self {
        let mut names = Self::default();
        for account in accounts {
            names
                .accounts
                .entry(make(account, ""))
                .or_default()
                .insert(account.id);
        }
        names
    }

    /// `make` builds the name, with a suffix if another account has the name without it.
    pub(super) fn get(
        &mut self,
        account: &Account,
        make: impl Fn(&Account, &str) -> String,
    ) -> &str {
        let accounts = &mut self.accounts;
        self.names.entry(account.id).or_insert_with(|| {
            let name = make(account, "");
            let of_name = accounts.entry(name.clone()).or_default();
            of_name.insert(account.id);
            if of_name.len() == 1 {
                name
            } else {
                make(account, &account.id.uuid().simple().to_string())
            }
        })
    }
}

/// The name of the account, its last digits unless the name has them, and a suffix.
pub(super) fn label(account: &Account, suffix: &str) -> String {
    let digits = account
        .number
        .as_ref()
        .map_or("", |number| number.as_str().trim_start_matches('x'));
    let digits = if account.name.contains(digits) {
        ""
    } else {
        digits
    };
    [&account.name, digits, suffix].join(" ")
}
