//! `/operator/setup`: what follows the first operator on a first start. The operator keeps the
//! master key, and goes on to the providers. Once that is done, there is no page at this address.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse as _, Redirect, Response};
use bellbird_management::{ManagementChange, Refusal, first_start};
use bellbird_storage::{FirstStart, StorageError};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderMap, StatusCode};
use secrecy::ExposeSecret as _;

use super::{Operator, OperatorForm, PROVIDERS_PATH};
use crate::error_page;
use crate::pages::{SignedInFrame, page_response};
use crate::provider_control::MasterKey;
use crate::session::Session;
use crate::state::Console;

/// Where it is.
pub(crate) const PATH: &str = "/operator/setup";

#[derive(Template)]
#[template(path = "operator_key.html")]
struct KeyPage<'a> {
    frame: &'a SignedInFrame<'a>,
    /// Where the service reads the key.
    place: &'a str,
    /// Whether the key can be downloaded still.
    offers_key: bool,
    problem: Option<&'static str>,
}

/// The first start, while an operator has steps to take.
pub(super) async fn in_progress(console: &Console) -> Result<Option<FirstStart>, StorageError> {
    let found = console.storage().first_start().find().await?;
    Ok(found.filter(|found| found.done_at.is_none()))
}

/// `GET /operator/setup`
pub(super) async fn show(
    State(console): State<Console>,
    headers: HeaderMap,
    Operator(session): Operator,
) -> Response {
    match in_progress(&console).await {
        Ok(Some(found)) => match &console.inner.site.master_key {
            Some(key) if found.key_kept_at.is_none() => page(&console, &session, key, &found, None),
            _ => Redirect::to(&console.path(PROVIDERS_PATH)).into_response(),
        },
        Ok(None) => error_page::not_found(&console, &headers),
        Err(error) => error_page::storage_error(&console, &error),
    }
}

fn page(
    console: &Console,
    session: &Session,
    key: &MasterKey,
    found: &FirstStart,
    problem: Option<&'static str>,
) -> Response {
    let status = problem.map_or(StatusCode::OK, |_| StatusCode::BAD_REQUEST);
    let page = KeyPage {
        frame: &session.frame(console, PATH),
        place: &key.place,
        offers_key: found.offers_key(console.inner.context.clock().now()),
        problem,
    };
    page_response(status, &page)
}

/// `POST /operator/setup`, with the field `download`, `kept`, or `finish`.
pub(super) async fn change(
    State(console): State<Console>,
    headers: HeaderMap,
    OperatorForm(form): OperatorForm,
) -> Response {
    let session = &form.session;
    let (found, key) = match (in_progress(&console).await, &console.inner.site.master_key) {
        (Ok(Some(found)), Some(key)) => (found, key),
        (Ok(_), _) => return error_page::not_found(&console, &headers),
        (Err(error), _) => return error_page::storage_error(&console, &error),
    };
    let done = if form.field("download").is_some() {
        if !found.offers_key(console.inner.context.clock().now()) {
            return error_page::not_found(&console, &headers);
        }
        changed(&console, session, async |change| {
            first_start::record_key_download(change).await
        })
        .await
        .map(|()| download(key))
    } else if form.field("finish").is_some() {
        changed(&console, session, async |change| {
            first_start::finish(change).await
        })
        .await
        .map(|()| Redirect::to(&console.path("/connections")).into_response())
    } else if form.field("kept") == Some("yes") {
        changed(&console, session, async |change| {
            first_start::keep_key(change).await
        })
        .await
        .map(|()| Redirect::to(&console.path(PROVIDERS_PATH)).into_response())
    } else {
        const NOT_KEPT: &str = "Keep a copy of the key, and then tick the box.";
        return page(&console, session, key, &found, Some(NOT_KEPT));
    };
    done.unwrap_or_else(|refusal| error_page::refused(&console, refusal))
}

async fn changed(
    console: &Console,
    session: &Session,
    operation: impl AsyncFnOnce(&mut ManagementChange<'_>) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut change = session.begin_as_operator(console).await?;
    operation(&mut change).await?;
    Ok(change.commit().await?)
}

/// The key as `secrets.key_file` takes it. Only an operator gets it, for as long as
/// [`FirstStart::offers_key`].
fn download(key: &MasterKey) -> Response {
    let headers = [
        (CONTENT_TYPE, "text/plain; charset=utf-8"),
        (
            CONTENT_DISPOSITION,
            "attachment; filename=\"bellbird-master.key\"",
        ),
    ];
    (headers, format!("{}\n", key.key.expose_secret().trim_end())).into_response()
}
