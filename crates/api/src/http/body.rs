//! Reads the body of a request, within limits of size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};
use http_body_util::BodyExt as _;

/// A larger body is read up to here and discarded. A client that still sends would see a broken
/// connection instead of the error.
const DISCARDED_BYTES_MAX: usize = 1024 * 1024;
/// How long a client may take to send a body.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyError {
    TooLarge,
    Incomplete,
    /// It was not complete within 10 seconds.
    TooSlow,
}

impl BodyError {
    pub fn status(self) -> StatusCode {
        match self {
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Incomplete => StatusCode::BAD_REQUEST,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
        }
    }
}

/// Reads a body of at most so many bytes.
pub async fn read(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, BodyError> {
    let length = headers
        .get(CONTENT_LENGTH)
        .and_then(|length| length.to_str().ok()?.parse().ok());
    if length.is_some_and(|length: usize| length > DISCARDED_BYTES_MAX) {
        return Err(BodyError::TooLarge);
    }
    match tokio::time::timeout(READ_TIMEOUT, collect(body, bytes_max)).await {
        Ok(Ok(Some(body))) => Ok(body),
        Ok(Ok(None)) => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_) => Err(BodyError::TooSlow),
    }
}

/// The body. None if it is larger than the limit.
async fn collect(mut body: Body, bytes_max: usize) -> Result<Option<Bytes>, axum::Error> {
    let (mut bytes, mut length) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let Some(data) = frame?.into_data().ok() else {
            continue;
        };
        length += data.len();
        if length <= bytes_max {
            bytes.extend_from_slice(&data);
        } else if length > DISCARDED_BYTES_MAX {
            break;
        }
    }
    Ok((length <= bytes_max).then(|| bytes.into()))
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn body_size_and_time_are_limited() {
        let read_of = |body| async move { read(&HeaderMap::new(), body, 4).await };
        assert_eq!(read_of(Body::from("1234")).await, Ok(Bytes::from("1234")));
        assert_eq!(read_of(Body::from("12345")).await, Err(BodyError::TooLarge));
        let pending = stream::pending::<Result<Bytes, std::io::Error>>();
        let pending = Body::from_stream(pending);
        assert_eq!(read_of(pending).await, Err(BodyError::TooSlow));
        let broken = stream::iter([Ok("1"), Err(std::io::Error::other("gone"))]);
        let broken = Body::from_stream(broken);
        assert_eq!(read_of(broken).await, Err(BodyError::Incomplete));
    }
}
