//! Sends one signed message to one endpoint: one deadline, vetted addresses, no redirects, no proxies, and hardly any of the
//! answer read.
//!
//! A connection is kept for a while and used again. That skips no vetting: it leads to the very address that was vetted when
//! it was made, whatever the name says since. No log and no error here holds an address, a host or a body.

mod stream;

use std::error::Error;
use std::pin::Pin;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellbird_domain::{EndpointId, EventId};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::Error as SendError;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls_platform_verifier::ConfigVerifierExt;
use tokio::time::Instant;
use tower::util::{MapErr, MapFuture};
use tower::{BoxError, Service};
use url::Url;

use crate::resolver::{Refusal, Resolver};
use crate::target::{Rules, check_url, request_uri};
use stream::Stream;

/// Of an answer's body as much is read as lets the connection be used again, and no more.
const BODY_BYTES_MAX: u64 = 4 * 1024;
/// How long that may take.
const BODY_TIMEOUT: Duration = Duration::from_millis(250);
/// The buffer of a connection, in bytes, which bounds the head of an answer.
const READ_BUFFER_BYTES: usize = 16 * 1024;
/// Headers of an answer.
const HEADERS_MAX: usize = 64;
/// How long a connection is kept without a message, and how many are for one host.
const IDLE_MAX: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS_MAX: usize = 16;
/// The end of a connection that is still being made when nobody waits for it any more.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// What is sent must be acknowledged within this, or the connection is given up.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// The longest wait that an endpoint can ask for.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const BELLBIRD_ENDPOINT: HeaderName = HeaderName::from_static("bellbird-endpoint");

/// What can go wrong, in words for the log of deliveries. There are no others.
pub(crate) mod problem {
    /// The rules refuse the address itself or one that its name leads to.
    pub(super) const NOT_ALLOWED: &str = "address not allowed";
    /// The message cannot be written as a request.
    pub(super) const NOT_WRITTEN: &str = "not sent";
    /// The name does not exist, or has no address.
    pub(super) const NAME_NOT_FOUND: &str = "name not found";
    /// The name servers did not say.
    pub(crate) const NAME_UNANSWERED: &str = "name not looked up";
    /// Nobody took the connection.
    pub(super) const NOT_REACHED: &str = "not reached";
    /// The connection was taken, but no TLS came about, or the certificate is not valid.
    pub(super) const TLS_FAILED: &str = "TLS failed";
    /// The deadline passed first.
    pub(super) const LATE: &str = "no answer in time";
    /// The connection ended without an answer.
    pub(super) const CONNECTION_LOST: &str = "connection lost";
    /// What came is not HTTP, or too large a head of it.
    pub(super) const BROKEN: &str = "broken answer";
    /// A status of 3xx.
    pub(super) const REDIRECT: &str = "redirect";
    /// Any other status.
    pub(super) const REFUSED: &str = "refused";
}

type Tcp = HttpConnector<Resolver>;
type TcpError = <Tcp as Service<Uri>>::Error;
/// Only HTTP/1.1 is spoken.
type Tls = HttpsConnector<MapErr<Tcp, fn(TcpError) -> Unconnected>>;
type Connecting = Pin<Box<dyn Future<Output = Result<Stream, BoxError>> + Send>>;
type Connector = MapFuture<Tls, fn(<Tls as Service<Uri>>::Future) -> Connecting>;

/// Sends messages to endpoints.
pub struct Client {
    pool: Pool<Connector, Full<Bytes>>,
    rules: Rules,
    timeout: Duration,
}

/// One signed message for one endpoint.
pub struct Message<'a> {
    /// The event's id, the same in each attempt.
    pub id: EventId,
    /// When it is sent, in Unix seconds, as it was signed.
    pub timestamp: i64,
    /// The value of the header, all signatures of it.
    pub signature: &'a str,
    /// Which endpoint it is for.
    pub endpoint: EndpointId,
    /// The JSON, as it was signed.
    pub body: Bytes,
}

/// What came of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// The status, if an answer came.
    pub status: Option<u16>,
    /// How long the endpoint asks to be left alone, at most 24 hours.
    pub retry_after: Option<Duration>,
    /// The time until the answer's headers were there, or until it was given up.
    pub duration: Duration,
    /// What went wrong, in a few words of a closed list; none after a success.
    pub problem: Option<&'static str>,
}

impl Exchange {
    /// Whether the endpoint has taken the message.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.status.is_some_and(|status| (200..300).contains(&status))
    }
}

/// Why there is no connection, TLS aside: a word of [`problem`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Unconnected(&'static str);

impl Client {
    /// A client with its own connections, which ask `resolver` where to go. `timeout` is for all of an exchange: look-up,
    /// connection, headers, body. Proxies from the environment are not used.
    ///
    /// # Errors
    /// A sentence when TLS cannot be set up.
    pub fn new(resolver: Resolver, rules: Rules, timeout: Duration) -> Result<Self, String> {
        let tls = rustls::ClientConfig::with_platform_verifier()
            .map_err(|error| format!("the HTTP client for endpoints cannot be set up: {error}"))?;
        Ok(Self::with_tls(tls, resolver, rules, timeout))
    }

    fn with_tls(tls: rustls::ClientConfig, resolver: Resolver, rules: Rules, timeout: Duration) -> Self {
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // Divided among the addresses of a name: one that is dead leaves time for the others.
        tcp.set_connect_timeout(Some(timeout / 2));
        tcp.set_tcp_user_timeout(Some(SILENCE_MAX));
        let tcp = MapErr::new(tcp, unconnected as fn(_) -> _);
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1().wrap_connector(tcp);
        let pool = Pool::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .http1_max_buf_size(READ_BUFFER_BYTES)
            .http1_max_headers(HEADERS_MAX)
            .build(MapFuture::new(tls, in_time as fn(_) -> _));
        Self { pool, rules, timeout }
    }

    /// Sends a message, once. It is the status that decides: when the headers are there, the rest of the answer is worth a
    /// quarter of a second and 4 KiB, so that the connection can be used again, or else it is dropped.
    ///
    /// The address is checked again, and each address that its name leads to is vetted by the connection.
    pub async fn post(&self, url: &Url, message: Message<'_>) -> Exchange {
        let started = Instant::now();
        let until = started + self.timeout;
        let sent_at = message.timestamp;
        let answer = match request(url, self.rules, message) {
            Ok(request) => tokio::time::timeout_at(until, self.pool.request(request))
                .await
                .map_or(Err(problem::LATE), |answer| answer.map_err(|error| problem_of(&error))),
            Err(problem) => Err(problem),
        };
        let duration = started.elapsed();
        match answer {
            Ok(answer) => {
                let exchange = judge(&answer, sent_at, duration);
                finish(answer, until).await;
                exchange
            }
            Err(problem) => Exchange { status: None, retry_after: None, duration, problem: Some(problem) },
        }
    }
}

/// The request as it goes over the wire, if the rules allow it. An address that is a literal is not asked of the resolver:
/// only the check here keeps the connection from it.
fn request(url: &Url, rules: Rules, message: Message<'_>) -> Result<Request<Full<Bytes>>, &'static str> {
    let url = check_url(url.as_str(), rules).map_err(|_| problem::NOT_ALLOWED)?;
    let uri = request_uri(&url).ok_or(problem::NOT_ALLOWED)?;
    let mut request = Request::new(Full::new(message.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("Bellbird/", env!("CARGO_PKG_VERSION"))));
    headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(message.timestamp));
    for (name, text) in [
        (WEBHOOK_ID, message.id.to_string()),
        (WEBHOOK_SIGNATURE, message.signature.to_owned()),
        (BELLBIRD_ENDPOINT, message.endpoint.to_string()),
    ] {
        headers.insert(name, HeaderValue::try_from(text).map_err(|_| problem::NOT_WRITTEN)?);
    }
    Ok(request)
}

fn judge(answer: &Response<Incoming>, sent_at: i64, duration: Duration) -> Exchange {
    let status = answer.status();
    let problem = match () {
        () if status.is_success() => None,
        () if status.is_redirection() => Some(problem::REDIRECT),
        () => Some(problem::REFUSED),
    };
    Exchange {
        status: Some(status.as_u16()),
        retry_after: problem.and_then(|_| retry_after(answer.headers(), sent_at)),
        duration,
        problem,
    }
}

/// Reads a small body to its end, within the deadline.
async fn finish(answer: Response<Incoming>, until: Instant) {
    let mut body = answer.into_body();
    if body.is_end_stream() || body.size_hint().lower() > BODY_BYTES_MAX {
        return;
    }
    let reading = async {
        let mut read = 0;
        while let Some(Ok(frame)) = body.frame().await {
            read += frame.data_ref().map_or(0, |data| data.len() as u64);
            if read > BODY_BYTES_MAX {
                return;
            }
        }
    };
    // What takes longer is dropped, and the connection with it.
    let _ = tokio::time::timeout_at(until.min(Instant::now() + BODY_TIMEOUT), reading).await;
}

/// Reads `Retry-After`, in seconds or as an HTTP date, which is compared with the time of sending.
fn retry_after(headers: &HeaderMap, sent_at: i64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        let sent_at: SystemTime = UNIX_EPOCH + Duration::from_secs(u64::try_from(sent_at).ok()?);
        httpdate::parse_http_date(text).ok()?.duration_since(sent_at).unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// The first error of type `E` among an error and its causes.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |&error| error.source()).find_map(|error| error.downcast_ref())
}

fn unconnected(error: TcpError) -> Unconnected {
    Unconnected(match cause::<Refusal>(&error) {
        Some(Refusal::NotAllowed) => problem::NOT_ALLOWED,
        Some(Refusal::NotFound) => problem::NAME_NOT_FOUND,
        Some(Refusal::Unanswered) => problem::NAME_UNANSWERED,
        None => problem::NOT_REACHED,
    })
}

fn problem_of(error: &SendError) -> &'static str {
    if let Some(Unconnected(problem)) = cause(error) {
        problem
    } else if cause::<tokio::time::error::Elapsed>(error).is_some() {
        problem::LATE
    } else if error.is_connect() {
        problem::TLS_FAILED
    } else if cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
        problem::BROKEN
    } else {
        problem::CONNECTION_LOST
    }
}

/// The deadline of a connection, TLS included, for one that has been overtaken: an exchange has a deadline of its own.
fn in_time(connecting: <Tls as Service<Uri>>::Future) -> Connecting {
    Box::pin(async move { Ok(Stream::new(tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??)) })
}

#[cfg(test)]
mod tests;
