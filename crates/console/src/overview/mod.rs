//! `GET /overview`: net worth, balances by institution, and money in and out. Each part is read
//! live and sent when it is there, so that a slow provider delays only its own part, and one that
//! fails spoils no other.

mod balances;
mod money;
mod view;

use std::pin::Pin;

use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use bellbird_domain::ConnectionCategory;
use bellbird_storage::StorageError;
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};

use crate::error_page;
use crate::pages::{rendered_part, streamed_page};
use crate::plan;
use crate::session::Session;
use crate::state::Console;
use view::{Attention, Head};

/// The mark in the page where its parts go.
pub(crate) const PARTS: &str = "<!-- parts -->";

/// A part of the page as HTML, which the browser puts into the place of its name.
type Part = Pin<Box<dyn Future<Output = String> + Send>>;

pub(crate) async fn show(State(console): State<Console>, session: Session) -> Response {
    if let Some(page) =
        plan::page_in_place(&console, &session, "/overview", ConnectionCategory::Banking)
    {
        return page;
    }
    let storage = console.storage();
    let (connections, (accounts, _), endpoints) = match tokio::try_join!(
        storage.connections().list(session.user()),
        storage.accounts().list(session.user(), u32::MAX, 0),
        storage.endpoints().list(session.user()),
    ) {
        Ok(found) => found,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let continues_setup = match continues_setup(&console, &session).await {
        Ok(continues) => continues,
        Err(error) => return error_page::storage_error(&console, &error),
    };
    let frame = session.frame(&console, "/overview");
    let attention = Attention::of(&connections, &endpoints, &session);
    let expected = balances::expected(&console.inner.frame.providers, &connections, &accounts);
    let head = Head {
        frame: &frame,
        attention: &attention,
        continues_setup,
        is_empty: connections.is_empty(),
        expected: &expected,
    };
    let page = rendered_part(&head);
    let Some((head, end)) = page.split_once(PARTS) else {
        return streamed_page(Body::from(page));
    };
    let (head, end) = (head.to_owned(), end.to_owned());
    let parts: FuturesUnordered<Part> = FuturesUnordered::new();
    let (caller, api) = (session.caller.clone(), console.inner.api.clone());
    let registry = console.inner.frame.providers.clone();
    parts.push(Box::pin(async move {
        balances::part(&api, &registry, &caller, &connections, &accounts).await
    }));
    let (console, caller, now) = (console.clone(), session.caller, session.now);
    parts.push(Box::pin(async move {
        money::part(&console, &caller, now).await
    }));
    let chunks = stream::iter([head]).chain(parts).chain(stream::iter([end]));
    streamed_page(Body::from_stream(
        chunks.map(|chunk| Ok::<_, std::convert::Infallible>(Bytes::from(chunk))),
    ))
}

/// Whether a first start is going on whose operator this is.
async fn continues_setup(console: &Console, session: &Session) -> Result<bool, StorageError> {
    if !session.is_operator {
        return Ok(false);
    }
    let found = console.storage().first_start().find().await?;
    Ok(found.is_some_and(|found| found.done_at.is_none()))
}
