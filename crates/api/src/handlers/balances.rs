//! `GET /v1/balances`: reads balances from the providers and caches complete answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Account, AccountId, Caller};

use crate::cache::{BalancesKey, CachedBalances, LiveAnswer, LiveOutcome};
use crate::front::extract::{Admitted, Query};
use crate::front::json::to_json;
use crate::front::parameters::AccountIds;
use crate::front::problem::{Problem, problem_from_read};
use crate::live::{self, CacheStatus};
use crate::queries::BalancesQuery;
use crate::state::AppState;
use crate::views::{BalanceList, BalanceView};

/// Does not reveal which id was not found, nor whether it exists for another user.
const NOT_FOUND: Problem = Problem::NotFound("One or more accounts");

/// Read balances
///
/// Read live from all providers concurrently. The response is cached for five minutes for each key and set of accounts
/// (`X-Cache: HIT`, with its `Age` in seconds). A response in which an account failed is not cached
/// (`X-Cache: BYPASS`). If the provider failed for an account, all three values of that account are null. If every
/// account failed for a transient reason, the response is 503.
#[utoipa::path(
    get,
    path = "/v1/balances",
    tag = "Balances",
    params(BalancesQuery),
    responses((status = 200, description = "One balance for each requested account.", body = BalanceList))
)]
pub(crate) async fn list_balances(
    State(state): State<AppState>,
    Admitted { caller, now, .. }: Admitted,
    Query(query): Query<BalancesQuery>,
) -> Result<Response, Problem> {
    let AccountIds(account_ids) = query.account_ids;
    let key = BalancesKey { key_id: caller.key_id, account_ids: account_ids.ok_or(NOT_FOUND)?.into() };
    if let Some((cached, age)) = state.inner.balances_cache.get(&key, now) {
        state.verify_ownership(&caller, &key.account_ids, &cached.revision).await?;
        return Ok(live::response(cached.body, CacheStatus::Hit(age), false));
    }
    let accounts = state.own_accounts(&caller, &key.account_ids).await?;
    let revision = caller.revision;
    let reader = state.clone();
    let work = move || async move { reader.read_balances(&caller, accounts).await };
    let respond = |live: LiveAnswer| {
        if !live.complete || state.inner.settings.balances_cache.is_zero() {
            return live::response(live.body, CacheStatus::Bypass, false);
        }
        let cached = CachedBalances { body: live.body.clone(), revision: Arc::new(AtomicI64::new(revision)) };
        state.inner.balances_cache.insert(key.clone(), cached, now);
        live::response(live.body, CacheStatus::Miss, false)
    };
    Ok(live::coalesce(&state.inner.balances_flights, (key.clone(), revision), work, respond).await)
}

impl AppState {
    async fn own_accounts(&self, caller: &Caller, ids: &[AccountId]) -> Result<Vec<Account>, Problem> {
        self.access.reads().own_accounts(caller, ids).await.map_err(|error| match problem_from_read(&error, "", "") {
            Problem::NotFound(_) => NOT_FOUND,
            problem => problem,
        })
    }

    /// Checks that the accounts of a cached answer still belong to the caller. Queries the database only if the
    /// caller's revision has changed since the last check.
    async fn verify_ownership(
        &self,
        caller: &Caller,
        ids: &[AccountId],
        verified_revision: &AtomicI64,
    ) -> Result<(), Problem> {
        if verified_revision.load(Ordering::Relaxed) != caller.revision {
            self.own_accounts(caller, ids).await?;
            verified_revision.store(caller.revision, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn read_balances(&self, caller: &Caller, accounts: Vec<Account>) -> LiveOutcome {
        let call = self.access.call_context(caller);
        let outcome = self.access.reads().balances(&call, caller, accounts).await;
        let outcome = outcome.map_err(|error| problem_from_read(&error, "", "")).and_then(|found| {
            for connection_id in &found.broken {
                self.access.connections().refresh_in_background(caller.user_id, *connection_id);
            }
            let data = found.balances.iter().map(|(id, balance)| BalanceView::new(*id, balance.as_ref())).collect();
            let body = to_json(&BalanceList { data })?;
            Ok(LiveAnswer { body, truncated: false, complete: found.is_complete() })
        });
        (outcome, call.calls())
    }
}
