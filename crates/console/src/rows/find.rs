//! Reads the rows of a page: of all chosen accounts, newest first, and of each list no more than
//! the page needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bellbird_api::http::Problem;
use bellbird_api::http::problem::problem_for_category;
use bellbird_domain::ConnectionId;
use bellbird_reads::merged::{Awaited, ListState, PositionLost};
use bellbird_reads::{ConnectionContext, Merged, Range, SelectError, Selection};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::ListKind;
use super::filter::Filter;
use super::found::{Found, Stopped};
use super::row::Row;
use crate::pages::{BankNames, BankTrouble};
use crate::session::Session;

const PAGE_ROWS: usize = 50;
/// What the opened rows of a page say. Long texts are cut off beyond that, so that it stays light.
const FACTS_BYTES_MAX: usize = 40 * 1024;
/// Rows of the first page of each list. More than the page shows, because a provider may list the
/// rows of other consents between them, which the page leaves out.
const FIRST_PAGE_ROWS: u32 = 200;
/// Rows that one page reads. Further ones are read on request.
pub(super) const READ_ROWS_MAX: u64 = 20_000;

/// What is known while banks are still asked.
#[derive(Default)]
pub(super) struct Progress {
    /// With their times, until the first part of the page was sent.
    seen: Mutex<Option<Vec<(Timestamp, Row)>>>,
    awaited: Mutex<Option<Awaited>>,
}

impl Progress {
    /// Collects rows from now on.
    pub(super) fn begin(&self) {
        *self.seen.lock() = Some(Vec::new());
    }

    fn see(&self, instant: Timestamp, row: &Row) {
        if let Some(seen) = &mut *self.seen.lock() {
            seen.push((instant, row.clone()));
            if seen.len() >= 4 * PAGE_ROWS {
                keep_newest(seen);
            }
        }
    }

    /// The newest rows so far, and the banks that are asked. No row is kept after this.
    pub(super) fn take(&self) -> (Vec<Row>, BTreeSet<ConnectionId>) {
        let mut seen = self.seen.lock().take().unwrap_or_default();
        keep_newest(&mut seen);
        let asked = self.awaited.lock();
        let asked = asked.iter().flat_map(|awaited| awaited.lock().clone());
        (
            seen.into_iter().map(|(_, row)| row).collect(),
            asked.map(|(connection, _)| connection).collect(),
        )
    }
}

fn keep_newest(seen: &mut Vec<(Timestamp, Row)>) {
    seen.sort_by_key(|(instant, _)| std::cmp::Reverse(*instant));
    seen.truncate(PAGE_ROWS);
}

/// The lists to read.
pub(super) struct Lists<K: ListKind> {
    pub(super) ranges: Vec<Range<K>>,
    pub(super) contexts: BTreeMap<ConnectionId, Arc<ConnectionContext>>,
    /// How many accounts of each bank.
    accounts: BTreeMap<ConnectionId, usize>,
    /// Of banks that cannot be read at all.
    pub(super) troubles: Vec<BankTrouble>,
}

impl<K: ListKind> Lists<K> {
    /// Those of the chosen account, or of all. Calls no provider.
    pub(super) async fn select(
        session: &Session,
        names: &BankNames,
        filter: &Filter,
    ) -> Result<Self, Problem> {
        let (reads, caller, now) = (session.context.reads(), &session.caller, session.now);
        let account = filter.account;
        let selection = Selection {
            account_ids: account.as_ref().map(std::slice::from_ref),
            category: Some(K::CATEGORY),
            ..Selection::default()
        };
        let selected = reads.select(caller, selection).await.map_err(|error| {
            let (SelectError::Connection(error) | SelectError::Account(error)) = error;
            problem_for_category(&error, "Account", K::CATEGORY)
        })?;
        // A page whose days are wrong does not read.
        let dates = filter.days().unwrap_or_default().filter();
        let mut lists = Self {
            ranges: Vec::new(),
            contexts: BTreeMap::new(),
            accounts: BTreeMap::new(),
            troubles: Vec::new(),
        };
        for connection in selected.connections {
            let accounts = match connection {
                Ok(accounts) => accounts,
                Err(unreadable) => {
                    let (connection, error) = (&unreadable.connection, &unreadable.error);
                    let trouble = session.trouble(connection, error);
                    lists.troubles.push(trouble.among(names));
                    continue;
                }
            };
            let context = &accounts.context;
            for list in accounts.lists() {
                let id = list.account_id();
                match reads.range(caller, Arc::clone(context), id, dates, now) {
                    Ok(range) => lists.ranges.push(range),
                    Err(error) => {
                        let trouble = session.trouble(&context.connection, &error);
                        lists.troubles.push(trouble.among(names));
                    }
                }
            }
            let id = context.connection.id;
            lists.accounts.insert(id, accounts.accounts().count());
            lists.contexts.insert(id, Arc::clone(context));
        }
        Ok(lists)
    }
}

/// The banks of which a list has failed. Each is reported to the service, as the API does: a
/// consent that is gone is a reason to ask the provider for its status. One that was removed
/// meanwhile is left out.
pub(super) async fn failed<K: ListKind, T: Send>(
    session: &Session,
    names: &BankNames,
    contexts: &BTreeMap<ConnectionId, Arc<ConnectionContext>>,
    merged: &Merged<'_, K, T>,
) -> Vec<BankTrouble> {
    let mut errors = BTreeMap::new();
    for list in merged.lists() {
        if let ListState::Failed(error) = list.state {
            errors.insert(list.connection_id, error.clone());
        }
    }
    let mut troubles = Vec::new();
    for (id, error) in errors {
        let Some(context) = contexts.get(&id) else {
            continue;
        };
        let api = &session.context;
        let problem = api
            .after_failed_read(&session.caller, context, &error)
            .await;
        if !matches!(problem, Problem::NotFound(_)) {
            let trouble = session.trouble(&context.connection, &error);
            troubles.push(trouble.among(names));
        }
    }
    troubles
}

/// Reads the page.
pub(super) async fn find<K: ListKind>(
    session: &Session,
    names: &BankNames,
    filter: &Filter,
    progress: &Progress,
) -> Result<Found, Problem> {
    let (api, caller, now) = (&session.context, &session.caller, session.now);
    let permit = api.admit(K::quota(api.quotas()), caller, now).await?;
    let Lists {
        mut ranges,
        contexts,
        accounts,
        troubles,
    } = Lists::<K>::select(session, names, filter).await?;
    let after = filter.start().map(|start| start.after);
    if !filter.leaves_rows_out() {
        let smaller = |range: Range<K>| range.with_first_page_rows(FIRST_PAGE_ROWS);
        ranges = ranges.into_iter().map(smaller).collect();
    }
    let (wanted, search) = (filter.rows(), filter.search().to_lowercase());
    let heard = Mutex::new(BTreeSet::new());
    let call = api.call_context(caller);
    let time = call.deadline.saturating_duration_since(Instant::now());
    // The page is sent before its deadline.
    let stop_at = call.deadline - time / 5;
    let merged = Merged::<K, Row>::new(ranges, after, stop_at, |row: &K::Row<'_>, place| {
        heard.lock().insert(K::account(row).connection_id);
        let zone = &caller.timezone;
        let day = K::day(row, place, zone);
        let shown = K::is_wanted(row, &wanted).then(|| K::shown(row, day, zone, &search))?;
        if after.is_none() {
            progress.see(K::instant(row), &shown);
        }
        Some(shown)
    });
    let mut merged = merged.with_rows_max(READ_ROWS_MAX);
    *progress.awaited.lock() = Some(merged.awaited());
    let mut found = Found {
        read_at: now,
        troubles,
        ..Found::default()
    };
    let mut position = after;
    loop {
        match merged.next(&call).await {
            Err(PositionLost) => {
                found.is_lost = true;
                break;
            }
            Ok(Some(_)) if found.rows.len() == PAGE_ROWS => {
                found.older = position;
                break;
            }
            Ok(Some(row)) => {
                found.rows.push(row);
                position = merged.position();
            }
            // A bank that is silent holds back no row of the others.
            Ok(None) if Instant::now() >= stop_at && merged.fail_unread() => {}
            Ok(None) if merged.is_stopped() => {
                found.older = merged
                    .position()
                    .filter(|position| Some(*position) != after);
                found.stopped = Some(match merged.rows_read() >= READ_ROWS_MAX {
                    true => Stopped::AtRows,
                    false => Stopped::InTime,
                });
                break;
            }
            Ok(None) => break,
        }
    }
    let failed = failed(session, names, &contexts, &merged).await;
    drop((merged, permit));
    let bytes: usize = found.rows.iter().map(|row| row.facts.bytes()).sum();
    if bytes > FACTS_BYTES_MAX {
        found.rows.iter_mut().for_each(|row| row.facts.shorten());
    }
    found.troubles.extend(failed);
    found.troubles.sort_unstable();
    found.troubles.dedup_by_key(|one| one.id);
    let heard = heard.into_inner();
    let is_in_trouble = |id: &ConnectionId| found.troubles.iter().any(|one| one.id == *id);
    let readable = accounts.iter().filter(|(id, _)| !is_in_trouble(id));
    found.accounts = readable.map(|(_, accounts)| accounts).sum();
    let silent = contexts
        .keys()
        .filter(|id| !heard.contains(id) && !is_in_trouble(id));
    found.silent = silent.copied().collect();
    Ok(found)
}
