//! `GET /v1/trades`: reads a window of a brokerage connection's activity and caches it by query.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Caller, ConnectionCategory, DateFilter, Page};
use bellbird_reads::{ConnectionContext, ListKey};

use crate::cache::{CachedTrades, LiveAnswer, LiveOutcome};
use crate::front::extract::{Admitted, Query};
use crate::front::json::write_json;
use crate::front::parameters::page;
use crate::front::problem::Problem;
use crate::live::{self, CacheStatus};
use crate::queries::TradesQuery;
use crate::state::AppState;
use crate::views::{TradeList, TradeView, TradesPagination};

/// Read trades
///
/// Trades and other account activity of a brokerage connection, read live from the broker's data provider, newest first
/// by `tradeDate`. To continue while `hasMore` is true, request `offset + limit` with the other parameters unchanged.
/// Each window is cached for ten minutes for each key and query (`X-Cache: HIT`, with its `Age` in seconds). Needs the
/// Professional plan.
///
/// `total` is -1 while `hasMore` is true, and exact when it is false. `X-Service-Truncated: true` means that more than
/// about 5,000 rows follow the offset; continue with the next window. Without `from` and `to`, the broker determines
/// the range.
///
/// A trade's `id` is not unique: two identical fills have the same id.
#[utoipa::path(
    get,
    path = "/v1/trades",
    tag = "Holdings and trades",
    params(TradesQuery),
    responses((status = 200, description = "A window of the trades.", body = TradeList))
)]
pub(crate) async fn list_trades(
    State(state): State<AppState>,
    Admitted { caller, now, permit }: Admitted,
    Query(query): Query<TradesQuery>,
) -> Result<Response, Problem> {
    let page = page(query.limit, query.offset);
    let (context, account_id) = state
        .access
        .connection_context(&caller, query.connection_id, query.account_id, ConnectionCategory::Brokerage)
        .await?;
    let span = DateFilter { from: query.from.map(|date| date.0), to: query.to.map(|date| date.0) };
    let list = ListKey { key_id: caller.key_id, connection_id: context.connection.id, account_id, span };
    let cache_key = (list, page);
    let cached = state.inner.trades_cache.get(&cache_key, now);
    if let Some((cached, age)) = cached.filter(|(cached, _)| cached.is_valid_for(&caller, &context, &list)) {
        return Ok(live::response(cached.answer.body, CacheStatus::Hit(age), cached.answer.truncated));
    }
    let entry = CachedTrades::new(&caller, &context, &list)?;
    let flight_key = (cache_key, caller.revision);
    let reader = state.clone();
    let work = move || async move {
        let _permit = permit;
        reader.read_trades(&caller, &context, list, page).await
    };
    let respond = |live: LiveAnswer| {
        let (body, truncated) = (live.body.clone(), live.truncated);
        if !live.complete || state.inner.settings.trades_cache.is_zero() {
            return live::response(body, CacheStatus::Bypass, truncated);
        }
        state.inner.trades_cache.insert(cache_key, entry.with_answer(live), now);
        live::response(body, CacheStatus::Miss, truncated)
    };
    Ok(live::coalesce(&state.inner.trades_flights, flight_key, work, respond).await)
}

impl AppState {
    async fn read_trades(
        &self,
        caller: &Caller,
        context: &ConnectionContext,
        list: ListKey,
        page: Page,
    ) -> LiveOutcome {
        let call = self.access.call_context(caller);
        let outcome = self
            .access
            .reads()
            .trades(&call, caller, context, list, page, |trade, out| write_json(&TradeView::new(trade), out))
            .await;
        let answer = match outcome {
            Ok(found) => serde_json::to_vec(&TradesPagination::of(page, found.extent))
                .map_err(|_| Problem::Internal)
                .map(|pagination| [br#"{"data":["#, &*found.rows, br#"],"pagination":"#, &*pagination, b"}"].concat())
                .map(|body| LiveAnswer {
                    body: body.into(),
                    truncated: found.extent.truncated,
                    complete: found.complete,
                }),
            Err(error) => Err(self.access.after_failed_read(caller, context, &error).await),
        };
        (answer, call.calls())
    }
}
