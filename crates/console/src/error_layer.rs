//! Makes the pages of failures and notices, with the headers that the handler has set.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use crate::error_page::{self, Failure};
use crate::pages::Notice;
use crate::session::FoundSession;
use crate::state::Console;

pub(crate) async fn show(
    State(console): State<Console>,
    mut request: Request,
    next: Next,
) -> Response {
    let headers = request.headers().clone();
    let session = FoundSession::default();
    request.extensions_mut().insert(session.clone());
    let mut response = next.run(request).await;
    let extensions = response.extensions_mut();
    let mut page = if let Some(failure) = extensions.remove::<Failure>() {
        let is_missing_page = failure.is_missing_page(&headers);
        let session = session.get().filter(|_| is_missing_page);
        let menus = session.map(|session| session.frame(""));
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
