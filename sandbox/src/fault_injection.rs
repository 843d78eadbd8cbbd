//! Middleware that counts each call to a provider and applies the faults that a test has set.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::task::Poll;

use axum::body::{Body, to_bytes};
use axum::extract::{MatchedPath, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream::{self, StreamExt as _};
use http::{HeaderValue, StatusCode, header};

use crate::faults::{Fault, Kind};
use crate::provider::Provider;
use crate::serve::{Abort, ConnectionControl};

/// Padding of a `huge` body, in bytes.
const HUGE_BYTES: usize = 50 * 1024 * 1024;
/// One chunk of the padding, sent again and again. The client receives no more than it reads.
static FILLER: [u8; 64 * 1024] = [b'x'; 64 * 1024];

/// Wraps every route of a provider, but not the control routes.
pub(crate) async fn inject_faults<P: Provider>(
    State(provider): State<Arc<P>>,
    request: Request,
    next: Next,
) -> Response {
    let route = request
        .extensions()
        .get::<MatchedPath>()
        .map_or("(unknown)", MatchedPath::as_str);
    // Before the call is counted: whoever sees it in the count may release it.
    let released = provider.faults.released();
    provider.calls.count(request.method(), route);
    let uri = request.uri();
    let fault = provider.faults.take_match(
        uri.path_and_query()
            .map_or(uri.path(), |whole| whole.as_str()),
    );
    match fault {
        None => next.run(request).await,
        Some(fault) => apply_fault(P::error_body, &fault, released, request, next).await,
    }
}

/// Content type and body of a provider's error for a path and status.
type ErrorBody = fn(&str, StatusCode) -> (&'static str, Vec<u8>);

async fn apply_fault(
    error_body: ErrorBody,
    fault: &Fault,
    released: impl Future<Output = ()>,
    request: Request,
    next: Next,
) -> Response {
    let delay = fault.first_delay();
    if !delay.is_zero() {
        let _ = tokio::time::timeout(delay, released).await;
    }
    let connection_control = request
        .extensions()
        .get::<Arc<ConnectionControl>>()
        .cloned()
        .unwrap_or_default();
    match fault.kind {
        Kind::Delay => next.run(request).await,
        Kind::Status => status(error_body, fault, request.uri().path()),
        Kind::ContentType => {
            let page = "<!doctype html><title>Maintenance</title><p>We will be back soon.";
            ([(header::CONTENT_TYPE, "text/html; charset=utf-8")], page).into_response()
        }
        Kind::Reset => {
            connection_control.reset_on_close();
            abort()
        }
        Kind::Cut => cut(next.run(request).await, fault, connection_control).await,
        Kind::Malformed => malformed(next.run(request).await).await,
        Kind::Drip => drip(next.run(request).await, fault).await,
        Kind::Huge => huge(next.run(request).await).await,
    }
}

/// A response that closes the connection instead of being sent.
fn abort() -> Response {
    let mut response = StatusCode::INTERNAL_SERVER_ERROR.into_response();
    response.extensions_mut().insert(Abort);
    response
}

fn status(error_body: ErrorBody, fault: &Fault, path: &str) -> Response {
    let (content_type, body) = error_body(path, fault.status_code());
    let mut response = (
        fault.status_code(),
        [(header::CONTENT_TYPE, content_type)],
        body,
    )
        .into_response();
    let retry_after = fault.retry_after.as_ref().map(|value| match value {
        serde_json::Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    if let Some(value) = retry_after.and_then(|text| HeaderValue::from_str(&text).ok()) {
        response.headers_mut().insert(header::RETRY_AFTER, value);
    }
    response
}

/// Reads the whole body. The sandbox's own bodies are in memory anyway, so there is no limit.
async fn collected(response: Response) -> (http::response::Parts, Bytes) {
    let (head, body) = response.into_parts();
    (head, to_bytes(body, usize::MAX).await.unwrap_or_default())
}

async fn cut(
    response: Response,
    fault: &Fault,
    connection_control: Arc<ConnectionControl>,
) -> Response {
    let (mut head, body) = collected(response).await;
    if body.is_empty() {
        return abort();
    }
    // At least one byte is missing, so that the body is always cut.
    let part = body.slice(
        ..fault
            .after_bytes
            .unwrap_or(body.len() / 2)
            .min(body.len() - 1),
    );
    head.headers
        .insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    let mut part = Some(part).filter(|part| !part.is_empty());
    let pieces = stream::poll_fn(move |context| match part.take() {
        Some(part) => Poll::Ready(Some(Ok(part))),
        // Break the connection only after a flush; otherwise the bytes sent so far would be lost
        // with it.
        None => connection_control
            .poll_flushed(context)
            .map(|()| Some(Err(io::Error::other("cut by a fault")))),
    });
    Response::from_parts(head, Body::from_stream(pieces))
}

async fn malformed(response: Response) -> Response {
    let (mut head, body) = collected(response).await;
    let half = if body.len() < 2 {
        Bytes::from_static(b"{\"")
    } else {
        body.slice(..body.len() / 2)
    };
    head.status = StatusCode::OK;
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers
        .entry(header::CONTENT_TYPE)
        .or_insert(HeaderValue::from_static("application/json"));
    Response::from_parts(head, Body::from(half))
}

async fn drip(response: Response, fault: &Fault) -> Response {
    let (mut head, body) = collected(response).await;
    if head.status != StatusCode::NO_CONTENT {
        head.headers
            .insert(header::CONTENT_LENGTH, HeaderValue::from(body.len()));
    }
    let pause = fault.drip();
    let drops = stream::unfold(body, move |mut rest| async move {
        if rest.is_empty() {
            return None;
        }
        tokio::time::sleep(pause).await;
        let drop = rest.split_to(1);
        Some((Ok::<_, Infallible>(drop), rest))
    });
    Response::from_parts(head, Body::from_stream(drops))
}

/// Puts a padding member (or element) in front of the real response. The result is valid JSON of
/// the right shape, only far too long.
async fn huge(response: Response) -> Response {
    let (mut head, body) = collected(response).await;
    let (open, rest) = match body.split_first() {
        Some((b'[', rest)) => ("[{\"padding\":\"", body.slice_ref(rest)),
        Some((b'{', rest)) => ("{\"padding\":\"", body.slice_ref(rest)),
        _ => ("{\"padding\":\"", Bytes::from_static(b"}")),
    };
    let element = if open.starts_with('[') { "\"}" } else { "\"" };
    let comma = if matches!(&rest[..], b"}" | b"]") {
        ""
    } else {
        ","
    };
    head.headers.remove(header::CONTENT_LENGTH);
    let filler = stream::repeat(Bytes::from_static(&FILLER)).take(HUGE_BYTES / FILLER.len());
    let pieces = stream::iter([Bytes::from(open)])
        .chain(filler)
        .chain(stream::iter([
            Bytes::from(format!("{element}{comma}")),
            rest,
        ]))
        .map(Ok::<_, Infallible>);
    Response::from_parts(head, Body::from_stream(pieces))
}
