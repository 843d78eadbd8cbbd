//! `/operator/...`: the pages of a user who is an operator. For everybody else, there is no page at
//! these addresses.
//!
//! They show users, connections and work, and neither accounts nor rows. What they change is an
//! operation of `bellbird_management`.

mod audit;
mod checks;
mod deliveries;
mod endpoint;
mod health;
mod providers;
mod setup;
mod user;
mod users;

use std::collections::HashMap;

use axum::Router;
use axum::extract::{FromRequest, FromRequestParts, OptionalFromRequestParts, Request};
use axum::routing::any;
use bellbird_domain::{ConnectionStatus, Plan, UserId};
use bellbird_storage::{Storage, StorageError};
use http::request::Parts;

use crate::error_page::Failure;
use crate::session::{OwnForm, Session, not_found};
use crate::state::Console;

pub(crate) use setup::{PATH as SETUP_PATH, steps_left};

/// The settings that operators may enter for the console itself, unless they are set elsewhere.
pub(crate) const OPERATOR_NAME: &str = "console.operator_name";
const PUBLIC_URL: &str = "console.public_url";
/// Where the page of providers is.
const PROVIDERS_PATH: &str = "/operator/providers";
/// Rows of one page.
const PAGE_ROWS: u32 = 50;

/// Another method gets the same page as another path, because a difference would show which paths
/// there are.
pub(crate) fn routes() -> Router<Console> {
    Router::new()
        .route(
            "/operator/users",
            any(not_found).get(users::show).post(users::add),
        )
        .route(
            "/operator/users/{id}",
            any(not_found).get(user::show).post(user::change),
        )
        .route("/operator/health", any(not_found).get(health::show))
        .route("/operator/deliveries", any(not_found).get(deliveries::show))
        .route(
            "/operator/deliveries/{id}",
            any(not_found).get(endpoint::show).post(endpoint::change),
        )
        .route(
            PROVIDERS_PATH,
            any(not_found).get(providers::show).post(providers::change),
        )
        .route(
            setup::PATH,
            any(not_found).get(setup::show).post(setup::change),
        )
        .route("/operator/audit", any(not_found).get(audit::show))
        .route("/operator/audit.csv", any(not_found).get(audit::download))
}

/// A request of a browser in which an operator is signed in.
struct Operator(Session);

impl FromRequestParts<Console> for Operator {
    type Rejection = Failure;

    async fn from_request_parts(parts: &mut Parts, console: &Console) -> Result<Self, Failure> {
        <Session as OptionalFromRequestParts<Console>>::from_request_parts(parts, console)
            .await?
            .filter(|session| session.is_operator)
            .map(Self)
            .ok_or(Failure::NotFound)
    }
}

/// An [`OwnForm`] of an operator.
struct OperatorForm(OwnForm);

impl FromRequest<Console> for OperatorForm {
    type Rejection = Failure;

    async fn from_request(request: Request, console: &Console) -> Result<Self, Failure> {
        let (mut parts, body) = request.into_parts();
        Operator::from_request_parts(&mut parts, console).await?;
        OwnForm::from_request(Request::from_parts(parts, body), console)
            .await
            .map(Self)
    }
}

/// The e-mail addresses of users, each read once.
#[derive(Default)]
struct Emails(HashMap<UserId, Option<String>>);

impl Emails {
    /// None for nobody, for the installation, and for a user who is removed.
    async fn find(
        &mut self,
        storage: &Storage,
        user: Option<UserId>,
    ) -> Result<Option<String>, StorageError> {
        let Some(user) = user else {
            return Ok(None);
        };
        if let Some(known) = self.0.get(&user) {
            return Ok(known.clone());
        }
        let email = storage.users().find(user).await?.map(|user| user.email);
        self.0.insert(user, email.clone());
        Ok(email)
    }
}

/// Unlike [`crate::pages::status_text`], for somebody else than the user.
fn status_text(status: ConnectionStatus) -> &'static str {
    match status {
        ConnectionStatus::Active => "connected",
        ConnectionStatus::Invalidated => "consent expired",
        ConnectionStatus::PendingMfa => "bank asks the user to sign in",
        ConnectionStatus::Revoked => "consent withdrawn",
        ConnectionStatus::Deleting => "being removed",
    }
}

/// What somebody with this plan may read by API.
fn gives(plan: Plan) -> &'static str {
    match plan {
        Plan::Saver => "no accounts",
        Plan::Developer => "banks",
        Plan::Professional => "banks, brokers",
    }
}
