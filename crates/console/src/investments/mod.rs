//! `/investments`: what the user's accounts at brokers hold, and their trades. Both are read live
//! from all brokers at the same time, and sent when they are there.

mod holdings;

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use bellbird_reads::Trades;
use futures_util::FutureExt as _;
use futures_util::stream::FuturesOrdered;
use http::{StatusCode, Version};

use crate::pages::{SignedInFrame, page_response, rendered_part};
use crate::plan;
use crate::rows::filter::FilterQuery;
use crate::rows::filter_bar::FilterBar;
use crate::rows::list::RowList;
use crate::rows::{ListKind as _, file};
use crate::session::Session;
use crate::state::Console;
use crate::stream;

#[derive(Template)]
#[template(path = "investments.html")]
struct InvestmentsPage<'a> {
    frame: &'a SignedInFrame<'a>,
    bar: FilterBar<'a>,
    api_url: Option<String>,
}

/// `GET /investments`
pub(crate) async fn show(
    State(console): State<Console>,
    session: Session,
    query: FilterQuery,
) -> Response {
    let path = Trades::PATH;
    if let Some(page) = plan::page_in_place(&console, &session, path, Trades::CATEGORY) {
        return page;
    }
    let list = match RowList::<Trades>::load(&console, session, query).await {
        Ok(list) => list,
        Err(failed) => return failed,
    };
    let frame = list.session.frame(&console, path);
    let page = InvestmentsPage {
        frame: &frame,
        bar: list.bar(&frame),
        api_url: list.api_url(),
    };
    if !list.is_read() {
        return page_response(StatusCode::OK, &page);
    }
    let page = rendered_part(&page);
    // In the order of the page. Both are read at the same time.
    let mut parts = FuturesOrdered::new();
    let held = Arc::clone(&list);
    parts.push_back(async move { holdings::part(&held).await }.boxed());
    let traded = Arc::clone(&list);
    parts.push_back(async move { traded.whole_part().await }.boxed());
    stream::response(&page, parts)
}

/// `GET /holdings.csv`: all holdings, as the API gives them. Passes its file on while it is read.
pub(crate) async fn download_holdings(
    State(console): State<Console>,
    session: Session,
    version: Version,
) -> Response {
    // A person opens it in a spreadsheet, and a broker chooses the texts in it.
    let path = "/v1/export/holdings.csv?byteOrderMark=true&quoteFormulas=true";
    file::pass_on(&console, &session, path, version).await
}
