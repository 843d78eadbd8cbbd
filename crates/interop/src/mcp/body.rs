//! Reads the body of a request, within limits of size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;

use super::rpc::RpcError;

/// The arguments of a call are short. A hundred account ids and a cursor take 20 KiB.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// A larger body is read up to here and discarded. A client that still sends would see a broken connection instead of
/// the error.
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;
/// How long a client may take to send a body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) async fn read(headers: &HeaderMap, body: Body) -> Result<Bytes, RpcError> {
    let too_large = || RpcError::of_status(StatusCode::PAYLOAD_TOO_LARGE, "The body is too large: the limit is 64 KiB");
    let length = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > DISCARDED_BYTES_MAX) {
        return Err(too_large());
    }
    match tokio::time::timeout(READ_TIMEOUT, collect(body)).await {
        Ok(Ok(Some(body))) => Ok(body),
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(_)) => Err(RpcError::of_status(StatusCode::BAD_REQUEST, "The body is incomplete")),
        Err(_) => Err(RpcError::of_status(StatusCode::REQUEST_TIMEOUT, "The body was not complete within 10 seconds")),
    }
}

/// The body. None if it is larger than the limit.
async fn collect(mut body: Body) -> Result<Option<Bytes>, axum::Error> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Some(data) = frame?.into_data().ok() else { continue };
        length += data.len();
        if length <= BODY_BYTES_MAX {
            bytes.extend_from_slice(&data);
        } else if length > DISCARDED_BYTES_MAX {
            break;
        }
    }
    Ok((length <= BODY_BYTES_MAX).then(|| bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn body_size_and_time_are_limited() {
        let status = |body| async move { read(&HeaderMap::new(), body).await.map_err(|error| error.code()) };
        assert_eq!(status(Body::from("{}")).await, Ok(Bytes::from("{}")));
        assert_eq!(status(Body::from(vec![b' '; BODY_BYTES_MAX + 1])).await, Err(413));
        let pending = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
        assert_eq!(status(Body::from_stream(pending)).await, Err(408));
        let broken = futures_util::stream::iter([Ok("1"), Err(std::io::Error::other("gone"))]);
        assert_eq!(status(Body::from_stream(broken)).await, Err(400));
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_LENGTH, "1048577".parse().unwrap());
        assert!(read(&headers, Body::empty()).await.is_err());
    }
}
