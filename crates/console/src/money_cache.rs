//! The sums of money in and out, and what is kept of them.

use std::collections::BTreeMap;

use bellbird_domain::{Category, Currency, Decimal, ExactSum};
use jiff::civil::Date;

use crate::months::Months;

/// Exact sums of amounts of one currency. Has no `Debug`, because it holds amounts.
#[derive(Clone, Default)]
pub(crate) struct InAndOut {
    pub(crate) rows: u64,
    pub(crate) money_in: ExactSum,
    /// 0 or negative.
    pub(crate) money_out: ExactSum,
}

impl InAndOut {
    /// Adds an amount. Returns false, and leaves it out of the sum, if it has more than 512
    /// characters.
    pub(crate) fn add(&mut self, amount: &Decimal<'_>) -> bool {
        self.rows += 1;
        match amount.is_negative() {
            true => self.money_out.add(amount),
            false => self.money_in.add(amount),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.rows += other.rows;
        self.money_in = self.money_in.plus(&other.money_in);
        self.money_out = self.money_out.plus(&other.money_out);
    }

    pub(crate) fn net(&self) -> ExactSum {
        self.money_in.plus(&self.money_out)
    }
}

/// Sums by currency, month (its first day) and category. No row is among them.
pub(crate) type SumsByGroup = BTreeMap<(Currency, Date, Option<Category>), InAndOut>;

/// The sums of a user, and the user's revision at which they were made.
pub(crate) struct MoneySums {
    pub(crate) revision: i64,
    pub(crate) months: Months,
    pub(crate) groups: SumsByGroup,
}

impl MoneySums {
    /// About how many bytes of memory they take.
    pub(crate) fn bytes(&self) -> usize {
        let digits = |sum: &ExactSum| sum.to_decimal().as_str().len();
        let of_group = |sums: &InAndOut| {
            size_of::<(Currency, Date, Option<Category>, InAndOut)>()
                + digits(&sums.money_in)
                + digits(&sums.money_out)
        };
        size_of::<Self>() + self.groups.values().map(of_group).sum::<usize>()
    }
}
