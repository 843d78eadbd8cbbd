//! `GET /v1/trades`

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bellbird_domain::{Account, AccountId, Caller, ConnectionCategory, Page, Span, page};
use bellbird_reads::{Scope, TradesKey};
use bytes::Bytes;
use jiff::tz::TimeZone;

use crate::guard::{LivePlace, RequestTime};
use crate::live::{self, Cache, LiveAnswer, LiveOutcome};
use crate::params::Params;
use crate::problem::Problem;
use crate::state::AppState;
use crate::views::{TradeList, TradeView, TradesPagination, write};

const KNOWN: &[&str] = &["connectionId", "accountId", "from", "to", "limit", "offset"];

/// A finished answer, and what it is true of: its days are those of a timezone, and it is about certain accounts.
#[derive(Clone)]
pub(crate) struct CachedTrades {
    pub(crate) answer: LiveAnswer,
    zone: TimeZone,
    accounts: Arc<[AccountId]>,
}

impl CachedTrades {
    fn of(caller: &Caller, scope: &Scope, list: &TradesKey) -> Result<Self, Problem> {
        let accounts = scope.accounts_of(list.account_id).map_err(|_| Problem::NotFound("Account"))?;
        Ok(Self {
            answer: LiveAnswer { body: Bytes::new(), truncated: false, whole: false },
            zone: caller.timezone.clone(),
            accounts: accounts.iter().map(|account| account.id).collect(),
        })
    }

    fn is_of(&self, caller: &Caller, scope: &Scope, list: &TradesKey) -> bool {
        let same = |accounts: &[Account]| accounts.iter().map(|account| account.id).eq(self.accounts.iter().copied());
        self.zone == caller.timezone && scope.accounts_of(list.account_id).is_ok_and(same)
    }
}

/// Read trades
///
/// Trades and other account activity of a brokerage connection, live from the broker's data provider, newest first by
/// `tradeDate`. To read on, ask for `offset + limit` with the same other parameters while `hasMore` is true. Each window
/// is kept for ten minutes for each key and query (`X-Cache: HIT`, with its `Age` in seconds). Needs the Professional plan.
///
/// `total` is -1 while `hasMore` is true, and exact when it is false. `X-Service-Truncated: true` says that more than about
/// 5,000 rows follow the offset; go on with the next window. Without `from` and `to` the range is the broker's own.
///
/// A trade's `id` is not a key: two equal fills have the same.
#[utoipa::path(
    get,
    path = "/v1/trades",
    tag = "Holdings and trades",
    responses((status = 200, description = "A window of the trades.", body = TradeList))
)]
pub(crate) async fn list_trades(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(place): Extension<LivePlace>,
    Extension(RequestTime(now)): Extension<RequestTime>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let (list, page) = read_request(query.as_deref(), &caller)?;
    let scope = state.scope(&caller, list.connection_id, list.account_id, ConnectionCategory::Brokerage).await?;
    let question = (list, page);
    let cached = state.inner.trades_cache.get(&question, now);
    if let Some((cached, age)) = cached.filter(|(cached, _)| cached.is_of(&caller, &scope, &list)) {
        return Ok(live::answer(cached.answer.body, Cache::Hit(age), cached.answer.truncated));
    }
    let kept = CachedTrades::of(&caller, &scope, &list)?;
    let flight = (question, caller.revision);
    let reader = state.clone();
    let work = move || async move {
        let _place = place;
        reader.read_trades(&caller, &scope, list, page).await
    };
    let respond = |live: LiveAnswer| {
        let (body, truncated) = (live.body.clone(), live.truncated);
        if !live.whole || state.inner.settings.trades_cache.is_zero() {
            return live::answer(body, Cache::Bypass, truncated);
        }
        state.inner.trades_cache.insert(question, CachedTrades { answer: live, ..kept }, now);
        live::answer(body, Cache::Miss, truncated)
    };
    Ok(live::ask(&state.inner.trades_flights, flight, work, respond).await)
}

fn read_request(query: Option<&str>, caller: &Caller) -> Result<(TradesKey, Page), Problem> {
    let mut params = Params::read(query, KNOWN);
    let connection_id = params.required("connectionId", "connectionId is required");
    let account_id = params.take("accountId");
    let (_, from) = params.bound("from");
    let (_, to) = params.bound("to");
    let page = params.page(page::TRADES);
    params.finish()?;
    let connection_id = live::read_id(&connection_id, "Connection")?;
    let account_id = account_id.map(|id| live::read_account_id(&id));
    Ok((TradesKey { key_id: caller.key_id, connection_id, account_id, span: Span { from, to } }, page))
}

impl AppState {
    async fn read_trades(&self, caller: &Caller, scope: &Scope, list: TradesKey, page: Page) -> LiveOutcome {
        let call = self.inner.reads.call();
        let outcome = self
            .inner
            .reads
            .trades(&call, caller, scope, list, page, |trade, out| write(&TradeView::new(trade), out))
            .await;
        let answer = match outcome {
            Ok(found) => serde_json::to_vec(&TradesPagination::of(page, found.extent))
                .map_err(|_| Problem::Internal)
                .map(|pagination| [br#"{"data":["#, &*found.rows, br#"],"pagination":"#, &*pagination, b"}"].concat())
                .map(|body| LiveAnswer { body: body.into(), truncated: found.extent.truncated, whole: found.whole }),
            Err(error) => Err(self.read_failed(caller, scope, &error).await),
        };
        (answer, call.calls())
    }
}
