//! What a page of rows shows: an account, a period, a category and a text, from its query. Pure.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use bellbird_domain::{AccountId, Bound, Category, Currency, DateFilter, Decimal};
use bellbird_reads::merged::MergedPosition;
use http::request::Parts;
use jiff::ToSpan as _;
use jiff::civil::Date;

use super::search::Wanted;
use crate::pages::shown_day;

/// Of the text of a search. What is longer is cut off.
const SEARCH_CHARS_MAX: usize = 100;
/// Pages of which the query remembers the beginning. From further down, *Newer* leads to the first.
const PAGES_REMEMBERED_MAX: usize = 20;
/// As long as any bank lists rows, and longer.
const MONTHS_MAX: u16 = 240;
/// A search without a period reads these.
const SEARCHED_MONTHS: u16 = 12;
const ORDER: &str = "The first day is after the last one. Change one of them.";
const NO_DAY: &str = "This is not a day. Write it as 2026-11-20.";

/// What the query says. Other parameters are ignored, and so are values that mean nothing, except
/// days, which the user has typed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FilterQuery {
    account: Option<AccountId>,
    period: Option<Period>,
    from: String,
    to: String,
    category: Option<CategoryChoice>,
    pub(super) currency: Option<Currency>,
    search: String,
    /// Of a file whose page has said that banks are missing, so it may lack them.
    pub(super) is_partial: bool,
    pages: Vec<PageStart>,
}

impl<S: Send + Sync> FromRequestParts<S> for FilterQuery {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(Self::parse(parts.uri.query().unwrap_or_default()))
    }
}

impl FilterQuery {
    /// For rows that have no category, on a page that shows all currencies.
    pub(super) fn without_money(self) -> Self {
        Self {
            category: None,
            currency: None,
            ..self
        }
    }

    fn parse(query: &str) -> Self {
        let mut found = Self::default();
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            let value = value.trim();
            match &*name {
                "account" => found.account = value.parse().ok(),
                "period" => found.period = Period::parse(value),
                "from" => value.clone_into(&mut found.from),
                "to" => value.clone_into(&mut found.to),
                "category" => found.category = CategoryChoice::parse(value),
                "currency" => found.currency = Currency::parse(value),
                "partial" => found.is_partial = value == "true",
                "search" => found.search = value.chars().take(SEARCH_CHARS_MAX).collect(),
                "pages" => found.pages = value.split('~').filter_map(PageStart::parse).collect(),
                _ => {}
            }
        }
        found
    }
}

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
        match text {
            "all" => Some(Self::All),
            "30d" => Some(Self::ThirtyDays),
            "month" => Some(Self::ThisMonth),
            "last-month" => Some(Self::LastMonth),
            text => {
                let months = text.strip_suffix('m')?.parse().ok()?;
                (1..=MONTHS_MAX)
                    .contains(&months)
                    .then_some(Self::Months(months))
            }
        }
    }

    fn name(self) -> String {
        match self {
            Self::All => "all".to_owned(),
            Self::ThirtyDays => "30d".to_owned(),
            Self::ThisMonth => "month".to_owned(),
            Self::LastMonth => "last-month".to_owned(),
            Self::Months(months) => format!("{months}m"),
        }
    }

    pub(super) fn label(self) -> String {
        match self {
            Self::All => "All days".to_owned(),
            Self::ThirtyDays => "Last 30 days".to_owned(),
            Self::ThisMonth => "This month".to_owned(),
            Self::LastMonth => "Last month".to_owned(),
            Self::Months(1) => "Month up to today".to_owned(),
            Self::Months(months) => format!("Last {months} months"),
        }
    }

    fn days(self, today: Date) -> Days {
        let (from, to) = match self {
            Self::All => return Days::default(),
            Self::ThirtyDays => (today.saturating_sub(30.days()), today),
            Self::ThisMonth => (today.first_of_month(), today),
            Self::LastMonth => {
                let last = today
                    .first_of_month()
                    .yesterday()
                    .unwrap_or(today.first_of_month());
                (last.first_of_month(), last)
            }
            Self::Months(months) => (today.saturating_sub(i64::from(months).months()), today),
        };
        Days {
            from: Some(from),
            to: Some(to),
        }
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

/// The first and the last day. Neither: all days.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Days {
    pub(super) from: Option<Date>,
    pub(super) to: Option<Date>,
}

/// What is wrong with days that were typed, and at which field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DayError {
    pub(super) field: &'static str,
    pub(super) text: &'static str,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CategoryChoice {
    Of(Category),
    /// Rows without a category.
    Without,
    /// All but transfers, as the overview's sums.
    NoTransfers,
}

impl CategoryChoice {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "none" => Some(Self::Without),
            "no-transfers" => Some(Self::NoTransfers),
            key => Category::from_key(key).map(Self::Of),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Of(category) => category.key(),
            Self::Without => "none",
            Self::NoTransfers => "no-transfers",
        }
    }

    pub(super) fn label(self) -> &'static str {
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

impl PageStart {
    fn parse(text: &str) -> Option<Self> {
        let (rows, after) = text.split_once('_')?;
        Some(Self {
            rows_before: rows.parse().ok()?,
            after: after.parse().ok()?,
        })
    }
}

/// The filters of a page, which its links change one by one.
#[derive(Clone)]
pub(crate) struct Filter {
    pub(super) query: FilterQuery,
    pub(super) today: Date,
    /// Those that the page offers, the one by default first.
    pub(super) periods: &'static [Period],
}

impl Filter {
    /// An account that is not among the user's own chooses none.
    pub(super) fn new(
        mut query: FilterQuery,
        today: Date,
        periods: &'static [Period],
        is_own: impl Fn(AccountId) -> bool,
    ) -> Self {
        query.account = query.account.filter(|id| is_own(*id));
        let is_offered = |period: &Period| *period != Period::All || periods.contains(period);
        query.period = query.period.filter(is_offered);
        Self {
            query,
            today,
            periods,
        }
    }

    pub(crate) fn account(&self) -> Option<AccountId> {
        self.query.account
    }

    pub(super) fn category(&self) -> Option<CategoryChoice> {
        self.query.category
    }

    pub(crate) fn search(&self) -> &str {
        &self.query.search
    }

    /// The days as typed: the parameter, the label and the value.
    pub(super) fn own_days(&self) -> [(&'static str, &'static str, &str); 2] {
        [
            ("from", "From", &self.query.from),
            ("to", "To", &self.query.to),
        ]
    }

    fn has_own_days(&self) -> bool {
        self.query.period.is_none() && !(self.query.from.is_empty() && self.query.to.is_empty())
    }

    /// None: days of the user's own.
    pub(super) fn period(&self) -> Option<Period> {
        if self.has_own_days() {
            return None;
        }
        let by_default = match self.periods[0] {
            Period::ThirtyDays if self.is_searched() => Period::Months(SEARCHED_MONTHS),
            first => first,
        };
        Some(self.query.period.unwrap_or(by_default))
    }

    /// Whether the user has chosen the days.
    pub(super) fn has_chosen_days(&self) -> bool {
        self.query.period.is_some() || self.has_own_days()
    }

    pub(crate) fn is_searched(&self) -> bool {
        !self.query.search.is_empty()
    }

    /// Whether rows of the days and accounts are left out.
    pub(crate) fn leaves_rows_out(&self) -> bool {
        self.is_searched() || self.query.category.is_some() || self.query.currency.is_some()
    }

    pub(super) fn without_currency(&self) -> String {
        self.with(|query| query.currency = None)
    }

    /// The last day alone is the end of thirty days, and the first day alone begins the days up to
    /// today.
    pub(super) fn days(&self) -> Result<Days, DayError> {
        if let Some(period) = self.period() {
            return Ok(period.days(self.today));
        }
        let day = |field, text: &str| match text {
            "" => Ok(None),
            text => match Bound::parse(text) {
                Ok(Bound::Day(day)) => Ok(Some(day)),
                _ => Err(DayError {
                    field,
                    text: NO_DAY,
                }),
            },
        };
        let (from, to) = (day("from", &self.query.from)?, day("to", &self.query.to)?);
        let to = to.unwrap_or_else(|| self.today.max(from.unwrap_or(self.today)));
        let from = from.unwrap_or_else(|| to.saturating_sub(30.days()));
        let text = ORDER;
        if from > to {
            return Err(DayError { field: "to", text });
        }
        Ok(Days {
            from: Some(from),
            to: Some(to),
        })
    }

    /// The value of the chip.
    pub(super) fn days_label(&self) -> String {
        match (self.period(), self.days()) {
            (Some(period), _) => period.label(),
            (
                None,
                Ok(Days {
                    from: Some(from),
                    to: Some(to),
                }),
            ) => match from == to {
                true => shown_day(from),
                false => format!("{} to {}", shown_day(from), shown_day(to)),
            },
            (None, _) => "Own days".to_owned(),
        }
    }

    /// Where the page begins. None: at the newest row.
    pub(super) fn start(&self) -> Option<PageStart> {
        self.query.pages.last().copied()
    }

    /// The query of the first page. Empty if nothing is chosen.
    pub(crate) fn query(&self) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        query.extend_pairs(self.pairs(""));
        query.finish()
    }

    /// All that is chosen but one parameter, for a form that has that one.
    pub(super) fn pairs(&self, left_out: &str) -> Vec<(&'static str, String)> {
        let FilterQuery {
            account,
            period,
            from,
            to,
            category,
            currency,
            search,
            ..
        } = &self.query;
        let mut pairs = Vec::new();
        if let Some(account) = account {
            pairs.push(("account", account.to_string()));
        }
        if left_out != "period" {
            match period {
                Some(period) => pairs.push(("period", period.name())),
                None => pairs.extend(
                    [("from", from), ("to", to)]
                        .into_iter()
                        .filter(|(_, day)| !day.is_empty())
                        .map(|(name, day)| (name, day.clone())),
                ),
            }
        }
        if let Some(category) = category {
            pairs.push(("category", category.name().to_owned()));
        }
        if let Some(currency) = currency {
            pairs.push(("currency", currency.to_string()));
        }
        if left_out != "search" && !search.is_empty() {
            pairs.push(("search", search.clone()));
        }
        pairs
    }

    fn with(&self, change: impl FnOnce(&mut FilterQuery)) -> String {
        let mut changed = self.clone();
        change(&mut changed.query);
        changed.query()
    }

    pub(super) fn with_account(&self, account: Option<AccountId>) -> String {
        self.with(|query| query.account = account)
    }

    pub(super) fn with_period(&self, period: Period) -> String {
        self.with(|query| query.period = Some(period))
    }

    pub(super) fn with_category(&self, category: Option<CategoryChoice>) -> String {
        self.with(|query| query.category = category)
    }

    pub(crate) fn with_search(&self, search: &str) -> String {
        self.with(|query| search.clone_into(&mut query.search))
    }

    /// The same search over more days.
    pub(super) fn further(&self) -> Option<String> {
        let further = self.period()?.further()?;
        self.is_searched().then(|| self.with_period(further))
    }

    /// The page behind this one.
    pub(super) fn older(&self, start: PageStart) -> String {
        let known = self.query.pages.iter().copied();
        let mut pages: Vec<PageStart> = known.chain([start]).collect();
        let forgotten = pages.len().saturating_sub(PAGES_REMEMBERED_MAX);
        pages.drain(..forgotten);
        self.at(&pages)
    }

    /// The page before this one. None: this is the first.
    pub(super) fn newer(&self) -> Option<String> {
        let (_, before) = self.query.pages.split_last()?;
        Some(self.at(before))
    }

    /// The query of this very page.
    pub(crate) fn this_page(&self) -> String {
        self.at(&self.query.pages)
    }

    fn at(&self, pages: &[PageStart]) -> String {
        let mut query = self.query();
        if !pages.is_empty() {
            let texts = pages
                .iter()
                .map(|page| format!("{}_{}", page.rows_before, page.after));
            if !query.is_empty() {
                query.push('&');
            }
            query.push_str("pages=");
            query.push_str(&texts.collect::<Vec<_>>().join("~"));
        }
        query
    }

    /// The rows that pass.
    pub(crate) fn rows(&self) -> RowFilter {
        RowFilter {
            category: self.query.category,
            currency: self.query.currency,
            wanted: self.is_searched().then(|| Wanted::from(self.search())),
        }
    }
}

impl Days {
    pub(super) fn filter(self) -> DateFilter {
        DateFilter {
            from: self.from.map(Bound::Day),
            to: self.to.map(Bound::Day),
        }
    }

    /// The parameters of the API.
    pub(super) fn pairs(self) -> impl Iterator<Item = (&'static str, String)> {
        let days = [("from", self.from), ("to", self.to)].into_iter();
        days.filter_map(|(name, day)| Some((name, day?.to_string())))
    }
}

/// Selects rows while they pass by.
pub(crate) struct RowFilter {
    category: Option<CategoryChoice>,
    currency: Option<Currency>,
    wanted: Option<Wanted>,
}

impl RowFilter {
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
    ) -> bool {
        let wanted = self.wanted.as_ref();
        wanted.is_none_or(|wanted| wanted.is_in(texts, amount))
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
        Filter::new(FilterQuery::parse(query), TODAY, periods, |_| true)
    }

    fn days(query: &str) -> Result<(Date, Date), &'static str> {
        let days = filter(query).days();
        days.map(|days| (days.from.unwrap(), days.to.unwrap()))
            .map_err(|error| error.field)
    }

    #[test]
    fn all_days_are_those_of_a_page_that_offers_them() {
        const PERIODS: [Period; 2] = [Period::All, Period::Months(3)];
        for query in ["", "period=all", "search=x", "period=nonsense"] {
            assert_eq!(filter_of(query, &PERIODS).days(), Ok(Days::default()));
        }
        let filter = filter_of("search=x", &PERIODS);
        assert_eq!(
            (filter.days_label(), filter.further()),
            ("All days".to_owned(), None)
        );
        let days = Period::Months(3).days(TODAY);
        assert_eq!(filter_of("period=3m", &PERIODS).days(), Ok(days));
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
        assert_eq!(filter.query(), query);
        assert_eq!(
            filter.with_account(None),
            "period=3m&category=TRAVEL&search=bus+stop"
        );
        assert_eq!(
            filter.with_category(Some(CategoryChoice::Without)),
            query.replace("TRAVEL", "none")
        );
        assert_eq!(
            filter.with_period(Period::ThisMonth),
            query.replace("3m", "month")
        );
        let names: Vec<&str> = filter.pairs("search").iter().map(|pair| pair.0).collect();
        assert_eq!(names, ["account", "period", "category"]);
        assert_eq!(filter.further(), Some(query.replace("3m", "12m")));
    }

    #[test]
    fn search_goes_further_back_until_an_end() {
        let mut page = filter("search=x");
        let mut periods = Vec::new();
        while let Some(query) = page.further() {
            page = filter(&query);
            periods.push(page.period().unwrap().name());
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
        assert_eq!(page.newer(), None);
        for number in 1..=30 {
            let query = page.older(start(number * 50));
            page = filter(&query);
            assert_eq!(page.start(), Some(start(number * 50)));
            assert!(query.len() < 8_000, "{query}");
        }
        page = filter(&page.newer().unwrap());
        assert_eq!(page.start(), Some(start(29 * 50)));
        assert_eq!(page.category(), Some(CategoryChoice::Of(Category::Travel)));
        let first = filter(&filter("pages=50_1").newer().unwrap());
        assert_eq!(first.start(), None);
    }

    #[test]
    fn nonsense_chooses_nothing() {
        for query in [
            "account=%00&category=x&pages=~~_~1_~_1~99999999999999999999_1",
            "search=%20%20",
            "&&&=",
        ] {
            assert_eq!(FilterQuery::parse(query), FilterQuery::default(), "{query}");
        }
        let long = "ā".repeat(200);
        let found = FilterQuery::parse(&format!("search={long}"));
        assert_eq!(found.search.chars().count(), SEARCH_CHARS_MAX);
        let other = AccountId::new();
        let query = FilterQuery::parse(&format!("account={other}"));
        assert_eq!(
            Filter::new(query, TODAY, &[Period::ThirtyDays], |_| false).account(),
            None
        );
    }
}
