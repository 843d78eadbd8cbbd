//! `GET /v1/connections`: from the database, cached until the user's revision changes.

use axum::extract::State;
use axum::response::Response;
use bellbird_connections::ProviderSchema;
use bellbird_domain::connection::schema_of;
use bellbird_domain::{Connection, ConnectionCategory, ConnectionId, ConnectionStatus};
use jiff::Timestamp;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};

use crate::http::documented::PlanErrors;
use crate::http::json::{json_bytes, to_json};
use crate::http::{Authorized, NoParams, Problem, Query};
use crate::v1::metadata_cache::MetadataList;
use crate::v1::state::V1State;

/// List connections
///
/// All connections of the user, newest first. Connections that are being removed are not shown.
#[utoipa::path(
    get, path = "/v1/connections", tag = "Connections and accounts",
    responses((status = 200, description = "The connections.", body = ConnectionList), PlanErrors),
)]
pub(super) async fn list_connections(
    State(state): State<V1State>,
    Authorized { caller, now, .. }: Authorized,
    Query(NoParams {}): Query<NoParams>,
) -> Result<Response, Problem> {
    let (cache, list) = (&state.inner.metadata_cache, MetadataList::Connections);
    if let Some(body) = cache.get(&caller, list, now) {
        return Ok(json_bytes(body));
    }
    let connections = state
        .context
        .storage()
        .connections()
        .list(caller.user_id)
        .await?;
    let body = to_json(&ConnectionList {
        data: connections.iter().map(ConnectionView::from).collect(),
    })?;
    cache.insert(&caller, list, body.clone(), now);
    Ok(json_bytes(body))
}

/// A link between the user and one institution through one provider.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Connection)]
pub struct ConnectionView<'a> {
    /// Identifier, a UUID assigned by this service.
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    pub id: ConnectionId,
    /// The provider of the data, such as `fiskil` (Australian banking).
    #[schema(inline, value_type = ProviderSchema, example = "fiskil")]
    pub provider: &'a str,
    /// The kind of institution.
    #[schema(inline, example = "banking")]
    pub category: ConnectionCategory,
    /// The provider's identifier of the institution. Opaque.
    #[schema(example = "22")]
    pub institution_id: &'a str,
    /// Display name of the institution.
    #[schema(example = "Wattle Bank")]
    pub institution_name: &'a str,
    /// URL of the institution's logo.
    #[schema(format = "uri", example = "https://cdn.example/logos/22.svg")]
    #[schema(required = true)]
    pub institution_logo: Option<&'a str>,
    /// `active`: readable. `invalidated`: credentials or consent expired, the user must reconnect.
    /// `pending_mfa`: the institution is waiting for the user. `revoked`: consent was withdrawn.
    #[schema(inline, value_type = StatusSchema, example = "active")]
    pub status: ConnectionStatus,
    /// When the user's consent ends unless they renew it, or when it ended, RFC 3339 in UTC. Null
    /// if the provider does not say.
    #[schema(required = true, example = "2027-08-01T02:10:00Z")]
    pub consent_expires_at: Option<Timestamp>,
    /// When the provider last returned data, RFC 3339 in UTC.
    #[schema(required = true, example = "2026-11-20T21:04:11.52Z")]
    pub last_refreshed_at: Option<Timestamp>,
    /// When the connection was linked, RFC 3339 in UTC.
    #[schema(example = "2026-08-01T02:10:00.25Z")]
    pub created_at: Timestamp,
}

impl<'a> From<&'a Connection> for ConnectionView<'a> {
    fn from(connection: &'a Connection) -> Self {
        Self {
            id: connection.id,
            provider: &connection.provider,
            category: connection.category,
            institution_id: &connection.institution_id,
            institution_name: &connection.institution_name,
            institution_logo: connection.institution_logo.as_deref(),
            status: connection.status,
            consent_expires_at: connection.consent_expires_at,
            last_refreshed_at: connection.last_refreshed_at,
            created_at: connection.created_at,
        }
    }
}

/// The statuses that a user sees. A connection that is being removed is not shown.
struct StatusSchema;

impl utoipa::PartialSchema for StatusSchema {
    fn schema() -> RefOr<Schema> {
        let shown = ConnectionStatus::ALL
            .iter()
            .filter(|one| **one != ConnectionStatus::Deleting);
        schema_of(shown.map(|status| status.as_str()))
    }
}

impl utoipa::ToSchema for StatusSchema {}

/// All connections, newest first.
#[derive(Serialize, utoipa::ToSchema)]
pub struct ConnectionList<'a> {
    /// The connections.
    pub data: Vec<ConnectionView<'a>>,
}
