//! Makes the pages of failures and notices, with the headers that the handler has set.

use std::sync::Arc;

use axum::extract::{OptionalFromRequestParts, Request, State};
use axum::response::Response;
use http::HeaderMap;

use crate::error_page::{self, Failure};
use crate::pages::Notice;
use crate::session::Session;
use crate::state::Console;

pub(crate) async fn show(
    State(console): State<Console>,
    headers: HeaderMap,
    mut response: Response,
) -> Response {
    let extensions = response.extensions_mut();
    let mut page = if let Some(failure) = extensions.remove::<Failure>() {
        let session = match failure.is_missing_page(&headers) {
            true => find_session(&console, &headers).await,
            false => None,
        };
        let menus = session.as_ref().map(|session| session.frame(""));
        error_page::page_of(&console, &headers, failure, menus.as_ref())
    } else if let Some(notice) = extensions.remove::<Arc<Notice>>() {
        notice.response(&console.frame)
    } else {
        return response;
    };
    let set = std::mem::take(response.headers_mut());
    page.headers_mut().extend(set);
    page
}

/// Who is signed in, as an extractor finds it. If that fails, the page has no menus.
async fn find_session(console: &Console, headers: &HeaderMap) -> Option<Session> {
    let (mut parts, ()) = Request::new(()).into_parts();
    parts.headers.clone_from(headers);
    <Session as OptionalFromRequestParts<Console>>::from_request_parts(&mut parts, console)
        .await
        .ok()
        .flatten()
}
