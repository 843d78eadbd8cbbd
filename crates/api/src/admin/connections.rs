//! Connections of users: list, show, sync, remove. Without accounts, which are the users' own
//! business.

use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use bellbird_connections::ProviderSchema;
use bellbird_domain::{Connection, ConnectionCategory, ConnectionId, ConnectionStatus, UserId};
use bellbird_management::connections::{self, ConnectionDetails};
use bellbird_storage::{PendingRemoval, Storage, SyncState};
use http::StatusCode;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::admin::change::{ChangeRequest, IdempotencyKey, Rejection, commit};
use crate::admin::inputs::UserIdText;
use crate::admin::list::{Cursor, Item, Page, PageLimit, page_size};
use crate::admin::state::Admin;
use crate::http::json::respond;
use crate::http::{NoParams, Operator, PathId, Problem, Query};

const TAG: &str = "Connections";

#[derive(Deserialize, utoipa::IntoParams)]
#[serde(rename_all = "camelCase")]
#[into_params(parameter_in = Query)]
pub(crate) struct ConnectionsQuery {
    /// Connections of one page, at most 200.
    #[param(inline, example = 50)]
    limit: Option<PageLimit>,
    /// The `nextCursor` of the page before.
    #[param(value_type = Option<String>)]
    cursor: Option<Cursor<ConnectionId>>,
    /// Only those of this user.
    #[param(value_type = Option<Uuid>)]
    user_id: Option<UserIdText>,
}

/// A link between a user and one institution through one provider.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Connection)]
struct ConnectionView {
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    id: ConnectionId,
    #[schema(value_type = Uuid, example = "0191e7a0-7c3b-7def-8000-00aabbccddee")]
    user_id: UserId,
    /// The provider of the data.
    #[schema(inline, value_type = ProviderSchema, example = "fiskil")]
    provider: String,
    /// The kind of institution.
    #[schema(inline, example = "banking")]
    category: ConnectionCategory,
    /// The provider's identifier of the institution. Opaque.
    #[schema(example = "22")]
    institution_id: String,
    #[schema(example = "Wattle Bank")]
    institution_name: String,
    /// As in `/v1/connections`, or `deleting`: it is being removed.
    #[schema(inline, example = "active")]
    status: ConnectionStatus,
    /// When the provider last returned data.
    #[schema(required = true, example = "2026-11-20T21:04:11.52Z")]
    last_refreshed_at: Option<Timestamp>,
    /// When the user's consent ends unless they renew it, or when it ended. Null if the provider
    /// does not say.
    #[schema(required = true, example = "2027-08-01T02:10:00Z")]
    consent_expires_at: Option<Timestamp>,
    #[schema(example = "2026-08-01T02:10:00.25Z")]
    created_at: Timestamp,
}

/// A connection with its jobs.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ConnectionDetails)]
struct DetailsView {
    #[serde(flatten)]
    connection: ConnectionView,
    /// Null: it is being removed.
    #[schema(required = true)]
    sync: Option<ConnectionSync>,
    /// Null: it is not being removed.
    #[schema(required = true)]
    removal: Option<ConnectionRemoval>,
}

/// The syncs of a connection.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConnectionSync {
    /// The start of the last successful sync.
    #[schema(required = true, example = "2026-11-20T21:04:11.52Z")]
    synced_at: Option<Timestamp>,
    /// The next one.
    #[schema(required = true, example = "2026-11-21T03:04:11.52Z")]
    next_at: Option<Timestamp>,
    /// Why the last one failed.
    #[schema(required = true)]
    last_error: Option<String>,
}

/// A removal in progress.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct ConnectionRemoval {
    #[schema(example = "2026-11-21T03:04:11.52Z")]
    next_attempt_at: Timestamp,
    /// Failures so far.
    attempts: u32,
    /// Why the last attempt failed.
    #[schema(required = true)]
    last_error: Option<String>,
}

impl From<Connection> for ConnectionView {
    fn from(connection: Connection) -> Self {
        Self {
            id: connection.id,
            user_id: connection.user_id,
            provider: connection.provider,
            category: connection.category,
            institution_id: connection.institution_id,
            institution_name: connection.institution_name,
            status: connection.status,
            last_refreshed_at: connection.last_refreshed_at,
            consent_expires_at: connection.consent_expires_at,
            created_at: connection.created_at,
        }
    }
}

impl From<ConnectionDetails> for DetailsView {
    fn from(details: ConnectionDetails) -> Self {
        let sync = |sync: SyncState| ConnectionSync {
            synced_at: sync.synced_at,
            next_at: sync.next_at,
            last_error: sync.last_error,
        };
        let removal = |removal: PendingRemoval| ConnectionRemoval {
            next_attempt_at: removal.next_attempt_at,
            attempts: removal.attempts,
            last_error: removal.last_error,
        };
        Self {
            connection: details.connection.into(),
            sync: details.sync.map(sync),
            removal: details.removal.map(removal),
        }
    }
}

type ConnectionItem = Item<DetailsView>;
type ConnectionList = Page<ConnectionView>;

/// List connections
///
/// Oldest first, of all users or of one, also those that are being removed.
#[utoipa::path(
    get, path = "/admin/v1/connections", tag = TAG,
    params(ConnectionsQuery),
    responses((status = 200, description = "A page of connections.", body = ConnectionList)),
)]
pub(super) async fn list_connections(
    State(admin): State<Admin>,
    Query(query): Query<ConnectionsQuery>,
) -> Result<Response, Problem> {
    let (size, after) = (page_size(query.limit), query.cursor.map(|cursor| cursor.0));
    let connections = admin.storage().connections();
    let user = query.user_id.map(|user| user.0);
    let found = connections.list_after(after, user, size + 1).await?;
    let page: ConnectionList = Page::of(found, size, |connection| connection.id);
    respond(&page)
}

/// Get a connection
///
/// Also its last sync, and its removal if that is pending.
#[utoipa::path(
    get, path = "/admin/v1/connections/{id}", tag = TAG,
    params(PathId<ConnectionId>),
    responses((status = 200, description = "The connection.", body = ConnectionItem)),
)]
pub(super) async fn get_connection(
    State(admin): State<Admin>,
    PathId(id): PathId<ConnectionId>,
) -> Result<Response, Problem> {
    let details = find_details(&admin, id).await?;
    respond(&Item {
        data: DetailsView::from(details),
    })
}

/// Sync a connection now
///
/// The service syncs it as soon as possible; `sync.syncedAt` of the connection shows when. Rows
/// that are new or changed go to the webhook endpoints.
#[utoipa::path(
    post, path = "/admin/v1/connections/{id}/sync", tag = TAG,
    params(PathId<ConnectionId>, IdempotencyKey),
    responses(
        (status = 202, description = "The sync is requested.", body = ConnectionItem),
        (
            status = 409,
            description = "The connection is being removed, or syncs are off \
                           (`sync.enabled`).",
        ),
    ),
)]
pub(super) async fn sync_connection(
    State(admin): State<Admin>,
    PathId(id): PathId<ConnectionId>,
    request: ChangeRequest<NoParams>,
) -> Result<Response, Rejection> {
    // Read before the change begins, and judged after it, because a repeated request gets its
    // response anyway.
    let found = find_details(&admin, id).await;
    let mut change = request.begin().await?;
    let details = found?;
    let connection = details.connection.clone();
    connections::require_syncable(admin.context.connections(), &connection)?;
    connections::request_sync(&mut change, &connection).await?;
    let data = DetailsView::from(details);
    let response = commit(change, StatusCode::ACCEPTED, data).await?;
    let syncs = admin.context.connections().syncs();
    syncs.wake(&connection.provider);
    Ok(response)
}

/// Remove a connection
///
/// Its user cannot read it from now on. The service then withdraws the consent at the provider,
/// tries again for as long as that fails, and deletes the connection: until then its status is
/// `deleting`, afterwards it is 404.
#[utoipa::path(
    delete, path = "/admin/v1/connections/{id}", tag = TAG,
    params(PathId<ConnectionId>),
    responses(
        (
            status = 202,
            description = "The connection is hidden, and will be removed.",
            body = ConnectionItem,
        ),
    ),
)]
pub(super) async fn remove_connection(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(id): PathId<ConnectionId>,
) -> Result<Response, Rejection> {
    let connection = find(admin.storage(), id).await?;
    let mut change = admin.begin(&operator).await?;
    if connections::remove(&mut change, &connection).await? {
        change.commit().await?;
        let removals = admin.context.connections().removals();
        removals.wake(&connection.provider);
    } else {
        drop(change);
    }
    let connection = Connection {
        status: ConnectionStatus::Deleting,
        ..connection
    };
    let details = connections::details(admin.storage(), connection).await?;
    let data = DetailsView::from(details);
    Ok((StatusCode::ACCEPTED, respond(&Item { data })?).into_response())
}

async fn find(storage: &Storage, id: ConnectionId) -> Result<Connection, Problem> {
    storage
        .connections()
        .find_any(id)
        .await?
        .ok_or(Problem::NotFound("Connection"))
}

async fn find_details(admin: &Admin, id: ConnectionId) -> Result<ConnectionDetails, Problem> {
    let connection = find(admin.storage(), id).await?;
    Ok(connections::details(admin.storage(), connection).await?)
}
