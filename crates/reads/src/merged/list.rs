//! One of the merged lists: reads page by page, and buffers the values of the last page.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hasher as _};
use std::sync::atomic::{self, AtomicU64};

use bellbird_domain::TimestampExt as _;
use bellbird_providers::CallContext;
use bellbird_providers::pages::RowKind;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::position::{AccountList, LATE_MAX, MergedPosition};
use super::{Awaited, MapRow};
use crate::{Attempts, NewCall, Range, ReadError};

/// How far a list was read.
#[derive(Debug, Clone)]
pub enum ListState {
    Reading,
    Ended,
    /// Time was up, or enough rows were read.
    Stopped,
    /// Further rows are missing.
    Failed(ReadError),
}

/// How a page is attempted.
#[derive(Clone, Copy)]
pub(super) enum Calls<'s> {
    /// Once, within this call.
    One(&'s CallContext),
    /// Again after a failure, as [`Attempts`] says, each time within a new call.
    Several(&'s NewCall<'s>),
}

/// What all lists share.
pub(super) struct MergedRead<'m, K: RowKind, T> {
    pub(super) map: Mutex<Box<MapRow<'m, K, T>>>,
    /// Reading stops here.
    pub(super) stop_at: Instant,
    pub(super) slots: Semaphore,
    pub(super) rows_read: AtomicU64,
    /// Reading stops after the page with this row.
    pub(super) rows_max: u64,
    pub(super) awaited: Awaited,
}

impl<K: RowKind, T> MergedRead<'_, K, T> {
    /// Whether no further page is read of a list. Enough rows are never too many to read the first
    /// page of each.
    fn is_over(&self, is_begun: bool) -> bool {
        let rows = self.rows_read.load(atomic::Ordering::Relaxed);
        Instant::now() >= self.stop_at || (is_begun && rows >= self.rows_max)
    }
}

/// A row of the last page.
pub(super) struct MergedItem<T> {
    /// The row's own time.
    pub(super) instant: Timestamp,
    /// The time that decides its place: never later than that of a row before it.
    pub(super) sorted_at: Timestamp,
    pub(super) hash: u64,
    pub(super) value: T,
}

/// Rows that lie before the position: those that are sorted at a later time than its instant, and
/// some at its instant.
#[derive(Clone, Copy)]
struct SkippedRows {
    instant: Timestamp,
    /// How many rows at the instant, and the sum of their hashes. `None` skips all.
    first: Option<(u32, u64)>,
}

pub(super) struct MergedList<K: RowKind, T> {
    pub(super) key: AccountList,
    pub(super) range: Range<K>,
    pub(super) buffered: VecDeque<MergedItem<T>>,
    /// The time of the last row that was read.
    pub(super) reached: Option<Timestamp>,
    pub(super) state: ListState,
    skip: Option<SkippedRows>,
    /// The rows before the position are not those that were there.
    pub(super) is_lost: bool,
}

impl<K: RowKind, T: Send> MergedList<K, T> {
    pub(super) fn new(range: Range<K>, after: Option<&MergedPosition>) -> Self {
        let key = (range.context().connection.id, range.account_id());
        let skip = after.map(|position| {
            let shown = position
                .shown
                .map(|shown| (shown, key.cmp(&(shown.connection_id, shown.account_id))));
            let first = match shown {
                Some((_, Ordering::Less)) => None,
                Some((shown, Ordering::Equal)) => Some((shown.rows, shown.digest)),
                Some((_, Ordering::Greater)) | None => Some((0, 0)),
            };
            SkippedRows {
                instant: position.instant,
                first,
            }
        });
        let range = match after {
            Some(position) => range.starting_at(position.instant.plus(LATE_MAX)),
            None => range,
        };
        let (buffered, state) = (VecDeque::new(), ListState::Reading);
        Self {
            key,
            range,
            buffered,
            reached: None,
            state,
            skip,
            is_lost: false,
        }
    }

    /// The time of the next row, if it is buffered.
    pub(super) fn head(&self) -> Option<Timestamp> {
        self.buffered.front().map(|item| item.sorted_at)
    }

    pub(super) fn needs_page(&self) -> bool {
        self.buffered.is_empty() && matches!(self.state, ListState::Reading) && !self.is_lost
    }

    /// Reads until the next row is known.
    pub(super) async fn fill(&mut self, calls: Calls<'_>, read: &MergedRead<'_, K, T>) {
        read.awaited.lock().insert(self.key);
        self.read_pages(calls, read).await;
        read.awaited.lock().remove(&self.key);
    }

    async fn read_pages(&mut self, calls: Calls<'_>, read: &MergedRead<'_, K, T>) {
        while self.needs_page() {
            if read.is_over(self.reached.is_some()) {
                self.state = ListState::Stopped;
                return;
            }
            let page = async {
                let _slot = read.slots.acquire().await;
                match calls {
                    Calls::One(call) => self.read_page(read, call).await,
                    Calls::Several(new_call) => {
                        let mut attempts = Attempts::new(Some(read.stop_at), new_call);
                        attempts
                            .run((&mut *self, read), |(list, read), call| {
                                Box::pin(list.read_page(read, call))
                            })
                            .await
                    }
                }
            };
            self.state = match timeout_at(read.stop_at, page).await {
                Ok(Ok(true)) => ListState::Reading,
                Ok(Ok(false)) => ListState::Ended,
                Err(_) => ListState::Stopped,
                Ok(Err(_)) if Instant::now() >= read.stop_at => ListState::Stopped,
                Ok(Err(error)) => ListState::Failed(error),
            };
        }
    }

    pub(super) async fn count_rest(
        &mut self,
        call: &CallContext,
        read: &MergedRead<'_, K, T>,
    ) -> u64 {
        let mut rows = 0;
        loop {
            rows += self.buffered.len() as u64;
            self.buffered.clear();
            if !self.needs_page() {
                return rows;
            }
            self.fill(Calls::One(call), read).await;
        }
    }

    /// Reads a page. Buffers nothing of it if it fails.
    async fn read_page(
        &mut self,
        read: &MergedRead<'_, K, T>,
        call: &CallContext,
    ) -> Result<bool, ReadError> {
        let mut page = MergedPage {
            items: Vec::new(),
            reached: self.reached,
            skip: self.skip,
            is_lost: false,
        };
        let mut sink = |row: &K::Row<'_>, place: K::Place| {
            read.rows_read.fetch_add(1, atomic::Ordering::Relaxed);
            let value = read.map.lock()(row, place);
            page.push(K::instant(row), || hash_of::<K>(row), value);
        };
        let more = self.range.next_page(call, &mut sink).await?;
        let is_cut = !more
            && page
                .skip
                .is_some_and(|skip| skip.first.is_some_and(|(rows, _)| rows > 0));
        self.is_lost = page.is_lost || is_cut;
        (self.reached, self.skip) = (page.reached, page.skip);
        self.buffered.extend(page.items);
        Ok(more)
    }
}

/// The same in every instance.
fn hash_of<K: RowKind>(row: &K::Row<'_>) -> u64 {
    let mut hasher = DefaultHasher::new();
    K::hash_id(row, &mut hasher);
    hasher.finish()
}

struct MergedPage<T> {
    items: Vec<MergedItem<T>>,
    reached: Option<Timestamp>,
    skip: Option<SkippedRows>,
    is_lost: bool,
}

impl<T> MergedPage<T> {
    fn push(&mut self, instant: Timestamp, hash: impl Fn() -> u64, value: Option<T>) {
        let sorted_at = self.reached.map_or(instant, |reached| reached.min(instant));
        self.reached = Some(sorted_at);
        if let Some(SkippedRows {
            instant: position,
            first,
        }) = &mut self.skip
        {
            match (sorted_at.cmp(position), first) {
                (Ordering::Greater, _) | (Ordering::Equal, None) => return,
                (Ordering::Equal, Some((rows @ 1.., digest))) => {
                    // Only rows that were returned count.
                    if value.is_some() {
                        *rows -= 1;
                        *digest = digest.wrapping_sub(hash());
                        self.is_lost |= *rows == 0 && *digest != 0;
                    }
                    return;
                }
                (Ordering::Less, Some((1.., _))) => self.is_lost = true,
                _ => {}
            }
        }
        if let Some(value) = value {
            self.items.push(MergedItem {
                instant,
                sorted_at,
                hash: hash(),
                value,
            });
        }
    }
}
