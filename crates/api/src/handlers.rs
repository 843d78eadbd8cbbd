//! One file a resource.

pub(crate) mod accounts;
pub(crate) mod balances;
pub(crate) mod categories;
pub(crate) mod connections;
pub(crate) mod health;
pub(crate) mod holdings;
pub(crate) mod trades;
pub(crate) mod transactions;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use serde::Serialize;

use crate::problem::Problem;

/// A finished JSON body.
pub(crate) fn json_bytes(body: Bytes) -> Response {
    let mut response = Response::new(Body::from(body));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A view as JSON.
pub(crate) fn json(view: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(view).map_err(|_| Problem::Internal)?;
    Ok(json_bytes(body.into()))
}
