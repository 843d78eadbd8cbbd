//! Reads through the API's own router as the user who is signed in. So a page shows what the API
//! says, with its limits, its caches and the sentences of its errors.

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bellbird_api::http::SignedInCaller;
use bellbird_domain::Caller;
use bytes::Bytes;
use http::{StatusCode, Version};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tower::ServiceExt as _;

use crate::pages::sentence;

/// More than the largest window of rows.
const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
const UNREADABLE: &str = "The response could not be read. Please reload the page.";

/// Cheap to clone.
#[derive(Clone)]
pub(crate) struct ApiClient(Router);

/// Why a read failed, for its user.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) message: String,
}

/// The API's error object.
#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorMessage,
}

#[derive(Deserialize)]
struct ErrorMessage {
    message: String,
}

impl ApiClient {
    pub(crate) fn new(router: Router) -> Self {
        Self(router)
    }

    /// `GET` of a path of `/v1`, with its query.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        caller: &Caller,
        path: &str,
    ) -> Result<T, ApiError> {
        let body = read_whole(self.open(caller, path, Version::HTTP_11).await?).await?;
        serde_json::from_slice(&body).map_err(|_| unreadable())
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
        let mut request = Request::get(path)
            .body(Body::empty())
            .map_err(|_| unreadable())?;
        *request.version_mut() = version;
        request
            .extensions_mut()
            .insert(SignedInCaller(caller.clone()));
        let Ok(response) = self.0.clone().oneshot(request).await;
        if response.status() == StatusCode::OK {
            return Ok(response);
        }
        let error: ErrorBody =
            serde_json::from_slice(&read_whole(response).await?).map_err(|_| unreadable())?;
        Err(ApiError {
            message: sentence(&error.error.message),
        })
    }
}

async fn read_whole(response: Response) -> Result<Bytes, ApiError> {
    let body = Limited::new(response.into_body(), BODY_BYTES_MAX)
        .collect()
        .await
        .map_err(|_| unreadable())?;
    Ok(body.to_bytes())
}

fn unreadable() -> ApiError {
    ApiError {
        message: UNREADABLE.to_owned(),
    }
}
