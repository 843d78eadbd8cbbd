//! A page of changes. Fingerprints tell which rows have changed after the client's mark, and when
//! they lie ([`Followed`]). Removals come first, because they need no provider. Then the changed
//! rows are read from the provider again, until the page is full or all are found.

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use bellbird_connections::following::{ChangesSince, DeliveredDaySum, Followed, PendingRow};
use bellbird_connections::{DuplicateIds, RowHasher};
use bellbird_domain::{
    AccountId, AccountTag, Bound, DateFilter, DateRange, Fingerprints, RowKey, UtcDay,
};
use bellbird_reads::merged::{ListState, MergedPosition, PositionLost, stop_at};
use bellbird_reads::{CallContext, Merged};
use bellbird_storage::SyncState;
use parking_lot::Mutex;
use serde_json::value::RawValue;

use super::cursor::{ChangesCursor, ClientMark, PENDING_MAX, Paging};
use super::kind::ChangeKind;
use super::{Changes, problem};
use crate::http::problem::problem_for_category;
use crate::http::{Problem, parameters};

/// Rows that the last sync lacked and that a cursor has room for.
const ABSENT_MAX: usize = PENDING_MAX / 2;

/// A row's key, and its change as JSON.
type ChangedRow = (RowKey, Box<RawValue>);

/// What changed after the client's mark, as far as one page has it.
#[derive(Default)]
pub(super) struct FoundChanges {
    pub changes: Vec<Box<RawValue>>,
    pub has_more: bool,
}

/// Why a page was not made.
enum PageFailed {
    /// The provider does not list more rows as the last sync saw them than a cursor has room for.
    TooManyPending,
    /// The rows at the position of the page before have changed.
    PositionLost,
    Problem(Problem),
}

impl From<Problem> for PageFailed {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<PositionLost> for PageFailed {
    fn from(PositionLost: PositionLost) -> Self {
        Self::PositionLost
    }
}

impl<K: ChangeKind> Changes<K> {
    /// Reads a page. If too many rows are not as the last sync saw them, they are after another
    /// one.
    pub(super) async fn read_page(
        &self,
        call: &CallContext,
        sync: &mut SyncState,
        cursor: &mut ChangesCursor,
    ) -> Result<FoundChanges, Problem> {
        let mut page = self.read_changes(call, sync, cursor).await;
        if let Err(PageFailed::TooManyPending) = page {
            self.freshen(call, Duration::ZERO).await?;
            *sync = self.sync_state().await?;
            page = self.read_changes(call, sync, cursor).await;
        }
        page.map_err(|failed| match failed {
            PageFailed::TooManyPending | PageFailed::PositionLost => self.try_later(),
            PageFailed::Problem(problem) => problem,
        })
    }

    async fn read_changes(
        &self,
        call: &CallContext,
        sync: &SyncState,
        cursor: &mut ChangesCursor,
    ) -> Result<FoundChanges, PageFailed> {
        let syncs = self.state.context.connections().syncs();
        let found = syncs
            .fingerprints(self.caller.user_id, self.context.connection.id)
            .await;
        let (hasher, fingerprints) = found.map_err(|error| problem(&self.context, &error))?;
        let mut paging = cursor.paging.clone().ok_or(Problem::Internal)?;
        check_reach(&fingerprints, &cursor.mark, paging.target)?;
        let pending: Vec<PendingRow> = cursor.pending.iter().map(|pending| pending.row).collect();
        let watched_from = syncs.watched_from(sync);
        let since = match cursor.mark {
            ClientMark::From(_) => ChangesSince::Nothing,
            ClientMark::Mark(mark) => ChangesSince::Mark {
                mark,
                pending: &pending,
            },
        };
        let account = self.account_id.map(AccountTag::from);
        let ids = DuplicateIds::of::<K>();
        let follow = || Followed::new(&hasher, &fingerprints, ids, watched_from, since, account);
        let mut page = FoundChanges::default();
        self.deliver_gone(&follow(), &mut paging, &mut page);
        if !page.has_more {
            let gone = page.changes.len();
            let missed = loop {
                let begin = paging.rows;
                let followed = Mutex::new(follow());
                let dates =
                    self.dates_to_read(&cursor.mark, &followed.lock(), watched_from, &mut paging)?;
                let read = match dates {
                    Some(dates) => {
                        self.deliver_rows(call, dates, &paging, &hasher, &followed, &mut page)
                            .await
                    }
                    None => Ok(begin),
                };
                let end = match read {
                    Err(PageFailed::PositionLost) if begin.is_some_and(|at| at.shown.is_some()) => {
                        // The rows of that instant are delivered again, which does no harm.
                        paging.rows = begin.map(|begin| MergedPosition {
                            shown: None,
                            ..begin
                        });
                        page.changes.truncate(gone);
                        continue;
                    }
                    read => read?,
                };
                if page.has_more && page.changes.is_empty() && end == begin {
                    return Err(self.try_later().into());
                }
                let followed = followed.into_inner();
                break paging.finish_page(&followed, (begin, end), watched_from, page.has_more);
            };
            if !cursor.miss(missed) {
                return Err(PageFailed::TooManyPending);
            }
        }
        cursor.paging = Some(paging);
        Ok(page)
    }

    fn limit(&self) -> usize {
        parameters::page(self.query.limit, None).limit as usize
    }

    /// Delivers the rows that are gone, which needs no provider.
    fn deliver_gone(&self, followed: &Followed<'_>, paging: &mut Paging, page: &mut FoundChanges) {
        let begin = paging.gone().map_or(Unbounded, Excluded);
        for (key, account) in followed.gone().range((begin, Unbounded)) {
            if page.changes.len() == self.limit() {
                page.has_more = true;
                return;
            }
            paging.gone = Some(key.to_string());
            page.changes
                .push(K::remove(*key, self.account_of(*account)));
        }
    }

    /// The account with this tag, unless the connection has lost it.
    fn account_of(&self, tag: AccountTag) -> Option<AccountId> {
        let mut ids = self.context.accounts.iter().map(|account| account.id);
        ids.find(|id| AccountTag::from(*id) == tag)
    }

    /// The dates to read. `None` if no row has to be read.
    fn dates_to_read(
        &self,
        mark: &ClientMark,
        followed: &Followed<'_>,
        watched_from: UtcDay,
        paging: &mut Paging,
    ) -> Result<Option<DateFilter>, Problem> {
        let is_first = paging.rows.is_none();
        if let ClientMark::From(from) = mark {
            paging.read_account = self.account_id.map(AccountId::uuid);
            let from = Bound::parse(from).map_err(|_| Problem::InvalidCursor)?;
            // A client that begins again removes the rows of watched days that do not come.
            let watched = watched_from.start();
            let (first, _) =
                DateRange::resolve(Some(from), None, self.now).instants(&self.caller.timezone);
            let from = if watched < first {
                Bound::Instant(watched)
            } else {
                from
            };
            return Ok(Some(DateFilter {
                from: Some(from),
                to: None,
            }));
        }
        let Some(days) = followed.days() else {
            return Ok(None);
        };
        if is_first {
            let only = || self.account_of(followed.account()?);
            paging.read_account = self.account_id.or_else(only).map(AccountId::uuid);
        }
        let (first, last) = (days.start().start(), days.end().end());
        Ok(Some(K::dates_around(first, last, self.now)))
    }

    /// Fills the page with the rows of the provider's list that the client is to get. Returns the
    /// position behind the last one.
    async fn deliver_rows(
        &self,
        call: &CallContext,
        dates: DateFilter,
        paging: &Paging,
        hasher: &RowHasher,
        followed: &Mutex<Followed<'_>>,
        page: &mut FoundChanges,
    ) -> Result<Option<MergedPosition>, PageFailed> {
        let mut rows = self.changed_rows(call, dates, paging, hasher, followed)?;
        let mut end = rows.position();
        loop {
            let is_found = followed.lock().is_found();
            let next = if is_found {
                rows.next_read()
            } else {
                rows.next(call).await?
            };
            match next {
                Some(_) if page.changes.len() == self.limit() => {
                    page.has_more = true;
                    return Ok(end);
                }
                Some((key, change)) => {
                    followed.lock().deliver(key);
                    page.changes.push(change);
                    end = rows.position();
                }
                None if is_found => return Ok(end),
                None => {
                    let failed = rows.lists().find_map(|list| match list.state {
                        ListState::Failed(error) => Some(error.clone()),
                        _ => None,
                    });
                    if let Some(error) = failed {
                        let api = &self.state.context;
                        let problem = api
                            .after_failed_read(&self.caller, &self.context, &error)
                            .await;
                        return Err(problem.into());
                    }
                    page.has_more = rows.is_stopped();
                    return Ok(if page.has_more { rows.position() } else { end });
                }
            }
        }
    }

    /// The rows of the provider's list that the client is to get.
    fn changed_rows<'r>(
        &self,
        call: &CallContext,
        dates: DateFilter,
        paging: &Paging,
        hasher: &'r RowHasher,
        followed: &'r Mutex<Followed<'_>>,
    ) -> Result<Merged<'r, K, ChangedRow>, Problem> {
        let (reads, context) = (self.state.context.reads(), Arc::clone(&self.context));
        let account_id = paging.read_account.map(AccountId::from);
        let range = reads.range::<K>(&self.caller, context, account_id, dates, self.now);
        let range = range.map_err(|error| {
            problem_for_category(&error, "Account", self.context.connection.category)
        })?;
        let change = move |row: &K::Row<'_>, place: K::Place| {
            let digests = K::digests(hasher, row, |_, _| None);
            let delivered = followed.lock().take(&digests)?;
            let change = K::upsert(delivered.key, delivered.is_new, row, place);
            Some((delivered.key, change))
        };
        Ok(Merged::new(vec![range], paging.rows, stop_at(call), change))
    }
}

impl Paging {
    /// Notes where the next page begins. Returns the rows of the finished days that no page has.
    fn finish_page(
        &mut self,
        followed: &Followed<'_>,
        (begin, end): (Option<MergedPosition>, Option<MergedPosition>),
        watched_from: UtcDay,
        has_more: bool,
    ) -> Vec<PendingRow> {
        let day = |position: Option<MergedPosition>| {
            position.map(|position| UtcDay::of(position.instant))
        };
        let end_day = day(end).filter(|_| has_more);
        // Rows of the last day may be on the next page.
        let first =
            watched_from.max(end_day.map_or(UtcDay(0), |day| UtcDay(day.0.saturating_add(1))));
        let last = day(begin).unwrap_or(UtcDay(u16::MAX));
        let (mut pending, absent) = followed.pending(first..=last, self.delivered);
        // A provider may leave out many rows for hours, which must not stop the client.
        let room = ABSENT_MAX.saturating_sub(pending.len());
        pending.extend(absent.into_iter().take(room));
        if let Some(day) = end_day {
            let before = if day == last {
                self.delivered
            } else {
                DeliveredDaySum::default()
            };
            self.delivered = before + followed.delivered_on(day);
        }
        self.rows = end;
        pending
    }
}

/// Fails if a change after the client's mark may be forgotten, or if the mark is of another
/// history: of a database that a backup has replaced.
fn check_reach(fingerprints: &Fingerprints, mark: &ClientMark, target: u32) -> Result<(), Problem> {
    let is_reached = match mark {
        ClientMark::From(_) => true,
        ClientMark::Mark(mark) => fingerprints.reach_back_to(*mark),
    };
    if is_reached && fingerprints.reach_back_to(target) {
        Ok(())
    } else {
        Err(Problem::CursorExpired)
    }
}
