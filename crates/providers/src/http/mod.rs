//! One client for all providers: a deadline on everything, capped bodies, bounded retries, a circuit breaker, a bound on
//! calls at once, and errors that hold no URL.

mod breaker;

use std::io::Read as _;
use std::pin::Pin;
use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};
use bellbird_domain::ProviderName;
use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt;
use hyper::Uri;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use reqwest::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER,
    USER_AGENT,
};
use reqwest::{RequestBuilder, StatusCode};
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tower::BoxError;
use tower::Service;
use tower::util::MapFuture;

use crate::{Call, Error};
use breaker::Breaker;

/// The largest answer that is read.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Calls at once to one provider; more wait.
const CALLS_AT_ONCE_MAX: usize = 256;
/// Answers that are read at once; the others stay in the network until it is their turn, so that memory does not grow
/// with the number of callers.
const BODIES_AT_ONCE_MAX: usize = 32;
/// The buffer of a connection over HTTP/1.1, in bytes: every open connection keeps its own.
const READ_BUFFER_BYTES: usize = 32 * 1024;
/// Connections kept open without a call.
const IDLE_CONNECTIONS_MAX: usize = 64;
/// Attempts of one call, the first included.
const ATTEMPTS_MAX: usize = 3;
/// A provider that asks us to wait longer than this gets no second attempt within the same request.
const RETRY_AFTER_WAIT_MAX: Duration = Duration::from_secs(2);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What is sent must be acknowledged within this, or the connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);

type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Connecting = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;
/// HTTP/1.1 only: its connections share nothing, so that answers which wait for their turn to be read hold up no others.
type Connector =
    MapFuture<HttpsConnector<HttpConnector>, fn(<HttpsConnector<HttpConnector> as Service<Uri>>::Future) -> Connecting>;

/// In how many attempts a call is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempts {
    /// Repeated where that may help.
    Several,
    /// Never repeated: it may have been done though no answer came.
    One,
}

/// A client for one provider.
pub struct Client {
    provider: ProviderName,
    /// Builds requests, and makes none: its connections could not be told how much to buffer.
    builder: reqwest::Client,
    pool: Pool<Connector, reqwest::Body>,
    call_timeout: Duration,
    slots: Semaphore,
    bodies: Semaphore,
    breaker: Mutex<Breaker>,
}

/// A complete answer.
pub struct Answer {
    /// Its status.
    pub status: StatusCode,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, at most [`BODY_BYTES_MAX`].
    pub body: Bytes,
}

impl Answer {
    /// The body, if the answer says that it is JSON.
    ///
    /// # Errors
    /// [`Error::Malformed`] for any other content type.
    pub fn json_body(&self) -> Result<&[u8], Error> {
        let essence = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
        let essence = essence.split(';').next().unwrap_or("").trim();
        if essence.eq_ignore_ascii_case("application/json") {
            Ok(&self.body)
        } else {
            Err(Error::Malformed("content type is not JSON"))
        }
    }

    /// The body of a success, read as JSON.
    ///
    /// # Errors
    /// [`Answer::failure`] for a status outside 2xx; [`Error::Malformed`].
    pub fn success<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Error> {
        if !self.status.is_success() {
            return Err(self.failure());
        }
        parse_json(self.json_body()?)
    }

    /// The error that a status outside 2xx means, where the adapter knows nothing better.
    #[must_use]
    pub fn failure(&self) -> Error {
        let retry_after = retry_after(&self.headers);
        match self.status.as_u16() {
            429 => Error::RateLimited { retry_after },
            408 | 500.. => Error::Unavailable { reason: "server error", retry_after },
            status => Error::Rejected { status },
        }
    }
}

impl Client {
    /// A client with its own connection pool. Redirects are not followed, proxies from the environment are not used.
    ///
    /// # Errors
    /// A sentence when TLS cannot be set up.
    pub fn new(provider: ProviderName, call_timeout: Duration) -> Result<Self, String> {
        let failed =
            |error: &dyn std::fmt::Display| format!("the HTTP client for {provider} cannot be set up: {error}");
        let builder = reqwest::Client::builder().no_proxy().build().map_err(|error| failed(&error))?;
        let tls = rustls::ClientConfig::with_platform_verifier().map_err(|error| failed(&error))?;
        let mut connector = HttpConnector::new();
        connector.enforce_http(false);
        connector.set_nodelay(true);
        // A peer that has gone without a word is noticed, also on a connection that is only kept.
        connector.set_keepalive(Some(SILENCE_MAX / 2));
        connector.set_keepalive_interval(Some(SILENCE_MAX / 6));
        connector.set_keepalive_retries(Some(3));
        connector.set_tcp_user_timeout(Some(SILENCE_MAX));
        let connector =
            HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(connector);
        let connector = MapFuture::new(connector, in_time as fn(_) -> _);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(Duration::from_secs(50))
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .http1_max_buf_size(READ_BUFFER_BYTES)
            .build(connector);
        Ok(Self {
            provider,
            builder,
            pool,
            call_timeout,
            slots: Semaphore::new(CALLS_AT_ONCE_MAX),
            bodies: Semaphore::new(BODIES_AT_ONCE_MAX),
            breaker: Mutex::new(Breaker::default()),
        })
    }

    /// Makes a call that may be repeated, and hands the answer to `accept`, which turns it into a result or says what is
    /// wrong with it. Transient failures, `accept`'s included, are repeated with growing, jittered delays, at most three
    /// attempts in all and never past the deadline.
    ///
    /// # Errors
    /// The last attempt's error.
    pub async fn call<T: Send>(
        &self,
        call: &Call,
        operation: &'static str,
        build: impl Fn(&reqwest::Client) -> RequestBuilder + Send + Sync,
        accept: impl FnMut(&Answer) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        self.call_in(Attempts::Several, call, operation, build, accept).await
    }

    /// As [`Client::call`], in so many attempts.
    ///
    /// # Errors
    /// The last attempt's error.
    pub async fn call_in<T: Send>(
        &self,
        attempts: Attempts,
        call: &Call,
        operation: &'static str,
        build: impl Fn(&reqwest::Client) -> RequestBuilder + Send + Sync,
        mut accept: impl FnMut(&Answer) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let mut delays = ExponentialBuilder::new()
            .with_min_delay(Duration::from_millis(100))
            .with_max_delay(Duration::from_secs(1))
            .with_jitter()
            .with_max_times(ATTEMPTS_MAX - 1)
            .build();
        loop {
            let outcome = self.attempt(call, operation, build(&self.builder), &mut accept).await;
            let Err(error) = outcome else { return outcome };
            if attempts == Attempts::One {
                return Err(error);
            }
            let Some(delay) = wait_before_repeat(&error, delays.next(), call.deadline) else { return Err(error) };
            tracing::debug!(provider = %self.provider, operation, error = %error, "provider call repeated");
            tokio::time::sleep(delay).await;
        }
    }

    async fn attempt<T: Send>(
        &self,
        call: &Call,
        operation: &'static str,
        request: RequestBuilder,
        accept: &mut (impl FnMut(&Answer) -> Result<T, Error> + Send),
    ) -> Result<T, Error> {
        let started = Instant::now();
        if let Err(wait) = self.breaker.lock().admit(started) {
            return Err(Error::Unavailable { reason: "too many failures lately", retry_after: Some(wait) });
        }
        call.count();
        let answer = self.exchange(call, request).await;
        // What counts against the provider's health is not to answer, or to answer with a server error.
        let healthy = !matches!(&answer, Err(Error::Unavailable { .. } | Error::Deadline))
            && !answer.as_ref().is_ok_and(|(answer, _)| answer.status.is_server_error());
        if self.breaker.lock().record(Instant::now(), healthy) {
            tracing::warn!(provider = %self.provider, "too many failed calls: the provider is left alone for a moment");
        }
        let outcome = answer.and_then(|(answer, _turn)| accept(&answer));
        self.observe(operation, started, outcome.as_ref().err());
        outcome
    }

    /// The whole answer, with its turn, which is over when the answer has been worked on.
    async fn exchange(&self, call: &Call, request: RequestBuilder) -> Result<(Answer, SemaphorePermit<'_>), Error> {
        let until = call.deadline.min(Instant::now() + self.call_timeout);
        let exchange = async {
            const CLOSED: Error = Error::Unavailable { reason: "shutting down", retry_after: None };
            let _slot = self.slots.acquire().await.map_err(|_| CLOSED)?;
            let response = self.pool.request(prepared(request)?).await.map_err(|error| {
                Error::unavailable(if error.is_connect() { "cannot connect" } else { "connection lost" })
            })?;
            let turn = self.bodies.acquire().await.map_err(|_| CLOSED)?;
            Ok((read(response).await?, turn))
        };
        match tokio::time::timeout_at(until, exchange).await {
            Ok(answer) => answer,
            Err(_) if until == call.deadline => Err(Error::Deadline),
            Err(_) => Err(Error::unavailable("too slow")),
        }
    }

    fn observe(&self, operation: &'static str, started: Instant, error: Option<&Error>) {
        let provider = self.provider.as_str();
        let outcome = error.map_or("ok", Error::kind);
        metrics::counter!("bellbird_provider_calls_total", "provider" => provider, "operation" => operation, "outcome" => outcome)
            .increment(1);
        metrics::histogram!("bellbird_provider_call_seconds", "provider" => provider, "operation" => operation)
            .record(started.elapsed());
        if let Some(error) = error {
            tracing::debug!(provider, operation, error = %error, "provider call failed");
        }
    }
}

/// Reads JSON; what can be borrowed is borrowed.
///
/// # Errors
/// [`Error::Malformed`].
pub fn parse_json<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Error> {
    // Checked once as a whole, so that no string in it has to be.
    let text = std::str::from_utf8(body).map_err(|_| Error::Malformed("not UTF-8"))?;
    serde_json::from_str(text).map_err(|_| Error::Malformed("not the documented JSON"))
}

/// How long to wait before the next attempt, or none when there shall not be one.
fn wait_before_repeat(error: &Error, delay: Option<Duration>, deadline: Instant) -> Option<Duration> {
    if !error.is_transient() || matches!(error, Error::Deadline) {
        return None;
    }
    let asked = error.retry_after().unwrap_or_default();
    if asked > RETRY_AFTER_WAIT_MAX {
        return None;
    }
    let delay = delay?.max(asked);
    (Instant::now() + delay < deadline).then_some(delay)
}

/// The deadline of a connection, TLS included.
fn in_time(connecting: <HttpsConnector<HttpConnector> as Service<Uri>>::Future) -> Connecting {
    Box::pin(async move {
        match tokio::time::timeout(CONNECT_TIMEOUT, connecting).await {
            Ok(connected) => connected,
            Err(late) => Err(late.into()),
        }
    })
}

/// The request as it goes over the wire.
fn prepared(request: RequestBuilder) -> Result<hyper::Request<reqwest::Body>, Error> {
    const BROKEN: Error = Error::Malformed("a request that cannot be written");
    let mut request: hyper::Request<reqwest::Body> =
        request.build().map_err(|_| BROKEN)?.try_into().map_err(|_| BROKEN)?;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("Bellbird/", env!("CARGO_PKG_VERSION"))));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    Ok(request)
}

async fn read(response: hyper::Response<Incoming>) -> Result<Answer, Error> {
    const TOO_LARGE: Error = Error::Malformed("body too large");
    let (mut head, mut incoming) = response.into_parts();
    let announced = head.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok()).unwrap_or(0);
    if announced > BODY_BYTES_MAX {
        return Err(TOO_LARGE);
    }
    let mut body = BytesMut::with_capacity(announced);
    while let Some(frame) = incoming.frame().await {
        let Ok(chunk) = frame.map_err(|_| Error::unavailable("answer cut off"))?.into_data() else { continue };
        if body.len() + chunk.len() > BODY_BYTES_MAX {
            return Err(TOO_LARGE);
        }
        body.extend_from_slice(&chunk);
    }
    let encoding = head.headers.get(CONTENT_ENCODING).and_then(|encoding| encoding.to_str().ok()).unwrap_or("");
    let body = match encoding.trim().to_ascii_lowercase().as_str() {
        _ if body.is_empty() => Bytes::new(),
        "" | "identity" => body.freeze(),
        "gzip" | "x-gzip" => unpacked(&body)?,
        _ => return Err(Error::Malformed("an encoding that was not asked for")),
    };
    Ok(Answer { status: head.status, headers: std::mem::take(&mut head.headers), body })
}

/// A gzipped body, of which as much is unpacked as of any other is read.
fn unpacked(packed: &[u8]) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    let bound = BODY_BYTES_MAX as u64 + 1;
    flate2::read::MultiGzDecoder::new(packed)
        .take(bound)
        .read_to_end(&mut body)
        .map_err(|_| Error::Malformed("a broken gzip body"))?;
    if body.len() > BODY_BYTES_MAX { Err(Error::Malformed("body too large")) } else { Ok(body.into()) }
}

/// Reads `Retry-After` in seconds. Its date form is ignored: no provider here is known to send it.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn gzip_is_unpacked_up_to_the_bound() {
        let pack = |body: &[u8]| {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(body).unwrap();
            packer.finish().unwrap()
        };
        assert_eq!(unpacked(&pack(b"{}")).as_deref(), Ok(&b"{}"[..]));
        assert_eq!(unpacked(&pack(&vec![b' '; BODY_BYTES_MAX + 1])), Err(Error::Malformed("body too large")));
        assert_eq!(unpacked(b"no gzip"), Err(Error::Malformed("a broken gzip body")));
    }

    #[tokio::test(start_paused = true)]
    async fn repeats_only_what_may_help_and_only_in_time() {
        let now = Instant::now();
        let far = now + Duration::from_secs(25);
        let step = Some(Duration::from_millis(100));
        let limited = |seconds| Error::RateLimited { retry_after: Some(Duration::from_secs(seconds)) };
        for (error, delay, deadline, expected) in [
            (Error::unavailable("x"), step, far, step),
            (Error::Malformed("x"), step, far, step),
            (limited(1), step, far, Some(Duration::from_secs(1))),
            (limited(30), step, far, None),
            (Error::unavailable("x"), None, far, None),
            (Error::unavailable("x"), step, now + Duration::from_millis(50), None),
            (Error::Rejected { status: 400 }, step, far, None),
            (Error::Deadline, step, far, None),
        ] {
            assert_eq!(wait_before_repeat(&error, delay, deadline), expected, "{error}");
        }
    }
}
