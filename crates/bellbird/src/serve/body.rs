//! Response body that counts its request as in flight until the body has been sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body as Inner;
use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::InFlightRequest;

pub(super) struct CountedBody {
    pub(super) inner: Inner,
    pub(super) _request: InFlightRequest,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.inner).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
