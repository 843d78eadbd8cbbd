//! The rows of a page, newest first, as parts that are sent when they are there.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use bellbird_domain::{AccountId, Currency, ExactSum};
use bellbird_storage::StorageError;
use futures_util::stream::{self, Stream};
use futures_util::{FutureExt as _, StreamExt as _};
use jiff::civil::Date;

use super::filter::{Days, Filter, PageStart, Period};
use super::filter_bar::{FilterBar, link};
use super::find::{Progress, READ_ROWS_MAX, find};
use super::found::{CachedRows, Found, Stopped};
use super::linked::Linked;
use super::row::Row;
use super::{ListKind, Words};
use crate::error_page::PageResult;
use crate::list_query::{rows_between, rows_of_list};
use crate::pages::{
    BankTrouble, Money, SignedInFrame, day_of_week, rendered_part, shown_day, why_not_read,
};
use crate::plan;
use crate::session::Session;

/// How long the first rows wait for slower banks.
const FIRST_ROWS_WITHIN: Duration = Duration::from_millis(700);

/// The page, with a mark where its parts go.
#[derive(Template)]
#[template(path = "list.html")]
struct ListPage<'a> {
    frame: &'a SignedInFrame<'a>,
    words: Words,
    bar: FilterBar<'a>,
    /// Of the same rows in the API.
    api_url: Option<String>,
}

/// The rows, which come behind the head of the page.
#[derive(Template)]
#[template(path = "rows.html")]
struct RowsPart<'a> {
    frame: &'a SignedInFrame<'a>,
    /// Of the rows, on a page that has others too.
    anchor: &'static str,
    banks: &'static str,
    /// Banks that have not answered yet.
    asking: Vec<&'a str>,
    is_final: bool,
    troubles: &'a [BankTrouble],
    /// This page again.
    again: String,
    /// Why there are no rows.
    problem: Option<String>,
    /// Such as `8 found since 29 Nov 2025 in 28 accounts.`
    summary: String,
    /// Of all rows, by currency, if the page has all of them and every bank was read.
    sums: Vec<CurrencySum>,
    /// The search over more days.
    further: Option<String>,
    /// What is to be known about the end of the rows.
    note: Option<String>,
    /// Banks that listed no row, which look as if all was well.
    silent: Option<String>,
    days: Vec<DayRows<'a>>,
    files: Vec<FileLink>,
    newer: Option<String>,
    older: Option<String>,
}

/// The sum of the rows of a currency.
struct CurrencySum {
    net: Money,
    /// Of the rows above and below zero, if there are both.
    in_and_out: Option<[Money; 2]>,
}

struct DayRows<'a> {
    day: String,
    rows: Vec<ShownRow<'a>>,
}

struct ShownRow<'a> {
    row: &'a Row,
    /// Of its account, where several are shown.
    account: Option<&'a str>,
    /// Of its bank, where there are several.
    bank: Option<&'a str>,
}

struct FileLink {
    url: String,
    label: String,
}

/// The rows that a page is about.
pub(crate) struct RowList<K> {
    pub(crate) session: Session,
    pub(crate) linked: Linked,
    pub(crate) filter: Filter,
    progress: Progress,
    kind: PhantomData<K>,
}

impl<K: ListKind> RowList<K> {
    pub(crate) async fn load(
        session: Session,
        query: Option<&str>,
    ) -> Result<Arc<Self>, StorageError> {
        let linked = Linked::load(&session, K::CATEGORY).await?;
        let today = session.today();
        let is_own = |id| linked.find(id).is_some();
        Ok(Arc::new(Self {
            filter: Filter::parse(query, today, K::PERIODS, K::HAS_CATEGORIES, is_own),
            session,
            linked,
            progress: Progress::default(),
            kind: PhantomData,
        }))
    }

    /// The URL of the API that gives these rows, without search and category.
    fn api_url(&self) -> Option<String> {
        let api = self.session.api_url();
        if let Some(account) = self.filter.account {
            return Some(format!("{api}/v1/{}?{}", K::NAME, self.query_of(account)?));
        }
        let mut query = form_urlencoded::Serializer::for_suffix("?".to_owned(), 1);
        query.extend_pairs(self.filter.days().ok()?.pairs());
        let query = query.finish();
        let query = query.trim_end_matches('?');
        Some(format!("{api}/v1/export/{}.jsonl{query}", K::NAME))
    }

    /// The query of the API for the days of an account. None: the account or the days are unknown.
    pub(crate) fn query_of(&self, account: AccountId) -> Option<String> {
        let (bank, _) = self.linked.find(account)?;
        let days = self.filter.days().ok()?;
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("connectionId", &bank.id().to_string())
            .append_pair("accountId", &account.to_string())
            .extend_pairs(days.pairs())
            .finish();
        Some(query)
    }

    /// The rows that are there after a moment, and all of them when every bank has answered. Rows
    /// of a slow bank may then come above and between those that are shown: the order by time
    /// counts more than that nothing moves, and the first part says that banks are still asked.
    pub(crate) fn parts(self: Arc<Self>) -> impl Stream<Item = String> + Send + 'static {
        self.progress.begin();
        let list = Arc::clone(&self);
        let found = async move { list.find().await }.boxed().shared();
        let (list, slow) = (Arc::clone(&self), found.clone());
        let early = async move {
            let read = tokio::time::timeout(FIRST_ROWS_WITHIN, slow).await;
            read.is_err().then(|| list.early_part())
        };
        let early = stream::once(early).filter_map(std::future::ready);
        early.chain(stream::once(async move { self.final_part(found.await) }))
    }

    /// All rows, when every bank has answered.
    pub(crate) async fn whole_part(&self) -> String {
        self.final_part(self.find().await)
    }

    /// An error is a sentence for the user.
    async fn find(&self) -> Result<Arc<Found>, String> {
        let Session { caller, now, .. } = &self.session;
        let (filter, progress) = (&self.filter, &self.progress);
        let (cache, key) = (
            &self.session.rows_cache,
            (caller.key_id, filter.query.this_page()),
        );
        let (revision, today) = (caller.revision, filter.today);
        if K::IS_CACHED
            && let Some((cached, _)) = cache.get(&key, *now)
            && (cached.revision, cached.today) == (revision, today)
        {
            return Ok(cached.found);
        }
        let found = find::<K>(&self.session, &self.linked.names, filter, progress).await;
        let found = Arc::new(found.map_err(|problem| why_not_read(&problem))?);
        if K::IS_CACHED && found.troubles.is_empty() && found.stopped.is_none() && !found.is_lost {
            let cached = CachedRows {
                revision,
                today,
                found: Arc::clone(&found),
            };
            cache.insert(key, cached, *now);
        }
        Ok(found)
    }

    fn early_part(&self) -> String {
        let (rows, asked) = self.progress.take();
        let frame = self.session.frame(K::PATH);
        rendered_part(&RowsPart {
            asking: self.linked.names_of(&asked),
            is_final: false,
            days: self.days_of(&rows),
            ..self.empty_part(&frame)
        })
    }

    fn final_part(&self, found: Result<Arc<Found>, String>) -> String {
        let frame = self.session.frame(K::PATH);
        let empty = self.empty_part(&frame);
        let filter = &self.filter;
        let found = match found {
            Ok(found) if found.is_lost => {
                return rendered_part(&RowsPart {
                    problem: Some(format!(
                        "Your {} have changed these rows since. Begin again with the newest.",
                        K::WORDS.banks
                    )),
                    again: self.link(&frame, &filter.query.first()),
                    ..empty
                });
            }
            Ok(found) => found,
            Err(problem) => {
                return rendered_part(&RowsPart {
                    problem: Some(problem),
                    ..empty
                });
            }
        };
        let before = filter.start().map_or(0, |start| start.rows_before);
        let rows_before = before.saturating_add(found.rows.len() as u64);
        let start = found.older.map(|after| PageStart { rows_before, after });
        let is_whole = before == 0 && found.older.is_none() && found.troubles.is_empty();
        let further = filter.further().filter(|_| found.stopped.is_none());
        rendered_part(&RowsPart {
            troubles: &found.troubles,
            summary: self.summary(&found, before),
            sums: match is_whole && found.stopped.is_none() && found.rows.len() > 1 {
                true => sums_of(&found.rows),
                false => Vec::new(),
            },
            further: further.map(|query| self.link(&frame, &query)),
            note: self.note(&found),
            silent: self.silent(&found),
            days: self.days_of(&found.rows),
            files: self.files(&found, before, &frame),
            newer: filter
                .query
                .previous()
                .map(|query| self.link(&frame, &query)),
            older: start.map(|start| self.link(&frame, &filter.query.next(start))),
            ..empty
        })
    }

    fn empty_part<'a>(&self, frame: &'a SignedInFrame<'a>) -> RowsPart<'a> {
        RowsPart {
            frame,
            anchor: K::ANCHOR,
            banks: K::WORDS.banks,
            asking: Vec::new(),
            is_final: true,
            troubles: &[],
            again: self.link(frame, &self.filter.query.this_page()),
            problem: None,
            summary: String::new(),
            sums: Vec::new(),
            further: None,
            note: None,
            silent: None,
            days: Vec::new(),
            files: Vec::new(),
            newer: None,
            older: None,
        }
    }

    /// To the rows of the page with a query.
    fn link(&self, frame: &SignedInFrame<'_>, query: &str) -> String {
        let mark = if K::ANCHOR.is_empty() { "" } else { "#" };
        link(frame, K::PATH, query) + mark + K::ANCHOR
    }

    fn days_of<'a>(&'a self, rows: &'a [Row]) -> Vec<DayRows<'a>> {
        // Rows follow each other by their instants, and a row that has only a day has the midnight
        // of its bank. So days of several time zones would alternate around midnight.
        let mut days: BTreeMap<Reverse<Date>, Vec<ShownRow<'a>>> = BTreeMap::new();
        for row in rows {
            let of_day = days.entry(Reverse(row.day)).or_default();
            of_day.push(self.shown(row));
        }
        days.into_iter()
            .map(|(Reverse(day), rows)| DayRows {
                day: day_of_week(day),
                rows,
            })
            .collect()
    }

    fn shown<'a>(&'a self, row: &'a Row) -> ShownRow<'a> {
        let found = self.linked.find(row.account);
        let found = found.filter(|_| self.filter.account.is_none());
        let has_several = self.linked.banks.len() > 1;
        ShownRow {
            row,
            account: found.map(|(_, account)| account),
            bank: found.map(|(bank, _)| &*bank.name).filter(|_| has_several),
        }
    }

    fn summary(&self, found: &Found, before: u64) -> String {
        let rows = found.rows.len() as u64;
        let last = before.saturating_add(rows);
        if found.accounts == 0 && rows == 0 && !found.troubles.is_empty() {
            return "Nothing could be read.".to_owned();
        }
        let is_all = found.older.is_none();
        let accounts = match (self.filter.account, found.accounts) {
            (Some(_), _) => String::new(),
            (None, 1) => " in 1 account".to_owned(),
            (None, accounts) => format!(" in {accounts} accounts"),
        };
        let days = match (self.filter.days(), self.filter.period()) {
            (
                Ok(Days {
                    from: Some(from),
                    to: Some(to),
                }),
                period,
            ) => match period {
                None | Some(Period::LastMonth) => {
                    format!(" from {} to {}", shown_day(from), shown_day(to))
                }
                Some(_) => format!(" since {}", shown_day(from)),
            },
            _ => String::new(),
        };
        let filtered = self.filter.leaves_rows_out();
        let first = before.saturating_add(1);
        let count = match (rows, filtered) {
            (0, _) if before == 0 && found.stopped.is_some() => "None found yet".to_owned(),
            (0, true) if before == 0 => "None found".to_owned(),
            (0, false) if before == 0 => format!("No {}", K::NAME),
            (0, _) if found.stopped.is_some() => "No older ones yet".to_owned(),
            (0, _) => "No older ones".to_owned(),
            (_, true) if before == 0 && is_all => format!("{rows} found"),
            (_, true) if before == 0 => format!("Showing the newest {rows}"),
            (_, true) if is_all => format!("{} found", rows_of_list(first, last, last)),
            (_, true) => format!("{} found", rows_between(first, last)),
            (_, false) if is_all => rows_of_list(first, last, last),
            (_, false) => rows_between(first, last),
        };
        let as_of = match K::IS_CACHED {
            true => format!(" As of {}.", self.session.zone().time(found.read_at)),
            false => String::new(),
        };
        format!("{count}{days}{accounts}.{as_of}")
    }

    fn note(&self, found: &Found) -> Option<String> {
        let stopped = found.stopped?;
        let reached = found.older.map(|position| {
            let zone = self.session.caller.timezone.clone();
            let reached = position.instant.to_zoned(zone).date();
            // That of a day without a time is at midnight of UTC.
            found
                .rows
                .last()
                .map_or(reached, |row| row.day.max(reached))
        });
        let down_to = reached.map(|day| format!(", down to {}", shown_day(day)));
        let down_to = down_to.unwrap_or_default();
        Some(match stopped {
            Stopped::AtRows => format!(
                "Only the newest {},000 rows were read{down_to}.",
                READ_ROWS_MAX / 1_000
            ),
            Stopped::InTime => format!(
                "Your {} took too long, so not all was read{down_to}.",
                K::WORDS.banks
            ),
        })
    }

    /// On the first page, for which every bank was asked. Beside the rows of others it is said only
    /// where a bank has rows as a rule: few brokers have a trade every month, and few banks a row
    /// of every category.
    fn silent(&self, found: &Found) -> Option<String> {
        let filter = &self.filter;
        let is_first = filter.start().is_none() && found.stopped.is_none();
        let is_usual = K::HAS_CATEGORIES && !filter.has_chosen_days() && !filter.leaves_rows_out();
        let is_said = is_first && (found.rows.is_empty() || is_usual);
        is_said.then(|| self.linked.names.nothing_came_from(&found.silent))?
    }

    fn files(&self, found: &Found, before: u64, frame: &SignedInFrame<'_>) -> Vec<FileLink> {
        let (rows, filter) = (found.rows.len(), &self.filter);
        if rows == 0 {
            return Vec::new();
        }
        let what = match (before, found.older) {
            (0, None) if rows == 1 => "this row".to_owned(),
            (0, None) => format!("these {rows} rows"),
            _ => {
                let found = if filter.leaves_rows_out() {
                    " found"
                } else {
                    ""
                };
                format!("all rows{found}, {}", lower_first(&filter.days_label()))
            }
        };
        let url =
            |extension: &str, query: &str| link(frame, &format!("/{}.{extension}", K::NAME), query);
        // The page has said which banks are missing, so the file may lack them.
        let partial = if found.troubles.is_empty() {
            ""
        } else {
            "true"
        };
        let csv = filter.query.with(&[("partial", partial)]);
        let mut files = vec![FileLink {
            url: url("csv", &csv),
            label: format!("Download {what} (CSV)"),
        }];
        let is_plain = K::HAS_CATEGORIES && !filter.leaves_rows_out();
        if let (true, Some(account), Ok(days)) = (is_plain, filter.account, filter.days()) {
            let query = form_urlencoded::Serializer::new(String::new())
                .append_pair("account", &account.to_string())
                .extend_pairs(days.pairs())
                .finish();
            files.push(FileLink {
                url: url("ofx", &query),
                label: format!("Download {what} (OFX)"),
            });
        }
        files
    }
}

/// Of each currency, in order.
fn sums_of(rows: &[Row]) -> Vec<CurrencySum> {
    let mut sums: BTreeMap<&str, [ExactSum; 2]> = BTreeMap::new();
    for amount in rows.iter().filter_map(|row| row.amount.as_ref()) {
        // Several currencies that nobody knows are not one, and a sum without one of its rows would
        // be wrong.
        let is_known = amount.currency != Currency::UNKNOWN.as_str();
        let number = amount.number.to_decimal().filter(|_| is_known);
        let sums = sums.entry(&amount.currency).or_default();
        let sum = &mut sums[usize::from(amount.number.is_negative())];
        if !number.is_some_and(|number| sum.add(&number)) {
            return Vec::new();
        }
    }
    let sums = sums.into_iter().map(|(currency, [money_in, money_out])| {
        let money = |sum: &ExactSum| Money::new(currency, sum.to_decimal().as_str());
        let nothing = ExactSum::default();
        let has_both = money_in != nothing && money_out != nothing;
        CurrencySum {
            net: money(&money_in.plus(&money_out)),
            in_and_out: has_both.then(|| [&money_in, &money_out].map(money)),
        }
    });
    sums.collect()
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(characters).collect()
}

/// Sends the page at once, with its filters, and then the parts that `parts` reads. A page without
/// banks, or whose days are wrong, has no place for parts, so nothing is read.
pub(crate) async fn show<K: ListKind, P: Stream<Item = String> + Send + 'static>(
    session: Session,
    query: Option<&str>,
    parts: impl FnOnce(Arc<RowList<K>>) -> P,
) -> PageResult {
    if let Some(page) = plan::page_in_place(&session, K::PATH, K::CATEGORY) {
        return Ok(page);
    }
    let list = RowList::<K>::load(session, query).await?;
    let frame = list.session.frame(K::PATH);
    let page = ListPage {
        frame: &frame,
        words: K::WORDS,
        bar: FilterBar::of::<K>(&list.linked, &list.filter),
        api_url: list.api_url(),
    };
    let page = rendered_part(&page);
    Ok(crate::stream::response(&page, parts(list)))
}
