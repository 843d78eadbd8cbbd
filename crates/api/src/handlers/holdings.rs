//! `GET /v1/holdings`: reads all accounts of a connection at once and caches them by connection.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use bellbird_domain::{AccountId, Caller, ConnectionCategory, Holding};
use bellbird_reads::ConnectionContext;
use bytes::Bytes;

use crate::cache::{AccountHoldings, HoldingsKey, LiveOutcome};
use crate::front::extract::{Admitted, Query};
use crate::front::json::write_json;
use crate::front::problem::Problem;
use crate::live::{self, CacheStatus};
use crate::queries::HoldingsQuery;
use crate::state::AppState;
use crate::views::{HoldingList, HoldingView};

/// Read holdings
///
/// The current positions of a brokerage connection, read live from the broker's data provider. All accounts of the
/// connection are read together and cached for ten minutes for each key and connection (`X-Cache: HIT`, with its `Age`
/// in seconds). `accountId` filters them. Needs the Professional plan.
///
/// `marketValue` and `unrealizedPnl` are calculated exactly from the other values (and the contract multiplier, for
/// options and futures), without trailing zeros. They are null if one of those values is missing.
#[utoipa::path(
    get,
    path = "/v1/holdings",
    tag = "Holdings and trades",
    params(HoldingsQuery),
    responses((status = 200, description = "All positions.", body = HoldingList))
)]
pub(crate) async fn list_holdings(
    State(state): State<AppState>,
    Admitted { caller, now, permit }: Admitted,
    Query(HoldingsQuery { connection_id, account_id }): Query<HoldingsQuery>,
) -> Result<Response, Problem> {
    let (context, account_id) =
        state.access.connection_context(&caller, connection_id, account_id, ConnectionCategory::Brokerage).await?;
    let key = HoldingsKey { key_id: caller.key_id, connection_id: context.connection.id };
    let requested_ids: Vec<AccountId> = context
        .accounts
        .iter()
        .map(|account| account.id)
        .filter(|id| account_id.is_none_or(|requested| requested == *id))
        .collect();
    if let Some((cached, age)) = state.inner.holdings_cache.get(&key, now) {
        let find = |id| cached.iter().find(|(cached_id, _)| *cached_id == id).map(|(_, rows)| rows);
        // An account added after the cached read is missing from the cache.
        if let Some(parts) = requested_ids.iter().map(|id| find(*id)).collect::<Option<Vec<&Bytes>>>() {
            return Ok(live::response(holdings_body(&parts), CacheStatus::Hit(age), false));
        }
    }
    let flight_key = (key, caller.revision);
    let reader = state.clone();
    let work = move || async move {
        let _permit = permit;
        reader.read_holdings(&caller, &context).await
    };
    let respond = |found: AccountHoldings| {
        let requested_rows = found.iter().filter(|(id, _)| requested_ids.contains(id)).map(|(_, rows)| rows.as_ref());
        let body = match requested_rows.collect::<Result<Vec<&Bytes>, &Problem>>() {
            Ok(parts) => holdings_body(&parts),
            Err(problem) => return problem.clone().into_response(),
        };
        let complete =
            found.iter().map(|(id, rows)| Some((*id, rows.as_ref().ok()?.clone()))).collect::<Option<Arc<[_]>>>();
        match complete.filter(|_| !state.inner.settings.holdings_cache.is_zero()) {
            Some(complete) => {
                state.inner.holdings_cache.insert(key, complete, now);
                live::response(body, CacheStatus::Miss, false)
            }
            None => live::response(body, CacheStatus::Bypass, false),
        }
    };
    Ok(live::coalesce(&state.inner.holdings_flights, flight_key, work, respond).await)
}

/// `parts` are the rows of one account each, and may be empty.
fn holdings_body(parts: &[&Bytes]) -> Bytes {
    let filled: Vec<&[u8]> = parts.iter().map(|part| part.as_ref()).filter(|part| !part.is_empty()).collect();
    [br#"{"data":["#, &*filled.join(&b','), b"]}"].concat().into()
}

/// Writes a row, after a comma unless it is the account's first.
fn write_holding(holding: &Holding<'_>, out: &mut Vec<u8>) {
    if !out.is_empty() {
        out.push(b',');
    }
    write_json(&HoldingView::new(holding), out);
}

impl AppState {
    async fn read_holdings(&self, caller: &Caller, context: &ConnectionContext) -> LiveOutcome<AccountHoldings> {
        let call = self.access.call_context(caller);
        let outcome = self.access.reads().holdings(&call, context, &write_holding).await;
        let outcome = match outcome {
            Ok(accounts) => {
                let mut holdings = Vec::with_capacity(accounts.len());
                for (id, rows) in accounts {
                    holdings.push(match rows {
                        Ok(rows) => (id, Ok(Bytes::from(rows))),
                        Err(error) => (id, Err(self.access.after_failed_read(caller, context, &error).await)),
                    });
                }
                Ok(holdings.into())
            }
            Err(error) => Err(self.access.after_failed_read(caller, context, &error).await),
        };
        (outcome, call.calls())
    }
}
