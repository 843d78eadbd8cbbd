//! Setup tokens, with which a user's program gets an API key once.

use axum::extract::State;
use axum::response::Response;
use bellbird_api::front::{JsonBody, Operation, Operator, Path, PathId, Problem, RouteMethod};
use bellbird_domain::UserId;
use bellbird_interop::simplefin::{SETUP_TOKEN_LIFETIME, setup_token_text};
use bellbird_storage::{NewSetupToken, OperatorAction};
use http::StatusCode;
use jiff::Timestamp;
use secrecy::ExposeSecret as _;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::change::{Begun, IdempotencyKey, commit, commit_empty};
use crate::inputs::KeyName;
use crate::list::Item;
use crate::state::{Admin, problem};
use crate::users;

const TAG: &str = "Setup tokens";
const DEFAULT_NAME: &str = "SimpleFIN";

pub(crate) fn paths() -> Vec<Path<Admin>> {
    const TOKENS: &str = "/admin/v1/users/{id}/setup-tokens";
    let create = Operation::new("create_setup_token", TAG, "The token, which is not shown again.").text(
        "Create a setup token",
        "A program that speaks SimpleFIN claims it once, within an hour, and gets an API key of the user.",
    );
    let revoke = Operation::new(
        "revoke_setup_tokens",
        TAG,
        "No token of the user can be claimed any more.",
    )
    .text(
        "Revoke a user's setup tokens",
        "Those that no program has claimed. Keys of claimed ones stay.",
    );
    vec![
        Path::for_operators(RouteMethod::Post, TOKENS, create_token).described(
            create
                .body::<NewTokenBody>()
                .json::<TokenItem>()
                .status(201)
                .error(
                    409,
                    "The user has 20 setup tokens that no program has claimed (`conflict`).",
                ),
        ),
        Path::for_operators(RouteMethod::Delete, TOKENS, revoke_tokens)
            .described(revoke.status(204)),
    ]
}

/// A setup token to create.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewSetupToken)]
struct NewTokenBody {
    /// Name of the API key that the claim creates. 1 to 100 characters; `SimpleFIN` if absent.
    #[schema(value_type = Option<String>, nullable = false, example = "Actual")]
    name: Option<KeyName>,
}

/// A setup token.
#[derive(Serialize, ToSchema)]
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
#[derive(ToSchema)]
#[expect(dead_code, reason = "documents the body")]
struct TokenItem {
    data: TokenView,
}

async fn create_token(
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

async fn revoke_tokens(
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
