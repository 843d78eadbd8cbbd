//! Setup tokens, with which a user's program gets an API key once.

use axum::extract::State;
use axum::response::Response;
use bellbird_api::http::{JsonBody, Operator, PathId, Problem};
use bellbird_domain::UserId;
use bellbird_interop::simplefin::{SETUP_TOKEN_LIFETIME, setup_token_text};
use bellbird_storage::{NewSetupToken, OperatorAction};
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};

use crate::change::{Begun, IdempotencyKey, commit, commit_empty};
use crate::inputs::KeyName;
use crate::list::Item;
use crate::state::{Admin, problem};
use crate::users;

const TAG: &str = "Setup tokens";
const DEFAULT_NAME: &str = "SimpleFIN";

/// A setup token to create.
#[derive(Deserialize, utoipa::ToSchema)]
#[schema(as = NewSetupToken)]
pub(crate) struct NewTokenBody {
    /// Name of the API key that the claim creates. 1 to 100 characters; `SimpleFIN` if absent.
    #[schema(value_type = Option<String>, nullable = false, example = "Actual")]
    name: Option<KeyName>,
}

/// A setup token.
#[derive(Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = SetupToken)]
struct TokenView {
    /// The text that the user pastes into the program.
    #[schema(example = "aHR0cHM6Ly9hcGkuZXhhbXBsZS5jb20v...")]
    token: String,
    #[schema(value_type = String, format = "date-time", example = "2026-08-01T03:10:00.25Z")]
    expires_at: Timestamp,
}

/// A setup token.
#[derive(utoipa::ToSchema)]
#[expect(dead_code, reason = "documents the body")]
struct TokenItem {
    data: TokenView,
}

/// Create a setup token
///
/// A program that speaks SimpleFIN claims it once, within an hour, and gets an API key of the user.
#[utoipa::path(
    post, path = "/admin/v1/users/{id}/setup-tokens", tag = TAG,
    params(PathId<UserId>, IdempotencyKey),
    request_body = NewTokenBody,
    responses(
        (status = 201, description = "The token, which is not shown again.", body = TokenItem),
        (
            status = 409,
            description = "The user has 20 setup tokens that no program has claimed \
                           (`conflict`).",
        ),
    ),
)]
pub(super) async fn create_setup_token(
    State(admin): State<Admin>,
    operator: Operator,
    PathId(user_id): PathId<UserId>,
    idempotency: IdempotencyKey,
    body: JsonBody<NewTokenBody>,
) -> Result<Response, Problem> {
    let name = body
        .value
        .name
        .as_ref()
        .map_or(DEFAULT_NAME, |name| &name.0);
    let token = bellbird_storage::new_setup_token();
    let expires_at = operator
        .now
        .saturating_add(SETUP_TOKEN_LIFETIME)
        .map_err(|_| Problem::Internal)?;
    let mut change = match admin.begin(&operator, &idempotency, body.digest).await? {
        Begun::Change(change) => change,
        Begun::Repeated(response) => return Ok(response),
    };
    let new = NewSetupToken {
        user_id,
        token: &token,
        name,
        expires_at,
    };
    let id = change
        .insert_setup_token(&new)
        .await
        .map_err(problem)?
        .to_string();
    let text = setup_token_text(&admin.api_url, &token)
        .expose_secret()
        .to_owned();
    let action = OperatorAction {
        name: "setup_token.create",
        user_id,
        subject: Some(&id),
    };
    commit(
        change,
        &action,
        StatusCode::CREATED,
        &Item {
            data: TokenView {
                token: text,
                expires_at,
            },
        },
    )
    .await
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
) -> Result<StatusCode, Problem> {
    users::find(admin.storage(), user_id).await?;
    let mut change = admin.begin_idempotent(&operator).await?;
    change.revoke_setup_tokens(user_id).await.map_err(problem)?;
    commit_empty(
        change,
        &OperatorAction {
            name: "setup_token.revoke",
            user_id,
            subject: None,
        },
    )
    .await
}
