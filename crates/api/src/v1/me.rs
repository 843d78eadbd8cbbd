//! `GET /v1/me`: whose key it is, and what it may do.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{KeyId, Plan, UserId};
use bellbird_storage::KeyRecord;
use jiff::Timestamp;
use serde::Serialize;

use crate::http::json::respond;
use crate::http::{ApiContext, Authorized, NoParams, Problem, Query};
use crate::v1::state::V1State;

/// Show the key's user and limits
///
/// Works with every plan, also with one that has no API access. Counts as a request for metadata.
#[utoipa::path(
    get, path = "/v1/me", tag = "Service",
    responses((status = 200, description = "The key's user, the key and its limits.", body = Me)),
)]
pub(super) async fn show_me(
    State(state): State<V1State>,
    Authorized { caller, .. }: Authorized,
    Query(NoParams {}): Query<NoParams>,
) -> Result<Response, Problem> {
    let key = state
        .context
        .storage()
        .keys()
        .find(caller.key_id)
        .await?
        .ok_or(Problem::Unauthorized)?;
    let me = MeData {
        user_id: caller.user_id,
        plan: caller.plan,
        timezone: caller.timezone.iana_name().unwrap_or("UTC").to_owned(),
        key: key.into(),
        limits: limits(&state.context),
    };
    respond(&Me { data: me })
}

fn limits(api: &ApiContext) -> Limits {
    let quotas = api.quotas();
    let settings = &api.inner.settings;
    let limit = |number: u32| (number > 0).then_some(number);
    Limits {
        metadata_per_minute: quotas.metadata.calls(),
        balances_per_minute: quotas.balances.calls(),
        live_per_minute: quotas.live.calls(),
        live_in_flight: limit(settings.live_in_flight),
        provider_calls_per_minute: limit(settings.provider_calls_per_minute),
    }
}

/// The key's user, the key and its limits.
#[derive(Serialize, utoipa::ToSchema)]
pub struct Me {
    /// Who calls.
    data: MeData,
}

/// Who calls.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct MeData {
    /// The user whose data the key reads.
    #[schema(value_type = Uuid, example = "0191e79f-11aa-7c00-8000-00aabbccddee")]
    user_id: UserId,
    /// `saver`: no API access. `developer`: everything but holdings and trades. `professional`:
    /// everything.
    #[schema(inline, example = "professional")]
    plan: Plan,
    /// IANA timezone of the user, in which `date` of every row is a day.
    #[schema(example = "Australia/Sydney")]
    timezone: String,
    /// The key of this request.
    key: Key,
    /// The limits of each key, and of the user.
    limits: Limits,
}

/// An API key.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct Key {
    /// Identifier, a UUID.
    #[schema(value_type = Uuid, example = "0191e7a0-2b2b-7c00-8000-00aabbccddee")]
    id: KeyId,
    /// The name that the operator gave the key.
    #[schema(example = "spreadsheet")]
    name: String,
    /// The key's first characters.
    #[schema(example = "bb_004KdQz")]
    prefix: String,
    /// When the key was made, RFC 3339 in UTC.
    #[schema(example = "2026-08-01T02:10:00.25Z")]
    created_at: Timestamp,
    /// The key stops working at this time, RFC 3339 in UTC. Null if it does not expire.
    #[schema(required = true, example = "2027-08-01T02:10:00.25Z")]
    expires_at: Option<Timestamp>,
}

impl From<KeyRecord> for Key {
    fn from(key: KeyRecord) -> Self {
        let KeyRecord {
            id,
            name,
            prefix,
            created_at,
            expires_at,
            ..
        } = key;
        Self {
            id,
            name,
            prefix,
            created_at,
            expires_at,
        }
    }
}

/// Null where there is no limit.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct Limits {
    /// Requests a minute of the key for connections, accounts, categories and this path.
    #[schema(required = true, example = 60)]
    metadata_per_minute: Option<u32>,
    /// Requests a minute of the key for balances.
    #[schema(required = true, example = 30)]
    balances_per_minute: Option<u32>,
    /// Requests a minute of the key for transactions, holdings, trades and files together.
    #[schema(required = true, example = 30)]
    live_per_minute: Option<u32>,
    /// Such requests of the key at once.
    #[schema(required = true, example = 4)]
    live_in_flight: Option<u32>,
    /// Provider calls a minute for the user's requests, at each provider.
    #[schema(required = true, example = 300)]
    provider_calls_per_minute: Option<u32>,
}
