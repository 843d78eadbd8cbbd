//! `GET /v1/transactions/changes` and `GET /v1/trades/changes`: what has changed since a cursor,
//! with nothing stored but fingerprints (docs/adr/0016-following.md).
//!
//! A request opens the client's mark, finds what changed after it (`page.rs`), and seals the next
//! mark. The first page syncs the connection, unless its last sync is recent. A page without news
//! reads nothing.

mod body;
mod cursor;
mod kind;
mod page;
mod views;

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use bellbird_connections::ConnectionsError;
use bellbird_domain::date::DEFAULT_RANGE;
use bellbird_domain::{AccountId, Bound, Caller};
use bellbird_reads::{CallContext, ConnectionContext, ReadError, Trades, Transactions};
use bellbird_storage::SyncState;
use jiff::Timestamp;
use jiff::civil::Date;
use tokio::time::timeout_at;

use crate::http::documented::{BrokerageErrors, ProviderErrors};
use crate::http::extract::Selected;
use crate::http::json::respond;
use crate::http::problem::problem_for_category;
use crate::http::{
    Authorized, BankingConnection, BrokerageConnection, LivePermit, Problem, Refused, log,
};
use crate::v1::state::V1State;
use body::{ChangesPage, NextMark};
use cursor::{ChangesCursor, ClientMark, Paging};
use kind::ChangeKind;
use page::FoundChanges;
use views::ChangesQuery;

/// `Retry-After` while a sync takes longer than a request may.
const SYNC_RETRY_AFTER_SECONDS: u64 = 10;

const CURSOR_EXPIRED: &str = "Changes after the cursor are no longer known (`cursor_expired`): begin again without a \
    cursor, and remove the rows from `watchedFrom` on that do not come.";

type TransactionChangesPage = ChangesPage<Transactions>;
type TradeChangesPage = ChangesPage<Trades>;

/// Follow changes of transactions
///
/// What has changed since `cursor`, as a list of `upsert` and `remove` to apply in its order.
/// Without a cursor, the first copy: all rows since `from`. Repeat with the new cursor at once
/// while `hasMore` is true, and later to follow. A change may come twice, and none is left out.
///
/// `key` names a row for as long as the connection lives, also after a renewed consent has given
/// the row another `id`. Rows are compared from `watchedFrom` on: changes of earlier days are not
/// found. A row is removed when the provider has left it out for a day, or said so.
///
/// The connection is synced first if its last sync is older than a minute. A request that finds no
/// change is a request for metadata; any other, and one that syncs, counts as a live request too.
#[utoipa::path(
    get, path = "/v1/transactions/changes", tag = "Transactions",
    params(ChangesQuery),
    responses(
        (status = 200, description = "A page of changes.", body = TransactionChangesPage),
        (
            status = 400,
            description = "A parameter is missing or invalid, the connection is not a banking \
                           connection, or the cursor is of another connection, account or user \
                           (`invalid_cursor`).",
        ),
        ProviderErrors,
        (status = 410, description = CURSOR_EXPIRED),
    ),
)]
pub(super) async fn list_transaction_changes(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    BankingConnection(bank): BankingConnection<ChangesQuery>,
) -> Result<Response, Refused> {
    let request = Changes::<Transactions>::new(state, caller, now, bank);
    request.respond().await
}

/// Follow changes of trades
///
/// What has changed since `cursor`, as a list of `upsert` and `remove` to apply in its order.
/// Without a cursor, the first copy: all rows since `from`. Repeat with the new cursor at once
/// while `hasMore` is true, and later to follow. A change may come twice, and none is left out.
///
/// `key` names a row for as long as the connection lives, also after a renewed consent has given
/// the row another `id`. Rows are compared from `watchedFrom` on: changes of earlier days are not
/// found. A row is removed when the provider has left it out for a day, or said so.
///
/// The connection is synced first if its last sync is older than a minute. A request that finds no
/// change is a request for metadata; any other, and one that syncs, counts as a live request too.
#[utoipa::path(
    get, path = "/v1/trades/changes", tag = "Holdings and trades",
    params(ChangesQuery),
    responses(
        (status = 200, description = "A page of changes.", body = TradeChangesPage),
        BrokerageErrors,
        (status = 410, description = CURSOR_EXPIRED),
    ),
)]
pub(super) async fn list_trade_changes(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    BrokerageConnection(broker): BrokerageConnection<ChangesQuery>,
) -> Result<Response, Refused> {
    let request = Changes::<Trades>::new(state, caller, now, broker);
    request.respond().await
}

/// A request for changes.
struct Changes<K> {
    state: V1State,
    caller: Caller,
    now: Timestamp,
    context: Arc<ConnectionContext>,
    account_id: Option<AccountId>,
    query: ChangesQuery,
    kind: PhantomData<K>,
}

impl<K: ChangeKind> Changes<K> {
    fn new(
        state: V1State,
        caller: Caller,
        now: Timestamp,
        selected: Selected<ChangesQuery>,
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
            kind: PhantomData,
        }
    }

    /// The client's mark, what changed after it, and the next mark.
    async fn respond(self) -> Result<Response, Refused> {
        let (mut cursor, mut sync) = self.open_cursor().await?;
        let found = self.find_changes(&mut cursor, &mut sync).await?;
        let page = ChangesPage {
            data: found.changes,
            next: NextMark {
                cursor: cursor.seal(self.state.context.storage(), self.caller.user_id)?,
                has_more: found.has_more,
                watched_from: self.watched_from(&sync),
            },
            kind: self.kind,
        };
        Ok(respond(&page)?)
    }

    /// Finds what changed after the client's mark, as far as it fits on a page, and moves the
    /// cursor behind it. The first page syncs the connection, unless its last sync is recent.
    async fn find_changes(
        &self,
        cursor: &mut ChangesCursor,
        sync: &mut SyncState,
    ) -> Result<FoundChanges, Refused> {
        let api = &self.state.context;
        let call = api.call_context(&self.caller).skip_unreadable_rows();
        let mut permit = None;
        if cursor.paging.is_none() {
            if !self.is_fresh(sync) {
                permit = Some(self.admit().await?);
                self.freshen(&call, api.changes_max_age()).await?;
                *sync = self.sync_state().await?;
            }
            cursor.paging = Some(Paging::to(sync.change_version));
        }
        let has_news = has_news(cursor, sync);
        let mut found = FoundChanges::default();
        if has_news {
            let _permit = match permit {
                Some(permit) => permit,
                None => self.admit().await?,
            };
            let read = self.read_page(&call, sync, cursor).await;
            log::add_provider_calls(call.calls());
            found = read?;
        }
        if !found.has_more {
            cursor.reach_target(self.now, has_news);
        }
        Ok(found)
    }

    /// The client's cursor, or without one that of a first copy; and what is known of the syncs.
    async fn open_cursor(&self) -> Result<(ChangesCursor, SyncState), Problem> {
        let (storage, user) = (self.state.context.storage(), self.caller.user_id);
        let (id, account_id) = (self.context.connection.id, self.account_id);
        let open = |cursor| ChangesCursor::open(storage, user, cursor, (id, account_id));
        let opened = self.query.cursor.as_deref().map(open).transpose()?;
        let sync = self.sync_state().await?;
        let cursor = opened.unwrap_or_else(|| {
            let month_ago = self.now.saturating_sub(DEFAULT_RANGE);
            let default = Bound::Instant(month_ago.unwrap_or(Timestamp::MIN));
            let from = self.query.from.as_ref().map_or(default, |from| from.0);
            ChangesCursor::begin(id, account_id, from, sync.restore_id)
        });
        if cursor.restore_id == sync.restore_id {
            Ok((cursor, sync))
        } else {
            Err(Problem::CursorExpired)
        }
    }

    async fn sync_state(&self) -> Result<SyncState, Problem> {
        let syncs = self.state.context.connections().syncs();
        syncs
            .state(self.caller.user_id, self.context.connection.id)
            .await
            .map_err(|error| problem(&self.context, &error))
    }

    fn is_fresh(&self, sync: &SyncState) -> bool {
        let (api, id) = (&self.state.context, self.context.connection.id);
        let max_age = api.changes_max_age();
        let recently_synced = &self.state.inner.recently_synced;
        api.connections().syncs().is_fresh(sync, max_age)
            || recently_synced.get(&id, self.now).is_some()
    }

    async fn admit(&self) -> Result<LivePermit, Refused> {
        let quota = K::quota(self.state.context.quotas());
        self.state
            .context
            .admit_also(quota, &self.caller, self.now)
            .await
    }

    /// Syncs the connection, once for all requests that wait. A sync that takes longer than the
    /// request goes on.
    async fn freshen(&self, call: &CallContext, max_age: Duration) -> Result<(), Problem> {
        let (state, context) = (self.state.clone(), Arc::clone(&self.context));
        let (user, id) = (self.caller.user_id, self.context.connection.id);
        let sync = async move {
            let syncs = state.context.connections().syncs();
            let synced = Box::pin(syncs.freshen(user, id, max_age)).await;
            if synced.is_ok() {
                let now = state.context.clock().now();
                state.inner.recently_synced.insert(id, (), now);
            }
            (synced.map_err(|error| problem(&context, &error)), 0)
        };
        let flights = &self.state.inner.sync_flights;
        let joined = flights.join(id, self.caller.revision, sync);
        let waited = timeout_at(call.deadline, joined).await;
        waited.unwrap_or_else(|_| Err(self.try_later()))
    }

    fn try_later(&self) -> Problem {
        Problem::unavailable(SYNC_RETRY_AFTER_SECONDS).at(self.context.connection.id)
    }

    /// The first day in the user's timezone of which every change is found.
    fn watched_from(&self, sync: &SyncState) -> Date {
        let syncs = self.state.context.connections().syncs();
        let start = syncs.watched_from(sync).start();
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
}

/// Whether anything may have changed for the client. Pending rows are looked for again after
/// another sync.
fn has_news(cursor: &ChangesCursor, sync: &SyncState) -> bool {
    let paging = cursor.paging.as_ref();
    let target = paging.map_or(sync.change_version, |paging| paging.target);
    let synced_at = sync.synced_at.map_or(i64::MIN, Timestamp::as_second);
    cursor.mark != ClientMark::Mark(target) || (!cursor.pending.is_empty() && synced_at > cursor.at)
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
