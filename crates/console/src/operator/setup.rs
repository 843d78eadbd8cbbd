//! `/operator/setup`: what follows the first operator on a first start. The operator keeps the
//! master key, and goes on to the providers. Once that is done, there is no page at this address.

use askama::Template;
use axum::response::{IntoResponse as _, Response};
use bellbird_management::first_start;
use bellbird_storage::{FirstStart, StorageError};
use http::StatusCode;
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use secrecy::ExposeSecret as _;

use super::{Operator, OperatorForm, PROVIDERS_PATH};
use crate::error_page::{Failure, PageResult};
use crate::local::is_loopback_url;
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
    /// Whether it would cross a network in plain text.
    is_plain: bool,
    problem: Option<&'static str>,
}

/// The first start, while an operator has steps to take.
pub(super) async fn in_progress(console: &Console) -> Result<Option<FirstStart>, StorageError> {
    let found = console.storage().first_start().find().await?;
    Ok(found.filter(|found| found.done_at.is_none()))
}

/// What an operator has still to do on a first start. None: nothing, or the user is no operator.
pub(crate) async fn steps_left(session: &Session) -> Result<Option<&'static str>, StorageError> {
    if !session.is_operator {
        return Ok(None);
    }
    let Some(found) = in_progress(session).await? else {
        return Ok(None);
    };
    let keeps_key = session.site.master_key.is_none() || found.key_kept_at.is_some();
    let is_linkable = !session.connections.links().providers().is_empty();
    Ok(match (keeps_key, is_linkable) {
        (false, false) => {
            Some("Keep a copy of the master key, and choose where accounts are read.")
        }
        (false, true) => Some("Keep a copy of the master key."),
        (true, false) => Some("Choose where accounts are read."),
        // Without a key, no form ends it.
        (true, true) if session.site.master_key.is_none() => None,
        (true, true) => Some("Finish the first start."),
    })
}

/// `GET /operator/setup`
pub(super) async fn show(Operator(session): Operator) -> PageResult {
    let found = in_progress(&session).await?.ok_or(Failure::NotFound)?;
    Ok(match &session.site.master_key {
        Some(key) if found.key_kept_at.is_none() => page(&session, key, &found, None),
        _ => session.redirect(PROVIDERS_PATH),
    })
}

fn page(
    session: &Session,
    key: &MasterKey,
    found: &FirstStart,
    problem: Option<&'static str>,
) -> Response {
    let status = problem.map_or(StatusCode::OK, |_| StatusCode::BAD_REQUEST);
    let url = session.console_url();
    let page = KeyPage {
        frame: &session.frame(PATH),
        place: &key.place,
        offers_key: found.offers_key(session.clock.now()),
        is_plain: url.starts_with("http:") && !is_loopback_url(&url),
        problem,
    };
    page_response(status, &page)
}

/// `POST /operator/setup`, with the field `download`, `kept`, or, once the key is kept, `finish`,
/// whose value is `link` to go on with a bank.
pub(super) async fn change(OperatorForm(form): OperatorForm) -> PageResult {
    const NOT_KEPT: &str = "Keep a copy of the key, and then tick the box.";
    let session = &form.session;
    let finish = form.field("finish").map(|next| match next {
        "link" => "/connections",
        _ => "/overview",
    });
    let found = in_progress(session).await?;
    let (Some(found), Some(key)) = (found, &session.site.master_key) else {
        // It was finished by the first click of two.
        let next = finish.ok_or(Failure::NotFound)?;
        return Ok(session.redirect(next));
    };
    let mut change = session.begin_as_operator().await?;
    let next = if form.field("download").is_some() {
        if !found.offers_key(session.clock.now()) {
            return Err(Failure::NotFound);
        }
        first_start::record_key_download(&mut change).await?;
        download(key)
    } else if let Some(next) = finish.filter(|_| found.key_kept_at.is_some()) {
        first_start::finish(&mut change).await?;
        session.redirect(next)
    } else if form.field("kept") == Some("yes") {
        first_start::keep_key(&mut change).await?;
        session.redirect(PROVIDERS_PATH)
    } else {
        return Ok(page(session, key, &found, Some(NOT_KEPT)));
    };
    change.commit().await?;
    Ok(next)
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
