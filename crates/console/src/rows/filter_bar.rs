//! The search and the filters above rows. Each filter is a chip that opens to links, which change
//! it and keep the others.

use askama::Template;
use bellbird_domain::AccountId;

use super::ListKind;
use super::filter::{CategoryChoice, DayError, Filter, Period};
use super::linked::{Bank, Linked};
use crate::pages::SignedInFrame;

#[derive(Template)]
#[template(path = "filters.html")]
pub(crate) struct FilterBar<'a> {
    frame: &'a SignedInFrame<'a>,
    pub(crate) linked: &'a Linked,
    pub(crate) filter: &'a Filter,
    path: &'static str,
    placeholder: &'static str,
    /// What the days are of, if the page shows more than that.
    days_of: &'static str,
    has_categories: bool,
    /// What is wrong with the days. Then no rows are read.
    pub(crate) error: Option<DayError>,
}

/// A value of a filter.
struct OptionLink {
    url: String,
    label: String,
    is_chosen: bool,
}

impl<'a> FilterBar<'a> {
    pub(super) fn of<K: ListKind>(
        frame: &'a SignedInFrame<'a>,
        linked: &'a Linked,
        filter: &'a Filter,
    ) -> Self {
        Self {
            frame,
            linked,
            filter,
            path: K::PATH,
            placeholder: K::SEARCH_PLACEHOLDER,
            days_of: K::ANCHOR,
            has_categories: K::HAS_CATEGORIES,
            error: filter.days().err(),
        }
    }

    fn account_label(&self) -> &str {
        let chosen = self.filter.account();
        let chosen = chosen.and_then(|id| self.linked.find(id));
        chosen.map_or("All accounts", |(_, account)| account)
    }

    fn category_label(&self) -> &'static str {
        self.filter
            .category()
            .map_or("Category", CategoryChoice::label)
    }

    fn error_at(&self, field: &str) -> Option<&'static str> {
        let error = self.error.filter(|error| error.field == field)?;
        Some(error.text)
    }

    fn url(&self, query: &str) -> String {
        link(self.frame, self.path, query)
    }

    fn option(&self, query: &str, label: impl Into<String>, is_chosen: bool) -> OptionLink {
        OptionLink {
            url: self.url(query),
            label: label.into(),
            is_chosen,
        }
    }

    fn all_accounts(&self) -> OptionLink {
        let query = self.filter.with_account(None);
        self.option(&query, "All accounts", self.filter.account().is_none())
    }

    fn accounts(&self, bank: &Bank) -> Vec<OptionLink> {
        let option = |(id, name): &(AccountId, String)| {
            let query = self.filter.with_account(Some(*id));
            self.option(&query, name, self.filter.account() == Some(*id))
        };
        bank.accounts.iter().map(option).collect()
    }

    fn periods(&self) -> Vec<OptionLink> {
        let chosen = self.filter.period();
        let option = |period: &Period| {
            let query = self.filter.with_period(*period);
            self.option(&query, period.label(), chosen == Some(*period))
        };
        self.filter.periods.iter().map(option).collect()
    }

    fn categories(&self) -> Vec<OptionLink> {
        let chosen = self.filter.category();
        let all = [None].into_iter().chain(CategoryChoice::all().map(Some));
        let option = |category: Option<CategoryChoice>| {
            let label = category.map_or("All categories", CategoryChoice::label);
            let query = self.filter.with_category(category);
            self.option(&query, label, chosen == category)
        };
        all.map(option).collect()
    }
}

/// The URL of a page with a query, which may be empty.
pub(super) fn link(frame: &SignedInFrame<'_>, path: &str, query: &str) -> String {
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}{path}{mark}{query}", frame.root)
}
