//! Setup tokens, with which a user's program gets an API key once.

use axum::extract::State;
use axum::response::Response;
use bellbird_domain::UserId;
use bellbird_management::setup_tokens;
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use crate::admin::change::{ChangeRequest, IdempotencyKey, Rejection, commit};
use crate::admin::inputs::KeyName;
use crate::admin::list::Item;
use crate::admin::state::Admin;
use crate::http::{Operator, PathId};

const TAG: &str = "Setup tokens";

/// A setup token to create.
#[derive(Deserialize, utoipa::ToSchema)]
pub(crate) struct NewSetupToken {
    /// Name of the API key that the claim creates. 1 to 100 characters; `SimpleFIN` if absent.
    #[schema(value_type = Option<String>, nullable = false, example = "Actual")]
    name: Option<KeyName>,
}

/// A setup token.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
struct SetupToken {
    /// The text that the user pastes into the program.
    #[schema(example = "aHR0cHM6Ly9hcGkuZXhhbXBsZS5jb20v...")]
    token: String,
    #[schema(example = "2026-08-01T03:10:00.25Z")]
    expires_at: Timestamp,
}

type TokenItem = Item<SetupToken>;

/// Create a setup token
///
/// A program that speaks SimpleFIN claims it once, within an hour, and gets an API key of the user.
#[utoipa::path(
    post, path = "/admin/v1/users/{id}/setup-tokens", tag = TAG,
    params(PathId<UserId>, IdempotencyKey),
    request_body = NewSetupToken,
    responses(
        (status = 201, description = "The token, which is not shown again.", body = TokenItem),
        (
            status = 409,
            description = "The user has 20 setup tokens that no program has claimed, or is being \
                           removed (`conflict`).",
        ),
    ),
)]
pub(super) async fn create_setup_token(
    State(admin): State<Admin>,
    PathId(user_id): PathId<UserId>,
    request: ChangeRequest<NewSetupToken>,
) -> Result<Response, Rejection> {
    let name = request.body.name.as_ref().map(|name| &name.0);
    let mut change = request.begin().await?;
    let created = setup_tokens::create(&mut change, user_id, name).await?;
    let token = created.text(&admin.api_url.get());
    let data = SetupToken {
        token: token.expose_secret().to_owned(),
        expires_at: created.expires_at,
    };
    commit(change, StatusCode::CREATED, data).await
}

/// Revoke a user's setup tokens
///
/// Those that no program has claimed. Keys of claimed ones stay.
#[utoipa::path(
    delete, path = "/admin/v1/users/{id}/setup-tokens", tag = TAG,
    params(PathId<UserId>),
    responses((status = 204, description = "No token of the user can be claimed any more.")),
)]
pub(super) async fn revoke_setup_tokens(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(user_id): PathId<UserId>,
) -> Result<StatusCode, Rejection> {
    let mut change = admin.begin(&operator).await?;
    setup_tokens::revoke(&mut change, user_id).await?;
    change.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}
