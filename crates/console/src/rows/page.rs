//! A page of rows: the search and the filters, with a mark where the rows go. Each filter is a chip
//! that opens to links, which change it and keep the others.

use std::sync::Arc;

use askama::Template;
use futures_util::stream::Stream;

use super::RowsPage;
use super::filter::{CategoryChoice, Filter, Period};
use super::linked::{Bank, Linked};
use super::list::RowList;
use crate::error_page::PageResult;
use crate::list_query::Chip;
use crate::pages::{SignedInFrame, rendered_part};
use crate::plan;
use crate::session::Session;

#[derive(Template)]
#[template(path = "list.html")]
struct ListPage<'a> {
    frame: &'a SignedInFrame<'a>,
    page: &'a RowsPage,
    linked: &'a Linked,
    filter: &'a Filter,
    /// The URL of the API, and its query for the same rows.
    api_url: String,
    api_query: Option<String>,
}

impl ListPage<'_> {
    fn account_label(&self) -> &str {
        let chosen = self.filter.account.and_then(|id| self.linked.find(id));
        chosen.map_or("All accounts", |(_, account)| account)
    }

    /// Those of the banks shown that are of the sandbox.
    fn simulated(&self) -> Vec<String> {
        let is_shown = |bank: &Bank| match self.filter.account {
            Some(account) => bank.name_of(account).is_some(),
            None => true,
        };
        let banks = self.linked.banks.iter();
        let simulated = banks.filter(|bank| bank.is_sandbox && is_shown(bank));
        let names = simulated.map(|bank| self.linked.names.of(&bank.connection));
        names.collect()
    }

    fn error_at(&self, field: &str) -> Option<&'static str> {
        let error = self.filter.days.err();
        let error = error.filter(|error| error.field == field)?;
        Some(error.text)
    }

    fn periods(&self) -> Vec<Chip> {
        let chosen = self.filter.period;
        let chip = |period: &Period| {
            let query = self.filter.with_period(*period);
            Chip::link(period.label(), query, chosen == Some(*period))
        };
        self.filter.periods.iter().map(chip).collect()
    }

    fn categories(&self) -> Chip {
        let all = CategoryChoice::all().map(|category| (category.name(), category.label()));
        self.filter.query.menu("category", "All categories", all)
    }
}

/// Sends the page at once, with its filters, and then the parts that `parts` reads. A page without
/// banks, or whose days are wrong, has no place for parts, so nothing is read.
pub(crate) async fn show<P: Stream<Item = String> + Send + 'static>(
    session: Session,
    page: &'static RowsPage,
    query: Option<&str>,
    parts: impl FnOnce(Arc<RowList>) -> P,
) -> PageResult {
    if let Some(page) = plan::page_in_place(&session, page.path, page.category) {
        return Ok(page);
    }
    let list = RowList::load(session, page, query).await?;
    let page = rendered_part(&ListPage {
        frame: &list.session.frame(page.path),
        page,
        linked: &list.linked,
        filter: &list.filter,
        api_url: list.session.api_url(),
        api_query: list.api_query(list.filter.account),
    });
    Ok(crate::stream::response(&page, parts(list)))
}
