//! Whole months.

use jiff::ToSpan as _;
use jiff::civil::Date;

/// Whole months, of which the last may not have ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Months {
    /// The first day of the first month.
    pub(crate) first: Date,
    /// At least one.
    pub(crate) count: i32,
}

impl Months {
    /// The first day of each month.
    pub(crate) fn iter(self) -> impl Iterator<Item = Date> {
        (0..self.count).map(move |at| self.first.saturating_add(at.months()))
    }

    fn last(self) -> Date {
        self.first.saturating_add((self.count - 1).months())
    }

    /// The last day, which is not after today.
    pub(crate) fn end(self, today: Date) -> Date {
        self.last().last_of_month().min(today)
    }

    /// Whether all of the other months are among these.
    pub(crate) fn contain(self, others: Self) -> bool {
        self.first <= others.first && others.last() <= self.last()
    }

    /// Such as `November 2026`, `Jun to Nov 2026` or `Dec 2025 to Nov 2026`.
    pub(crate) fn name(self) -> String {
        if self.count == 1 {
            return self.first.strftime("%B %Y").to_string();
        }
        let is_one_year = self.first.year() == self.last().year();
        let first = if is_one_year { "%b" } else { "%b %Y" };
        let (first, last) = (self.first.strftime(first), self.last().strftime("%b %Y"));
        format!("{first} to {last}")
    }
}
