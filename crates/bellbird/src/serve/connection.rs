//! One connection, from its first byte to its last.

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::Router;
use axum::extract::ConnectInfo;
use axum::routing::future::RouteFuture;
use http::StatusCode;
use http::header::ALLOW;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tower::Service as _;

use super::ServeOptions;
use super::activity::{Activity, Call, State};
use super::body::CountedBody;
use super::stream::CountedStream;
use super::watch::Watch;

/// A request's head may take this much before hyper refuses it; our own limits, which are lower, are checked behind it.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Header fields of one request. Beyond it hyper refuses the request. hyper sets room for all of them aside before it
/// parses: 256 cost a request 0.2 µs more than its default of 100 does, 1,000 cost 1.1 µs.
const HEADERS_MAX: usize = 256;
/// The same for HTTP/2, as the sum that RFC 9113 defines.
const HTTP2_HEAD_BYTES_MAX: u32 = 128 * 1024;
const HTTP2_STREAMS_MAX: u32 = 128;
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// What a connection that was idle for too long gets to close in good order.
const FAREWELL: Duration = Duration::from_secs(2);

/// What all connections of a listener share.
pub(super) struct Server {
    router: Router,
    options: ServeOptions,
    builder: auto::Builder<TokioExecutor>,
}

impl Server {
    pub(super) fn new(router: Router, options: ServeOptions) -> Self {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            // Off: hyper counts the idle time between two requests as part of it. The watch sees to both.
            .header_read_timeout(None)
            .max_buf_size(HEAD_BYTES_MAX)
            .max_headers(HEADERS_MAX);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_header_list_size(HTTP2_HEAD_BYTES_MAX)
            .max_concurrent_streams(HTTP2_STREAMS_MAX)
            .keep_alive_interval(HTTP2_PING_INTERVAL)
            .keep_alive_timeout(HTTP2_PING_TIMEOUT);
        Self { router, options, builder }
    }
}

/// Serves one connection. Its slot is free again when this returns.
pub(super) async fn run(
    server: Arc<Server>,
    stream: TcpStream,
    peer: SocketAddr,
    stop: CancellationToken,
    _slot: OwnedSemaphorePermit,
) {
    // Without it a small answer may wait for the acknowledgement of the one before.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection without TCP_NODELAY");
    }
    let activity = Arc::new(Activity::default());
    let service = RouterService { router: server.router.clone(), peer, activity: Arc::clone(&activity) };
    let stream = TokioIo::new(CountedStream::new(stream, Arc::clone(&activity)));
    let mut connection = pin!(server.builder.serve_connection(stream, service));
    let mut watch = Watch::new(activity, server.options);
    let ended = tokio::select! {
        biased;
        ended = end_of(connection.as_mut(), &mut watch) => Some(ended),
        () = stop.cancelled() => None,
    };
    match ended {
        Some(End::TooSlow(State::Idle(_))) => {
            // A farewell: on HTTP/2 that is how the client learns that it may not go on.
            connection.as_mut().graceful_shutdown();
            log_end(tokio::time::timeout(FAREWELL, connection).await.map(End::Closed).ok());
        }
        Some(ended) => log_end(Some(ended)),
        None => {
            connection.as_mut().graceful_shutdown();
            let rest = end_of(connection, &mut watch);
            log_end(tokio::time::timeout(server.options.stop_timeout, rest).await.ok());
        }
    }
}

/// Goes on until the connection is closed, or has waited for too long.
fn end_of<'a, C>(mut connection: Pin<&'a mut C>, watch: &'a mut Watch) -> impl Future<Output = End> + 'a
where
    C: Future<Output = Result<(), ConnectionError>>,
{
    poll_fn(move |context| match connection.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(End::Closed(result)),
        Poll::Pending => watch.poll_timeout(context).map(End::TooSlow),
    })
}

fn log_end(ended: Option<End>) {
    match ended {
        None => tracing::warn!("a connection was cut off, as it did not end in time"),
        Some(End::TooSlow(state)) => tracing::debug!(?state, "a connection was closed, as nothing came"),
        Some(End::Closed(Err(error))) => tracing::debug!(error, "a connection ended early"),
        Some(End::Closed(Ok(()))) => {}
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

/// How a connection came to its end.
enum End {
    Closed(Result<(), ConnectionError>),
    TooSlow(State),
}

/// Hands each request to the router, together with the address that it came from.
struct RouterService {
    router: Router,
    peer: SocketAddr,
    activity: Arc<Activity>,
}

impl hyper::service::Service<http::Request<Incoming>> for RouterService {
    type Response = http::Response<CountedBody>;
    type Error = std::convert::Infallible;
    type Future = CountedAnswer;

    fn call(&self, mut request: http::Request<Incoming>) -> CountedAnswer {
        let call = Some(self.activity.start_call());
        request.extensions_mut().insert(ConnectInfo(self.peer));
        CountedAnswer { answer: self.router.clone().call(request), call }
    }
}

/// The router's answer, still to come.
struct CountedAnswer {
    answer: RouteFuture<std::convert::Infallible>,
    call: Option<Call>,
}

impl Future for CountedAnswer {
    type Output = Result<http::Response<CountedBody>, std::convert::Infallible>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let mut answer = match ready!(Pin::new(&mut this.answer).poll(context)) {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        if answer.status() == StatusCode::UNAUTHORIZED {
            // The router says, behind all layers, what a path knows; a refused key is told nothing of that.
            answer.headers_mut().remove(ALLOW);
        }
        match this.call.take() {
            Some(call) => Poll::Ready(Ok(answer.map(|inner| CountedBody { inner, _call: call }))),
            // Polled again behind its end, which no caller does.
            None => Poll::Pending,
        }
    }
}
