//! Selects the lists to read, and reads the rows of a page: of all chosen accounts, newest first,
//! and of each list no more than the page needs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use bellbird_api::http::problem::problem_for_category;
use bellbird_api::http::{LivePermit, Problem};
use bellbird_domain::{AccountId, ConnectionId, DateFilter};
use bellbird_reads::merged::{self, Awaited, ListState, PositionLost};
use bellbird_reads::{ConnectionContext, Merged, Range, ReadError, SelectError, Selection};
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
    awaited: OnceLock<Awaited>,
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
        let rows = seen.into_iter().map(|(_, row)| row).collect();
        let lists = self.awaited.get().map(|lists| lists.lock().clone());
        let lists = lists.into_iter().flatten();
        (rows, lists.map(|(connection, _)| connection).collect())
    }
}

fn keep_newest(seen: &mut Vec<(Timestamp, Row)>) {
    seen.sort_by_key(|(instant, _)| std::cmp::Reverse(*instant));
    seen.truncate(PAGE_ROWS);
}

/// The lists to read.
pub(crate) struct Lists<K: ListKind> {
    pub(crate) ranges: Vec<Range<K>>,
    pub(crate) contexts: BTreeMap<ConnectionId, Arc<ConnectionContext>>,
    /// Of banks that cannot be read at all.
    pub(crate) troubles: Vec<BankTrouble>,
    /// Of the read.
    pub(crate) permit: LivePermit,
}

impl<K: ListKind> Lists<K> {
    /// Those of one account, or of all, and the permit to read them. Calls no provider.
    pub(crate) async fn select(
        session: &Session,
        names: &BankNames,
        account: Option<AccountId>,
        dates: DateFilter,
    ) -> Result<Self, Problem> {
        let (api, caller, now) = (&session.context, &session.caller, session.now);
        let permit = api.admit(K::quota(api.quotas()), caller, now).await?;
        let reads = api.reads();
        let category = K::PAGE.category;
        let selection = Selection {
            account_ids: account.as_ref().map(std::slice::from_ref),
            category: Some(category),
            ..Selection::default()
        };
        let selected = reads.select(caller, selection).await.map_err(|error| {
            let (SelectError::Connection(error) | SelectError::Account(error)) = error;
            problem_for_category(&error, "Account", category)
        })?;
        let mut lists = Self {
            ranges: Vec::new(),
            contexts: BTreeMap::new(),
            troubles: Vec::new(),
            permit,
        };
        for connection in selected.connections {
            let accounts = match connection {
                Ok(accounts) => accounts,
                Err(unreadable) => {
                    let bank = session.asked(&unreadable.connection, names);
                    lists.troubles.push(bank.failed(&unreadable.error));
                    continue;
                }
            };
            let context = &accounts.context;
            for list in accounts.lists() {
                let id = list.account_id();
                match reads.range(caller, Arc::clone(context), id, dates, now) {
                    Ok(range) => lists.ranges.push(range),
                    Err(error) => {
                        let bank = session.asked(&context.connection, names);
                        lists.troubles.push(bank.failed(&error));
                    }
                }
            }
            lists
                .contexts
                .insert(context.connection.id, Arc::clone(context));
        }
        Ok(lists)
    }
}

/// Why lists of a bank have failed, by bank.
pub(super) fn errors_of<K: ListKind, T: Send>(
    merged: &Merged<'_, K, T>,
) -> BTreeMap<ConnectionId, ReadError> {
    let lists = merged.lists();
    let failed = lists.filter_map(|list| match list.state {
        ListState::Failed(error) => Some((list.connection_id, error.clone())),
        _ => None,
    });
    failed.collect()
}

/// The banks of which a list has failed.
pub(super) async fn failed(
    session: &Session,
    names: &BankNames,
    contexts: &BTreeMap<ConnectionId, Arc<ConnectionContext>>,
    errors: BTreeMap<ConnectionId, ReadError>,
) -> Vec<BankTrouble> {
    let mut troubles = Vec::new();
    for (id, error) in errors {
        if let Some(context) = contexts.get(&id) {
            troubles.extend(failed_bank(session, names, context, &error).await);
        }
    }
    troubles
}

/// A bank of which a list has failed. It is reported to the service, as the API does: a consent
/// that is gone is a reason to ask the provider for its status. None: it was removed meanwhile.
pub(crate) async fn failed_bank(
    session: &Session,
    names: &BankNames,
    context: &ConnectionContext,
    error: &ReadError,
) -> Option<BankTrouble> {
    let api = &session.context;
    let problem = api.after_failed_read(&session.caller, context, error).await;
    let is_removed = matches!(problem, Problem::NotFound(_));
    (!is_removed).then(|| session.asked(&context.connection, names).failed(error))
}

/// Reads the page.
pub(super) async fn find<K: ListKind>(
    session: &Session,
    names: &BankNames,
    filter: &Filter,
    progress: &Progress,
) -> Result<Found, Problem> {
    let (api, caller) = (&session.context, &session.caller);
    let Lists {
        mut ranges,
        contexts,
        troubles,
        permit,
    } = Lists::<K>::select(session, names, filter.account, filter.dates()).await?;
    let after = filter.start().map(|start| start.after);
    if !filter.leaves_rows_out() {
        let smaller = |range: Range<K>| range.with_first_page_rows(FIRST_PAGE_ROWS);
        ranges = ranges.into_iter().map(smaller).collect();
    }
    let heard = Mutex::new(BTreeSet::new());
    let call = api.call_context(caller);
    // The page is sent before its deadline.
    let stop_at = merged::stop_at(&call);
    let merged = Merged::<K, Row>::new(ranges, after, stop_at, |row: &K::Row<'_>, place| {
        heard.lock().insert(K::account(row).connection_id);
        let zone = &caller.timezone;
        let day = K::day(row, place, zone);
        let shown = K::is_wanted(row, filter).then(|| K::shown(row, day, zone))?;
        if after.is_none() {
            progress.see(K::instant(row), &shown);
        }
        Some(shown)
    });
    let mut merged = merged.with_rows_max(READ_ROWS_MAX);
    progress.awaited.get_or_init(|| merged.awaited());
    let mut found = Found {
        revision: caller.revision,
        today: filter.today,
        read_at: session.now,
        troubles,
        ..Found::default()
    };
    loop {
        let position = merged.position();
        match merged.next(&call).await {
            Err(PositionLost) => {
                found.is_lost = true;
                break;
            }
            Ok(Some(_)) if found.rows.len() == PAGE_ROWS => {
                found.older = position;
                break;
            }
            Ok(Some(row)) => found.rows.push(row),
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
    let failed = failed(session, names, &contexts, errors_of(&merged)).await;
    drop((merged, permit));
    let bytes: usize = found.rows.iter().map(|row| row.facts.bytes()).sum();
    if bytes > FACTS_BYTES_MAX {
        found.rows.iter_mut().for_each(|row| row.facts.shorten());
    }
    found.troubles.extend(failed);
    found.troubles.sort_unstable();
    found.troubles.dedup_by_key(|one| one.id);
    let heard = heard.into_inner();
    let troubles = &found.troubles;
    for (id, context) in contexts {
        if troubles.iter().all(|one| one.id != id) {
            found.accounts += context.accounts.len();
            if !heard.contains(&id) {
                found.silent.insert(id);
            }
        }
    }
    Ok(found)
}
