//! The handlers, one file a resource. Their doc comments become the OpenAPI document.

mod accounts;
mod balances;
mod categories;
mod connections;
mod health;
mod holdings;
mod trades;
pub(crate) mod transactions;

use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::state::AppState;

/// The handlers' routes with their OpenAPI description, without middleware.
pub(crate) fn documented() -> OpenApiRouter<AppState> {
    OpenApiRouter::new()
        .routes(routes!(health::health))
        .routes(routes!(connections::list_connections))
        .routes(routes!(accounts::list_accounts))
        .routes(routes!(balances::list_balances))
        .routes(routes!(categories::list_categories))
        .routes(routes!(transactions::list_transactions))
        .routes(routes!(holdings::list_holdings))
        .routes(routes!(trades::list_trades))
}
