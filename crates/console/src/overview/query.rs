//! The query of the overview: which months the sums of money in and out are about, in which
//! currency, and how new what was read has to be.

use std::fmt::Display;

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};

use crate::list_query::ListQuery;
use crate::months::Months;

/// Whole months, of which the last may not have ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Period {
    pub(super) key: &'static str,
    pub(super) label: &'static str,
    /// How many months ago they begin.
    back: i32,
    count: i32,
}

pub(super) const PERIODS: &[Period] = &[
    Period::new("this-month", "This month", 0, 1),
    Period::new("last-month", "Last month", 1, 1),
    SIX_MONTHS,
    Period::new("12-months", "12 months", 11, 12),
];
const SIX_MONTHS: Period = Period::new("6-months", "6 months", 5, 6);

impl Period {
    const fn new(key: &'static str, label: &'static str, back: i32, count: i32) -> Self {
        Self {
            key,
            label,
            back,
            count,
        }
    }

    pub(super) fn months(&self, today: Date) -> Months {
        Months {
            first: today.first_of_month().saturating_sub(self.back.months()),
            count: self.count,
        }
    }
}

#[derive(Clone)]
pub(super) struct OverviewQuery {
    /// Has only values that mean something, except the currency. Empty: the one with the most
    /// transactions.
    query: ListQuery,
    pub(super) period: &'static Period,
    /// What was read before this time is to be read again.
    pub(super) not_before: Option<Timestamp>,
}

impl OverviewQuery {
    /// What cannot be read counts as absent.
    pub(super) fn of(query: Option<&str>) -> Self {
        let mut query = ListQuery::parse(query, &["period", "currency", "not-before"]);
        let mut periods = PERIODS.iter();
        let period = periods.find(|period| period.key == query.get("period"));
        query.set("period", period.map(|period| period.key));
        let not_before = query.parsed("not-before");
        query.set("not-before", None::<Timestamp>);
        Self {
            query,
            period: period.unwrap_or(&SIX_MONTHS),
            not_before: not_before.and_then(|at| Timestamp::from_second(at).ok()),
        }
    }

    pub(super) fn currency(&self) -> &str {
        self.query.get("currency")
    }

    /// The query of this page with another period or currency, or which reads again what was read
    /// before a time.
    pub(super) fn link(&self, name: &str, value: impl Display) -> String {
        format!("?{}", self.query.with(&[(name, &*value.to_string())]))
    }

    /// The query of this page.
    pub(super) fn same(&self) -> String {
        format!("?{}", self.query.first())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(text: &str) -> Date {
        text.parse().unwrap()
    }

    #[test]
    fn periods_are_whole_months() {
        let today = day("2026-11-29");
        for (period, first, end, name) in [
            (&PERIODS[0], "2026-11-01", "2026-11-29", "November 2026"),
            (&PERIODS[1], "2026-10-01", "2026-10-31", "October 2026"),
            (&PERIODS[2], "2026-06-01", "2026-11-29", "Jun to Nov 2026"),
            (
                &PERIODS[3],
                "2025-12-01",
                "2026-11-29",
                "Dec 2025 to Nov 2026",
            ),
        ] {
            let months = period.months(today);
            assert_eq!(
                (months.first, months.end(today), months.name().as_str()),
                (day(first), day(end), name)
            );
            assert_eq!(months.iter().count(), months.count as usize);
        }
        let of = |at: usize| PERIODS[at].months(today);
        assert!(of(2).contain(of(1)));
        assert!(!of(1).contain(of(0)));
        assert!(!of(2).contain(of(3)));
    }

    #[test]
    fn nonsense_counts_as_absent() {
        let nonsense = OverviewQuery::of(Some("period=year&currency=&not-before=%00&%ff&period"));
        assert_eq!(nonsense.period, &SIX_MONTHS);
        assert!(nonsense.currency().is_empty() && nonsense.not_before.is_none());
        assert_eq!(nonsense.same(), "?");
        let query = OverviewQuery::of(Some("period=last-month&currency=A%26B&not-before=7"));
        assert_eq!(query.not_before, Timestamp::from_second(7).ok());
        let links = [
            query.same(),
            query.link("not-before", 9),
            query.link("period", "x"),
        ];
        assert_eq!(
            links,
            [
                "?period=last-month&currency=A%26B",
                "?period=last-month&currency=A%26B&not-before=9",
                "?period=x&currency=A%26B"
            ]
        );
    }
}
