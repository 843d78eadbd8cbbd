//! `GET /v1/trades`: reads a window of a brokerage connection's activity and caches it by query.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::trade::TradeId;
use bellbird_domain::{AccountId, Caller, Decimal, Trade, TradeType, page};
use bellbird_reads::{ConnectionContext, WindowKey};
use serde::{Deserialize, Serialize};

use crate::http::documented::BrokerageErrors;
use crate::http::extract::{ConnectionQuery, date_filter};
use crate::http::json::write_json;
use crate::http::parameters::{self, AccountParam, ConnectionParam, DateBound, Limit, Offset};
use crate::http::{Authorized, BrokerageConnection, LivePermit, Problem};
use crate::v1::cache::CachedTrades;
use crate::v1::live::{CacheStatus, LiveBody, LiveOutcome};
use crate::v1::pagination::TradesPagination;
use crate::v1::state::V1State;

type TradesLimit = Limit<{ page::TRADES.default }, { page::TRADES.max }>;

/// Read trades
///
/// Trades and other account activity of a brokerage connection, read live from the broker's data
/// provider, newest first by `tradeDate`. To continue while `hasMore` is true, request `offset +
/// limit` with the other parameters unchanged. Each window is cached for ten minutes for each key
/// and query (`X-Cache: HIT`, with its `Age` in seconds). Needs the Professional plan.
///
/// `total` is -1 while `hasMore` is true, and exact when it is false. `X-Service-Truncated: true`
/// means that more than about 5,000 rows follow the offset; continue with the next window. Without
/// `from` and `to`, the broker determines the range.
///
/// A trade's `id` is not unique: two identical fills have the same id.
#[utoipa::path(
    get, path = "/v1/trades", tag = "Holdings and trades",
    params(TradesQuery),
    responses(
        (
            status = 200, description = "A window of the trades.", body = TradeList,
            headers(("X-Cache"), ("Age"), ("X-Service-Truncated")),
        ),
        BrokerageErrors,
    ),
)]
pub(super) async fn list_trades(
    State(state): State<V1State>,
    Authorized {
        caller,
        now,
        permit,
        ..
    }: Authorized,
    BrokerageConnection(broker): BrokerageConnection<TradesQuery>,
) -> Result<Response, Problem> {
    let account_ids = broker.account_ids();
    let dates = date_filter(broker.query.from, broker.query.to);
    let page = parameters::page(broker.query.limit, broker.query.offset);
    let key = broker.window(&caller, dates, page);
    let (revision, zone) = (caller.revision, caller.timezone.clone());
    let cached = state.inner.trades_cache.get(&key, now).await;
    let is_valid = |cached: &CachedTrades| cached.zone == zone && cached.account_ids == account_ids;
    if let Some((cached, age)) = cached.filter(|(cached, _)| is_valid(cached)) {
        return Ok(cached.body.response(CacheStatus::Hit(age)));
    }
    let reading = state.clone();
    let read = async move {
        let read = reading.clone();
        let read = read.read_trades(caller, broker.context, key, permit).await;
        let value = |body| CachedTrades {
            body,
            zone,
            account_ids,
        };
        let cache = &reading.inner.trades_cache;
        cache.store_read(key, read, now, value).await
    };
    let flights = &state.inner.trades_flights;
    let (body, cache_status) = flights.join(key, revision, read).await?;
    Ok(body.response(cache_status))
}

impl V1State {
    async fn read_trades(
        self,
        caller: Caller,
        context: Arc<ConnectionContext>,
        key: WindowKey,
        _permit: LivePermit,
    ) -> LiveOutcome {
        let call = self.context.call_context(&caller);
        let write_row =
            |trade: &Trade<'_>, out: &mut Vec<u8>| write_json(&TradeView::new(trade), out);
        let outcome = self
            .context
            .reads()
            .trades(&call, &caller, &context, key, write_row)
            .await;
        let body = match outcome {
            Ok(found) => {
                let mut json = [br#"{"data":["#, &*found.rows, br#"],"pagination":"#].concat();
                write_json(&TradesPagination::of(key.page, found.totals), &mut json);
                json.push(b'}');
                let (truncated, complete) = (found.totals.truncated, found.complete);
                Ok(LiveBody {
                    json: json.into(),
                    truncated,
                    complete,
                })
            }
            Err(error) => Err(self
                .context
                .after_failed_read(&caller, &context, &error)
                .await),
        };
        (body, call.calls())
    }
}

impl ConnectionQuery for TradesQuery {
    fn ids(&self) -> (ConnectionParam, Option<AccountParam>) {
        (self.connection_id, self.account_id)
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct TradesQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: ConnectionParam,
    /// One account of the connection: an `id` from `/v1/accounts`. Without it, the trades of all
    /// accounts of the connection are merged.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    account_id: Option<AccountParam>,
    /// The oldest end, inclusive. A date means the whole day in the user's timezone, a timestamp
    /// that instant. Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as
    /// `%2B`). Default: chosen by the broker.
    #[param(inline, example = "2026-10-01")]
    from: Option<DateBound>,
    /// The newest end, inclusive. A date means the whole day in the user's timezone, a timestamp
    /// that instant. Timestamps are RFC 3339 with `T`, seconds, and `Z` or an offset (encode `+` as
    /// `%2B`). Default: chosen by the broker.
    #[param(inline, example = "2026-10-31T12:59:59Z")]
    to: Option<DateBound>,
    /// Maximum number of items, 1 to 500. Larger values are clamped; `pagination.limit` shows the
    /// value applied.
    #[param(inline, example = 200)]
    limit: Option<TradesLimit>,
    /// Number of items to skip.
    #[param(inline, example = 0)]
    offset: Option<Offset>,
}

/// A row of a brokerage account's activity: a fill, a dividend, a fee, a transfer and so on.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Trade)]
pub struct TradeView<'a> {
    /// Opaque, and not unique: two identical fills have the same id.
    #[schema(
        value_type = String, example = "2026-03-22T16:27:55Z-VAB.TO-BUY--2.08-5.2-2026-03-26T00:00:00Z-0-BOUGHT VAB"
    )]
    id: TradeId<'a, 'a>,
    /// The account of the trade.
    #[schema(value_type = Uuid, example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Margin Account")]
    account_name: &'a str,
    /// Ticker; empty if the row has no security.
    #[schema(example = "VAB.TO")]
    symbol: &'a str,
    /// The security's name; for an option, the name of its underlying.
    #[schema(required = true, example = "VANGUARD CDN AGGREGATE BOND INDEX ETF")]
    name: Option<&'a str>,
    /// The kind of activity.
    #[schema(inline, example = "buy")]
    r#type: TradeType,
    /// Number of units, an exact decimal with the provider's digits and the broker's sign; `0` if
    /// there are none.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "5.2")]
    quantity: &'a str,
    /// Price of a unit, an exact decimal; `0` if there is none.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "0.4")]
    price: &'a str,
    /// ISO 4217 code, or the ticker of a crypto asset.
    #[schema(example = "CAD")]
    currency: &'a str,
    /// Change in cash, an exact decimal: positive in, negative out; `0` if there is none.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "-2.08")]
    total_amount: &'a str,
    /// Fees, an exact decimal.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "0"
    )]
    fees: Option<&'a Decimal<'a>>,
    /// The trade date: a day or an ISO 8601 time, as the broker reports it.
    #[schema(example = "2026-03-22T16:27:55Z")]
    trade_date: &'a str,
    /// The settlement date: a day or an ISO 8601 time, as the broker reports it.
    #[schema(required = true, example = "2026-03-26T00:00:00Z")]
    settlement_date: Option<&'a str>,
    /// The broker's description.
    #[schema(required = true, example = "BOUGHT VAB")]
    description: Option<&'a str>,
}

impl<'a> TradeView<'a> {
    pub fn new(trade: &'a Trade<'a>) -> Self {
        let or_zero =
            |number: &'a Option<Decimal<'a>>| number.as_ref().map_or("0", Decimal::as_str);
        Self {
            id: trade.id(),
            account_id: trade.account.id,
            account_name: &trade.account.name,
            symbol: &trade.symbol,
            name: trade.name.as_deref(),
            r#type: trade.trade_type,
            quantity: or_zero(&trade.quantity),
            price: or_zero(&trade.price),
            currency: &trade.currency,
            total_amount: or_zero(&trade.total_amount),
            fees: trade.fees.as_ref(),
            trade_date: &trade.trade_date,
            settlement_date: trade.settlement_date.as_deref(),
            description: trade.description.as_deref(),
        }
    }
}

/// A window of the trades, newest first.
#[derive(utoipa::ToSchema)]
pub struct TradeList<'a> {
    /// The trades in the window.
    #[expect(
        dead_code,
        reason = "describes the body that the handler writes row by row"
    )]
    data: Vec<TradeView<'a>>,
    /// The position of this window in the list.
    #[expect(
        dead_code,
        reason = "describes the body that the handler writes row by row"
    )]
    pagination: TradesPagination,
}
