//! `GET /v1/trades`

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bellbird_domain::{Caller, ConnectionCategory, Page, Span, page};
use bellbird_reads::{Scope, TradesKey};

use crate::guard::{LivePlace, RequestTime};
use crate::live::{self, Cache, LiveAnswer, LiveOutcome};
use crate::params::Params;
use crate::problem::Problem;
use crate::state::AppState;
use crate::views::{TradeList, TradeView, TradesPagination, write};

const KNOWN: &[&str] = &["connectionId", "accountId", "from", "to", "limit", "offset"];

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
    if let Some((cached, age)) = state.inner.trades_cache.get(&question, now) {
        return Ok(live::answer(cached.body, Cache::Hit(age), cached.truncated));
    }
    let reader = state.clone();
    let work = move || async move {
        let _place = place;
        reader.read_trades(&caller, &scope, list, page).await
    };
    let respond = |live: LiveAnswer| {
        let cache = if state.inner.settings.trades_cache.is_zero() {
            Cache::Bypass
        } else {
            state.inner.trades_cache.insert(question, live.clone(), now);
            Cache::Miss
        };
        live::answer(live.body, cache, live.truncated)
    };
    Ok(live::ask(&state.inner.trades_flights, question, work, respond).await)
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
    let account_id = account_id.map(|id| live::read_id(&id, "Account")).transpose()?;
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
            Ok((rows, extent)) => serde_json::to_vec(&TradesPagination::of(page, extent))
                .map_err(|_| Problem::Internal)
                .map(|pagination| [br#"{"data":["#, &*rows, br#"],"pagination":"#, &*pagination, b"}"].concat())
                .map(|body| LiveAnswer { body: body.into(), truncated: extent.truncated, whole: true }),
            Err(error) => Err(self.read_failed(caller, scope, &error).await),
        };
        (answer, call.calls())
    }
}
