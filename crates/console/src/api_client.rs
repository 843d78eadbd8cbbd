//! Reads through the API's own router as the user who is signed in. So a page shows what the API
//! says, with its limits, its caches and the sentences of its errors.

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use bellbird_api::http::problem::BELLBIRD_ERROR;
use bellbird_api::http::{NotBefore, Problem, SignedInCaller};
use bellbird_domain::Caller;
use bytes::Bytes;
use http::header::{AGE, RETRY_AFTER};
use http::{HeaderName, StatusCode, Version};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;

use crate::pages::{sentence, why_not_read};

/// More than the largest window of rows.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
const UNREADABLE: &str = "The response could not be read. Please reload the page.";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiClient(pub(crate) Router);

/// Why a read failed, for its user.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) message: String,
    /// The word of the header `Bellbird-Error`.
    pub(crate) code: String,
    pub(crate) status: StatusCode,
    /// In seconds.
    pub(crate) retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(message: String) -> Self {
        Self {
            message,
            code: String::new(),
            status: StatusCode::BAD_GATEWAY,
            retry_after: None,
        }
    }
}

/// A list of the API.
#[derive(Deserialize)]
pub(crate) struct List<T> {
    pub(crate) data: Vec<T>,
}

/// What was read, and how long ago.
pub(crate) struct Aged<T> {
    pub(crate) value: T,
    pub(crate) age: SignedDuration,
}

impl ApiClient {
    /// `GET` of a path of `/v1`, with its query. With `not_before`, no older response is taken from
    /// a cache.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        path: &str,
        not_before: Option<Timestamp>,
    ) -> Result<Aged<T>, ApiError> {
        let mut request = request(path)?;
        if let Some(at) = not_before {
            request.extensions_mut().insert(NotBefore(at));
        }
        let response = self.send(caller, request).await?;
        let age = response.headers().get(AGE);
        let age = age.and_then(|age| age.to_str().ok()?.parse().ok());
        let body = read_whole(response.into_body()).await?;
        Ok(Aged {
            value: serde_json::from_slice(&body).map_err(|_| unreadable())?,
            age: SignedDuration::from_secs(age.unwrap_or_default()),
        })
    }

    /// As [`Self::get`], without reading the body. Fails unless the status is 200. The API rejects
    /// some requests of old versions of HTTP, so a response that is passed on needs that of the
    /// browser's request.
    pub(crate) async fn open(
        &self,
        caller: &Caller,
        path: &str,
        version: Version,
    ) -> Result<Response, ApiError> {
        let mut request = request(path)?;
        *request.version_mut() = version;
        self.send(caller, request).await
    }

    async fn send(&self, caller: &Caller, mut request: Request) -> Result<Response, ApiError> {
        request
            .extensions_mut()
            .insert(SignedInCaller(caller.clone()));
        let Ok(response) = self.0.clone().oneshot(request).await;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let header = |name: HeaderName| head.headers.get(name)?.to_str().ok();
        let code = header(BELLBIRD_ERROR).unwrap_or_default().to_owned();
        let retry_after: Option<u64> = header(RETRY_AFTER).and_then(|text| text.parse().ok());
        let body = read_whole(body).await?;
        let error: serde_json::Value = serde_json::from_slice(&body).map_err(|_| unreadable())?;
        let words = error["error"]["message"].as_str().ok_or_else(unreadable)?;
        let message = match (code.as_str(), retry_after) {
            ("rate_limited" | "budget_used_up", Some(seconds)) => {
                why_not_read(&Problem::TooManyRequests(seconds))
            }
            ("too_many_at_once", _) => why_not_read(&Problem::TooManyAtOnce),
            _ => sentence(words),
        };
        Err(ApiError {
            message,
            code,
            status: head.status,
            retry_after,
        })
    }
}

fn request(path: &str) -> Result<Request, ApiError> {
    let request = Request::get(path).body(Body::empty());
    request.map_err(|_| unreadable())
}

async fn read_whole(body: Body) -> Result<Bytes, ApiError> {
    let body = to_bytes(body, BODY_BYTES_MAX).await;
    body.map_err(|_| unreadable())
}

fn unreadable() -> ApiError {
    ApiError::new(UNREADABLE.to_owned())
}
