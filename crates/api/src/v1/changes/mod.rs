//! `GET /v1/transactions/changes` and `GET /v1/trades/changes`: what has changed since a cursor,
//! with nothing stored but fingerprints (docs/adr/0016-following.md).
//!
//! The first page syncs the connection, unless its last sync is recent. Fingerprints then tell
//! which rows have changed, and when they lie. These rows are read from the provider again. A page
//! without news reads nothing.

mod cursor;
mod views;

use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bellbird_connections::following::{self, Followed, Given, GivenRows, PendingRow};
use bellbird_connections::{ConnectionsError, DuplicateIds, RowHasher};
use bellbird_domain::date::DEFAULT_RANGE;
use bellbird_domain::{
    AccountId, AccountTag, Bound, Caller, DateFilter, DateRange, Fingerprints, RowDigests, RowKey,
    TimestampExt as _, Trade, Transaction, UtcDay,
};
use bellbird_reads::merged::{ListState, MergedRows, Position, PositionLost};
use bellbird_reads::{CallContext, ConnectionContext, ReadError};
use bellbird_storage::SyncState;
use jiff::Timestamp;
use jiff::civil::Date;
use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::{Instant, timeout_at};

use crate::front::extract::Selected;
use crate::front::json::{json_bytes, write_json};
use crate::front::parameters;
use crate::front::problem::problem_for_category;
use crate::front::{
    Authorized, BankingConnection, BrokerageConnection, LivePermit, Operation, Path, Problem, log,
};
use crate::v1::state::V1State;
use crate::v1::trades::TradeView;
use crate::v1::transactions::TransactionView;
use cursor::{PageProgress, Progress, Since};
use views::{ChangesQuery, TradeChange, TransactionChange};
pub use views::{TradeChanges, TransactionChanges};

/// Rows that the last sync lacked and that a cursor has room for.
const ABSENT_MAX: usize = cursor::PENDING_MAX / 2;
/// `Retry-After` while a sync takes longer than a request may.
const SYNC_RETRY_AFTER_SECONDS: u64 = 10;
/// Trades of a day without a time count as midnight in UTC, which is another day in the user's
/// timezone.
const DAY: Duration = Duration::from_secs(86_400);

const TEXT: &str = "What has changed since `cursor`, as a list of `upsert` and `remove` to apply in its order. Without \
    a cursor, the first copy: all rows since `from`. Repeat with the new cursor at once while `hasMore` is true, and \
    later to follow. A change may come twice, and none is left out.\n\n\
    `key` names a row for as long as the connection lives, also after a renewed consent has given the row another \
    `id`. Rows are compared from `watchedFrom` on: changes of earlier days are not found. A row is removed when the \
    provider has left it out for a day, or said so.\n\n\
    The connection is synced first if its last sync is older than a minute. A request that finds no change is a \
    request for metadata; any other, and one that syncs, counts as a live request too.";

pub(super) fn transactions_path() -> Path<V1State> {
    Path::get("/v1/transactions/changes", |state: &V1State| &state.access.quotas().metadata, transaction_changes)
        .described(
            Operation::new("list_transaction_changes", "Transactions", "A page of changes.")
                .text("Follow changes of transactions", TEXT)
                .query::<ChangesQuery>()
                .json::<TransactionChanges<'static>>()
                .error(
                    400,
                    "A parameter is missing or invalid, the connection is not a banking connection, or the cursor is \
                     of another connection, account or user (`invalid_cursor`).",
                )
                .error(410, CURSOR_EXPIRED)
                .provider_errors(),
        )
        .with_codes()
}

pub(super) fn trades_path() -> Path<V1State> {
    Path::get(
        "/v1/trades/changes",
        |state: &V1State| &state.access.quotas().brokerage_metadata,
        trade_changes,
    )
    .described(
        Operation::new(
            "list_trade_changes",
            "Holdings and trades",
            "A page of changes.",
        )
        .text("Follow changes of trades", TEXT)
        .query::<ChangesQuery>()
        .json::<TradeChanges<'static>>()
        .brokerage_errors()
        .error(410, CURSOR_EXPIRED),
    )
    .with_codes()
}

const CURSOR_EXPIRED: &str = "Changes after the cursor are no longer known (`cursor_expired`): begin again without a \
    cursor, and remove the rows from `watchedFrom` on that do not come.";

async fn transaction_changes(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    BankingConnection(bank): BankingConnection<ChangesQuery>,
) -> Result<Response, Problem> {
    Changes::new(state, caller, now, bank, Rows::Transactions)
        .respond()
        .await
}

async fn trade_changes(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    BrokerageConnection(broker): BrokerageConnection<ChangesQuery>,
) -> Result<Response, Problem> {
    Changes::new(state, caller, now, broker, Rows::Trades)
        .respond()
        .await
}

/// What is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rows {
    Transactions,
    Trades,
}

/// A request for changes.
struct Changes {
    state: V1State,
    caller: Caller,
    now: Timestamp,
    context: Arc<ConnectionContext>,
    account_id: Option<AccountId>,
    query: ChangesQuery,
    rows: Rows,
}

/// A row's key, and its JSON.
type Entry = (RowKey, Vec<u8>);

/// A page while it is made.
#[derive(Default)]
struct Page {
    entries: Vec<Vec<u8>>,
    has_more: bool,
}

/// The provider does not list more rows as the last sync saw them than a cursor has room for.
struct TooManyPending;

impl Changes {
    fn new(
        state: V1State,
        caller: Caller,
        now: Timestamp,
        selected: Selected<ChangesQuery>,
        rows: Rows,
    ) -> Self {
        let Selected {
            context,
            account_id,
            query,
        } = selected;
        Self {
            state,
            caller,
            now,
            context,
            account_id,
            query,
            rows,
        }
    }

    async fn respond(self) -> Result<Response, Problem> {
        let storage = self.state.access.storage();
        let id = self.context.connection.id;
        let open =
            |cursor| Progress::open(storage, self.caller.user_id, cursor, (id, self.account_id));
        let opened = self.query.cursor.as_deref().map(open).transpose()?;
        let mut sync = self.sync_state().await?;
        let mut progress = opened.unwrap_or_else(|| {
            let from = self.query.from.as_ref().map(|from| from.0);
            let default = || {
                Bound::Instant(
                    self.now
                        .saturating_sub(DEFAULT_RANGE)
                        .unwrap_or(Timestamp::MIN),
                )
            };
            Progress::begin(
                id,
                self.account_id,
                from.unwrap_or_else(default),
                sync.restore_id,
            )
        });
        if progress.restore_id != sync.restore_id {
            return Err(Problem::CursorExpired);
        }
        let call = self
            .state
            .access
            .call_context(&self.caller)
            .past_unreadable_rows();
        let mut permit = None;
        if progress.page.is_none() {
            if !self.is_fresh(&sync) {
                permit = Some(self.admit().await?);
                self.freshen(&call, self.changes_max_age()).await?;
                sync = self.sync_state().await?;
            }
            progress.page = Some(PageProgress::to(sync.mark));
        }
        let has_news = self.has_news(&progress, &sync);
        let mut page = Page::default();
        if has_news {
            let _permit = match permit {
                Some(permit) => permit,
                None => self.admit().await?,
            };
            let read = self.read(&call, &mut sync, &mut progress, &mut page).await;
            log::add_provider_calls(call.calls());
            read?;
        }
        if !page.has_more
            && let Some(done) = progress.page.take()
        {
            (progress.since, progress.at) = (Since::Mark(done.target), self.now.as_second());
            if has_news {
                progress.keep_missed();
            }
        }
        let mut body = br#"{"data":["#.to_vec();
        body.extend(page.entries.join(&b','));
        body.extend_from_slice(br#"],"cursor":"#);
        write_json(&progress.seal(storage, self.caller.user_id)?, &mut body);
        body.extend_from_slice(if page.has_more {
            br#","hasMore":true"#
        } else {
            br#","hasMore":false"#
        });
        body.extend_from_slice(br#","watchedFrom":"#);
        write_json(&self.watched_from(&sync), &mut body);
        body.push(b'}');
        Ok(json_bytes(body.into()))
    }

    /// Whether there may be something to give. Pending rows are looked for again after another
    /// sync.
    fn has_news(&self, progress: &Progress, sync: &SyncState) -> bool {
        let target = progress.page.as_ref().map_or(sync.mark, |page| page.target);
        let synced_at = sync.synced_at.map_or(i64::MIN, Timestamp::as_second);
        progress.since != Since::Mark(target)
            || (!progress.pending.is_empty() && synced_at > progress.at)
    }

    async fn sync_state(&self) -> Result<SyncState, Problem> {
        let syncs = self.state.access.connections().syncs();
        syncs
            .state(self.caller.user_id, self.context.connection.id)
            .await
            .map_err(|error| self.problem(&error))
    }

    fn is_fresh(&self, sync: &SyncState) -> bool {
        self.state
            .access
            .connections()
            .syncs()
            .is_fresh(sync, self.changes_max_age())
            || self
                .state
                .inner
                .recently_synced
                .get(&self.context.connection.id, self.now)
                .is_some()
    }

    fn changes_max_age(&self) -> Duration {
        self.state.access.inner.settings.changes_max_age
    }

    async fn admit(&self) -> Result<LivePermit, Problem> {
        let quotas = self.state.access.quotas();
        let quota = if self.rows == Rows::Trades {
            &quotas.brokerage
        } else {
            &quotas.live
        };
        self.state.access.admit(quota, &self.caller, self.now).await
    }

    /// Syncs the connection, once for all requests that wait. A sync that takes longer than the
    /// request goes on.
    async fn freshen(&self, call: &CallContext, max_age: Duration) -> Result<(), Problem> {
        let (state, user, id) = (
            self.state.clone(),
            self.caller.user_id,
            self.context.connection.id,
        );
        let context = Arc::clone(&self.context);
        let sync = async move {
            let synced = Box::pin(
                state
                    .access
                    .connections()
                    .syncs()
                    .freshen(user, id, max_age),
            )
            .await;
            if synced.is_ok() {
                state
                    .inner
                    .recently_synced
                    .insert(id, (), state.access.clock().now());
            }
            (synced.map_err(|error| problem(&context, &error)), 0)
        };
        let joined = self
            .state
            .inner
            .sync_flights
            .join(id, self.caller.revision, sync);
        let waited = timeout_at(call.deadline, joined).await;
        waited.unwrap_or(Err(Problem::unavailable(SYNC_RETRY_AFTER_SECONDS).at(id)))
    }

    fn problem(&self, error: &ConnectionsError) -> Problem {
        problem(&self.context, error)
    }

    /// The first day in the user's timezone of which every change is found.
    fn watched_from(&self, sync: &SyncState) -> Date {
        let start = self
            .state
            .access
            .connections()
            .syncs()
            .watched_from(sync)
            .start();
        let zoned = start.to_zoned(self.caller.timezone.clone());
        let is_whole = zoned
            .start_of_day()
            .is_ok_and(|midnight| midnight.timestamp() >= start);
        if is_whole {
            zoned.date()
        } else {
            zoned.date().tomorrow().unwrap_or(Date::MAX)
        }
    }

    /// Reads a page. If too many rows are not as the last sync saw them, they are after another
    /// one.
    async fn read(
        &self,
        call: &CallContext,
        sync: &mut SyncState,
        progress: &mut Progress,
        page: &mut Page,
    ) -> Result<(), Problem> {
        if let Err(TooManyPending) = self.read_page(call, sync, progress, page).await? {
            self.freshen(call, Duration::ZERO).await?;
            (*sync, *page) = (self.sync_state().await?, Page::default());
            if let Err(TooManyPending) = self.read_page(call, sync, progress, page).await? {
                return Err(
                    Problem::unavailable(SYNC_RETRY_AFTER_SECONDS).at(self.context.connection.id)
                );
            }
        }
        Ok(())
    }

    async fn read_page(
        &self,
        call: &CallContext,
        sync: &SyncState,
        progress: &mut Progress,
        page: &mut Page,
    ) -> Result<Result<(), TooManyPending>, Problem> {
        let syncs = self.state.access.connections().syncs();
        let found = syncs
            .fingerprints(self.caller.user_id, self.context.connection.id)
            .await;
        let (hasher, fingerprints) = found.map_err(|error| self.problem(&error))?;
        let mut done = progress.page.clone().ok_or(Problem::Internal)?;
        check_reach(&fingerprints, &progress.since, done.target)?;
        let pending: Vec<PendingRow> = progress.pending.iter().map(|pending| pending.row).collect();
        let watched_from = syncs.watched_from(sync);
        let since = match progress.since {
            Since::From(_) => following::Since::Nothing,
            Since::Mark(mark) => following::Since::Mark {
                mark,
                pending: &pending,
            },
        };
        let (ids, account) = (
            self.rows.duplicate_ids(),
            self.account_id.map(AccountTag::from),
        );
        let follow = || Followed::new(&hasher, &fingerprints, ids, watched_from, since, account);
        let limit = parameters::page(self.query.limit, None).limit as usize;
        self.give_gone(&follow(), &mut done, limit, page);
        let gone = page.entries.len();
        while !page.has_more {
            page.entries.truncate(gone);
            let begin = done.rows();
            let followed = Mutex::new(follow());
            let range = self.range(&progress.since, &followed.lock(), watched_from, &mut done)?;
            let mut after = begin;
            if let Some(range) = range {
                let account_id = done.read_account.map(AccountId::from);
                let mut rows =
                    self.changed_rows(range, account_id, begin, &hasher, &followed, call)?;
                match self
                    .give_rows(call, &mut rows, &followed, limit, page)
                    .await?
                {
                    Ok(behind) => after = behind,
                    Err(PositionLost) => {
                        // The rows of that instant are given again, which does no harm.
                        done.rows = begin.map(|begin| {
                            Position {
                                shown: None,
                                ..begin
                            }
                            .to_string()
                        });
                        continue;
                    }
                }
            }
            if page.has_more && page.entries.is_empty() && after == begin {
                return Err(
                    Problem::unavailable(SYNC_RETRY_AFTER_SECONDS).at(self.context.connection.id)
                );
            }
            let missed = self.finish_page(
                &followed.into_inner(),
                (begin, after),
                watched_from,
                &mut done,
                page.has_more,
            );
            if !progress.miss(missed) {
                return Ok(Err(TooManyPending));
            }
            break;
        }
        progress.page = Some(done);
        Ok(Ok(()))
    }

    /// Gives the rows that are gone, which needs no provider.
    fn give_gone(
        &self,
        followed: &Followed<'_>,
        done: &mut PageProgress,
        limit: usize,
        page: &mut Page,
    ) {
        let begin = done.gone().map_or(Unbounded, Excluded);
        for (key, account) in followed.gone().range((begin, Unbounded)) {
            if page.entries.len() == limit {
                page.has_more = true;
                return;
            }
            let is_account = |id: &&AccountId| AccountTag::from(**id) == *account;
            let account_id = self
                .context
                .accounts
                .iter()
                .map(|account| &account.id)
                .find(is_account)
                .copied();
            let key = key.to_string();
            done.gone = Some(key.clone());
            page.entries
                .push(json(&TransactionChange::Remove { key, account_id }));
        }
    }

    /// The dates to read. `None` if no row has to be read.
    fn range(
        &self,
        since: &Since,
        followed: &Followed<'_>,
        watched_from: UtcDay,
        done: &mut PageProgress,
    ) -> Result<Option<DateFilter>, Problem> {
        let is_first = done.rows.is_none();
        if let Since::From(from) = since {
            done.read_account = self.account_id.map(AccountId::uuid);
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
            let is_account = |id: &AccountId| followed.account() == Some(AccountTag::from(*id));
            let mut accounts = self.context.accounts.iter().map(|account| account.id);
            done.read_account = self
                .account_id
                .or_else(|| accounts.find(is_account))
                .map(AccountId::uuid);
        }
        let (from, to) = (days.start().start(), days.end().end());
        let (from, to) = match self.rows {
            Rows::Transactions => (from, to.min(self.now)),
            Rows::Trades => (from.minus(DAY), to.plus(DAY)),
        };
        Ok(Some(DateFilter {
            from: Some(Bound::Instant(from)),
            to: Some(Bound::Instant(to)),
        }))
    }

    /// The rows of the provider's list that the client is to be given, as entries of a page.
    fn changed_rows<'r>(
        &self,
        range: DateFilter,
        account_id: Option<AccountId>,
        begin: Option<Position>,
        hasher: &'r RowHasher,
        followed: &'r Mutex<Followed<'_>>,
        call: &CallContext,
    ) -> Result<MergedRows<'r, Entry>, Problem> {
        let (reads, context) = (self.state.access.reads(), Arc::clone(&self.context));
        let stop_at = call.deadline - call.deadline.saturating_duration_since(Instant::now()) / 5;
        let take = |row: &RowDigests| followed.lock().take(row);
        let problem = |error: ReadError| {
            problem_for_category(&error, "Account", self.context.connection.category)
        };
        Ok(match self.rows {
            Rows::Transactions => {
                let list =
                    reads.transaction_range(&self.caller, context, account_id, range, self.now);
                let entry = move |row: &Transaction<'_>, day| {
                    let Given { key, is_new } = take(&hasher.transaction(row))?;
                    let transaction = TransactionView::new(row, day);
                    Some((
                        key,
                        json(&TransactionChange::Upsert {
                            key: key.to_string(),
                            is_new,
                            transaction,
                        }),
                    ))
                };
                MergedRows::transactions(vec![list.map_err(problem)?], begin, stop_at, entry)
            }
            Rows::Trades => {
                let list = reads.trade_range(&self.caller, context, account_id, range);
                let entry = move |row: &Trade<'_>| {
                    let Given { key, is_new } = take(&hasher.trade(row))?;
                    let trade = TradeView::new(row);
                    Some((
                        key,
                        json(&TradeChange::Upsert {
                            key: key.to_string(),
                            is_new,
                            trade,
                        }),
                    ))
                };
                MergedRows::trades(vec![list.map_err(problem)?], begin, stop_at, entry)
            }
        })
    }

    /// Fills the page. Returns the position behind its last row.
    async fn give_rows(
        &self,
        call: &CallContext,
        rows: &mut MergedRows<'_, Entry>,
        followed: &Mutex<Followed<'_>>,
        limit: usize,
        page: &mut Page,
    ) -> Result<Result<Option<Position>, PositionLost>, Problem> {
        let mut after = rows.position();
        loop {
            let is_found = followed.lock().is_found();
            let next = match is_found {
                true => Ok(rows.next_read()),
                false => rows.next(call).await,
            };
            match next {
                Err(lost) => return Ok(Err(lost)),
                Ok(Some(_)) if page.entries.len() == limit => {
                    page.has_more = true;
                    break;
                }
                Ok(Some((key, entry))) => {
                    followed.lock().give(key);
                    page.entries.push(entry);
                    after = rows.position();
                }
                Ok(None) => {
                    let failed = rows.lists().find_map(|list| match list.state {
                        ListState::Failed(error) => Some(error.clone()),
                        _ => None,
                    });
                    if let Some(error) = failed.filter(|_| !is_found) {
                        return Err(self
                            .state
                            .access
                            .after_failed_read(&self.caller, &self.context, &error)
                            .await);
                    }
                    page.has_more = !is_found && rows.is_stopped();
                    if page.has_more {
                        after = rows.position();
                    }
                    break;
                }
            }
        }
        Ok(Ok(after))
    }

    /// Keeps in the cursor where the next page begins. Returns the rows of the finished days that
    /// no page has.
    fn finish_page(
        &self,
        followed: &Followed<'_>,
        (begin, end): (Option<Position>, Option<Position>),
        watched_from: UtcDay,
        done: &mut PageProgress,
        has_more: bool,
    ) -> Vec<PendingRow> {
        let day =
            |position: Option<Position>| position.map(|position| UtcDay::of(position.instant));
        let end_day = day(end).filter(|_| has_more);
        // Rows of the last day may be on the next page.
        let first =
            watched_from.max(end_day.map_or(UtcDay(0), |day| UtcDay(day.0.saturating_add(1))));
        let last = day(begin).unwrap_or(UtcDay(u16::MAX));
        let given_before = done
            .given
            .map(|(rows, keys)| GivenRows { rows, keys })
            .unwrap_or_default();
        let (mut pending, absent) = followed.pending(first..=last, given_before);
        // A provider may leave out many rows for hours, which must not stop the client.
        let room = ABSENT_MAX.saturating_sub(pending.len());
        pending.extend(absent.into_iter().take(room));
        if let Some(day) = end_day {
            let before = if day == last {
                given_before
            } else {
                GivenRows::default()
            };
            let GivenRows { rows, keys } = before + followed.given_on(day);
            done.given = Some((rows, keys));
        }
        done.rows = end.map(|end| end.to_string());
        pending
    }
}

/// Fails if a change after the client's mark may be forgotten, or if the mark is of another
/// history: of a database that a backup has replaced.
fn check_reach(fingerprints: &Fingerprints, since: &Since, target: u32) -> Result<(), Problem> {
    let mut marks = vec![target];
    if let Since::Mark(mark) = since {
        marks.push(*mark);
    }
    let is_reached = |mark: &u32| fingerprints.reach_back_to(*mark);
    if marks.iter().all(is_reached) {
        Ok(())
    } else {
        Err(Problem::CursorExpired)
    }
}

fn problem(context: &ConnectionContext, error: &ConnectionsError) -> Problem {
    let connection = &context.connection;
    let read = |error: &ReadError| {
        problem_for_category(error, "Connection", connection.category).at(connection.id)
    };
    match error {
        ConnectionsError::NotFound => Problem::NotFound("Connection"),
        ConnectionsError::ConsentInactive(status) => Problem::reconnect(*status).at(connection.id),
        ConnectionsError::Provider(error) => {
            read(&ReadError::from_provider(error, connection.status))
        }
        ConnectionsError::NotConfigured(_) => read(&ReadError::OperatorNeeded),
        ConnectionsError::Storage(error) => Problem::from(error),
        ConnectionsError::Busy => Problem::unavailable(SYNC_RETRY_AFTER_SECONDS).at(connection.id),
        _ => {
            tracing::error!(%error, "could not sync a connection for its changes");
            Problem::Internal
        }
    }
}

fn json(entry: &impl Serialize) -> Vec<u8> {
    let mut json = Vec::new();
    write_json(entry, &mut json);
    json
}

impl Rows {
    fn duplicate_ids(self) -> DuplicateIds {
        match self {
            Self::Transactions => DuplicateIds::SameRow,
            Self::Trades => DuplicateIds::DistinctRows,
        }
    }
}
