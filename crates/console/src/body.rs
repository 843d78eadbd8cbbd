//! Reading what a client sends, within bounds of size and time.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::HeaderMap;
use http::header::CONTENT_LENGTH;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};

/// How long a client may take to send a body.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// Why a body was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unread {
    /// More bytes than are taken.
    TooLarge,
    /// It did not arrive within [`DEADLINE`].
    TooSlow,
    /// The client broke off.
    Broken,
}

/// How many bytes the client says that it sends.
pub(crate) fn announced(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The body, of at most so many bytes. One that announces more is not read at all.
///
/// # Errors
/// [`Unread`].
pub(crate) async fn read(headers: &HeaderMap, body: Body, bytes_max: usize) -> Result<Bytes, Unread> {
    if announced(headers).is_some_and(|length| usize::try_from(length).map_or(true, |length| length > bytes_max)) {
        return Err(Unread::TooLarge);
    }
    match tokio::time::timeout(DEADLINE, Limited::new(body, bytes_max).collect()).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Unread::TooLarge),
        Ok(Err(_)) => Err(Unread::Broken),
        Err(_) => Err(Unread::TooSlow),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::body_without_end;

    #[tokio::test(start_paused = true)]
    async fn a_body_is_read_within_its_bounds() {
        let read_of = |body| async move { read(&HeaderMap::new(), body, 4).await };
        assert_eq!(read_of(Body::from("1234")).await, Ok(Bytes::from("1234")));
        assert_eq!(read_of(Body::from("12345")).await, Err(Unread::TooLarge));
        assert_eq!(read_of(body_without_end()).await, Err(Unread::TooSlow));
        let broken = futures_util::stream::iter([Ok("1"), Err(std::io::Error::other("gone"))]);
        assert_eq!(read_of(Body::from_stream(broken)).await, Err(Unread::Broken));
    }
}
