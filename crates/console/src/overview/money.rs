//! Money in and out of the last six months, by month and by category: sums made while the rows pass
//! by. The sums are kept as long as balances, and no row is.

use bellbird_api::http::Problem;
use bellbird_domain::{Bound, Caller, Category, ConnectionCategory, DateFilter, Transaction};
use bellbird_reads::summary::{GroupBy, GroupTotals, Summary};
use bellbird_reads::{SelectError, SelectedAccounts, Selection, Transactions};
use futures_util::StreamExt as _;
use futures_util::stream;
use jiff::Timestamp;
use jiff::civil::Date;
use parking_lot::Mutex;

use super::view::{Money, category_charts, month_charts};
use crate::money_cache::CachedMoney;
use crate::pages::{rendered_part, sentence};
use crate::state::Console;

const MONTHS: i32 = 6;
/// Lists read at the same time.
const LISTS_AT_ONCE: usize = 4;

pub(super) async fn part(console: &Console, caller: &Caller, now: Timestamp) -> String {
    let cached = console.inner.money_cache.get(&caller.key_id, now);
    if let Some((cached, _)) = cached.filter(|(cached, _)| cached.revision == caller.revision) {
        return cached.html.to_string();
    }
    let money = match read(console, caller, now).await {
        Ok(money) => money,
        Err(problem) => return rendered_part(&Money::failed(sentence(&problem.message()))),
    };
    let html = rendered_part(&money);
    if money.problems.is_empty() {
        let cached = CachedMoney {
            revision: caller.revision,
            html: html.as_str().into(),
        };
        console.inner.money_cache.insert(caller.key_id, cached, now);
    }
    html
}

/// The sums of rows that are no transfers, because money that moves between the user's own accounts
/// is neither earned nor spent.
struct Sums {
    by_month: Summary,
    by_category: Summary,
}

impl Sums {
    fn add(&mut self, row: &Transaction<'_>, day: Date) {
        if !matches!(
            row.category,
            Some(Category::TransferIn | Category::TransferOut)
        ) {
            self.by_month.add(row, day);
            self.by_category.add(row, day);
        }
    }
}

async fn read(console: &Console, caller: &Caller, now: Timestamp) -> Result<Money, Problem> {
    let api = &console.inner.context;
    let permit = api.admit(&api.quotas().live, caller, now).await?;
    let selection = Selection {
        category: Some(ConnectionCategory::Banking),
        ..Selection::default()
    };
    let selected = api
        .reads()
        .select(caller, selection)
        .await
        .map_err(|error| match error {
            SelectError::Connection(error) | SelectError::Account(error) => {
                bellbird_api::http::problem::problem_for_category(
                    &error,
                    "Connection",
                    ConnectionCategory::Banking,
                )
            }
        })?;
    let today = now.to_zoned(caller.timezone.clone()).date();
    let first = months_before(today, MONTHS - 1);
    let mut problems = Vec::new();
    let mut lists = Vec::new();
    for connection in &selected.connections {
        match connection {
            Ok(accounts) => lists.extend(accounts.lists()),
            Err(unreadable) => problems.push(unreadable.connection.institution_name.clone()),
        }
    }
    let sums = Mutex::new(Sums {
        by_month: Summary::new(Some(GroupBy::Month)),
        by_category: Summary::new(Some(GroupBy::Category)),
    });
    let mut reads = Vec::with_capacity(lists.len());
    for list in &lists {
        reads.push(read_list(console, caller, list, first, now, &sums));
    }
    let failed: Vec<Option<String>> = stream::iter(reads).buffered(LISTS_AT_ONCE).collect().await;
    drop(permit);
    problems.extend(failed.into_iter().flatten());
    problems.sort_unstable();
    problems.dedup();
    let Sums {
        by_month,
        by_category,
    } = sums.into_inner();
    let (months, categories): (Vec<GroupTotals>, Vec<GroupTotals>) =
        (by_month.groups(), by_category.groups());
    let problems = problems
        .iter()
        .map(|name| crate::pages::names::sanitized(name))
        .collect();
    Ok(Money::new(
        month_charts(&months, first, MONTHS),
        category_charts(&categories),
        problems,
    ))
}

/// Adds up a list. Returns the name of its institution if it could not be read to its end.
async fn read_list(
    console: &Console,
    caller: &Caller,
    list: &SelectedAccounts,
    first: Date,
    now: Timestamp,
    sums: &Mutex<Sums>,
) -> Option<String> {
    let api = &console.inner.context;
    let name = || Some(list.context.connection.institution_name.clone());
    let dates = DateFilter {
        from: Some(Bound::Day(first)),
        to: None,
    };
    let call = api.call_context(caller);
    let range = api.reads().range::<Transactions>(
        caller,
        list.context.clone(),
        list.account_id(),
        dates,
        now,
    );
    let Ok(mut range) = range else { return name() };
    let mut sink = |row: &Transaction<'_>, day: Date| sums.lock().add(row, day);
    loop {
        match range.next_page(&call, &mut sink).await {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                // As the API does: a consent that is gone is a reason to ask the provider for its
                // status.
                api.after_failed_read(caller, &list.context, &error).await;
                return name();
            }
        }
    }
}

/// The first day of the month that many months ago.
fn months_before(today: Date, months: i32) -> Date {
    use jiff::ToSpan as _;
    today.first_of_month().saturating_sub(months.months())
}
