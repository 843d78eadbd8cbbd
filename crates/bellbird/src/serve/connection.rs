//! Serves HTTP/1.1 and HTTP/2 on one connection, and closes it on timeout or shutdown.

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
use super::activity::{Activity, InFlightRequest, State};
use super::body::CountedBody;
use super::stream::CountedStream;
use super::watch::Watch;

/// Size of a request's head beyond which hyper rejects it. The API's own limits are lower and checked later.
const HEAD_BYTES_MAX: usize = 256 * 1024;
/// Header fields of a request beyond which hyper rejects it. hyper allocates all of them before it parses: 256 fields
/// cost a request 0.2 µs more than the default of 100; 1,000 fields cost 1.1 µs more.
const HEADERS_MAX: usize = 256;
/// Size of an HTTP/2 header list, as RFC 9113 defines it.
const HTTP2_HEAD_BYTES_MAX: u32 = 128 * 1024;
const HTTP2_STREAMS_MAX: u32 = 128;
const HTTP2_PING_INTERVAL: Duration = Duration::from_secs(30);
const HTTP2_PING_TIMEOUT: Duration = Duration::from_secs(20);

/// How long an idle connection may take to close gracefully after its timeout.
const CLOSE_GRACE: Duration = Duration::from_secs(2);

/// Shared by all connections of a listener.
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
            // Off: hyper counts the idle time between two requests as part of it. The watch enforces both timeouts.
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

/// Serves one connection and holds its permit meanwhile.
pub(super) async fn run(
    server: Arc<Server>,
    stream: TcpStream,
    peer: SocketAddr,
    stop: CancellationToken,
    _slot: OwnedSemaphorePermit,
) {
    // Without it, Nagle's algorithm may hold back a small response until the previous one is acknowledged.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "could not set TCP_NODELAY");
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
        Some(End::TimedOut(State::Idle(_))) => {
            // On HTTP/2 this sends GOAWAY, so that the client opens no new stream.
            connection.as_mut().graceful_shutdown();
            log_end(tokio::time::timeout(CLOSE_GRACE, connection).await.map(End::Closed).ok());
        }
        Some(ended) => log_end(Some(ended)),
        None => {
            connection.as_mut().graceful_shutdown();
            let rest = end_of(connection, &mut watch);
            log_end(tokio::time::timeout(server.options.stop_timeout, rest).await.ok());
        }
    }
}

/// Polls the connection until it closes or a timeout ends it.
fn end_of<'a, C>(mut connection: Pin<&'a mut C>, watch: &'a mut Watch) -> impl Future<Output = End> + 'a
where
    C: Future<Output = Result<(), ConnectionError>>,
{
    poll_fn(move |context| match connection.as_mut().poll(context) {
        Poll::Ready(result) => Poll::Ready(End::Closed(result)),
        Poll::Pending => watch.poll_timeout(context).map(End::TimedOut),
    })
}

fn log_end(ended: Option<End>) {
    match ended {
        None => tracing::warn!("connection aborted: it did not close within the shutdown timeout"),
        Some(End::TimedOut(state)) => tracing::debug!(?state, "connection timed out"),
        Some(End::Closed(Err(error))) => tracing::debug!(error, "connection failed"),
        Some(End::Closed(Ok(()))) => {}
    }
}

type ConnectionError = Box<dyn std::error::Error + Send + Sync>;

enum End {
    Closed(Result<(), ConnectionError>),
    TimedOut(State),
}

/// Passes each request to the router, with the peer's address.
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
        let in_flight = Some(self.activity.start_request());
        request.extensions_mut().insert(ConnectInfo(self.peer));
        CountedAnswer { answer: self.router.clone().call(request), in_flight }
    }
}

/// Future of the router's response.
struct CountedAnswer {
    answer: RouteFuture<std::convert::Infallible>,
    in_flight: Option<InFlightRequest>,
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
            // The router adds `Allow` outside of all layers. A rejected key must not learn the methods of a path.
            answer.headers_mut().remove(ALLOW);
        }
        match this.in_flight.take() {
            Some(in_flight) => Poll::Ready(Ok(answer.map(|inner| CountedBody { inner, _request: in_flight }))),
            // Polled after completion, which no caller does.
            None => Poll::Pending,
        }
    }
}
