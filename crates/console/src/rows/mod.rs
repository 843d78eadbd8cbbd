//! Tables of rows over the live reads: `/transactions` of banks, and `/investments` of brokers. A table is a window of
//! the API, of one account, and has the command that reads the same, and a file of the whole range.

pub(crate) mod choice;
pub(crate) mod investments;
mod search;
pub(crate) mod transactions;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use bellbird_domain::ConnectionCategory;
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};

use crate::error_page;
use crate::pages::{Notice, Tone, page_response};
use crate::session::Session;
use crate::state::Console;
use choice::{Choice, ChoiceQuery};

/// Rows of one page.
const WINDOW_ROWS: u64 = 50;

/// Passes a file of the API on while it is read: the whole range of the chosen account.
async fn download(
    console: &Console,
    session: &Session,
    category: ConnectionCategory,
    query: ChoiceQuery,
    file: &str,
) -> Response {
    let choice = match Choice::load(console, session, category, query).await {
        Ok(choice) => choice,
        Err(error) => return error_page::storage_error(console, &error),
    };
    let path = format!("/v1/export/{file}?{}", choice.of_account(true).unwrap_or_default());
    match console.inner.api.open(&session.caller, &path).await {
        Ok(file) => {
            let (parts, body) = file.into_parts();
            let mut response = Body::new(body).into_response();
            for name in [CONTENT_TYPE, CONTENT_DISPOSITION] {
                if let Some(value) = parts.headers.get(&name) {
                    response.headers_mut().insert(name, value.clone());
                }
            }
            response
        }
        Err(error) => {
            let notice = Notice::new(Tone::Attention, "There is no file").with(&error.message).with_retry_link();
            page_response(StatusCode::BAD_GATEWAY, &notice.page(&console.inner.frame))
        }
    }
}
