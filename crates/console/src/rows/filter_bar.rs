//! The search and the filters above rows. Each filter is a chip that opens to links, which change
//! it and keep the others.

use askama::Template;
use bellbird_domain::AccountId;

use super::ListKind;
use super::filter::{CategoryChoice, DayError, Filter, Period};
use super::linked::{Bank, Linked};
use crate::list_query::Chip;
use crate::pages::SignedInFrame;

#[derive(Template)]
#[template(path = "filters.html")]
pub(crate) struct FilterBar<'a> {
    pub(crate) linked: &'a Linked,
    pub(crate) filter: &'a Filter,
    placeholder: &'static str,
    /// What the days are of, if the page shows more than that.
    days_of: &'static str,
    has_categories: bool,
    /// What is wrong with the days. Then no rows are read.
    pub(crate) error: Option<DayError>,
}

impl<'a> FilterBar<'a> {
    pub(super) fn of<K: ListKind>(linked: &'a Linked, filter: &'a Filter) -> Self {
        Self {
            linked,
            filter,
            placeholder: K::SEARCH_PLACEHOLDER,
            days_of: K::ANCHOR,
            has_categories: K::HAS_CATEGORIES,
            error: filter.days().err(),
        }
    }

    fn account_label(&self) -> &str {
        let chosen = self.filter.account.and_then(|id| self.linked.find(id));
        chosen.map_or("All accounts", |(_, account)| account)
    }

    fn category_label(&self) -> &'static str {
        let chosen = self.filter.category;
        chosen.map_or("Category", CategoryChoice::label)
    }

    fn error_at(&self, field: &str) -> Option<&'static str> {
        let error = self.error.filter(|error| error.field == field)?;
        Some(error.text)
    }

    /// The query without a filter.
    fn without(&self, name: &str) -> String {
        self.filter.query.with(&[(name, "")])
    }

    fn all_accounts(&self) -> Chip {
        let is_chosen = self.filter.account.is_none();
        Chip::link(
            "All accounts".to_owned(),
            self.without("account"),
            is_chosen,
        )
    }

    fn accounts(&self, bank: &Bank) -> Vec<Chip> {
        let chip = |(id, name): &(AccountId, String)| {
            let query = self
                .filter
                .query
                .with(&[("account", id.to_string().as_str())]);
            Chip::link(name.clone(), query, self.filter.account == Some(*id))
        };
        bank.accounts.iter().map(chip).collect()
    }

    fn periods(&self) -> Vec<Chip> {
        let chosen = self.filter.period();
        let chip = |period: &Period| {
            let query = self.filter.with_period(*period);
            Chip::link(period.label(), query, chosen == Some(*period))
        };
        self.filter.periods.iter().map(chip).collect()
    }

    fn categories(&self) -> Vec<Chip> {
        let all = CategoryChoice::all().map(|category| (category.name(), category.label()));
        let menu = self.filter.query.menu("category", "All categories", all);
        menu.values
    }
}

/// The URL of a page with a query, which may be empty.
pub(super) fn link(frame: &SignedInFrame<'_>, path: &str, query: &str) -> String {
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}{path}{mark}{query}", frame.root)
}
