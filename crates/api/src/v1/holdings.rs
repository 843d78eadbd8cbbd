//! `GET /v1/holdings`: reads all accounts of a connection at once and caches them by connection.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{AccountId, Caller, Decimal, Holding};
use bellbird_reads::{ConnectionContext, SelectedAccounts};
use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::http::documented::BrokerageErrors;
use crate::http::extract::ConnectionQuery;
use crate::http::json::write_json;
use crate::http::parameters::{AccountParam, ConnectionParam};
use crate::http::{Authorized, BrokerageConnection, LivePermit, Problem};
use crate::v1::cache::{AccountHoldings, HoldingsKey};
use crate::v1::live::{CacheStatus, JsonText, LiveBody, LiveOutcome};
use crate::v1::state::V1State;

/// Read holdings
///
/// The current positions of a brokerage connection, read live from the broker's data provider. All
/// accounts of the connection are read together and cached for ten minutes for each key and
/// connection (`X-Cache: HIT`, with its `Age` in seconds). `accountId` filters them. Needs the
/// Professional plan.
///
/// `marketValue` and `unrealizedPnl` are calculated exactly from the other values (and the contract
/// multiplier, for options and futures), without trailing zeros. They are null if one of those
/// values is missing.
#[utoipa::path(
    get, path = "/v1/holdings", tag = "Holdings and trades",
    params(HoldingsQuery),
    responses(
        (
            status = 200, description = "All positions.", body = HoldingList,
            headers(("X-Cache"), ("Age")),
        ),
        BrokerageErrors,
    ),
)]
pub(super) async fn list_holdings(
    State(state): State<V1State>,
    Authorized {
        caller,
        now,
        permit,
        ..
    }: Authorized,
    BrokerageConnection(broker): BrokerageConnection<HoldingsQuery>,
) -> Result<Response, Problem> {
    let requested_ids = broker.account_ids();
    let key = HoldingsKey {
        key_id: caller.key_id,
        connection_id: broker.context.connection.id,
    };
    if let Some((cached, age)) = state.inner.holdings_cache.get(&key, now).await {
        let find = |id| {
            cached
                .iter()
                .find(|(cached_id, _)| *cached_id == id)
                .map(|(_, rows)| &rows.0)
        };
        // An account added after the cached read is missing from the cache.
        if let Some(parts) = requested_ids
            .iter()
            .map(|id| find(*id))
            .collect::<Option<Vec<&Bytes>>>()
        {
            return Ok(holdings_body(&parts).response(CacheStatus::Hit(age)));
        }
    }
    let revision = caller.revision;
    let reading = state.clone();
    let read = async move {
        let read = reading.clone();
        let (read, calls) = read.read_holdings(caller, broker.context, permit).await;
        let found = match read {
            Ok(found) => found,
            Err(problem) => return (Err(problem), calls),
        };
        let complete = found
            .iter()
            .map(|(id, rows)| Some((*id, JsonText(rows.as_ref().ok()?.clone()))))
            .collect();
        let cache_status = reading.inner.holdings_cache.store(key, complete, now).await;
        (Ok((found, cache_status)), calls)
    };
    let flights = &state.inner.holdings_flights;
    let (found, cache_status) = flights.join(key, revision, read).await?;
    let requested = found.iter().filter(|(id, _)| requested_ids.contains(id));
    let requested = requested
        .map(|(_, rows)| rows.as_ref())
        .collect::<Result<Vec<&Bytes>, &Problem>>();
    let body = holdings_body(&requested.map_err(Problem::clone)?);
    Ok(body.response(cache_status))
}

/// `parts` are the rows of one account each, and may be empty.
fn holdings_body(parts: &[&Bytes]) -> LiveBody {
    let filled: Vec<&[u8]> = parts
        .iter()
        .map(|part| part.as_ref())
        .filter(|part| !part.is_empty())
        .collect();
    let json = [br#"{"data":["#, &*filled.join(&b','), b"]}"].concat();
    LiveBody {
        json: json.into(),
        truncated: false,
        complete: true,
    }
}

/// Writes a row, after a comma unless it is the account's first.
fn write_holding(holding: &Holding<'_>, out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    write_json(&HoldingView::new(holding), out);
}

impl V1State {
    async fn read_holdings(
        self,
        caller: Caller,
        context: Arc<ConnectionContext>,
        _permit: LivePermit,
    ) -> LiveOutcome<AccountHoldings> {
        let call = self.context.call_context(&caller);
        let selected = SelectedAccounts::all(Arc::clone(&context));
        let outcome = self
            .context
            .reads()
            .holdings(&call, &selected, &write_holding)
            .await;
        let outcome = match outcome {
            Ok(accounts) => {
                let mut holdings = Vec::with_capacity(accounts.len());
                for (id, rows) in accounts {
                    holdings.push(match rows {
                        Ok(rows) => (id, Ok(Bytes::from(rows))),
                        Err(error) => (
                            id,
                            Err(self
                                .context
                                .after_failed_read(&caller, &context, &error)
                                .await),
                        ),
                    });
                }
                Ok(holdings.into())
            }
            Err(error) => Err(self
                .context
                .after_failed_read(&caller, &context, &error)
                .await),
        };
        (outcome, call.calls())
    }
}

impl ConnectionQuery for HoldingsQuery {
    fn ids(&self) -> (ConnectionParam, Option<AccountParam>) {
        (self.connection_id, self.account_id)
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct HoldingsQuery {
    /// The connection to read: an `id` from `/v1/connections`.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    connection_id: ConnectionParam,
    /// One account of the connection: an `id` from `/v1/accounts`. Without it, the response
    /// contains all accounts of the connection.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    account_id: Option<AccountParam>,
}

/// A position of a brokerage account. Only `symbol`, `currency` and `quantity` always have a value.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Holding)]
pub struct HoldingView<'a> {
    /// Identifier, stable across requests. Opaque.
    #[schema(
        example = "0191e7a0-91d4-7a01-8000-00aabbccddee:1ef3a5d3-4a9b-40b2-b8d1-cc35f74d6324"
    )]
    id: String,
    /// The account that holds the position.
    #[schema(value_type = Uuid, example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Display name of that account.
    #[schema(example = "Margin Account")]
    account_name: &'a str,
    /// Ticker.
    #[schema(example = "AAPL")]
    symbol: &'a str,
    /// The security's name.
    #[schema(required = true, example = "Apple Inc.")]
    name: Option<&'a str>,
    /// The exchange as the broker names it: a MIC or an exchange code.
    #[schema(required = true, example = "XNAS")]
    exchange: Option<&'a str>,
    /// ISO 4217 code of the prices and values, or the ticker of a crypto asset.
    #[schema(example = "USD")]
    currency: &'a str,
    /// Number of units, an exact decimal with the provider's digits. Negative for a short position.
    /// Fractions occur.
    #[schema(value_type = String, pattern = "^-?[0-9]+(\\.[0-9]+)?$", example = "10.5")]
    quantity: &'a Decimal<'a>,
    /// Average cost of a unit, an exact decimal.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "118.2"
    )]
    average_price: Option<&'a Decimal<'a>>,
    /// Latest price of a unit, an exact decimal.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "123.45"
    )]
    current_price: Option<&'a Decimal<'a>>,
    /// Value of the position, an exact decimal: quantity times current price, times the contract
    /// multiplier.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "1296.225"
    )]
    market_value: Option<&'a Decimal<'a>>,
    /// `marketValue` minus the cost, an exact decimal: quantity times average price, times the
    /// contract multiplier.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "55.125"
    )]
    unrealized_pnl: Option<&'a Decimal<'a>>,
}

impl<'a> HoldingView<'a> {
    pub fn new(holding: &'a Holding<'a>) -> Self {
        Self {
            id: holding.id(),
            account_id: holding.account.id,
            account_name: &holding.account.name,
            symbol: &holding.symbol,
            name: holding.name.as_deref(),
            exchange: holding.exchange.as_deref(),
            currency: &holding.currency,
            quantity: &holding.quantity,
            average_price: holding.average_price.as_ref(),
            current_price: holding.current_price.as_ref(),
            market_value: holding.market_value.as_ref(),
            unrealized_pnl: holding.unrealized_pnl.as_ref(),
        }
    }
}

/// All positions, account by account.
#[derive(utoipa::ToSchema)]
pub struct HoldingList<'a> {
    /// The holdings.
    #[expect(
        dead_code,
        reason = "describes the body that the handler writes row by row"
    )]
    data: Vec<HoldingView<'a>>,
}
