//! Pages whose parts are sent when they have been read, so that a slow bank holds back only its own
//! part. They need no script.

use std::convert::Infallible;

use axum::body::Body;
use axum::response::{Html, IntoResponse as _, Response};
use futures_util::StreamExt as _;
use futures_util::stream::{self, Stream};

/// The mark in a page where its parts go.
pub(crate) const PARTS: &str = "<!-- parts -->";

/// Sends the page, which is rendered, up to the mark at once, the parts when they are there, and
/// then its end.
pub(crate) fn response(page: &str, parts: impl Stream<Item = String> + Send + 'static) -> Response {
    let body = match page.split_once(PARTS) {
        Some((head, end)) => {
            let (head, end) = (head.to_owned(), end.to_owned());
            let chunks = stream::iter([head]).chain(parts).chain(stream::iter([end]));
            Body::from_stream(chunks.map(Ok::<_, Infallible>))
        }
        None => Body::from(page.to_owned()),
    };
    // nginx would hold the first part back until the others are there.
    ([("x-accel-buffering", "no")], Html(body)).into_response()
}
