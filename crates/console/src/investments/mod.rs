//! `/investments`: what the user's accounts at brokers hold, and their trades. Both are read live
//! from all brokers at the same time, and sent when they are there.

mod choice;
mod holdings;
mod symbol;
mod trades;

use std::pin::Pin;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use futures_util::stream::FuturesOrdered;
use http::{Uri, Version};

use crate::error_page;
use crate::pages::{SignedInFrame, rendered_part};
use crate::plan;
use crate::rows::file;
use crate::session::Session;
use crate::state::Console;
use crate::stream;
use choice::{Choice, Period};

#[derive(Template)]
#[template(path = "investments.html")]
struct InvestmentsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    choice: &'a Choice,
}

type Part = Pin<Box<dyn Future<Output = String> + Send>>;

/// `GET /investments`
pub(crate) async fn show(State(console): State<Console>, session: Session, uri: Uri) -> Response {
    if let Some(page) = plan::page_in_place(
        &console,
        &session,
        "/investments",
        ConnectionCategory::Brokerage,
    ) {
        return page;
    }
    let choice = match Choice::load(&console, &session, uri.query()).await {
        Ok(choice) => choice,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let frame = session.frame(&console, "/investments");
    let page = InvestmentsPage {
        frame: &frame,
        choice: &choice,
    };
    // In the order of the page. Both are read at the same time.
    let mut parts: FuturesOrdered<Part> = FuturesOrdered::new();
    let of = || (console.clone(), session.caller.clone(), choice.clone());
    let (console_of, caller, choice_of) = of();
    parts.push_back(Box::pin(async move {
        holdings::part(&console_of, &caller, &choice_of).await
    }));
    let (console_of, caller, choice_of) = of();
    parts.push_back(Box::pin(async move {
        trades::part(&console_of, &caller, &choice_of).await
    }));
    stream::response(&rendered_part(&page), parts)
}

/// `GET /trades.csv`: the trades of the account and the days that the page shows. Passes a file of
/// the API on while it is read. `version` is the request's.
pub(crate) async fn download_csv(
    State(console): State<Console>,
    session: Session,
    version: Version,
    uri: Uri,
) -> Response {
    let choice = match Choice::load(&console, &session, uri.query()).await {
        Ok(choice) => choice,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    // A person opens it in a spreadsheet, and a broker chooses the texts in it.
    let path = format!(
        "/v1/export/trades.csv?byteOrderMark=true&quoteFormulas=true{}",
        choice.file_query()
    );
    file::pass_on(&console, &session, &path, version).await
}
