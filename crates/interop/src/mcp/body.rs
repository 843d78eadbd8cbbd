//! Reads the body of a request.

use axum::body::Body;
use bellbird_api::http::body::{self, BodyError};
use bytes::Bytes;
use http::{HeaderMap, StatusCode};

use super::rpc::RpcError;

/// The arguments of a call are short. A hundred account ids and a cursor take 20 KiB.
const BODY_BYTES_MAX: usize = 64 * 1024;

pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, RpcError> {
    body::read(headers, body, BODY_BYTES_MAX)
        .await
        .map_err(|error| match error {
            BodyError::TooLarge => RpcError::of_status(
                StatusCode::PAYLOAD_TOO_LARGE,
                "The body is too large: the limit is 64 KiB",
            ),
            BodyError::Incomplete => {
                RpcError::of_status(StatusCode::BAD_REQUEST, "The body is incomplete")
            }
            BodyError::TooSlow => RpcError::of_status(
                StatusCode::REQUEST_TIMEOUT,
                "The body was not complete within 10 seconds",
            ),
        })
}

#[cfg(test)]
mod tests {
    use http::header::CONTENT_LENGTH;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn body_size_and_time_are_limited() {
        let status = |body| async move {
            read(&HeaderMap::new(), body)
                .await
                .map_err(|error| error.code())
        };
        assert_eq!(status(Body::from("{}")).await, Ok(Bytes::from("{}")));
        assert_eq!(
            status(Body::from(vec![b' '; BODY_BYTES_MAX + 1])).await,
            Err(413)
        );
        let pending = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        assert_eq!(status(Body::from_stream(pending)).await, Err(408));
        let broken = futures_util::stream::iter([Ok("1"), Err(std::io::Error::other("gone"))]);
        assert_eq!(status(Body::from_stream(broken)).await, Err(400));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, "1048577".parse().unwrap());
        assert!(read(&headers, Body::empty()).await.is_err());
    }
}
