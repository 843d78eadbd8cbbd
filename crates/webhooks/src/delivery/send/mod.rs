//! Sends messages to endpoints: one deadline for an exchange, vetted addresses only, no redirects,
//! no proxies, and at most 4 KiB of a response body.
//!
//! An idle connection is kept for 30 seconds and reused. It needs no new vetting, because it still
//! leads to the address that was vetted when it was opened. No log message and no error contains a
//! URL, a host or a body.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bellbird_domain::EventId;
use bellbird_providers::http::pool::{self, Limits, Pool, SendError, TcpError};
use bytes::{Bytes, BytesMut};
#[cfg(feature = "test-support")]
use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Method, Request, Response, Uri};
use tokio::time::Instant;
use url::Url;

use super::sign::Message;
use crate::target::resolver::{ResolveError, Resolver};
use crate::target::{Rules, check_url, request_uri};

/// Maximum bytes to read of a response body. Reading it to the end lets the connection be reused.
const BODY_BYTES_MAX: usize = 4 * 1024;
const BODY_TIMEOUT: Duration = Duration::from_millis(250);
const HEADERS_MAX: usize = 64;
/// Time limit for opening a connection, even if no exchange waits for it any more.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);
/// The same for an endpoint that has been failing, so that a dead one is given up soon. Longer in
/// tests, where a busy machine may stop both ends.
const SHORT_CONNECT_TIMEOUT: Duration = Duration::from_secs(if cfg!(test) { 10 } else { 2 });
/// Maximum `Retry-After` of an endpoint.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(24 * 60 * 60);

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const BELLBIRD_ENDPOINT: HeaderName = HeaderName::from_static("bellbird-endpoint");

/// All error texts of an exchange. The delivery log has them, but for those that
/// [`Exchange::shown`] replaces.
pub(crate) mod delivery_error {
    /// The user's plan does not include such events any more.
    pub(crate) const NOT_IN_PLAN: &str = "not in the user's plan";
    /// The signing secret cannot be opened.
    pub(crate) const NOT_SIGNED: &str = "not signed: secret cannot be opened";
    /// A fault of Bellbird. The log has no more, because the text may contain a row.
    pub(crate) const PANICKED: &str = "internal error";
    /// The rules reject the URL, or an address that its host name resolves to.
    pub(super) const NOT_ALLOWED: &str = "address not allowed";
    /// The message could not be turned into a request.
    pub(super) const NOT_WRITTEN: &str = "not sent";
    /// The name does not exist, or has no address.
    pub(super) const NAME_NOT_FOUND: &str = "name not found";
    /// The name servers failed or did not respond.
    pub(crate) const NAME_NOT_RESOLVED: &str = "name not resolved";
    /// Nothing listens at the address.
    pub(super) const CONNECTION_REFUSED: &str = "connection refused";
    /// No address accepted a TCP connection.
    pub(super) const NOT_REACHED: &str = "not reached";
    /// The TLS handshake failed, or the certificate is not valid.
    pub(super) const TLS_FAILED: &str = "TLS failed";
    pub(super) const TIMED_OUT: &str = "no response in time";
    /// The connection ended without a response.
    pub(super) const CONNECTION_LOST: &str = "connection lost";
    /// The response is not HTTP, or its head is too large.
    pub(super) const INVALID_RESPONSE: &str = "invalid response";
    /// Status 3xx.
    pub(super) const REDIRECT: &str = "redirect";
    /// Any status other than 2xx and 3xx.
    pub(super) const REJECTED: &str = "rejected";
    /// What users see of the three errors of a host name.
    pub(super) const NO_PUBLIC_ADDRESS: &str = "no public address";
}

#[derive(Clone)]
pub struct Client {
    usual: Pool,
    /// Its connections have to be open within [`SHORT_CONNECT_TIMEOUT`].
    short: Pool,
    rules: Rules,
    timeout: Duration,
    #[cfg(feature = "test-support")]
    receiver: Option<std::sync::Arc<dyn Receiver>>,
}

/// Takes the messages of a [`Client`] in a simulation.
#[cfg(feature = "test-support")]
pub trait Receiver: Send + Sync {
    fn connect<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<(), Exchange>>;

    fn send<'a>(&'a self, url: &'a Url, message: Message) -> BoxFuture<'a, Exchange>;
}

/// How long a connection may take to open, within the deadline of the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectTime {
    Usual,
    /// Two seconds for name resolution, TCP and TLS.
    Short,
}

/// The outcome of one message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exchange {
    /// `None` if no response came.
    pub status: Option<u16>,
    /// The endpoint's `Retry-After`, at most 24 hours.
    pub retry_after: Option<Duration>,
    /// Time until the response headers came, or until the exchange failed.
    pub duration: Duration,
    /// One of the texts of `delivery_error`, for the operator. `None` after a success.
    pub error: Option<&'static str>,
}

impl Exchange {
    /// An exchange without a response.
    fn failed(error: &'static str, duration: Duration) -> Self {
        Self {
            status: None,
            retry_after: None,
            duration,
            error: Some(error),
        }
    }

    /// Whether the endpoint accepted the message with a status of 2xx.
    pub fn is_success(&self) -> bool {
        self.status
            .is_some_and(|status| (200..300).contains(&status))
    }

    /// The error as users see it. Which private names the operator's name servers know is not for
    /// users, so the three errors of a host name have one text.
    pub fn shown(&self) -> Option<&'static str> {
        match self.error? {
            delivery_error::NOT_ALLOWED
            | delivery_error::NAME_NOT_FOUND
            | delivery_error::NAME_NOT_RESOLVED => Some(delivery_error::NO_PUBLIC_ADDRESS),
            error => Some(error),
        }
    }

    /// The error for the delivery log, which users see. Logs the one that it hides.
    pub(crate) fn recorded(&self, event_id: EventId) -> Option<&'static str> {
        let shown = self.shown();
        if shown != self.error {
            tracing::info!(%event_id, error = self.error, "endpoint has no public address");
        }
        shown
    }
}

impl Client {
    /// `timeout` covers a whole exchange: name resolution, connection, headers and body. Ignores
    /// proxies of the environment.
    ///
    /// Fails with a sentence for the operator if TLS cannot be set up.
    pub fn new(resolver: Resolver, rules: Rules, timeout: Duration) -> Result<Self, String> {
        let tls = pool::tls_config("endpoints")?;
        Ok(Self::with_tls(tls, resolver, rules, timeout))
    }

    fn with_tls(
        tls: rustls::ClientConfig,
        resolver: Resolver,
        rules: Rules,
        timeout: Duration,
    ) -> Self {
        let pool = |connect_timeout, tcp_timeout| {
            let limits = Limits {
                connect_timeout,
                tcp_timeout: Some(tcp_timeout),
                idle_timeout: Duration::from_secs(30),
                idle_max: 16,
                reuse_max: Duration::MAX,
                read_buffer_bytes: 16 * 1024,
                headers_max: HEADERS_MAX,
            };
            Pool::new(tls.clone(), resolver.clone(), limits)
        };
        Self {
            usual: pool(CONNECT_TIMEOUT, timeout / 2),
            short: pool(SHORT_CONNECT_TIMEOUT, timeout.min(SHORT_CONNECT_TIMEOUT)),
            rules,
            timeout,
            #[cfg(feature = "test-support")]
            receiver: None,
        }
    }

    /// The same client, but `receiver` takes its messages, and nothing is sent.
    #[cfg(feature = "test-support")]
    #[must_use]
    pub fn received_by(&self, receiver: std::sync::Arc<dyn Receiver>) -> Self {
        Self {
            receiver: Some(receiver),
            ..self.clone()
        }
    }

    fn pool(&self, connect_time: ConnectTime) -> &Pool {
        match connect_time {
            ConnectTime::Usual => &self.usual,
            ConnectTime::Short => &self.short,
        }
    }

    /// Resolves the host name, connects and finishes TLS as [`Self::send`] does, and closes the
    /// connection. Sends nothing. Shows whether an endpoint is worth the provider calls of a
    /// message.
    pub async fn connect(&self, url: &Url, connect_time: ConnectTime) -> Result<(), Exchange> {
        #[cfg(feature = "test-support")]
        if let Some(receiver) = &self.receiver {
            return receiver.connect(url).await;
        }
        let started = Instant::now();
        let connecting = async {
            let uri = allowed_uri(url, self.rules)?;
            let connected = self.pool(connect_time).connect(uri).await;
            connected
                .map_err(|error| connect_failure(&*error).unwrap_or(delivery_error::TLS_FAILED))
        };
        let connected = tokio::time::timeout(self.timeout, connecting)
            .await
            .unwrap_or(Err(delivery_error::TIMED_OUT));
        connected.map_err(|error| Exchange::failed(error, started.elapsed()))
    }

    /// Sends a message once. The status alone decides about success. The response body is read only
    /// to reuse the connection, for at most 250 ms and 4 KiB; otherwise the connection is closed.
    ///
    /// Checks the URL again. Each address that its host name resolves to is vetted when the
    /// connection is opened.
    pub async fn send(&self, url: &Url, message: Message, connect_time: ConnectTime) -> Exchange {
        self.send_and_read(url, message, connect_time).await.0
    }

    /// As [`Self::send`], with what was read of the response body.
    pub(crate) async fn send_and_read(
        &self,
        url: &Url,
        message: Message,
        connect_time: ConnectTime,
    ) -> (Exchange, Bytes) {
        #[cfg(feature = "test-support")]
        if let Some(receiver) = &self.receiver {
            return (receiver.send(url, message).await, Bytes::new());
        }
        let pool = self.pool(connect_time);
        let started = Instant::now();
        let deadline = started + self.timeout;
        let sent_at = message.timestamp;
        let response = match request(url, self.rules, message) {
            Ok(request) => tokio::time::timeout_at(deadline, pool.send(request))
                .await
                .map_or(Err(delivery_error::TIMED_OUT), |response| {
                    response.map_err(|error| delivery_error_of(&error))
                }),
            Err(error) => Err(error),
        };
        let duration = started.elapsed();
        match response {
            Ok(response) => {
                let exchange = exchange_of(&response, sent_at, duration);
                (exchange, drain(response, deadline).await)
            }
            Err(error) => (Exchange::failed(error, duration), Bytes::new()),
        }
    }
}

/// Checks the URL against the rules. This check is the only one for IP literals, because they never
/// reach the resolver.
fn allowed_uri(url: &Url, rules: Rules) -> Result<Uri, &'static str> {
    let url = check_url(url.as_str(), rules).map_err(|_| delivery_error::NOT_ALLOWED)?;
    request_uri(&url).ok_or(delivery_error::NOT_ALLOWED)
}

/// Builds the request if the rules allow the URL.
fn request(
    url: &Url,
    rules: Rules,
    message: Message,
) -> Result<Request<Full<Bytes>>, &'static str> {
    let uri = allowed_uri(url, rules)?;
    let mut request = Request::new(Full::new(message.body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = uri;
    let headers = request.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(message.timestamp));
    for (name, text) in [
        (WEBHOOK_ID, message.id.to_string()),
        (WEBHOOK_SIGNATURE, message.signature),
        (BELLBIRD_ENDPOINT, message.endpoint.to_string()),
    ] {
        headers.insert(
            name,
            HeaderValue::try_from(text).map_err(|_| delivery_error::NOT_WRITTEN)?,
        );
    }
    Ok(request)
}

fn exchange_of(response: &Response<Incoming>, sent_at: i64, duration: Duration) -> Exchange {
    let status = response.status();
    let error = match () {
        () if status.is_success() => None,
        () if status.is_redirection() => Some(delivery_error::REDIRECT),
        () => Some(delivery_error::REJECTED),
    };
    Exchange {
        status: Some(status.as_u16()),
        retry_after: error.and_then(|_| retry_after(response.headers(), sent_at)),
        duration,
        error,
    }
}

/// Reads a small body to its end, so that the connection can be reused. A larger or slower one is
/// dropped together with its connection. Returns what was read.
async fn drain(response: Response<Incoming>, deadline: Instant) -> Bytes {
    let (mut body, mut read) = (response.into_body(), BytesMut::new());
    let reading = async {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(chunk) = frame.into_data() else {
                continue;
            };
            let room = BODY_BYTES_MAX - read.len();
            read.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if chunk.len() > room {
                return;
            }
        }
    };
    let _ = tokio::time::timeout_at(deadline.min(Instant::now() + BODY_TIMEOUT), reading).await;
    read.freeze()
}

/// Parses `Retry-After`: seconds, or an HTTP date relative to the time of sending.
fn retry_after(headers: &HeaderMap, sent_at: i64) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        let sent_at: SystemTime = UNIX_EPOCH + Duration::from_secs(u64::try_from(sent_at).ok()?);
        httpdate::parse_http_date(text)
            .ok()?
            .duration_since(sent_at)
            .unwrap_or_default()
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

/// Finds the first error of type `E` among an error and its causes.
fn cause<'a, E: Error + 'static>(error: &'a (dyn Error + 'static)) -> Option<&'a E> {
    std::iter::successors(Some(error), |&error| error.source())
        .find_map(|error| error.downcast_ref())
}

/// Why no connection was opened. `None` if TLS failed, or for another reason.
fn connect_failure(error: &(dyn Error + 'static)) -> Option<&'static str> {
    if cause::<tokio::time::error::Elapsed>(error).is_some() {
        return Some(delivery_error::TIMED_OUT);
    }
    let error = cause::<TcpError>(error)?;
    Some(match cause::<ResolveError>(error) {
        Some(ResolveError::NotAllowed) => delivery_error::NOT_ALLOWED,
        Some(ResolveError::NotFound) => delivery_error::NAME_NOT_FOUND,
        Some(ResolveError::Unavailable) => delivery_error::NAME_NOT_RESOLVED,
        None => match cause::<io::Error>(error).map(io::Error::kind) {
            Some(ErrorKind::ConnectionRefused) => delivery_error::CONNECTION_REFUSED,
            _ => delivery_error::NOT_REACHED,
        },
    })
}

fn delivery_error_of(error: &SendError) -> &'static str {
    if let Some(error) = connect_failure(error) {
        error
    } else if error.is_connect() {
        delivery_error::TLS_FAILED
    } else if cause::<hyper::Error>(error).is_some_and(hyper::Error::is_parse) {
        delivery_error::INVALID_RESPONSE
    } else {
        delivery_error::CONNECTION_LOST
    }
}

#[cfg(test)]
mod tests;
