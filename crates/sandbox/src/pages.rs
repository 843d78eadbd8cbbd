//! Pages without rows that are not the last, on order: a client that takes an empty page for the end loses rows.

use axum::Json;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::json;

use crate::control::{Misuse, read};

/// Which pages are empty.
#[derive(Default)]
pub(crate) struct Pages(Mutex<Order>);

#[derive(Default)]
struct Order {
    /// 0 is never.
    every: u64,
    start: String,
    seen: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Ask {
    empty_every: u64,
    #[serde(rename = "match")]
    start: Option<String>,
}

impl Pages {
    /// `POST /__control/pages`. Without `match` it is about paths that begin with `usual`.
    pub(crate) fn set(&self, body: &Bytes, usual: &str) -> Result<Response, Misuse> {
        let ask: Ask = read(body, "{\"emptyEvery\": N}, 0 for never")?;
        *self.0.lock() =
            Order { every: ask.empty_every, start: ask.start.unwrap_or_else(|| usual.to_owned()), seen: 0 };
        Ok(Json(json!({"emptyEvery": ask.empty_every})).into_response())
    }

    /// Whether this page of the path is to be empty.
    pub(crate) fn is_turn(&self, path: &str) -> bool {
        let mut order = self.0.lock();
        if order.every == 0 || !path.starts_with(&order.start) {
            return false;
        }
        order.seen += 1;
        order.seen.is_multiple_of(order.every)
    }
}
