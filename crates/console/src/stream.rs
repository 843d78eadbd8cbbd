//! Pages whose parts are sent when they have been read, so that a slow bank holds back only its own
//! part. They need no script.

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};

use crate::pages::streamed_page;

/// The mark in a page where its parts go.
pub(crate) const PARTS: &str = "<!-- parts -->";

/// Sends the page, which is rendered, up to the mark at once, the parts when they are there, and
/// then its end.
pub(crate) fn response(page: &str, parts: impl Stream<Item = String> + Send + 'static) -> Response {
    let Some((head, end)) = page.split_once(PARTS) else {
        return streamed_page(Body::from(page.to_owned()));
    };
    let (head, end) = (head.to_owned(), end.to_owned());
    let chunks = stream::iter([head]).chain(parts).chain(stream::iter([end]));
    streamed_page(Body::from_stream(
        chunks.map(|chunk| Ok::<_, std::convert::Infallible>(Bytes::from(chunk))),
    ))
}
