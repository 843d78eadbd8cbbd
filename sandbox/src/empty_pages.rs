//! Serves empty pages in the middle of a list when a test asks for them. A client that stops at an
//! empty page loses rows.

use axum::Json;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use crate::control::{BadRequest, parse_body};

#[derive(Default)]
pub(crate) struct EmptyPages(Mutex<EmptyPageRule>);

#[derive(Default)]
struct EmptyPageRule {
    /// Every how many pages; 0 is never.
    every: u64,
    path_prefix: String,
    page_count: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EmptyPagesRequest {
    empty_every: u64,
    #[serde(rename = "match")]
    path_prefix: Option<String>,
}

impl EmptyPages {
    /// Handles `POST /__control/pages`. Without `match` the rule applies to paths that begin with
    /// `default_path`.
    pub(crate) fn set(&self, body: &Bytes, default_path: &str) -> Result<Response, BadRequest> {
        let request: EmptyPagesRequest = parse_body(body, "{\"emptyEvery\": N}, 0 for never")?;
        *self.0.lock() = EmptyPageRule {
            every: request.empty_every,
            path_prefix: request
                .path_prefix
                .unwrap_or_else(|| default_path.to_owned()),
            page_count: 0,
        };
        Ok(Json(json!({"emptyEvery": request.empty_every})).into_response())
    }

    /// Counts this page, and says whether to leave its rows out.
    pub(crate) fn next_is_empty(&self, path: &str) -> bool {
        let mut rule = self.0.lock();
        if rule.every == 0 || !path.starts_with(&rule.path_prefix) {
            return false;
        }
        rule.page_count += 1;
        rule.page_count.is_multiple_of(rule.every)
    }
}
