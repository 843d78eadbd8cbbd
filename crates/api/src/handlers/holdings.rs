//! `GET /v1/holdings`

use std::sync::Arc;

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::{IntoResponse, Response};
use bellbird_domain::{AccountId, Caller, ConnectionCategory, ConnectionId, KeyId};
use bellbird_reads::Scope;
use bytes::Bytes;

use crate::guard::{LivePlace, RequestTime};
use crate::live::{self, Cache, LiveOutcome};
use crate::params::Params;
use crate::problem::Problem;
use crate::state::AppState;
use crate::views::{HoldingList, HoldingView, write};

const KNOWN: &[&str] = &["connectionId", "accountId"];

/// What is kept: one connection's holdings, for one key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct HoldingsKey {
    key_id: KeyId,
    pub(crate) connection_id: ConnectionId,
}

/// Each account's holdings as JSON, separated by commas, or why there are none.
pub(crate) type AccountHoldings = Arc<[(AccountId, Result<Bytes, Problem>)]>;

/// Read holdings
///
/// What a brokerage connection holds now, live from the broker's data provider. All accounts of the connection are read at
/// the same time and kept for ten minutes for each key and connection (`X-Cache: HIT`, with its `Age` in seconds);
/// `accountId` chooses among them. Needs the Professional plan.
///
/// `marketValue` and `unrealizedPnl` are the exact products of the other values (and of the contract multiplier, for
/// options and futures), without zeros at the end; null when one of them is missing.
#[utoipa::path(
    get,
    path = "/v1/holdings",
    tag = "Holdings and trades",
    responses((status = 200, description = "Everything that is held.", body = HoldingList))
)]
pub(crate) async fn list_holdings(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(place): Extension<LivePlace>,
    Extension(RequestTime(now)): Extension<RequestTime>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let (connection_id, account_id) = read_request(query.as_deref())?;
    let scope = state.scope(&caller, connection_id, account_id, ConnectionCategory::Brokerage).await?;
    let key = HoldingsKey { key_id: caller.key_id, connection_id };
    let asked: Vec<AccountId> = scope
        .accounts
        .iter()
        .map(|account| account.id)
        .filter(|id| account_id.is_none_or(|wanted| wanted == *id))
        .collect();
    if let Some((kept, age)) = state.inner.holdings_cache.get(&key, now) {
        let find = |id| kept.iter().find(|(known, _)| *known == id).map(|(_, rows)| rows);
        // An account that is new since is not there.
        if let Some(parts) = asked.iter().map(|id| find(*id)).collect::<Option<Vec<&Bytes>>>() {
            return Ok(live::answer(body(&parts), Cache::Hit(age), false));
        }
    }
    let flight = (key, caller.revision);
    let reader = state.clone();
    let work = move || async move {
        let _place = place;
        reader.read_holdings(&caller, &scope).await
    };
    let respond = |found: AccountHoldings| {
        let of_asked = found.iter().filter(|(id, _)| asked.contains(id)).map(|(_, rows)| rows.as_ref());
        let body = match of_asked.collect::<Result<Vec<&Bytes>, &Problem>>() {
            Ok(parts) => body(&parts),
            Err(problem) => return problem.clone().into_response(),
        };
        let whole =
            found.iter().map(|(id, rows)| Some((*id, rows.as_ref().ok()?.clone()))).collect::<Option<Arc<[_]>>>();
        match whole.filter(|_| !state.inner.settings.holdings_cache.is_zero()) {
            Some(whole) => {
                state.inner.holdings_cache.insert(key, whole, now);
                live::answer(body, Cache::Miss, false)
            }
            None => live::answer(body, Cache::Bypass, false),
        }
    };
    Ok(live::ask(&state.inner.holdings_flights, flight, work, respond).await)
}

fn read_request(query: Option<&str>) -> Result<(ConnectionId, Option<AccountId>), Problem> {
    let mut params = Params::read(query, KNOWN);
    let connection_id = params.required("connectionId", "connectionId is required");
    let account_id = params.take("accountId");
    params.finish()?;
    Ok((live::read_id(&connection_id, "Connection")?, account_id.map(|id| live::read_account_id(&id))))
}

/// The body of these accounts' holdings.
fn body(parts: &[&Bytes]) -> Bytes {
    let filled: Vec<&[u8]> = parts.iter().map(|part| part.as_ref()).filter(|part| !part.is_empty()).collect();
    [br#"{"data":["#, &*filled.join(&b','), b"]}"].concat().into()
}

impl AppState {
    async fn read_holdings(&self, caller: &Caller, scope: &Scope) -> LiveOutcome<AccountHoldings> {
        let call = self.inner.reads.call();
        let outcome =
            self.inner.reads.holdings(&call, scope, |holding, out| write(&HoldingView::new(holding), out)).await;
        let outcome = match outcome {
            Ok(accounts) => {
                let mut holdings = Vec::with_capacity(accounts.len());
                for (id, rows) in accounts {
                    holdings.push(match rows {
                        Ok(rows) => (id, Ok(Bytes::from(rows))),
                        Err(error) => (id, Err(self.read_failed(caller, scope, &error).await)),
                    });
                }
                Ok(holdings.into())
            }
            Err(error) => Err(self.read_failed(caller, scope, &error).await),
        };
        (outcome, call.calls())
    }
}
