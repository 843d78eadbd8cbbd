//! `GET /v1/balances`: reads balances from the providers and caches complete responses.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{Account, AccountId, Balance, Caller, Currency, Decimal};
use bellbird_reads::ReadError;
use serde::{Deserialize, Serialize};

use crate::http::documented::PlanErrors;
use crate::http::json::to_json;
use crate::http::parameters::AccountIds;
use crate::http::problem::problem_from_read;
use crate::http::{Authorized, NotBefore, Problem, Query};
use crate::v1::cache::{BalancesKey, CachedBalances};
use crate::v1::live::{CacheStatus, JsonText, LiveBody, LiveOutcome};
use crate::v1::state::V1State;

/// Does not reveal which id was not found, nor whether it exists for another user.
const REQUESTED: &str = "One or more accounts";

/// Read balances
///
/// Read live from all providers concurrently. The response is cached for five minutes for each key
/// and set of accounts (`X-Cache: HIT`, with its `Age` in seconds). A response in which an account
/// failed is not cached (`X-Cache: BYPASS`). If the provider failed for an account, all three
/// values of that account are null, and `error` says why. If every account failed for a transient
/// reason, the response is 503.
#[utoipa::path(
    get, path = "/v1/balances", tag = "Balances",
    params(BalancesQuery),
    responses(
        (
            status = 200, description = "One balance for each requested account.",
            body = BalanceList, headers(("X-Cache"), ("Age")),
        ),
        (
            status = 400,
            description = "`accountIds` is missing, empty, repeated, or has more than 100 ids.",
        ),
        PlanErrors,
        (
            status = 404,
            description = "At least one id is not an account of this user. The response does not \
                           say which one.",
        ),
        (status = 503, description = "Every account's provider is temporarily unavailable."),
    ),
)]
pub(super) async fn list_balances(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    not_before: Option<Extension<NotBefore>>,
    Query(query): Query<BalancesQuery>,
) -> Result<Response, Problem> {
    let AccountIds(account_ids) = query.account_ids;
    let key = BalancesKey {
        key_id: caller.key_id,
        account_ids: account_ids.ok_or(Problem::NotFound(REQUESTED))?.into(),
    };
    let cached = state.inner.balances_cache.get(&key, now).await;
    let is_new_enough = |age| not_before.is_none_or(|Extension(NotBefore(at))| now - age >= at);
    if let Some((cached, age)) = cached.filter(|(_, age)| is_new_enough(*age)) {
        state
            .verify_ownership(&caller, &key.account_ids, &cached.revision)
            .await?;
        return Ok(cached.body.response(CacheStatus::Hit(age)));
    }
    let accounts = state.own_accounts(&caller, &key.account_ids).await?;
    let revision = caller.revision;
    let (reading, cached_as) = (state.clone(), key.clone());
    let read = async move {
        let read = reading.clone().read_balances(caller, accounts).await;
        let value = |body| CachedBalances {
            body,
            revision: Arc::new(AtomicI64::new(revision)),
        };
        let cache = &reading.inner.balances_cache;
        cache.store_read(cached_as, read, now, value).await
    };
    let flights = &state.inner.balances_flights;
    let (body, cache_status) = flights.join(key, revision, read).await?;
    Ok(body.response(cache_status))
}

impl V1State {
    async fn own_accounts(
        &self,
        caller: &Caller,
        ids: &[AccountId],
    ) -> Result<Vec<Account>, Problem> {
        let found = self.context.reads().own_accounts(caller, ids).await;
        found.map_err(|error| problem_from_read(&error, REQUESTED, ""))
    }

    /// Checks that the accounts of a cached response still belong to the caller. Queries the
    /// database only if the caller's revision has changed since the last check.
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

    async fn read_balances(self, caller: Caller, accounts: Vec<Account>) -> LiveOutcome {
        let call = self.context.call_context(&caller);
        let outcome = self.context.balances(&call, &caller, accounts).await;
        let outcome = outcome
            .map_err(|error| problem_from_read(&error, "", ""))
            .and_then(|found| {
                let view = found
                    .iter()
                    .map(|(account, read)| BalanceView::new(account.id, read.as_ref()));
                let json = JsonText(to_json(&BalanceList {
                    data: view.collect(),
                })?);
                Ok(LiveBody {
                    json,
                    truncated: false,
                    complete: found.iter().all(|(_, read)| read.is_ok()),
                })
            });
        (outcome, call.calls())
    }
}

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(super) struct BalancesQuery {
    /// Account ids from `/v1/accounts`, separated by commas, at most 100. Order and repetition make
    /// no difference.
    #[param(inline, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    account_ids: AccountIds,
}

/// The balance of one account. All three values are null if the read failed for this account.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Balance)]
pub struct BalanceView<'a> {
    /// The account.
    #[schema(value_type = Uuid, example = "0191e7a0-91d4-7a01-8000-00aabbccddee")]
    account_id: AccountId,
    /// Exact decimal with the provider's digits; negative when money is owed.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "-250.00"
    )]
    current_balance: Option<&'a Decimal<'static>>,
    /// Available funds, an exact decimal with the provider's digits.
    #[schema(
        value_type = Option<String>, required = true, pattern = "^-?[0-9]+(\\.[0-9]+)?$",
        example = "1500.00"
    )]
    available_balance: Option<&'a Decimal<'static>>,
    /// ISO 4217 code of both balances.
    #[schema(value_type = Option<String>, required = true, pattern = "^[A-Z]{3}$", example = "AUD")]
    currency: Option<Currency>,
    /// If the read failed, why, in the words of the header `Bellbird-Error`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "reconnect_required")]
    error: Option<&'static str>,
}

impl<'a> BalanceView<'a> {
    pub fn new(account_id: AccountId, read: Result<&'a Balance, &ReadError>) -> Self {
        let balance = read.ok();
        Self {
            account_id,
            error: read
                .err()
                .map(|error| problem_from_read(error, "", "").code()),
            current_balance: balance.and_then(|balance| balance.current.as_ref()),
            available_balance: balance.and_then(|balance| balance.available.as_ref()),
            currency: balance.and_then(|balance| balance.currency),
        }
    }
}

/// One entry for each requested account, in no particular order.
#[derive(Serialize, utoipa::ToSchema)]
pub struct BalanceList<'a> {
    /// The balances.
    pub data: Vec<BalanceView<'a>>,
}
