//! Reads request bodies with a limit of size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// How long a client may take to send a body.
pub(crate) const READ_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyError {
    /// The body is larger than the limit.
    TooLarge,
    /// The client did not send the body within [`READ_TIMEOUT`].
    TimedOut,
    /// The client disconnected.
    Incomplete,
}

pub(crate) fn content_length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Rejects a body whose `Content-Length` is more than twice the limit without reading it. A body
/// that is a little too large is read, because a proxy that is still sending it may drop the
/// response.
pub(crate) async fn read(
    headers: &HeaderMap,
    body: Body,
    bytes_max: usize,
) -> Result<Bytes, BodyError> {
    let is_far_too_large =
        |length| usize::try_from(length).map_or(true, |length| length / 2 > bytes_max);
    if content_length(headers).is_some_and(is_far_too_large) {
        return Err(BodyError::TooLarge);
    }
    match tokio::time::timeout(READ_TIMEOUT, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(BodyError::TooLarge),
        Ok(Err(_)) => Err(BodyError::Incomplete),
        Err(_) => Err(BodyError::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::pending_body;

    #[tokio::test(start_paused = true)]
    async fn body_size_and_time_are_limited() {
        let read_of = |body| async move { read(&HeaderMap::new(), body, 4).await };
        assert_eq!(read_of(Body::from("1234")).await, Ok(Bytes::from("1234")));
        assert_eq!(read_of(Body::from("12345")).await, Err(BodyError::TooLarge));
        assert_eq!(read_of(pending_body()).await, Err(BodyError::TimedOut));
        let broken = futures_util::stream::iter([Ok("1"), Err(std::io::Error::other("gone"))]);
        assert_eq!(
            read_of(Body::from_stream(broken)).await,
            Err(BodyError::Incomplete)
        );
    }
}
