//! `/transactions`: the transactions of all accounts, newest first. The page is sent at once with
//! its filters, then the rows: those that are there after a moment, and all of them when every bank
//! has answered.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{AccountId, Caller, ConnectionCategory, ConnectionId};
use futures_util::future::BoxFuture;
use futures_util::stream;
use http::{StatusCode, Version};
use jiff::civil::Date;

use super::file;
use super::filter::{CategoryChoice, DayError, Days, Filter, FilterQuery, PageStart, Period};
use super::find::{Found, Progress, READ_ROWS_MAX, Row, Stopped, find};
use super::linked::{Bank, Linked};
use crate::error_page;
use crate::pages::{
    BankTrouble, SignedInFrame, day_of_week, page_response, rendered_part, shown_day,
};
use crate::plan;
use crate::session::Session;
use crate::state::Console;

const PATH: &str = "/transactions";
/// How long the first rows wait for slower banks.
const FIRST_ROWS_WITHIN: Duration = Duration::from_millis(700);

/// The page, with a mark where its rows go.
#[derive(Template)]
#[template(path = "transactions.html")]
struct Head<'a> {
    frame: &'a SignedInFrame<'a>,
    linked: &'a Linked,
    filter: &'a Filter,
    all_accounts: OptionLink,
    banks: Vec<BankOptions<'a>>,
    /// What is wrong with the days. Then no rows are read.
    error: Option<DayError>,
    /// The URL of the API that gives these rows, without search and category.
    api_url: Option<String>,
}

impl Head<'_> {
    fn account_label(&self) -> &str {
        let chosen = self.filter.account();
        let chosen = chosen.and_then(|id| self.linked.names(id));
        chosen.map_or("All accounts", |(account, _)| account)
    }

    fn category_label(&self) -> &'static str {
        self.filter
            .category()
            .map_or("Category", CategoryChoice::label)
    }

    fn without_currency(&self) -> String {
        link(self.frame, &self.filter.without_currency())
    }

    fn error_at(&self, field: &str) -> Option<&'static str> {
        let error = self.error.filter(|error| error.field == field)?;
        Some(error.text)
    }

    fn option(&self, query: &str, label: impl Into<String>, is_chosen: bool) -> OptionLink {
        OptionLink {
            url: link(self.frame, query),
            label: label.into(),
            is_chosen,
        }
    }

    fn periods(&self) -> Vec<OptionLink> {
        let chosen = self.filter.period();
        let option = |period: Period| {
            let query = self.filter.with_period(period);
            self.option(&query, period.label(), chosen == Some(period))
        };
        Period::OFFERED.map(option).into()
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

/// A bank in the list of accounts.
struct BankOptions<'a> {
    bank: &'a Bank,
    accounts: Vec<OptionLink>,
}

/// A value of a filter.
struct OptionLink {
    url: String,
    label: String,
    is_chosen: bool,
}

/// The rows, which come behind the head.
#[derive(Template)]
#[template(path = "transactions_rows.html")]
struct RowsPart<'a> {
    frame: &'a SignedInFrame<'a>,
    /// Banks that have not answered yet. Empty: this is the final part.
    asking: Vec<&'a str>,
    is_final: bool,
    troubles: &'a [BankTrouble],
    /// This page again.
    again: String,
    /// Why there are no rows.
    problem: Option<String>,
    /// Such as `8 found since 29 Nov 2025 in 28 accounts.`
    summary: String,
    /// The search over more days.
    further: Option<String>,
    /// What is to be known about the end of the rows.
    note: Option<String>,
    days: Vec<DayRows<'a>>,
    files: Vec<FileLink>,
    newer: Option<String>,
    older: Option<String>,
}

struct DayRows<'a> {
    day: String,
    rows: Vec<ShownRow<'a>>,
}

struct ShownRow<'a> {
    row: &'a Row,
    /// Category and account.
    detail: Vec<&'a str>,
    bank: Option<&'a str>,
}

struct FileLink {
    url: String,
    label: String,
}

fn link(frame: &SignedInFrame<'_>, query: &str) -> String {
    let mark = if query.is_empty() { "" } else { "?" };
    format!("{}{PATH}{mark}{query}", frame.root)
}

/// `GET /transactions`
pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    query: FilterQuery,
) -> Response {
    if let Some(page) = plan::page_in_place(&console, &session, PATH, ConnectionCategory::Banking) {
        return page;
    }
    let linked = match Linked::load(&console, &session).await {
        Ok(linked) => linked,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let filter = filter_of(&session, query, &linked);
    let days = filter.days();
    let frame = session.frame(&console, PATH);
    let head = Head {
        frame: &frame,
        linked: &linked,
        filter: &filter,
        all_accounts: OptionLink {
            url: link(&frame, &filter.with_account(None)),
            label: "All accounts".to_owned(),
            is_chosen: filter.account().is_none(),
        },
        banks: bank_options(&frame, &linked, &filter),
        error: days.err(),
        api_url: days
            .ok()
            .map(|days| api_url(&session.api_url(&console), &linked, &filter, days)),
    };
    let days = match days {
        Ok(days) if !linked.banks.is_empty() => days,
        _ => return page_response(StatusCode::OK, &head),
    };
    let page = rendered_part(&head);
    let shown = Shown {
        console,
        session,
        linked,
        filter,
        days,
        progress: Progress::begun(),
    };
    let parts = stream::unfold(Step::Begin(Arc::new(shown)), Step::next);
    crate::stream::response(&page, parts)
}

fn bank_options<'a>(
    frame: &SignedInFrame<'_>,
    linked: &'a Linked,
    filter: &Filter,
) -> Vec<BankOptions<'a>> {
    let option = |(id, name): &(AccountId, String)| OptionLink {
        url: link(frame, &filter.with_account(Some(*id))),
        label: name.clone(),
        is_chosen: filter.account() == Some(*id),
    };
    let banks = linked.banks.iter().map(|bank| BankOptions {
        bank,
        accounts: bank.accounts.iter().map(option).collect(),
    });
    banks.collect()
}

fn filter_of(session: &Session, query: FilterQuery, linked: &Linked) -> Filter {
    let Caller { timezone, .. } = &session.caller;
    let today = session.now.to_zoned(timezone.clone()).date();
    Filter::new(query, today, |id| linked.connection_of.contains_key(&id))
}

fn api_url(api: &str, linked: &Linked, filter: &Filter, days: Days) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    let account = filter.account();
    let place = account.and_then(|account| Some((account, linked.connection_of.get(&account)?)));
    let path = match place {
        Some((account, connection)) => {
            query
                .append_pair("connectionId", &connection.to_string())
                .append_pair("accountId", &account.to_string());
            "/v1/transactions"
        }
        None => "/v1/export/transactions.jsonl",
    };
    let Days { from, to } = days;
    let query = query
        .append_pair("from", &from.to_string())
        .append_pair("to", &to.to_string())
        .finish();
    format!("{api}{path}?{query}")
}

/// What the parts of one page have in common.
struct Shown {
    console: Console,
    session: Session,
    linked: Linked,
    filter: Filter,
    days: Days,
    progress: Progress,
}

/// Which part of the rows is sent next.
enum Step {
    Begin(Arc<Shown>),
    /// The first rows were sent.
    Wait(Arc<Shown>, BoxFuture<'static, Result<Found, String>>),
    End,
}

impl Step {
    async fn next(self) -> Option<(String, Self)> {
        let (shown, found) = match self {
            Self::Begin(shown) => {
                let read = Arc::clone(&shown);
                let mut read: BoxFuture<'static, _> = Box::pin(async move { read.find().await });
                match tokio::time::timeout(FIRST_ROWS_WITHIN, &mut read).await {
                    Ok(found) => (shown, found),
                    Err(_) => return Some((shown.early_part(), Self::Wait(shown, read))),
                }
            }
            Self::Wait(shown, read) => (shown, read.await),
            Self::End => return None,
        };
        Some((shown.final_part(found), Self::End))
    }
}

impl Shown {
    async fn find(&self) -> Result<Found, String> {
        let Session { caller, now, .. } = &self.session;
        let (filter, days) = (&self.filter, self.days);
        find(&self.console, caller, filter, days, *now, &self.progress).await
    }

    fn early_part(&self) -> String {
        let (rows, asked) = self.progress.take();
        let frame = self.session.frame(&self.console, PATH);
        rendered_part(&RowsPart {
            asking: self.linked.names_of(&asked),
            is_final: false,
            days: self.days_of(&rows),
            ..self.empty_part(&frame)
        })
    }

    fn final_part(&self, found: Result<Found, String>) -> String {
        let frame = self.session.frame(&self.console, PATH);
        let empty = self.empty_part(&frame);
        let filter = &self.filter;
        let found = match found {
            Ok(found) if found.is_lost => {
                let problem = Some(
                    "Your banks have changed these rows since. Begin again with the newest."
                        .to_owned(),
                );
                return rendered_part(&RowsPart {
                    problem,
                    again: link(&frame, &filter.query()),
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
        rendered_part(&RowsPart {
            troubles: &found.troubles,
            summary: self.summary(&found, before),
            further: filter.further().map(|query| link(&frame, &query)),
            note: self.note(&found),
            days: self.days_of(&found.rows),
            files: self.files(&found, before, &frame),
            newer: filter.newer().map(|query| link(&frame, &query)),
            older: start.map(|start| link(&frame, &filter.older(start))),
            ..empty
        })
    }

    fn empty_part<'a>(&self, frame: &'a SignedInFrame<'a>) -> RowsPart<'a> {
        RowsPart {
            frame,
            asking: Vec::new(),
            is_final: true,
            troubles: &[],
            again: link(frame, &self.filter.this_page()),
            problem: None,
            summary: String::new(),
            further: None,
            note: None,
            days: Vec::new(),
            files: Vec::new(),
            newer: None,
            older: None,
        }
    }

    fn days_of<'a>(&'a self, rows: &'a [Row]) -> Vec<DayRows<'a>> {
        // Rows follow each other by their instants, and a row that has only a day has the midnight
        // of its bank. So days of several time zones would alternate around midnight.
        let mut days: BTreeMap<Reverse<Date>, Vec<ShownRow<'a>>> = BTreeMap::new();
        for row in rows {
            let (detail, bank) = self.detail(row);
            let of_day = days.entry(Reverse(row.day)).or_default();
            of_day.push(ShownRow { row, detail, bank });
        }
        days.into_iter()
            .map(|(Reverse(day), rows)| DayRows {
                day: day_of_week(day),
                rows,
            })
            .collect()
    }

    /// The category and the account, and the bank. The account only where several are shown, and
    /// the bank where there are several.
    fn detail<'a>(&'a self, row: &'a Row) -> (Vec<&'a str>, Option<&'a str>) {
        let names = self.linked.names(row.account);
        let names = names.filter(|_| self.filter.account().is_none());
        let bank = names
            .map(|(_, bank)| bank)
            .filter(|_| self.linked.banks.len() > 1);
        let account = names.map(|(account, _)| account);
        (row.category.into_iter().chain(account).collect(), bank)
    }

    fn summary(&self, found: &Found, before: u64) -> String {
        let rows = found.rows.len() as u64;
        let last = before.saturating_add(rows);
        if found.accounts == 0 && rows == 0 && !found.troubles.is_empty() {
            return "Nothing could be read.".to_owned();
        }
        let is_all = found.older.is_none();
        let accounts = match (self.filter.account(), found.accounts) {
            (Some(_), _) => String::new(),
            (None, 1) => " in 1 account".to_owned(),
            (None, accounts) => format!(" in {accounts} accounts"),
        };
        let Days { from, to } = self.days;
        let days = match self.filter.period() {
            Some(period) if period != Period::LastMonth => format!("since {}", shown_day(from)),
            _ => format!("from {} to {}", shown_day(from), shown_day(to)),
        };
        let filtered = self.filter.leaves_rows_out();
        let count = match (rows, filtered) {
            (0, _) if before == 0 && found.stopped.is_some() => "None found yet".to_owned(),
            (0, true) if before == 0 => "None found".to_owned(),
            (0, false) if before == 0 => "No transactions".to_owned(),
            (0, _) => "No older ones".to_owned(),
            (_, true) if before == 0 && is_all => format!("{rows} found"),
            (_, true) if before == 0 => format!("The newest {rows} found"),
            (_, true) => format!("{} to {last} found", before.saturating_add(1)),
            (_, false) if is_all => format!("{} to {last} of {last}", before.saturating_add(1)),
            (_, false) => format!("{} to {last}", before.saturating_add(1)),
        };
        format!("{count} {days}{accounts}.")
    }

    fn note(&self, found: &Found) -> Option<String> {
        if let Some(stopped) = found.stopped {
            let down_to = found.older.map(|position| {
                let zone = self.session.caller.timezone.clone();
                let day = position.instant.to_zoned(zone).date();
                format!(", down to {}", shown_day(day))
            });
            let down_to = down_to.unwrap_or_default();
            return Some(match stopped {
                Stopped::AtRows => format!(
                    "Only the newest {},000 rows were read{down_to}.",
                    READ_ROWS_MAX / 1_000
                ),
                Stopped::InTime => {
                    format!("Your banks took too long, so not all was read{down_to}.")
                }
            });
        }
        let is_empty = found.rows.is_empty() && self.filter.start().is_none();
        // A consent that has just ended can look like a bank without rows.
        let silent: BTreeSet<ConnectionId> = found.silent.iter().copied().collect();
        let names = self.linked.names_of(&silent);
        (is_empty && !names.is_empty()).then(|| {
            format!(
                "Nothing came from {}. If that surprises you, see under Banks whether it is still \
                 connected.",
                names.join(", ")
            )
        })
    }

    fn files(&self, found: &Found, before: u64, frame: &SignedInFrame<'_>) -> Vec<FileLink> {
        let (rows, filter) = (found.rows.len(), &self.filter);
        if rows == 0 {
            return Vec::new();
        }
        let what = match (before, found.older) {
            (0, None) if rows == 1 => "this row".to_owned(),
            (0, None) => format!("these {rows} rows"),
            _ => format!("all rows, {}", lower_first(&filter.days_label())),
        };
        let url = |file: &str, query: &str| format!("{}/transactions.{file}?{query}", frame.root);
        // The page has said which banks are missing, so the file may lack them.
        let partial = (!found.troubles.is_empty()).then(|| "partial=true".to_owned());
        let csv: Vec<String> = [filter.query()].into_iter().chain(partial).collect();
        let csv = csv.join("&");
        let csv = csv.trim_start_matches('&').to_owned();
        let mut files = vec![FileLink {
            url: url("csv", &csv),
            label: format!("Download {what} (CSV)"),
        }];
        if let Some(account) = filter.account().filter(|_| !filter.leaves_rows_out()) {
            let Days { from, to } = self.days;
            files.push(FileLink {
                url: url("ofx", &format!("account={account}&from={from}&to={to}")),
                label: format!("Download {what} (OFX)"),
            });
        }
        files
    }
}

fn lower_first(text: &str) -> String {
    let mut characters = text.chars();
    let first = characters.next().map(|first| first.to_ascii_lowercase());
    first.into_iter().chain(characters).collect()
}

/// `GET /transactions.csv`
pub(crate) async fn download_csv(
    State(console): State<Console>,
    session: Session,
    version: Version,
    query: FilterQuery,
) -> Response {
    let linked = match Linked::load(&console, &session).await {
        Ok(linked) => linked,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let filter = filter_of(&session, query, &linked);
    file::download(console, session, filter, version).await
}

/// `GET /transactions.ofx`, of one account.
pub(crate) async fn download_ofx(
    State(console): State<Console>,
    session: Session,
    version: Version,
    query: FilterQuery,
) -> Response {
    let linked = match Linked::load(&console, &session).await {
        Ok(linked) => linked,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let filter = filter_of(&session, query, &linked);
    let account = filter.account().or_else(|| linked.first_account());
    let chosen = account.and_then(|id| Some((linked.connection_of.get(&id)?, id)));
    let (Some((connection, account)), Ok(days)) = (chosen, filter.days()) else {
        let why = "Choose an account and its days again.";
        return file::no_file(&console, StatusCode::BAD_REQUEST, why);
    };
    let Days { from, to } = days;
    let path = format!(
        "/v1/export/transactions.ofx?connectionId={connection}&accountId={account}&from={from}&to={to}"
    );
    file::pass_on(&console, &session, &path, version).await
}
