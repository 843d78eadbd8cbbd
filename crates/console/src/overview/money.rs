//! Reads the sums of money in and out, by month and by category, while the rows pass by. The sums
//! are kept as long as balances, and no row is. Those of more months answer for fewer, so only the
//! first view reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use bellbird_api::http::Problem;
use bellbird_api::http::problem::problem_for_category;
use bellbird_domain::{
    Bound, Category, ConnectionCategory, ConnectionId, Currency, DateFilter, Transaction,
};
use bellbird_reads::summary::{GroupBy, Summary};
use bellbird_reads::{ReadError, SelectError, SelectedAccounts, Selection, Transactions};
use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::civil::Date;
use parking_lot::Mutex;

use super::money_view::{MoneyPart, MoneyState, ShownMoney};
use super::query::OverviewQuery;
use crate::money_cache::{CachedMoney, MoneySums};
use crate::months::Months;
use crate::pages::{BankNames, BankTrouble, rendered_part, why_not_read};
use crate::session::Session;

/// Lists read at the same time.
const LISTS_AT_ONCE: usize = 4;

/// What the part is about.
pub(super) struct MoneyOf {
    pub(super) session: Arc<Session>,
    pub(super) query: OverviewQuery,
    pub(super) names: Arc<BankNames>,
    /// Of the accounts of each connection.
    pub(super) currencies: Vec<(ConnectionId, Currency)>,
}

/// Sums by category, of each month by its first day.
type SumsByMonth = Mutex<BTreeMap<Date, Summary>>;

impl MoneyOf {
    /// The part before the sums are there.
    pub(super) fn expected(&self) -> String {
        rendered_part(&self.view(MoneyState::Awaited))
    }

    pub(super) async fn part(self) -> String {
        let months = self.query.period.months(self.session.today());
        if let Some(sums) = self.cached(months) {
            return self.shown(months, &sums, Vec::new());
        }
        match self.read(months).await {
            Ok((sums, troubles)) => {
                let sums = Arc::new(sums);
                if troubles.is_empty() {
                    let cached = CachedMoney {
                        revision: self.session.caller.revision,
                        sums: Arc::clone(&sums),
                    };
                    let cache = &self.session.money_cache;
                    cache.insert(self.session.caller.key_id, cached, self.session.now);
                }
                self.shown(months, &sums, troubles)
            }
            Err(problem) => rendered_part(&self.view(MoneyState::Failed(why_not_read(&problem)))),
        }
    }

    fn view(&self, state: MoneyState) -> MoneyPart<'_> {
        MoneyPart {
            frame: &self.session.frame,
            query: &self.query,
            months: self.query.period.months(self.session.today()),
            state,
        }
    }

    fn shown(&self, months: Months, sums: &MoneySums, troubles: Vec<BankTrouble>) -> String {
        let wanted = self.query.currency.as_deref();
        let is_unread = |id: ConnectionId| troubles.iter().any(|trouble| trouble.id == id);
        let unread = self.currencies.iter().filter(|(id, _)| is_unread(*id));
        let unread: Vec<Currency> = unread.map(|(_, currency)| *currency).collect();
        let today = self.session.today();
        let shown = ShownMoney::new(sums, months, today, wanted, &unread, troubles);
        rendered_part(&self.view(MoneyState::Read(Box::new(shown))))
    }

    /// Sums that have all of these months, and are new enough.
    fn cached(&self, months: Months) -> Option<Arc<MoneySums>> {
        let cache = &self.session.money_cache;
        let (cached, age) = cache.get(&self.session.caller.key_id, self.session.now)?;
        let is_new_enough = self
            .query
            .not_before
            .is_none_or(|at| self.session.now - age >= at);
        let does = is_new_enough
            && cached.revision == self.session.caller.revision
            && cached.sums.months.contain(months);
        does.then_some(cached.sums)
    }

    async fn read(&self, months: Months) -> Result<(MoneySums, Vec<BankTrouble>), Problem> {
        let api = &self.session.context;
        let permit = api
            .admit(&api.quotas().live, &self.session.caller, self.session.now)
            .await?;
        let selection = Selection {
            category: Some(ConnectionCategory::Banking),
            ..Selection::default()
        };
        let selected = api.reads().select(&self.session.caller, selection).await;
        let selected = selected.map_err(|error| {
            let (SelectError::Connection(error) | SelectError::Account(error)) = error;
            problem_for_category(&error, "Connection", ConnectionCategory::Banking)
        })?;
        let (mut troubles, mut lists) = (Vec::new(), Vec::new());
        for connection in &selected.connections {
            match connection {
                Ok(accounts) => lists.extend(accounts.lists()),
                Err(unreadable) => {
                    let (connection, error) = (&unreadable.connection, &unreadable.error);
                    let trouble = self.session.trouble(connection, error);
                    troubles.push(trouble.among(&self.names));
                }
            }
        }
        let sums = SumsByMonth::default();
        let mut reads = Vec::with_capacity(lists.len());
        for list in &lists {
            reads.push(self.read_list(list, months, &sums));
        }
        let read: Vec<Result<(), ReadError>> =
            stream::iter(reads).buffered(LISTS_AT_ONCE).collect().await;
        drop(permit);
        for (list, read) in lists.iter().zip(&read) {
            let connection = &list.context.connection;
            let trouble = |error| self.session.trouble(connection, error).among(&self.names);
            troubles.extend(read.as_ref().err().map(trouble));
        }
        troubles.sort_unstable();
        troubles.dedup_by_key(|one| one.id);
        let by_month = sums.into_inner().into_iter();
        let sums = MoneySums {
            months,
            by_month: by_month
                .map(|(month, sums)| (month, sums.groups()))
                .collect(),
        };
        Ok((sums, troubles))
    }

    /// Adds up a list. Fails if it cannot be read to its end.
    async fn read_list(
        &self,
        list: &SelectedAccounts,
        months: Months,
        sums: &SumsByMonth,
    ) -> Result<(), ReadError> {
        let api = &self.session.context;
        let dates = DateFilter {
            from: Some(Bound::Day(months.first)),
            to: Some(Bound::Day(months.end(self.session.today()))),
        };
        let mut range = api.reads().range::<Transactions>(
            &self.session.caller,
            list.context.clone(),
            list.account_id(),
            dates,
            self.session.now,
        )?;
        let mut sink = |row: &Transaction<'_>, day: Date| add(row, day, sums);
        loop {
            // Each page has its own deadline, because a year can have many.
            let call = api.call_context(&self.session.caller);
            match range.next_page(&call, &mut sink).await {
                Ok(true) => {}
                Ok(false) => return Ok(()),
                Err(error) => {
                    // As the API does: a consent that is gone is a reason to ask the provider for
                    // its status.
                    api.after_failed_read(&self.session.caller, &list.context, &error)
                        .await;
                    return Err(error);
                }
            }
        }
    }
}

/// Leaves out transfers, because money that moves between the user's own accounts is neither earned
/// nor spent.
fn add(row: &Transaction<'_>, day: Date, sums: &SumsByMonth) {
    if !row.category.is_some_and(Category::is_transfer) {
        let mut sums = sums.lock();
        let of_month = sums.entry(day.first_of_month());
        of_month
            .or_insert_with(|| Summary::new(Some(GroupBy::Category)))
            .add(row, day);
    }
}
