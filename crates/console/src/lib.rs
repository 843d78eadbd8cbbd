//! The console listener: the pages of a user who is signed in, the pages for linking in a browser,
//! and the endpoint for provider events.
//!
//! The pages use one script, without which they work, and nothing from other servers but the logos
//! of institutions. Of the pages for linking, the token in a link URL is the
//! only authentication, and a cookie binds a consent session to the browser that started it. All
//! others need a session.

mod api_client;
mod assets;
mod browser_name;
mod callback;
mod connections_page;
mod cookie;
mod demo;
mod emails;
mod error_layer;
mod error_page;
mod failed_links;
mod home;
mod investments;
mod keys_page;
mod leave;
mod link;
mod list_query;
mod local;
mod money_cache;
mod months;
mod oidc;
mod oidc_page;
mod operator;
mod overview;
mod own_data;
mod pages;
mod plan;
mod prefetch;
mod programs;
mod provider_control;
mod provider_events;
mod qr_code;
mod request_count;
mod rows;
mod security_headers;
mod session;
mod settings;
mod settings_page;
mod setup;
mod sign_in;
mod state;
mod stream;
#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
mod webhooks;

use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::middleware::{from_fn, from_fn_with_state, map_response};
use axum::routing::{get, post};
use bellbird_api::http::ApiContext;
use bellbird_reads::{Trades, Transactions};
use http::StatusCode;
use tower_http::catch_panic::CatchPanicLayer;

use crate::api_client::ApiClient;
use crate::session::not_found;
use crate::state::{Console, Inner};

pub use crate::emails::{EmailSettings, Mailer, SendError};
pub use crate::local::is_loopback_url;
pub use crate::oidc::check_identity_provider;
pub use crate::provider_control::{MasterKey, ProviderControl, TestError};
pub use crate::settings::{ConsoleSettings, Demo, OidcSettings, Site};

/// How long sums stay in memory at most after they have expired.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);

/// `api` is the router of the API listener, by which the pages read. `attach` adds the pages of
/// simulated providers, which get the same limits, headers and metrics. Call it inside of a
/// runtime.
pub fn router(
    context: ApiContext,
    api: Router,
    settings: ConsoleSettings,
    site: Site,
    attach: impl FnOnce(Router) -> Router,
) -> Router {
    let console: Console = Arc::new(Inner::new(context, ApiClient(api), settings, site));
    tokio::spawn(purge_sums(Arc::downgrade(&console)));
    // It issues secrets, so it exists in the demo only.
    let demo = match console.site.demo {
        Some(_) => Router::new()
            .route("/demo/link", post(demo::create_link))
            .route("/demo/sign-in", post(sign_in::sign_in_to_demo)),
        None => Router::new(),
    };
    let pages = demo
        .route("/", get(home::show))
        .route("/health", get(async || StatusCode::OK))
        .route("/health/ready", get(ready))
        .route(
            "/link/callback",
            get(callback::handle_callback)
                .post(callback::submit_answer)
                .head(callback::method_not_allowed)
                .fallback(callback::method_not_allowed),
        )
        .route(
            "/link/{token}",
            get(link::open_link).post(link::submit_choice),
        )
        .route("/sign-in", get(sign_in::show).post(sign_in::send_link))
        .route(
            "/sign-in/{token}",
            get(sign_in::open_link).post(sign_in::use_link),
        )
        .route("/setup", get(setup::show).post(setup::create_operator))
        .route("/setup/{code}", get(setup::open).post(setup::claim))
        .route("/sign-in/oidc", post(oidc_page::leave))
        .route("/sign-in/oidc/callback", get(oidc_page::come_back))
        .route("/sign-out", post(sign_in::sign_out))
        .route("/overview", get(overview::show))
        .route(
            "/connections",
            get(connections_page::show).post(connections_page::change),
        )
        .route("/transactions", get(rows::transactions::show))
        .route(
            "/transactions.csv",
            get(rows::file::download::<Transactions>),
        )
        .route("/transactions.ofx", get(rows::transactions::download_ofx))
        .route("/investments", get(investments::show))
        .route("/trades.csv", get(rows::file::download::<Trades>))
        .route("/holdings.csv", get(investments::download_holdings))
        .route("/programs", get(programs::show).post(programs::change))
        .route("/keys", get(keys_page::show).post(keys_page::change))
        .route("/webhooks", get(webhooks::show).post(webhooks::change))
        .route(
            "/webhooks/endpoints/{id}",
            get(webhooks::log::show).post(webhooks::log::change),
        )
        .route(
            "/settings",
            get(settings_page::show).post(settings_page::change),
        )
        .route("/settings/data.json", get(own_data::download))
        .route("/settings/leave", get(leave::show).post(leave::leave))
        .merge(operator::routes())
        .route("/webhooks/{provider}", post(provider_events::receive))
        .merge(assets::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(async || error_page::Failure::MethodNotAllowed)
        .with_state(console.clone());
    attach(pages)
        .layer(from_fn_with_state(console.clone(), error_layer::show))
        .layer(from_fn_with_state(console, failed_links::limit))
        .layer(CatchPanicLayer::custom(|_| error_page::panic_response()))
        .layer(map_response(security_headers::add))
        .layer(from_fn(request_count::count))
}

/// Frees sums and rows that have expired, until the console is gone.
async fn purge_sums(console: Weak<Inner>) {
    loop {
        tokio::time::sleep(PURGE_INTERVAL).await;
        let Some(console) = console.upgrade() else {
            return;
        };
        console.money_cache.purge_expired();
        console.rows_cache.purge_expired();
    }
}

/// `GET /health/ready`, for a load balancer in front of this listener. As that of the API, without
/// a body. So is `GET /health`.
async fn ready(State(console): State<Console>) -> StatusCode {
    if console.context.is_ready() {
        StatusCode::OK
    } else {
        StatusCode::SERVICE_UNAVAILABLE
    }
}
