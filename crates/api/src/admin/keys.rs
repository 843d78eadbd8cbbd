//! API keys of users: create, list, rotate, revoke.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::{KeyId, UserId};
use bellbird_management::keys::{self, CreatedKey, NewKey};
use bellbird_storage::KeyRecord;
use http::StatusCode;
use jiff::SignedDuration;
use serde::{Deserialize, Serialize};

use crate::admin::change::{ChangeRequest, IdempotencyKey, Rejection, commit};
use crate::admin::inputs::{KeyName, Seconds, Time};
use crate::admin::list::Item;
use crate::admin::state::Admin;
use crate::admin::users;
use crate::http::json::respond;
use crate::http::{Operator, PathId, Problem};

const TAG: &str = "API keys";

/// A key to create.
#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = NewKey)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NewKeyBody {
    /// Name of the key, to recognise it in lists. 1 to 100 characters; `default` if absent.
    #[schema(value_type = Option<String>, nullable = false, example = "app")]
    name: Option<KeyName>,
    /// The key works before this time. If absent, it does not expire.
    #[schema(value_type = Option<Timestamp>, nullable = false, example = "2027-01-31T00:00:00Z")]
    expires_at: Option<Time>,
}

/// How to rotate a key.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KeyRotation {
    /// How long the old key stays valid, in seconds. 86400 if absent; 0 ends it immediately.
    #[schema(value_type = Option<u32>, nullable = false, example = 3600)]
    grace_seconds: Option<Seconds>,
}

/// A created key.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = CreatedKey)]
struct NewKeyView {
    #[serde(flatten)]
    record: KeyRecord,
    /// The key itself. Store it: it is not shown again.
    #[schema(example = "bb_...")]
    key: String,
}

/// The keys of a user.
#[derive(Serialize, utoipa::ToSchema)]
struct KeyList {
    data: Vec<KeyRecord>,
}

fn shown_once(created: CreatedKey) -> NewKeyView {
    NewKeyView {
        record: created.record,
        key: created.key.expose().to_owned(),
    }
}

type NewKeyItem = Item<NewKeyView>;

/// List a user's API keys
///
/// Oldest first, with revoked and expired ones.
#[utoipa::path(
    get, path = "/admin/v1/users/{id}/keys", tag = TAG,
    params(PathId<UserId>),
    responses(
        (status = 200, description = "The keys, without the keys themselves.", body = KeyList),
    ),
)]
pub(super) async fn list_keys(
    State(admin): State<Admin>,
    PathId(id): PathId<UserId>,
) -> Result<Response, Problem> {
    users::find(admin.storage(), id).await?;
    let keys = admin.storage().keys().list(id).await?;
    respond(&KeyList { data: keys })
}

/// Create an API key
///
/// The key reads all accounts of its user. It is in this response only: the database stores its
/// hash.
#[utoipa::path(
    post, path = "/admin/v1/users/{id}/keys", tag = TAG,
    params(PathId<UserId>, IdempotencyKey),
    request_body = NewKeyBody,
    responses(
        (status = 201, description = "The key, which is not shown again.", body = NewKeyItem),
        (
            status = 409,
            description = "The user has 100 API keys that work or were made within 30 days, or \
                           is being removed (`conflict`).",
        ),
    ),
)]
pub(super) async fn create_key(
    PathId(user_id): PathId<UserId>,
    request: ChangeRequest<NewKeyBody>,
) -> Result<Response, Rejection> {
    let NewKeyBody { name, expires_at } = &request.body;
    let mut change = request.begin().await?;
    let new = NewKey {
        user_id,
        name: name.as_ref().map(|name| &name.0),
        expires_at: expires_at.as_ref().map(|at| at.0),
    };
    let created = keys::create(&mut change, new).await?;
    commit(change, StatusCode::CREATED, shown_once(created)).await
}

/// Rotate an API key
///
/// The new key has the name and the `expiresAt` of the old one, which stays valid for
/// `graceSeconds`.
#[utoipa::path(
    post, path = "/admin/v1/keys/{id}/rotate", tag = TAG,
    params(PathId<KeyId>, IdempotencyKey),
    request_body = KeyRotation,
    responses(
        (status = 201, description = "The new key, which is not shown again.", body = NewKeyItem),
        (
            status = 409,
            description = "The key is revoked or expired, or the user has 100 API keys that \
                           work or were made within 30 days.",
        ),
    ),
)]
pub(super) async fn rotate_key(
    PathId(id): PathId<KeyId>,
    request: ChangeRequest<KeyRotation>,
) -> Result<Response, Rejection> {
    let grace = request.body.grace_seconds;
    let grace = grace.map_or(keys::DEFAULT_GRACE, |Seconds(grace)| {
        SignedDuration::from_secs(grace)
    });
    let mut change = request.begin().await?;
    let rotated = keys::rotate(&mut change, id, grace).await?;
    commit(change, StatusCode::CREATED, shown_once(rotated.new)).await
}

/// Revoke an API key
///
/// It is rejected from the next request on.
#[utoipa::path(
    delete, path = "/admin/v1/keys/{id}", tag = TAG,
    params(PathId<KeyId>),
    responses((status = 204, description = "The key is revoked.")),
)]
pub(super) async fn revoke_key(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(id): PathId<KeyId>,
) -> Result<StatusCode, Rejection> {
    let mut change = admin.begin(&operator).await?;
    keys::revoke(&mut change, id).await?;
    change.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
