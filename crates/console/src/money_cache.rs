//! What is kept of the sums of money in and out.

use std::sync::Arc;

use bellbird_reads::summary::GroupTotals;
use jiff::civil::Date;

use crate::months::Months;

/// The sums of a user, and the user's revision at which they were made.
#[derive(Clone)]
pub(crate) struct CachedMoney {
    pub(crate) revision: i64,
    pub(crate) sums: Arc<MoneySums>,
}

/// Sums of each month, by its first day, for each currency and category. No row is among them. Has
/// no `Debug`, because it holds amounts.
pub(crate) struct MoneySums {
    pub(crate) months: Months,
    pub(crate) by_month: Vec<(Date, Vec<GroupTotals>)>,
}

impl CachedMoney {
    pub(crate) fn bytes(&self) -> usize {
        let of_group = |group: &GroupTotals| {
            let numbers = [&group.money_in, &group.money_out, &group.net];
            let digits: usize = numbers.iter().map(|number| number.as_str().len()).sum();
            size_of::<GroupTotals>() + digits
        };
        let groups = self.sums.by_month.iter().flat_map(|(_, groups)| groups);
        size_of::<Self>() + size_of::<MoneySums>() + groups.map(of_group).sum::<usize>()
    }
}
