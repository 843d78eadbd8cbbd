//! The trace that a request belongs to (W3C Trace Context). A trusted proxy may have begun it, or
//! this service does.

use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request};
use bellbird_limits::client_address::Network;
use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator as _;
use opentelemetry::trace::{SpanContext, TraceContextExt as _, TraceId, TraceState};
use opentelemetry_http::HeaderExtractor;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Makes the span of a request a part of the trace that `traceparent` names, if the peer is a
/// trusted proxy, because anybody else could choose it. Returns the id of the trace, if there is
/// one.
pub(super) fn join(span: &Span, request: &Request, trusted: &[Network]) -> Option<TraceId> {
    let peer = request
        .extensions()
        .get::<ConnectInfo<SocketAddr>>()
        .map(|peer| peer.0.ip());
    let is_trusted = peer.is_some_and(|peer| trusted.iter().any(|network| network.contains(peer)));
    let parent = is_trusted.then(|| parent(request)).flatten();
    let parent_id = parent
        .as_ref()
        .map(|parent| parent.span().span_context().trace_id());
    if let Some(parent) = parent {
        // Fails if traces are off.
        let _ = span.set_parent(parent);
    }
    let of_span = span.context().span().span_context().trace_id();
    if of_span == TraceId::INVALID {
        parent_id
    } else {
        Some(of_span)
    }
}

fn parent(request: &Request) -> Option<Context> {
    let context = TraceContextPropagator::new()
        .extract_with_context(&Context::new(), &HeaderExtractor(request.headers()));
    let sent = context.span().span_context().clone();
    // Without `tracestate`: spans would take a text that somebody chose to the collector.
    let parent = SpanContext::new(
        sent.trace_id(),
        sent.span_id(),
        sent.trace_flags(),
        true,
        TraceState::NONE,
    );
    parent
        .is_valid()
        .then(|| Context::new().with_remote_span_context(parent))
}

pub(super) fn set_status(span: &Span, status: u16) {
    span.set_attribute("http.response.status_code", i64::from(status));
}
