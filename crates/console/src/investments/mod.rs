//! `/investments`: what the user's accounts at brokers hold, and their trades. Both are read live
//! from all brokers at the same time, and sent when they are there.

mod holdings;

use std::sync::Arc;

use bellbird_reads::Trades;
use futures_util::FutureExt as _;
use futures_util::stream::{FuturesOrdered, Stream};
use http::Uri;
use tokio::sync::oneshot;

pub(crate) use self::holdings::download_holdings;
use crate::error_page::PageResult;
use crate::rows::list::RowList;
use crate::rows::{ListKind as _, page};
use crate::session::Session;

/// `GET /investments`
pub(crate) async fn show(session: Session, uri: Uri) -> PageResult {
    page::show(session, Trades::PAGE, uri.query(), parts).await
}

/// In the order of the page. Both are read at the same time. A broker of which neither is read is
/// named above the holdings only.
fn parts(list: Arc<RowList>) -> impl Stream<Item = String> + Send + 'static {
    let held = Arc::clone(&list);
    let (name, named_above) = oneshot::channel();
    let holdings = async move {
        let (part, troubles) = holdings::part(&held).await;
        let _ = name.send(troubles);
        part
    };
    let trades = async move { list.whole_part::<Trades>(named_above).await };
    FuturesOrdered::from_iter([holdings.boxed(), trades.boxed()])
}
