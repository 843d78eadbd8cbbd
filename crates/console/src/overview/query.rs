//! The query of the overview: which months the sums of money in and out are about, in which
//! currency, and how new what was read has to be.

use jiff::civil::Date;
use jiff::{Timestamp, ToSpan as _};

use crate::list_query::ListQuery;
use crate::months::Months;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Period {
    ThisMonth,
    LastMonth,
    SixMonths,
    TwelveMonths,
}

impl Period {
    pub(super) const ALL: [Self; 4] = [
        Self::ThisMonth,
        Self::LastMonth,
        Self::SixMonths,
        Self::TwelveMonths,
    ];

    fn key(self) -> &'static str {
        match self {
            Self::ThisMonth => "this-month",
            Self::LastMonth => "last-month",
            Self::SixMonths => "6-months",
            Self::TwelveMonths => "12-months",
        }
    }

    pub(super) fn label(self) -> &'static str {
        match self {
            Self::ThisMonth => "This month",
            Self::LastMonth => "Last month",
            Self::SixMonths => "6 months",
            Self::TwelveMonths => "12 months",
        }
    }

    pub(super) fn months(self, today: Date) -> Months {
        let this = today.first_of_month();
        let (back, count) = match self {
            Self::ThisMonth => (0, 1),
            Self::LastMonth => (1, 1),
            Self::SixMonths => (5, 6),
            Self::TwelveMonths => (11, 12),
        };
        Months {
            first: this.saturating_sub(back.months()),
            count,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct OverviewQuery {
    pub(super) period: Period,
    /// None: the one with the most transactions.
    pub(super) currency: Option<String>,
    /// What was read before this time is to be read again.
    pub(super) not_before: Option<Timestamp>,
}

impl OverviewQuery {
    /// What cannot be read counts as absent.
    pub(super) fn of(query: Option<&str>) -> Self {
        let fields = ListQuery::parse(query, &["period", "currency", "not-before"]);
        let mut periods = Period::ALL.into_iter();
        let period = periods.find(|period| period.key() == fields.get("period"));
        let not_before = fields.parsed("not-before");
        Self {
            period: period.unwrap_or(Period::SixMonths),
            currency: Some(fields.get("currency").to_owned()).filter(|code| !code.is_empty()),
            not_before: not_before.and_then(|at| Timestamp::from_second(at).ok()),
        }
    }

    /// The query of the page for another period or currency.
    pub(super) fn link(&self, period: Period, currency: Option<&str>) -> String {
        let mut query = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        query.append_pair("period", period.key());
        if let Some(currency) = currency {
            query.append_pair("currency", currency);
        }
        query.finish()
    }

    /// The query of this page.
    pub(super) fn same(&self) -> String {
        self.link(self.period, self.currency.as_deref())
    }

    /// The query of this page, which reads again what was read before.
    pub(super) fn link_not_before(&self, at: Timestamp) -> String {
        format!("{}&not-before={}", self.same(), at.as_second())
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
            (
                Period::ThisMonth,
                "2026-11-01",
                "2026-11-29",
                "November 2026",
            ),
            (
                Period::LastMonth,
                "2026-10-01",
                "2026-10-31",
                "October 2026",
            ),
            (
                Period::SixMonths,
                "2026-06-01",
                "2026-11-29",
                "Jun to Nov 2026",
            ),
            (
                Period::TwelveMonths,
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
        let of = |period: Period| period.months(today);
        assert!(of(Period::SixMonths).contain(of(Period::LastMonth)));
        assert!(!of(Period::LastMonth).contain(of(Period::ThisMonth)));
        assert!(!of(Period::SixMonths).contain(of(Period::TwelveMonths)));
    }

    #[test]
    fn nonsense_counts_as_absent() {
        let nonsense = OverviewQuery::of(Some("period=year&currency=&not-before=%00&%ff&period"));
        assert_eq!(nonsense.period, Period::SixMonths);
        assert!(nonsense.currency.is_none() && nonsense.not_before.is_none());
        let query = OverviewQuery::of(Some("period=last-month&currency=A%26B&not-before=7"));
        assert_eq!(query.not_before, Timestamp::from_second(7).ok());
        let links = [
            query.link(query.period, query.currency.as_deref()),
            query.link_not_before(Timestamp::from_second(9).unwrap()),
        ];
        assert_eq!(
            links,
            [
                "?period=last-month&currency=A%26B",
                "?period=last-month&currency=A%26B&not-before=9"
            ]
        );
    }
}
