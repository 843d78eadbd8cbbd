//! The rows of a page, newest first, as parts that are sent when they are there.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::Arc;

use askama::Template;
use bellbird_domain::{AccountId, ConnectionStatus, Currency};
use bellbird_storage::StorageError;
use futures_util::stream::{self, Stream};
use futures_util::{FutureExt as _, StreamExt as _};
use jiff::civil::Date;
use tokio::sync::oneshot;

use super::filter::{Filter, PageStart, Period};
use super::find::{Progress, READ_ROWS_MAX, find};
use super::found::{Found, Stopped};
use super::linked::{Bank, Linked};
use super::row::Row;
use super::{ListKind, RowsPage};
use crate::list_query::{rows_between, rows_of_list};
use crate::money_cache::InAndOut;
use crate::overview::balances::{ReadBalance, with_balance_of};
use crate::pages::{
    AskedBank, BankTrouble, Money, Number, SignedInFrame, count as counted, day_of_week,
    rendered_part, shown_day, why_not_read,
};
use crate::session::Session;

/// The rows, which come behind the head of the page.
#[derive(Template)]
#[template(path = "rows.html")]
struct RowsPart<'a> {
    frame: &'a SignedInFrame<'a>,
    page: &'a RowsPage,
    list: &'a RowList,
    filter: &'a Filter,
    found: &'a Found,
    /// Banks that have not answered yet. None: these are all rows.
    asking: Option<Vec<&'a str>>,
    /// Why there are no rows.
    problem: Option<String>,
    /// What the page has said above the rows.
    named_above: &'a [BankTrouble],
    /// Of the account that is chosen.
    balance: Option<ReadBalance>,
}

/// The rows that a page is about.
pub(crate) struct RowList {
    pub(crate) session: Session,
    pub(super) page: &'static RowsPage,
    pub(crate) linked: Linked,
    pub(crate) filter: Filter,
    progress: Progress,
}

impl RowList {
    pub(crate) async fn load(
        session: Session,
        page: &'static RowsPage,
        query: Option<&str>,
    ) -> Result<Arc<Self>, StorageError> {
        let linked = Linked::load(&session, page.category).await?;
        let today = session.today();
        let is_own = |id| linked.find(id).is_some();
        Ok(Arc::new(Self {
            filter: Filter::parse(query, today, page.periods, page.has_categories, is_own),
            session,
            page,
            linked,
            progress: Progress::default(),
        }))
    }

    /// One of its banks, of which something is said.
    pub(crate) fn asked<'a>(&'a self, bank: &'a Bank) -> AskedBank<'a> {
        self.session.asked(&bank.connection, &self.linked.names)
    }

    /// The query of the API for the days, of an account or of all. It has no search and category.
    /// None: the account or the days are unknown.
    pub(super) fn api_query(&self, account: Option<AccountId>) -> Option<String> {
        let days = self.filter.days.ok()?;
        let mut query = form_urlencoded::Serializer::new(String::new());
        if let Some(account) = account {
            let (bank, _) = self.linked.find(account)?;
            query.append_pair("connectionId", &bank.connection.id.to_string());
            query.append_pair("accountId", &account.to_string());
        }
        if let Some((from, to)) = days {
            query.append_pair("from", &from.to_string());
            query.append_pair("to", &to.to_string());
        }
        Some(query.finish())
    }

    /// The rows that are there after a moment, and all of them when every bank has answered. Rows
    /// of a slow bank may then come above and between those that are shown: the order by time
    /// counts more than that nothing moves, and the first part says that banks are still asked.
    pub(crate) fn parts<K: ListKind>(
        self: Arc<Self>,
    ) -> impl Stream<Item = String> + Send + 'static {
        self.progress.begin();
        let list = Arc::clone(&self);
        let found = async move {
            let account = list.account_with_balance();
            with_balance_of(&list.session, account, list.find::<K>()).await
        };
        let found = found.boxed().shared();
        let (list, slow) = (Arc::clone(&self), found.clone());
        let early = async move {
            let within = list.session.settings.first_rows_within;
            let read = tokio::time::timeout(within, slow).await;
            read.is_err().then(|| list.early_part())
        };
        let early = stream::once(early).filter_map(std::future::ready);
        early.chain(stream::once(async move {
            let (found, balance) = found.await;
            self.final_part(found, &[], balance)
        }))
    }

    /// All rows, when every bank has answered. The part above them is shown first, and its banks
    /// are not named again.
    pub(crate) async fn whole_part<K: ListKind>(
        &self,
        named_above: oneshot::Receiver<Vec<BankTrouble>>,
    ) -> String {
        let (found, named_above) = tokio::join!(self.find::<K>(), named_above);
        self.final_part(found, &named_above.unwrap_or_default(), None)
    }

    /// The account that is chosen, unless its bank needs the user.
    pub(crate) fn account_with_balance(&self) -> Option<AccountId> {
        let account = self.filter.account?;
        let (bank, _) = self.linked.find(account)?;
        (bank.connection.status == ConnectionStatus::Active).then_some(account)
    }

    /// An error is a sentence for the user.
    async fn find<K: ListKind>(&self) -> Result<Arc<Found>, String> {
        let (session, filter, is_cached) = (&self.session, &self.filter, self.page.is_cached);
        let (cache, now) = (&session.rows_cache, session.now);
        let key = (session.caller.key_id, filter.query.this_page());
        let of_now = (session.caller.revision, filter.today);
        if is_cached
            && let Some((found, _)) = cache.get(&key, now)
            && (found.revision, found.today) == of_now
        {
            return Ok(found);
        }
        let found = find::<K>(session, &self.linked.names, filter, &self.progress).await;
        let found = Arc::new(found.map_err(|problem| why_not_read(&problem))?);
        if is_cached && found.is_complete() {
            cache.insert(key, Arc::clone(&found), now);
        }
        Ok(found)
    }

    fn early_part(&self) -> String {
        let (rows, asked) = self.progress.take();
        let found = Found {
            rows,
            ..Found::default()
        };
        // The newest first, as banks are listed.
        let asked = asked.iter().rev();
        let asking = asked.filter_map(|id| self.linked.names.find(*id));
        rendered_part(&RowsPart {
            asking: Some(asking.collect()),
            ..self.part(&self.session.frame(self.page.path), &found)
        })
    }

    fn final_part(
        &self,
        found: Result<Arc<Found>, String>,
        named_above: &[BankTrouble],
        balance: Option<ReadBalance>,
    ) -> String {
        let (found, problem) = match found {
            Ok(found) => (found, None),
            Err(problem) => (Arc::default(), Some(problem)),
        };
        rendered_part(&RowsPart {
            problem,
            named_above,
            balance,
            ..self.part(&self.session.frame(self.page.path), &found)
        })
    }

    fn part<'a>(&'a self, frame: &'a SignedInFrame<'a>, found: &'a Found) -> RowsPart<'a> {
        RowsPart {
            frame,
            page: self.page,
            list: self,
            filter: &self.filter,
            found,
            asking: None,
            problem: None,
            named_above: &[],
            balance: None,
        }
    }
}

impl RowsPart<'_> {
    fn troubles(&self) -> impl Iterator<Item = &BankTrouble> {
        let troubles = self.found.troubles.iter();
        troubles.filter(move |one| {
            !self
                .named_above
                .iter()
                .any(|named_above| named_above.is_like(one))
        })
    }

    /// To the rows of the page with a query.
    fn link(&self, query: impl Display) -> String {
        let RowsPage { path, anchor, .. } = self.page;
        let mark = if anchor.is_empty() { "" } else { "#" };
        format!("{}{path}?{query}{mark}{anchor}", self.frame.root)
    }

    /// The query of the page with older rows.
    fn older(&self) -> Option<String> {
        let start = PageStart {
            rows_before: self.last(),
            after: self.found.older?,
        };
        Some(self.filter.query.next(start))
    }

    /// How many rows there are before the page, and up to its end.
    fn before(&self) -> u64 {
        self.filter.start().map_or(0, |start| start.rows_before)
    }

    fn last(&self) -> u64 {
        self.before().saturating_add(self.found.rows.len() as u64)
    }

    fn days(&self) -> Vec<(String, Vec<&Row>)> {
        // Rows follow each other by their instants, and a row that has only a day has the midnight
        // of its bank. So days of several time zones would alternate around midnight.
        let mut days: BTreeMap<Reverse<Date>, Vec<&Row>> = BTreeMap::new();
        for row in &self.found.rows {
            days.entry(Reverse(row.day)).or_default().push(row);
        }
        let days = days.into_iter();
        days.map(|(Reverse(day), rows)| (day_of_week(day), rows))
            .collect()
    }

    /// The account of a row, where several are shown, and its bank, where there are several.
    fn place_of(&self, row: &Row) -> Option<(&str, Option<&str>)> {
        let linked = &self.list.linked;
        let (bank, account) = linked.find(row.account)?;
        let bank = (linked.banks.len() > 1).then_some(&*bank.name);
        self.filter.account.is_none().then_some((account, bank))
    }

    /// Such as `Rows 1 to 50 since 29 Nov 2025 in 28 accounts.`
    fn summary(&self) -> String {
        let Self { filter, found, .. } = self;
        let (before, last) = (self.before(), self.last());
        let is_empty = found.rows.is_empty();
        if is_empty && found.accounts == 0 && !found.troubles.is_empty() {
            return "Nothing could be read.".to_owned();
        }
        let (is_all, is_filtered) = (found.older.is_none(), filter.leaves_rows_out());
        let first = before.saturating_add(1);
        let rows = if first == last { "Row" } else { "Rows" };
        let range = match is_all {
            true => rows_of_list(first, last, last),
            false => rows_between(first, last),
        };
        let count = match (is_empty, before) {
            (true, 0) if found.stopped.is_some() => "None found yet".to_owned(),
            (true, 0) if is_filtered => "None found".to_owned(),
            (true, 0) => format!("No {}", self.page.name),
            (true, _) if found.stopped.is_some() => "No older ones yet".to_owned(),
            (true, _) => "No older ones".to_owned(),
            (false, _) => format!("{rows} {range}"),
        };
        let days = match (filter.days, filter.period) {
            (Ok(Some((from, to))), None | Some(Period::LastMonth)) => {
                format!(" from {} to {}", shown_day(from), shown_day(to))
            }
            (Ok(Some((from, _))), _) => format!(" since {}", shown_day(from)),
            _ => String::new(),
        };
        let accounts = match filter.account {
            Some(_) => String::new(),
            None => format!(" in {}", counted(found.accounts as u64, "account")),
        };
        let as_of = match self.page.is_cached {
            true => format!(" As of {}.", self.list.session.zone().time(found.read_at)),
            false => String::new(),
        };
        format!("{count}{days}{accounts}.{as_of}")
    }

    /// Of all rows, by currency, with the sums above and below zero if there are both. Empty unless
    /// the page has all rows, and every bank was read.
    fn sums(&self) -> Vec<(Money, Option<[Number; 2]>)> {
        let rows = &self.found.rows;
        let is_whole = self.before() == 0 && self.found.older.is_none();
        if !is_whole || !self.found.is_complete() || rows.len() < 2 {
            return Vec::new();
        }
        let mut sums: BTreeMap<&str, InAndOut> = BTreeMap::new();
        for amount in rows.iter().filter_map(|row| row.amount.as_ref()) {
            // Several currencies that nobody knows are not one, and a sum without one of its rows
            // would be wrong.
            let is_known = amount.currency != Currency::UNKNOWN.as_str();
            let number = amount.number.to_decimal().filter(|_| is_known);
            let sum = sums.entry(&amount.currency).or_default();
            if !number.is_some_and(|number| sum.add(&number)) {
                return Vec::new();
            }
        }
        let shown = |(currency, sum): (&str, InAndOut)| {
            let both = [&sum.money_in, &sum.money_out];
            let has_both = both.iter().all(|sum| !sum.is_zero());
            let both = has_both.then(|| both.map(|sum| Number::sum(sum, currency)));
            (Money::sum(currency, &sum.net()), both)
        };
        sums.into_iter().map(shown).collect()
    }

    /// What is to be known about the end of the rows.
    fn note(&self) -> Option<String> {
        let stopped = self.found.stopped?;
        let down_to = self.found.older.map(|position| {
            let zone = self.list.session.caller.timezone.clone();
            let reached = position.instant.to_zoned(zone).date();
            // That of a day without a time is at midnight of UTC.
            let last = self.found.rows.last();
            let reached = last.map_or(reached, |row| row.day.max(reached));
            format!(", down to {}", shown_day(reached))
        });
        let down_to = down_to.unwrap_or_default();
        Some(match stopped {
            Stopped::AtRows => format!(
                "Only the newest {},000 rows were read{down_to}.",
                READ_ROWS_MAX / 1_000
            ),
            Stopped::InTime => format!(
                "Your {}s took too long, so not all was read{down_to}.",
                self.page.bank
            ),
        })
    }

    /// Banks that listed no row, which look as if all was well. Said on the first page, for which
    /// every bank was asked. Beside the rows of others it is said only where a bank has rows as a
    /// rule: few brokers have a trade every month, and few banks a row of every category.
    fn silent(&self) -> Option<String> {
        let Self { filter, found, .. } = self;
        let is_first = filter.start().is_none() && found.stopped.is_none();
        let is_usual =
            self.page.has_categories && !filter.has_chosen_days && !filter.leaves_rows_out();
        // A balance was read from the only bank that is asked.
        let is_heard = matches!(self.balance, Some(Ok(_)));
        let is_said = is_first && !is_heard && (found.rows.is_empty() || is_usual);
        is_said.then(|| self.list.linked.names.nothing_came_from(&found.silent))?
    }

    /// What a file has, such as `these 8 rows`.
    fn file_content(&self) -> String {
        let rows = self.found.rows.len();
        match (self.before(), self.found.older) {
            (0, None) if rows == 1 => "this row".to_owned(),
            (0, None) => format!("these {rows} rows"),
            _ => {
                let is_filtered = self.filter.leaves_rows_out();
                let found = if is_filtered { " found" } else { "" };
                let others = match self.found.troubles.is_empty() {
                    true => String::new(),
                    false => format!(" at the other {}s", self.page.bank),
                };
                let mut days = self.filter.days_label();
                days[..1].make_ascii_lowercase();
                format!("all rows{found}{others}, {days}")
            }
        }
    }

    /// The page has said which banks are missing, so the file may lack them.
    fn file_query(&self) -> String {
        let has_all = self.found.troubles.is_empty();
        let partial = if has_all { "" } else { "true" };
        self.filter.query.with(&[("partial", partial)])
    }
}
