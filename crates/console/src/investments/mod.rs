//! `/investments`: what the user's accounts at brokers hold, and their trades. Both are read live
//! from all brokers at the same time, and sent when they are there.

mod holdings;

use std::sync::Arc;

use axum::response::Response;
use bellbird_reads::Trades;
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesOrdered, Stream};
use http::{Uri, Version};

use crate::error_page::PageResult;
use crate::rows::list::RowList;
use crate::rows::{ListKind as _, file, page};
use crate::session::Session;

/// `GET /investments`
pub(crate) async fn show(session: Session, uri: Uri) -> PageResult {
    page::show(session, Trades::PAGE, uri.query(), parts).await
}

/// In the order of the page. Both are read at the same time.
fn parts(list: Arc<RowList>) -> impl Stream<Item = String> + Send + 'static {
    let held = Arc::clone(&list);
    FuturesOrdered::from_iter([
        async move { holdings::part(&held).await }.boxed(),
        async move { list.whole_part::<Trades>().await }.boxed(),
    ])
}

/// `GET /holdings.csv`: all holdings, as the API gives them. Passes its file on while it is read.
pub(crate) async fn download_holdings(session: Session, version: Version) -> Response {
    // A person opens it in a spreadsheet, and a broker chooses the texts in it.
    let path = "/v1/export/holdings.csv?byteOrderMark=true&quoteFormulas=true";
    file::pass_on(&session, path, version).await
}
