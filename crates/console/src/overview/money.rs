//! Reads the sums of money in and out, by month and by category, while the rows pass by. The sums
//! are kept as long as balances, and no row is. Those of more months answer for fewer, so only the
//! first view reads.

use std::sync::Arc;

use bellbird_api::http::Problem;
use bellbird_domain::{Bound, Category, ConnectionId, Currency, DateFilter, Decimal, Transaction};
use bellbird_reads::{Range, Transactions};
use futures_util::stream::{self, StreamExt as _};
use jiff::civil::Date;
use parking_lot::Mutex;

use super::money_view::{MoneyPart, MoneyState, ShownMoney};
use super::query::OverviewQuery;
use crate::money_cache::{MoneySums, SumsByGroup};
use crate::months::Months;
use crate::pages::{BankNames, BankTrouble, rendered_part, why_not_read};
use crate::rows::find::{Lists, failed_bank};
use crate::session::Session;

/// Lists read at the same time.
const LISTS_AT_ONCE: usize = 4;

/// Sums in memory: 1,000 for each month of a year. Rows of further groups have no category.
const GROUPS_MAX: usize = 12_000;

/// What the part is about.
pub(super) struct MoneyOf {
    pub(super) session: Arc<Session>,
    pub(super) query: OverviewQuery,
    pub(super) names: Arc<BankNames>,
    /// Of the accounts of each connection.
    pub(super) currencies: Vec<(ConnectionId, Currency)>,
}

impl MoneyOf {
    /// The part before the sums are there.
    pub(super) fn expected(&self) -> String {
        self.rendered(MoneyState::Awaited)
    }

    pub(super) async fn part(self) -> String {
        let months = self.query.period.months(self.session.today());
        if let Some(sums) = self.cached(months) {
            return self.shown(&sums, Vec::new());
        }
        match self.read(months).await {
            Ok((sums, troubles)) => {
                let sums = Arc::new(sums);
                if troubles.is_empty() {
                    let cache = &self.session.money_cache;
                    let key = self.session.caller.key_id;
                    cache.insert(key, Arc::clone(&sums), self.session.now);
                }
                self.shown(&sums, troubles)
            }
            Err(problem) => self.rendered(MoneyState::Failed(why_not_read(&problem))),
        }
    }

    fn rendered(&self, state: MoneyState) -> String {
        let today = self.session.today();
        rendered_part(&MoneyPart {
            frame: &self.session.frame,
            query: &self.query,
            months: self.query.period.months(today),
            today,
            state,
        })
    }

    fn shown(&self, sums: &MoneySums, troubles: Vec<BankTrouble>) -> String {
        let months = self.query.period.months(self.session.today());
        let wanted = Currency::parse(self.query.currency());
        let is_unread = |id: ConnectionId| troubles.iter().any(|trouble| trouble.id == id);
        let unread = self.currencies.iter().filter(|(id, _)| is_unread(*id));
        let unread: Vec<Currency> = unread.map(|(_, currency)| *currency).collect();
        let shown = ShownMoney::new(sums, months, wanted, &unread, troubles);
        self.rendered(MoneyState::Read(Box::new(shown)))
    }

    /// Sums that have all of these months, and are new enough.
    fn cached(&self, months: Months) -> Option<Arc<MoneySums>> {
        let (session, not_before) = (&self.session, self.query.not_before);
        let cache = &session.money_cache;
        let (sums, age) = cache.get(&session.caller.key_id, session.now)?;
        let is_valid = not_before.is_none_or(|at| session.now - age >= at)
            && sums.revision == session.caller.revision
            && sums.months.contain(months);
        is_valid.then_some(sums)
    }

    async fn read(&self, months: Months) -> Result<(MoneySums, Vec<BankTrouble>), Problem> {
        let (session, names) = (&*self.session, &*self.names);
        let dates = DateFilter {
            from: Some(Bound::Day(months.first)),
            to: Some(Bound::Day(months.end(session.today()))),
        };
        let lists = Lists::<Transactions>::select(session, names, None, dates).await?;
        let groups = Mutex::new(SumsByGroup::new());
        let mut reads = Vec::with_capacity(lists.ranges.len());
        for range in lists.ranges {
            reads.push(read_list(session, names, range, &groups));
        }
        let read: Vec<Option<BankTrouble>> =
            stream::iter(reads).buffered(LISTS_AT_ONCE).collect().await;
        drop(lists.permit);
        let mut troubles = lists.troubles;
        troubles.extend(read.into_iter().flatten());
        troubles.sort_unstable();
        troubles.dedup_by_key(|one| one.id);
        let sums = MoneySums {
            revision: session.caller.revision,
            months,
            groups: groups.into_inner(),
        };
        Ok((sums, troubles))
    }
}

/// Adds up a list. Returns the bank if it could not be read to its end.
async fn read_list(
    session: &Session,
    names: &BankNames,
    mut range: Range<Transactions>,
    groups: &Mutex<SumsByGroup>,
) -> Option<BankTrouble> {
    let mut sink = |row: &Transaction<'_>, day: Date| add(row, day, groups);
    loop {
        // Each page has its own deadline, because a year can have many.
        let call = session.context.call_context(&session.caller);
        match range.next_page(&call, &mut sink).await {
            Ok(true) => {}
            Ok(false) => return None,
            // At once, because the user may leave before a slow bank has responded.
            Err(error) => return failed_bank(session, names, range.context(), &error).await,
        }
    }
}

/// Leaves out transfers, because money that moves between the user's own accounts is neither earned
/// nor spent.
fn add(row: &Transaction<'_>, day: Date, groups: &Mutex<SumsByGroup>) {
    if !row.category.is_some_and(Category::is_transfer) {
        let currency = row.actual_currency();
        let group = (currency, day.first_of_month(), row.category);
        add_to(&mut groups.lock(), group, &row.amount);
    }
}

fn add_to(
    groups: &mut SumsByGroup,
    mut group: (Currency, Date, Option<Category>),
    amount: &Decimal<'_>,
) {
    if groups.len() >= GROUPS_MAX && !groups.contains_key(&group) {
        // There are only so many currencies, so these need no limit.
        group.2 = None;
    }
    // An amount that is too long for a sum only counts as a row.
    groups.entry(group).or_default().add(amount);
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan as _;

    use super::*;

    #[test]
    fn groups_beyond_the_limit_have_no_category() {
        let mut groups = SumsByGroup::new();
        let (aud, amount) = (
            Currency::parse("AUD").unwrap(),
            Decimal::parse("-1").unwrap(),
        );
        let (first, known) = (Date::constant(2000, 1, 1), Some(Category::Travel));
        let months = i64::try_from(GROUPS_MAX).unwrap();
        for month in 0..months {
            let month = first.saturating_add(month.months());
            add_to(&mut groups, (aud, month, known), &amount);
        }
        for category in [known, Some(Category::Medical), Some(Category::Income)] {
            add_to(&mut groups, (aud, first, category), &amount);
        }
        let rows = |category: Option<Category>| groups[&(aud, first, category)].rows;
        assert_eq!(groups.len(), GROUPS_MAX + 1);
        assert_eq!((rows(known), rows(None)), (2, 2));
    }
}
