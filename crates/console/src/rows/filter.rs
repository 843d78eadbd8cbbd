//! What a page of rows shows: an account, a period, a category and a text, from its query. Pure.

use std::fmt;
use std::str::FromStr;

use bellbird_domain::{AccountId, Bound, Category, Currency, DateFilter, Decimal};
use bellbird_reads::merged::MergedPosition;
use jiff::ToSpan as _;
use jiff::civil::Date;

use super::search::Wanted;
use crate::list_query::ListQuery;
use crate::pages::shown_day;

/// What a query chooses. `partial` is of a file whose page has said that banks are missing, so it
/// may lack them.
const FILTERS: [&str; 8] = [
    "account", "period", "from", "to", "category", "currency", "search", "partial",
];
/// Of the text of a search. What is longer is cut off.
const SEARCH_CHARS_MAX: usize = 100;
/// As long as any bank lists rows, and longer.
const MONTHS_MAX: u16 = 240;
/// A search without a period reads these.
const SEARCHED_MONTHS: u16 = 12;
const ORDER: &str = "The first day is after the last one. Change one of them.";
const NO_DAY: &str = "This is not a day. Write it as 2026-11-20.";

/// The days of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Period {
    /// As far back as the rows go.
    All,
    ThirtyDays,
    ThisMonth,
    LastMonth,
    /// So many months back from today.
    Months(u16),
}

impl Period {
    fn parse(text: &str) -> Option<Self> {
        let mut named = [
            Self::All,
            Self::ThirtyDays,
            Self::ThisMonth,
            Self::LastMonth,
        ]
        .into_iter();
        named.find(|period| period.name() == text).or_else(|| {
            let months = text.strip_suffix('m')?.parse().ok()?;
            let is_known = (1..=MONTHS_MAX).contains(&months);
            is_known.then_some(Self::Months(months))
        })
    }

    /// In a query, and on the page.
    fn words(self) -> (String, String) {
        let (name, label) = match self {
            Self::All => ("all", "All days"),
            Self::ThirtyDays => ("30d", "Last 30 days"),
            Self::ThisMonth => ("month", "This month"),
            Self::LastMonth => ("last-month", "Last month"),
            Self::Months(1) => ("1m", "Month up to today"),
            Self::Months(months) => return (format!("{months}m"), format!("Last {months} months")),
        };
        (name.to_owned(), label.to_owned())
    }

    fn name(self) -> String {
        self.words().0
    }

    pub(super) fn label(self) -> String {
        self.words().1
    }

    fn days(self, today: Date) -> Days {
        Some(match self {
            Self::All => return None,
            Self::ThirtyDays => (today.saturating_sub(30.days()), today),
            Self::ThisMonth => (today.first_of_month(), today),
            Self::LastMonth => {
                let last = today.first_of_month().saturating_sub(1.day());
                (last.first_of_month(), last)
            }
            Self::Months(months) => (today.saturating_sub(i64::from(months).months()), today),
        })
    }

    /// The one that goes further back, for a search that did not find enough.
    fn further(self) -> Option<Self> {
        match self {
            Self::All | Self::Months(MONTHS_MAX) => None,
            Self::Months(months) => Some(Self::Months(
                months.saturating_mul(2).clamp(SEARCHED_MONTHS, MONTHS_MAX),
            )),
            _ => Some(Self::Months(SEARCHED_MONTHS)),
        }
    }
}

/// The first and the last day. None: all days.
type Days = Option<(Date, Date)>;

/// Days of the user's own. The last day alone is the end of thirty days, and the first day alone
/// begins the days up to today.
fn own_days(query: &ListQuery, today: Date) -> Result<Days, DayError> {
    let day = |field| match query.get(field) {
        "" => Ok(None),
        text => match Bound::parse(text) {
            Ok(Bound::Day(day)) => Ok(Some(day)),
            _ => Err(DayError {
                field,
                text: NO_DAY,
            }),
        },
    };
    let (from, to) = (day("from")?, day("to")?);
    let to = to.unwrap_or_else(|| today.max(from.unwrap_or(today)));
    let from = from.unwrap_or_else(|| to.saturating_sub(30.days()));
    let text = ORDER;
    match from > to {
        true => Err(DayError { field: "to", text }),
        false => Ok(Some((from, to))),
    }
}

/// What is wrong with days that were typed, and at which field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DayError {
    pub(super) field: &'static str,
    pub(super) text: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CategoryChoice {
    Of(Category),
    /// Rows without a category.
    Without,
    /// All but transfers, as the overview's sums.
    NoTransfers,
}

impl CategoryChoice {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Of(category) => category.key(),
            Self::Without => "none",
            Self::NoTransfers => "no-transfers",
        }
    }

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Of(category) => category.label(),
            Self::Without => "No category",
            Self::NoTransfers => "Without transfers",
        }
    }

    pub(super) fn all() -> impl Iterator<Item = Self> {
        let known = Category::ALL.iter().copied().map(Self::Of);
        known.chain([Self::Without, Self::NoTransfers])
    }
}

/// Where a page begins: behind which row, and how many rows there are before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageStart {
    pub(super) rows_before: u64,
    pub(super) after: MergedPosition,
}

impl FromStr for PageStart {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (rows, after) = text.split_once('_').ok_or(())?;
        Ok(Self {
            rows_before: rows.parse().map_err(drop)?,
            after: after.parse().map_err(drop)?,
        })
    }
}

impl fmt::Display for PageStart {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}_{}", self.rows_before, self.after)
    }
}

/// The filters of a page, which its links change one by one.
pub(crate) struct Filter {
    /// Has only values that mean something, except days, which the user has typed.
    pub(crate) query: ListQuery,
    pub(crate) account: Option<AccountId>,
    /// Whether the query names an account that the user does not have, or not any more.
    pub(crate) is_account_gone: bool,
    /// None: days of the user's own.
    pub(super) period: Option<Period>,
    /// Whether the user has chosen the days.
    pub(super) has_chosen_days: bool,
    pub(super) days: Result<Days, DayError>,
    category: Option<CategoryChoice>,
    pub(super) currency: Option<Currency>,
    wanted: Option<Wanted>,
    pub(super) today: Date,
    /// Those that the page offers, the one by default first.
    pub(super) periods: &'static [Period],
}

impl Filter {
    /// An account that is not among the user's own chooses none. Rows without categories are on a
    /// page that shows all currencies.
    pub(super) fn parse(
        query: Option<&str>,
        today: Date,
        periods: &'static [Period],
        has_categories: bool,
        is_own: impl Fn(AccountId) -> bool,
    ) -> Self {
        let mut query = ListQuery::parse(query, &FILTERS);
        query.retain_pages::<PageStart>();
        let partial = Some("true").filter(|_| query.get("partial") == "true");
        query.set("partial", partial);
        let account = query
            .parsed::<AccountId>("account")
            .filter(|id| is_own(*id));
        let is_account_gone = account.is_none() && !query.get("account").is_empty();
        query.set("account", account);
        let is_offered = |period: &Period| *period != Period::All || periods.contains(period);
        let chosen_period = Period::parse(query.get("period")).filter(is_offered);
        query.set("period", chosen_period.map(Period::name));
        if chosen_period.is_some() {
            query.set("from", None::<Date>);
            query.set("to", None::<Date>);
        }
        let is_category = |choice: &CategoryChoice| choice.name() == query.get("category");
        let category = CategoryChoice::all().find(is_category);
        let category = category.filter(|_| has_categories);
        query.set("category", category.map(CategoryChoice::name));
        let currency = Currency::parse(query.get("currency")).filter(|_| has_categories);
        query.set("currency", currency);
        let search: String = query.get("search").chars().take(SEARCH_CHARS_MAX).collect();
        let wanted = (!search.is_empty()).then(|| Wanted::from(&*search));
        query.set("search", Some(search));
        let has_own_days = !query.get("from").is_empty() || !query.get("to").is_empty();
        let by_default = match periods[0] {
            Period::ThirtyDays if wanted.is_some() => Period::Months(SEARCHED_MONTHS),
            first => first,
        };
        let period = (!has_own_days).then(|| chosen_period.unwrap_or(by_default));
        Self {
            days: match period {
                Some(period) => Ok(period.days(today)),
                None => own_days(&query, today),
            },
            has_chosen_days: chosen_period.is_some() || has_own_days,
            query,
            account,
            is_account_gone,
            period,
            category,
            currency,
            wanted,
            today,
            periods,
        }
    }

    pub(crate) fn search(&self) -> &str {
        self.query.get("search")
    }

    pub(crate) fn is_searched(&self) -> bool {
        self.wanted.is_some()
    }

    /// Whether rows of the days and accounts are left out.
    pub(crate) fn leaves_rows_out(&self) -> bool {
        self.is_searched() || self.category.is_some() || self.currency.is_some()
    }

    /// Those of a read. A page whose days are wrong does not read.
    pub(super) fn dates(&self) -> DateFilter {
        let (from, to) = self.days.unwrap_or_default().unzip();
        DateFilter {
            from: from.map(Bound::Day),
            to: to.map(Bound::Day),
        }
    }

    /// The value of the chip.
    pub(super) fn days_label(&self) -> String {
        match (self.period, self.days) {
            (Some(period), _) => period.label(),
            (None, Ok(Some((from, to)))) if from == to => shown_day(from),
            (None, Ok(Some((from, to)))) => format!("{} to {}", shown_day(from), shown_day(to)),
            (None, _) => "Other days".to_owned(),
        }
    }

    /// Where the page begins. None: at the newest row.
    pub(super) fn start(&self) -> Option<PageStart> {
        self.query.start()
    }

    /// All that is chosen but some parameters, for a form that has those.
    pub(super) fn pairs(&self, left_out: &[&str]) -> Vec<(&'static str, &str)> {
        let pairs = self.query.filters.iter();
        pairs
            .filter(|(name, value)| !value.is_empty() && !left_out.contains(name))
            .map(|(name, value)| (*name, value.as_str()))
            .collect()
    }

    pub(super) fn with_period(&self, period: Period) -> String {
        let name = period.name();
        self.query
            .with(&[("period", name.as_str()), ("from", ""), ("to", "")])
    }

    /// The same search over more days.
    pub(super) fn further(&self) -> Option<String> {
        let further = self.period?.further()?;
        self.is_searched().then(|| self.with_period(further))
    }

    pub(super) fn has_category(&self, category: Option<Category>) -> bool {
        match self.category {
            None => true,
            Some(CategoryChoice::Without) => category.is_none(),
            Some(CategoryChoice::NoTransfers) => !category.is_some_and(Category::is_transfer),
            Some(CategoryChoice::Of(wanted)) => category == Some(wanted),
        }
    }

    pub(super) fn has_currency(&self, currency: &str) -> bool {
        self.currency
            .is_none_or(|wanted| wanted.as_str() == currency)
    }

    /// As [`Wanted::is_in`]. Without a search, every row is found.
    pub(crate) fn finds<'t>(
        &self,
        texts: impl IntoIterator<Item = &'t str>,
        amount: Option<&Decimal<'_>>,
        currency: &str,
    ) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.is_in(texts, amount, currency))
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;

    const TODAY: Date = date(2026, 11, 29);

    fn filter(query: &str) -> Filter {
        filter_of(query, &[Period::ThirtyDays, Period::ThisMonth])
    }

    fn filter_of(query: &str, periods: &'static [Period]) -> Filter {
        Filter::parse(Some(query), TODAY, periods, true, |_| true)
    }

    fn days(query: &str) -> Result<(Date, Date), &'static str> {
        let days = filter(query).days;
        days.map(Option::unwrap).map_err(|error| error.field)
    }

    #[test]
    fn all_days_are_those_of_a_page_that_offers_them() {
        const PERIODS: [Period; 2] = [Period::All, Period::Months(3)];
        for query in ["", "period=all", "search=x", "period=nonsense"] {
            assert_eq!(filter_of(query, &PERIODS).days, Ok(None));
        }
        let filter = filter_of("search=x", &PERIODS);
        assert_eq!(
            (filter.days_label(), filter.further()),
            ("All days".to_owned(), None)
        );
        assert_eq!(Period::Months(1).label(), "Month up to today");
        let days = Period::Months(3).days(TODAY);
        assert_eq!(filter_of("period=3m", &PERIODS).days, Ok(days));
    }

    #[test]
    fn days_are_what_was_chosen() {
        for (query, expected) in [
            ("", Ok((date(2026, 10, 30), TODAY))),
            ("period=30d", Ok((date(2026, 10, 30), TODAY))),
            ("period=month", Ok((date(2026, 11, 1), TODAY))),
            (
                "period=last-month",
                Ok((date(2026, 10, 1), date(2026, 10, 31))),
            ),
            ("period=3m", Ok((date(2026, 8, 29), TODAY))),
            ("search=x", Ok((date(2025, 11, 29), TODAY))),
            ("search=x&period=month", Ok((date(2026, 11, 1), TODAY))),
            ("period=nonsense", Ok((date(2026, 10, 30), TODAY))),
            ("period=all", Ok((date(2026, 10, 30), TODAY))),
            ("period=0m", Ok((date(2026, 10, 30), TODAY))),
            ("to=2026-01-31", Ok((date(2026, 1, 1), date(2026, 1, 31)))),
            ("from=2026-01-31", Ok((date(2026, 1, 31), TODAY))),
            (
                "from=2027-01-31",
                Ok((date(2027, 1, 31), date(2027, 1, 31))),
            ),
            ("from=2026-02-01&to=2026-01-31", Err("to")),
            ("from=yesterday", Err("from")),
            ("from=2026-02-01&to=2026-02-30", Err("to")),
            ("to=0000-00-00", Err("to")),
        ] {
            assert_eq!(days(query), expected, "{query}");
        }
    }

    #[test]
    fn links_change_one_filter_and_keep_the_others() {
        let account = AccountId::new();
        let query = format!("account={account}&period=3m&category=TRAVEL&search=bus+stop");
        let filter = filter(&format!("x=1&{query}&pages=50_1"));
        assert_eq!(filter.query.first(), query);
        assert_eq!(
            filter.query.with(&[("account", "")]),
            "period=3m&category=TRAVEL&search=bus+stop"
        );
        assert_eq!(
            filter
                .query
                .with(&[("category", CategoryChoice::Without.name())]),
            query.replace("TRAVEL", "none")
        );
        assert_eq!(
            filter.with_period(Period::ThisMonth),
            query.replace("3m", "month")
        );
        let names: Vec<&str> = filter
            .pairs(&["search"])
            .iter()
            .map(|pair| pair.0)
            .collect();
        assert_eq!(names, ["account", "period", "category"]);
        assert_eq!(filter.further(), Some(query.replace("3m", "12m")));
    }

    #[test]
    fn search_goes_further_back_until_an_end() {
        let mut page = filter("search=x");
        let mut periods = Vec::new();
        while let Some(query) = page.further() {
            page = filter(&query);
            periods.push(page.period.unwrap().name());
        }
        assert_eq!(periods, ["24m", "48m", "96m", "192m", "240m"]);
        assert_eq!(filter("").further(), None);
    }

    #[test]
    fn pages_are_walked_down_and_up() {
        let start = |rows_before| PageStart {
            rows_before,
            after: format!("{rows_before}").parse().unwrap(),
        };
        let mut page = filter("category=TRAVEL");
        assert_eq!(page.query.previous(), None);
        for number in 1..=30 {
            let query = page.query.next(start(number * 50));
            page = filter(&query);
            assert_eq!(page.start(), Some(start(number * 50)));
            assert!(query.len() < 8_000, "{query}");
        }
        page = filter(&page.query.previous().unwrap());
        assert_eq!(page.start(), Some(start(29 * 50)));
        assert_eq!(page.category, Some(CategoryChoice::Of(Category::Travel)));
        let first = filter(&filter("pages=50_1").query.previous().unwrap());
        assert_eq!(first.start(), None);
    }

    #[test]
    fn nonsense_chooses_nothing() {
        for query in [
            "account=%00&category=x&pages=~~_~1_~_1~99999999999999999999_1",
            "search=%20%20",
            "&&&=",
        ] {
            assert_eq!(filter(query).query.this_page(), "", "{query}");
        }
        let long = "ā".repeat(200);
        let found = filter(&format!("search={long}"));
        assert_eq!(found.search().chars().count(), SEARCH_CHARS_MAX);
        let query = format!("account={}", AccountId::new());
        let other = Filter::parse(Some(&query), TODAY, &[Period::ThirtyDays], true, |_| false);
        assert_eq!((other.account, other.query.first()), (None, String::new()));
        assert!(other.is_account_gone && !found.is_account_gone);
    }
}
