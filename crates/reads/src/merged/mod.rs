//! Merges several lists into one, newest first: transactions or trades of several accounts and
//! connections.
//!
//! A merged read can end anywhere, and another continues behind its [`MergedPosition`], in any
//! instance. The position is a time, not a number of rows: rows that are posted later shift
//! nothing, and each list is asked only for what is older, and a few days more for rows that a
//! provider lists late. If the rows at that very time have changed meanwhile, it fails with
//! [`PositionLost`].

mod list;
mod position;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bellbird_domain::{AccountId, ConnectionId, TimestampExt as _};
use bellbird_providers::CallContext;
use bellbird_providers::pages::RowKind;
use futures_util::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::{NewCall, Range, ReadError};
pub use list::ListState;
use list::{Calls, MergedList, MergedRead};
use position::LATE_MAX;
pub use position::{MergedPosition, PositionError, ShownRows};

/// Provider calls of one merged read at once.
const CALLS_MAX: usize = 4;

/// When to stop reading, so that a response is sent before the deadline of its calls: a fifth of
/// the time is left.
pub fn stop_at(call: &CallContext) -> Instant {
    let time = call.deadline.saturating_duration_since(Instant::now());
    call.deadline - time / 5
}

/// Makes the value that is returned for a row. `None` leaves the row out.
type MapRow<'m, K, T> =
    dyn for<'row> FnMut(&<K as RowKind>::Row<'row>, <K as RowKind>::Place) -> Option<T> + Send + 'm;

/// The rows behind a position are not those that were there. The client has to begin again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the rows at the position have changed")]
pub struct PositionLost;

/// What is known of one list.
pub struct ListReport<'l> {
    pub connection_id: ConnectionId,
    /// `None` for all accounts of the connection.
    pub account_id: Option<AccountId>,
    pub state: &'l ListState,
    /// The list was read down to this time. `None` before its first row.
    pub reached: Option<Timestamp>,
    /// The number of rows in the provider's list, if the provider states it.
    pub(crate) total: Option<u64>,
}

/// The number of rows that were not returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rest {
    pub rows: u64,
    /// False if a list was not read to its end, so that there may be more.
    pub is_exact: bool,
}

/// The rows of several lists, newest first. Rows of one time come list by list, as each provider
/// lists them. It holds at most one page of each list.
pub struct Merged<'m, K: RowKind, T> {
    lists: Vec<MergedList<K, T>>,
    read: MergedRead<'m, K, T>,
    position: Option<MergedPosition>,
}

/// The lists whose next page was requested and has not arrived. `None` for all accounts of a
/// connection.
pub type Awaited = Arc<Mutex<BTreeSet<(ConnectionId, Option<AccountId>)>>>;

impl<'m, K: RowKind, T: Send> Merged<'m, K, T> {
    /// `map` sees each row once as it is read, which may be long before it is returned. `after` is
    /// the position of an earlier read of the same lists with the same range and `map`.
    ///
    /// Without `from`, a range of transactions begins 30 days before the moment of its request: a
    /// caller that continues has to keep it.
    pub fn new(
        ranges: Vec<Range<K>>,
        after: Option<MergedPosition>,
        stop_at: Instant,
        map: impl for<'row> FnMut(&K::Row<'row>, K::Place) -> Option<T> + Send + 'm,
    ) -> Self {
        let mut lists: Vec<MergedList<K, T>> = ranges
            .into_iter()
            .flat_map(Range::split)
            .map(|range| MergedList::new(range, after.as_ref()))
            .collect();
        lists.sort_by_key(|list| list.key);
        lists.dedup_by_key(|list| list.key);
        Self {
            lists,
            read: MergedRead {
                map: Mutex::new(Box::new(map)),
                stop_at,
                slots: Semaphore::new(CALLS_MAX),
                rows_read: AtomicU64::new(0),
                rows_max: u64::MAX,
                awaited: Awaited::default(),
            },
            position: after,
        }
    }

    /// Stops as if time were up once so many rows were read, also those that `map` leaves out.
    #[must_use]
    pub fn with_rows_max(mut self, rows_max: u64) -> Self {
        self.read.rows_max = rows_max;
        self
    }

    /// What [`Self::next`] waits for, for a caller that shows meanwhile what its `map` has seen.
    pub fn awaited(&self) -> Awaited {
        Arc::clone(&self.read.awaited)
    }

    /// Rows that were read so far, also those that `map` left out.
    pub fn rows_read(&self) -> u64 {
        self.read.rows_read.load(Ordering::Relaxed)
    }

    /// Makes more or fewer provider calls at once.
    pub(crate) fn with_calls_at_once(mut self, calls_max: usize) -> Self {
        self.read.slots = Semaphore::new(calls_max);
        self
    }

    /// Returns the next row. `None` at the end, and when no further row is certain to be the next
    /// because reading has stopped ([`Self::is_stopped`]). A list that fails ends, and the others
    /// continue.
    pub async fn next(&mut self, call: &CallContext) -> Result<Option<T>, PositionLost> {
        self.next_of(Calls::One(call)).await
    }

    /// As [`Self::next`], for a long read: a page that fails is attempted again, as
    /// [`Attempts`](crate::Attempts) says.
    pub async fn next_with_retries(
        &mut self,
        new_call: &NewCall<'_>,
    ) -> Result<Option<T>, PositionLost> {
        self.next_of(Calls::Several(new_call)).await
    }

    /// After time was up: counts the lists whose first page has not come as failed, so that they
    /// hold back no row of the others. Returns whether there were any.
    pub fn fail_unread(&mut self) -> bool {
        let is_unread = |list: &&mut MergedList<K, T>| {
            matches!(list.state, ListState::Stopped) && list.reached.is_none()
        };
        let unread = self.lists.iter_mut().filter(is_unread);
        let failed = unread.map(|list| {
            list.state = ListState::Failed(ReadError::Unavailable {
                retry_after: None,
                is_transient: true,
            });
        });
        failed.count() > 0
    }

    async fn next_of(&mut self, calls: Calls<'_>) -> Result<Option<T>, PositionLost> {
        self.fill(calls).await;
        if self.lists.iter().any(|list| list.is_lost) {
            return Err(PositionLost);
        }
        let newest = self.newest();
        // A list that was stopped may have further rows down from here.
        let unknown_from = self
            .stopped()
            .map(|list| list.reached.unwrap_or(Timestamp::MAX))
            .max();
        match newest {
            Some((instant, at)) if unknown_from.is_none_or(|unknown| instant > unknown) => {
                Ok(self.take(at))
            }
            _ => {
                self.advance_to(unknown_from);
                Ok(None)
            }
        }
    }

    /// Returns the next of the rows that were read already. For a caller that knows that no other
    /// row follows.
    pub fn next_read(&mut self) -> Option<T> {
        let (_, at) = self.newest()?;
        self.take(at)
    }

    /// The newest row that was read and not returned, and its list. Of rows with equal times, the
    /// first list wins.
    fn newest(&self) -> Option<(Timestamp, usize)> {
        let heads = self
            .lists
            .iter()
            .enumerate()
            .filter_map(|(at, list)| Some((list.head()?, at)));
        heads.reduce(|best, other| if other.0 > best.0 { other } else { best })
    }

    /// Counts the rows that [`Self::next`] has not returned, and drops them. It reads all lists to
    /// their ends, or until time is up.
    pub async fn count_rest(&mut self, call: &CallContext) -> Rest {
        let lists = self.lists.iter_mut();
        let counts = join_all(lists.map(|list| list.count_rest(call, &self.read))).await;
        let is_exact = self
            .lists
            .iter()
            .all(|list| matches!(list.state, ListState::Ended) && !list.is_lost);
        Rest {
            rows: counts.into_iter().sum(),
            is_exact,
        }
    }

    /// Where another read continues: behind the last row that was returned. After [`Self::next`]
    /// has returned `None` because time was up, behind all rows that were left out since.
    pub fn position(&self) -> Option<MergedPosition> {
        self.position
    }

    /// Whether time was up, or enough rows were read, before a list ended.
    pub fn is_stopped(&self) -> bool {
        self.stopped().next().is_some()
    }

    /// All lists, sorted by connection and account.
    pub fn lists(&self) -> impl Iterator<Item = ListReport<'_>> {
        self.lists.iter().map(|list| ListReport {
            connection_id: list.key.0,
            account_id: list.key.1,
            state: &list.state,
            reached: list.reached,
            total: list.range.total(),
        })
    }

    /// How many lists have failed.
    pub fn failed(&self) -> usize {
        let is_failed = |list: &&MergedList<K, T>| matches!(list.state, ListState::Failed(_));
        self.lists.iter().filter(is_failed).count()
    }

    fn stopped(&self) -> impl Iterator<Item = &MergedList<K, T>> {
        self.lists
            .iter()
            .filter(|list| matches!(list.state, ListState::Stopped))
    }

    /// Reads on in each list whose next row is unknown.
    async fn fill(&mut self, calls: Calls<'_>) {
        join_all(
            self.lists
                .iter_mut()
                .filter(|list| list.needs_page())
                .map(|list| list.fill(calls, &self.read)),
        )
        .await;
    }

    fn take(&mut self, at: usize) -> Option<T> {
        let list = &mut self.lists[at];
        let item = list.buffered.pop_front()?;
        let hash = (item.instant <= item.sorted_at.plus(LATE_MAX)).then_some(item.hash);
        self.position = Some(MergedPosition::behind(
            self.position,
            list.key,
            item.sorted_at,
            hash,
        ));
        Some(item.value)
    }

    /// Moves the position down to a time above which no row is left.
    fn advance_to(&mut self, instant: Option<Timestamp>) {
        let Some(instant) = instant.filter(|instant| *instant < Timestamp::MAX) else {
            return;
        };
        if self
            .position
            .is_none_or(|position| instant < position.instant)
        {
            self.position = Some(MergedPosition {
                instant,
                shown: None,
            });
        }
    }
}

#[cfg(test)]
mod tests;
