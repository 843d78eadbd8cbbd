//! Transactions of all banks, merged while they are read, with the command that reads the same, and a
//! file of what the page shows.

pub(crate) mod choice;
mod file;
mod filter;
mod find;
mod search;
pub(crate) mod transactions;

use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use http::{StatusCode, Version};

use crate::error_page;
use crate::pages::{Notice, Tone, page_response};
use crate::session::Session;
use crate::state::Console;
use choice::{Choice, ChoiceQuery};

/// Rows of one page.
const WINDOW_ROWS: u64 = 50;

/// Passes a file of the API on while it is read: the whole range of the chosen account. `version`
/// is the request's.
async fn download(
    console: &Console,
    session: &Session,
    category: ConnectionCategory,
    query: ChoiceQuery,
    file: &str,
    version: Version,
) -> Response {
    let choice = match Choice::load(console, session, category, query).await {
        Ok(choice) => choice,
        Err(error) => return error_page::storage_error(console, &error),
    };
    // A person opens it in a spreadsheet, and anybody who sends a cent chooses a description.
    let for_sheets = if file.ends_with(".csv") {
        "&byteOrderMark=true&quoteFormulas=true"
    } else {
        ""
    };
    let path = format!(
        "/v1/export/{file}?{}{for_sheets}",
        choice.of_account(true).unwrap_or_default()
    );
    match console
        .inner
        .api
        .open(&session.caller, &path, version)
        .await
    {
        // With all that the listener has to know of it.
        Ok(file) => file,
        Err(error) => {
            let notice = Notice::new(Tone::Attention, "There is no file")
                .with(&error.message)
                .with_retry_link();
            page_response(StatusCode::BAD_GATEWAY, &notice.page(&console.inner.frame))
        }
    }
}
