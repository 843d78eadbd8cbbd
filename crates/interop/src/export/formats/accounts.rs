//! Names of accounts in journals, and the other side of a row.

use std::collections::{HashMap, HashSet};

use bellbird_domain::{Account, AccountId, AccountType, Category, Transaction};

/// Writes a part of a name as the journal takes it, or the default if nothing of the text is left.
type WritePart = fn(&str, &str) -> String;

/// The account on the other side of a row. A provider sends no more than a category.
pub(super) enum OtherSide {
    Expenses(Category),
    UnknownExpenses,
    UnknownIncome,
    Transfers,
}

impl OtherSide {
    pub(super) fn of(row: &Transaction<'_>) -> Self {
        match row.category {
            Some(category) if category.is_transfer() => Self::Transfers,
            Some(Category::Income) => Self::UnknownIncome,
            // A refund too: it makes the expenses smaller.
            Some(category) => Self::Expenses(category),
            None if row.amount.is_negative() => Self::UnknownExpenses,
            None => Self::UnknownIncome,
        }
    }

    /// The kind of the account, and the rest of its name as a category's key is written.
    pub(super) fn words(&self) -> (&'static str, &'static str) {
        match self {
            Self::Expenses(category) => ("Expenses", category.key()),
            Self::UnknownExpenses => ("Expenses", "UNKNOWN"),
            Self::UnknownIncome => ("Income", "UNKNOWN"),
            Self::Transfers => ("Equity", "TRANSFERS"),
        }
    }
}

/// The names of a user's accounts. Two accounts never share one, and each has the same in every
/// file of the user.
pub(super) struct AccountNames {
    part: WritePart,
    names: HashMap<AccountId, String>,
    /// The accounts of each name without a suffix.
    accounts: HashMap<String, HashSet<AccountId>>,
}

impl AccountNames {
    pub(super) fn new(part: WritePart) -> Self {
        Self {
            part,
            names: HashMap::new(),
            accounts: HashMap::new(),
        }
    }

    /// Reserves the names of these accounts, so that no two of them share one.
    pub(super) fn reserve(&mut self, accounts: &[Account]) {
        for account in accounts {
            let name = name_of(account, "", self.part);
            self.accounts.entry(name).or_default().insert(account.id);
        }
    }

    /// The name, with a suffix if another account has the name without it.
    pub(super) fn get(&mut self, account: &Account) -> &str {
        let (accounts, part) = (&mut self.accounts, self.part);
        self.names.entry(account.id).or_insert_with(|| {
            let name = name_of(account, "", part);
            let of_name = accounts.entry(name.clone()).or_default();
            of_name.insert(account.id);
            if of_name.len() == 1 {
                name
            } else {
                name_of(account, &account.id.uuid().simple().to_string(), part)
            }
        })
    }
}

/// `assets:institution:account 1234`.
fn name_of(account: &Account, suffix: &str, part: WritePart) -> String {
    let kind = match account.account_type {
        AccountType::CreditCard | AccountType::Loan => "liabilities",
        _ => "assets",
    };
    let institution = account.institution_name.as_deref().unwrap_or_default();
    let label = label(account, suffix);
    [
        part(kind, ""),
        part(institution, "bank"),
        part(&label, "account"),
    ]
    .join(":")
}

/// The name of the account, its last digits unless the name has them, and a suffix.
fn label(account: &Account, suffix: &str) -> String {
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
