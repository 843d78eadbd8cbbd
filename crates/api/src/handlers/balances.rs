//! `GET /v1/balances`

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Extension;
use axum::extract::{RawQuery, State};
use axum::response::Response;
use bellbird_domain::{Account, AccountId, Caller};

use crate::guard::RequestTime;
use crate::live::{self, Cache, LiveAnswer, LiveOutcome};
use crate::params::{ACCOUNT_IDS_MAX, Params, split_ids};
use crate::problem::{Problem, from_read};
use crate::state::{AppState, BalancesKey, CachedBalances};
use crate::views::{BalanceList, BalanceView};

/// Says nothing about which of several ids it was, nor why.
const NOT_FOUND: Problem = Problem::NotFound("One or more accounts");

/// Read balances
///
/// Live from the providers, all at the same time. The answer is kept for five minutes for each key and set of accounts
/// (`X-Cache: HIT`, with its `Age` in seconds); an answer in which an account failed is not kept (`X-Cache: BYPASS`).
/// An account for which the provider failed has null in all three values; when every account failed for a reason that may
/// pass, the answer is 503.
#[utoipa::path(
    get,
    path = "/v1/balances",
    tag = "Balances",
    responses((status = 200, description = "One balance for each account asked for.", body = BalanceList))
)]
pub(crate) async fn list_balances(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    Extension(RequestTime(now)): Extension<RequestTime>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let key = BalancesKey { key_id: caller.key_id, account_ids: read_ids(query.as_deref())?.into() };
    if let Some((cached, age)) = state.inner.balances_cache.get(&key, now) {
        state.still_own(&caller, &key.account_ids, &cached.revision).await?;
        return Ok(live::answer(cached.body, Cache::Hit(age), false));
    }
    let accounts = state.own_accounts(&caller, &key.account_ids).await?;
    let revision = caller.revision;
    let reader = state.clone();
    let work = move || async move { reader.read_balances(&caller, accounts).await };
    let respond = |live: LiveAnswer| {
        if !live.whole || state.inner.settings.balances_cache.is_zero() {
            return live::answer(live.body, Cache::Bypass, false);
        }
        let cached = CachedBalances { body: live.body.clone(), revision: Arc::new(AtomicI64::new(revision)) };
        state.inner.balances_cache.insert(key.clone(), cached, now);
        live::answer(live.body, Cache::Miss, false)
    };
    Ok(live::ask(&state.inner.balances_flights, key.clone(), work, respond).await)
}

/// The ids as a sorted set: their order makes no difference.
fn read_ids(query: Option<&str>) -> Result<Vec<AccountId>, Problem> {
    const MISSING: &str = "accountIds is required";
    let mut params = Params::read(query, &["accountIds"]);
    let list = params.required("accountIds", MISSING);
    let ids = split_ids(&list);
    params.finish()?;
    if ids.is_empty() {
        return Err(Problem::BadRequest { message: MISSING, details: vec!["accountIds: Must be given".to_owned()] });
    }
    if ids.len() > ACCOUNT_IDS_MAX {
        let details = vec![format!("accountIds: Must be at most {ACCOUNT_IDS_MAX} ids")];
        return Err(Problem::BadRequest { message: "Too many accountIds", details });
    }
    let mut ids: Vec<AccountId> = ids.into_iter().map(str::parse).collect::<Result<_, _>>().map_err(|_| NOT_FOUND)?;
    ids.sort_unstable();
    // Two spellings of one id were two texts.
    ids.dedup();
    Ok(ids)
}

impl AppState {
    async fn own_accounts(&self, caller: &Caller, ids: &[AccountId]) -> Result<Vec<Account>, Problem> {
        self.inner.reads.own_accounts(caller, ids).await.map_err(|error| match from_read(&error, "", "") {
            Problem::NotFound(_) => NOT_FOUND,
            problem => problem,
        })
    }

    /// Whether what is cached still concerns the caller's own accounts; looked up when anything of theirs changed since.
    async fn still_own(&self, caller: &Caller, ids: &[AccountId], seen_at: &AtomicI64) -> Result<(), Problem> {
        if seen_at.load(Ordering::Relaxed) != caller.revision {
            self.own_accounts(caller, ids).await?;
            seen_at.store(caller.revision, Ordering::Relaxed);
        }
        Ok(())
    }

    async fn read_balances(&self, caller: &Caller, accounts: Vec<Account>) -> LiveOutcome {
        let call = self.inner.reads.call();
        let outcome = self.inner.reads.balances(&call, caller, accounts).await;
        let outcome = outcome.map_err(|error| from_read(&error, "", "")).and_then(|found| {
            for connection_id in &found.broken {
                self.inner.connections.check_soon(caller.user_id, *connection_id);
            }
            let data = found.balances.iter().map(|(id, balance)| BalanceView::new(*id, balance.as_ref())).collect();
            let body = serde_json::to_vec(&BalanceList { data }).map_err(|_| Problem::Internal)?;
            Ok(LiveAnswer { body: body.into(), truncated: false, whole: found.is_whole() })
        });
        (outcome, call.calls())
    }
}
