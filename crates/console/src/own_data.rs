//! `/settings/data.json`: everything that is stored about a user, but secrets and digests. Tables
//! can be long, so the file is read page by page while it is sent.

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::response::IntoResponse as _;
use bellbird_api::serve::ResponseTimeout;
use bellbird_domain::UserId;
use bellbird_limits::Permit;
use bellbird_storage::{LEFT_OUT, OWN_TABLES, OwnPosition, StorageError, camel_case};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use http::{HeaderName, StatusCode};
use serde_json::json;

use crate::error_page::{Failure, PageResult};
use crate::pages::{Notice, Tone};
use crate::session::Session;

/// A slow client holds a page of rows for so long.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(600);
const RETRY_AFTER_SECONDS: u64 = 5;
const HEADERS: [(HeaderName, &str); 2] = [
    (CONTENT_TYPE, "application/json"),
    (
        CONTENT_DISPOSITION,
        "attachment; filename=\"bellbird-data.json\"",
    ),
];

/// The rest of a file.
struct OwnData {
    session: Session,
    /// Those before it have been written.
    table: usize,
    /// Where the rest of that table begins.
    after: Option<OwnPosition>,
    /// A user reads one file at a time. None: all of it has been read.
    permit: Option<Permit<UserId>>,
}

/// `GET /settings/data.json`
pub(crate) async fn download(session: Session) -> PageResult {
    let Some(permit) = session.own_data_permits.try_acquire(session.user()) else {
        return Ok(is_being_downloaded().into_response());
    };
    let data = OwnData {
        session,
        table: 0,
        after: None,
        permit: Some(permit),
    };
    let (first, data) = data.next_part().await?.ok_or(Failure::Internal)?;
    let rest = stream::try_unfold(data, |data| async {
        data.next_part()
            .await
            .inspect_err(|error| tracing::warn!(%error, "own data cut off"))
    });
    let body = Body::from_stream(stream::once(async { Ok(first) }).chain(rest));
    Ok((HEADERS, Extension(ResponseTimeout(TIMEOUT)), body).into_response())
}

/// A user downloads one file at a time.
pub(crate) fn is_being_downloaded() -> Notice {
    Notice::new(Tone::Waiting, "A file is being downloaded already")
        .with("Wait until that has ended.")
        .with_retry_link()
        .with_status(StatusCode::TOO_MANY_REQUESTS)
        .with_retry_after(RETRY_AFTER_SECONDS)
}

impl OwnData {
    /// A page of rows of a table, or the end of the file.
    async fn next_part(mut self) -> Result<Option<(Bytes, Self)>, StorageError> {
        let Some(table) = OWN_TABLES.get(self.table) else {
            if self.permit.take().is_none() {
                return Ok(None);
            }
            let left_out: serde_json::Map<_, _> = LEFT_OUT
                .iter()
                .map(|(table, why)| (camel_case(table), json!(why)))
                .collect();
            let end = format!(",\n\"leftOut\": {}}}\n", json!(left_out));
            return Ok(Some((end.into(), self)));
        };
        let (rows, next) = self
            .session
            .storage()
            .own_rows(table, self.session.user(), self.after.as_ref())
            .await?;
        let mut part = String::new();
        if self.after.is_none() {
            let before = if self.table == 0 { "{" } else { ",\n" };
            part = format!("{before}\"{}\": [", camel_case(table.name));
        }
        for row in rows {
            let before = if part.ends_with('[') { "\n" } else { ",\n" };
            part.push_str(before);
            // To memory, where it cannot fail.
            part.push_str(&serde_json::to_string(&row).unwrap_or_default());
        }
        self.after = next;
        if self.after.is_none() {
            part.push(']');
            self.table += 1;
        }
        Ok(Some((part.into(), self)))
    }
}
