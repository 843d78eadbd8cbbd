//! The HTTP client that all adapters use.
//!
//! Every call has a deadline, a body limit, bounded retries and a circuit breaker. Each provider
//! has a limit on concurrent calls, which users and jobs share. A request waits for its share until
//! its deadline. Errors and logs never hold a URL, because URLs can contain secrets.

mod breaker;
pub(crate) mod health;
pub mod pool;
pub mod recording;
pub mod request;
pub(crate) mod shares;
mod stream;

use std::io::Read as _;
use std::time::Duration;

use bellbird_domain::{ProviderName, UserId};
use bellbird_limits::call_window::{CallKind, CallWindow, Refused, RefusedBy};
use bellbird_limits::jitter::{self, jittered};
use bellbird_limits::{CallBudgets, SharedStore};
use bytes::Bytes;
use hyper::StatusCode;
use hyper::body::Incoming;
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::{CallContext, Cause, Error, SyncPart, json};
use breaker::{Breaker, Outcome};
use health::ProviderHealth;
use pool::{GaiResolver, Limits, Pool, ReadError};
use request::RequestBuilder;
use shares::{CallPermit, CallPermits};

/// The largest response body, before and after decompression.
pub const BODY_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Responses from one provider that are read and processed at the same time. The others wait in the
/// network, so that memory does not grow with the number of callers.
const BODIES_AT_ONCE_MAX: usize = 32;
/// The least delays between the three attempts of a call. Jitter adds up to as much again.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(200)];
/// If `Retry-After` is longer than this, the call fails without another attempt.
const RETRY_AFTER_WAIT_MAX: Duration = Duration::from_secs(2);
/// An open connection keeps its read buffer, and so rows that it read. So a connection is reused
/// only for 15 seconds, and an idle one is closed within 40. Together that is less than the minute
/// that docs/threat-model.md promises.
const LIMITS: Limits = Limits {
    connect_timeout: Duration::from_secs(5),
    tcp_timeout: None,
    idle_timeout: Duration::from_secs(20),
    idle_max: 64,
    reuse_max: Duration::from_secs(15),
    read_buffer_bytes: 64 * 1024,
    headers_max: 100,
};

const TIMED_OUT: &str = "timed out";
const CLOSED: Error = Error::Unavailable {
    reason: "shutting down",
    retry_after: None,
};

/// What all clients have in common.
#[derive(Clone, Copy)]
pub struct ClientSettings<'s> {
    pub call_timeout: Duration,
    /// Calls a minute that one user may cause at each provider. 0 is no limit.
    pub user_calls_per_minute: u32,
    /// Where instances count calls together.
    pub store: Option<&'s SharedStore>,
}

/// A client for one provider.
pub struct Client {
    provider: ProviderName,
    pool: Pool,
    call_timeout: Duration,
    /// None if the provider has no known limit of all users' calls together.
    window: Option<CallWindow>,
    budgets: CallBudgets<UserId>,
    /// The budget of each user. 0 is no limit.
    user_calls_per_minute: u32,
    call_permits: CallPermits,
    body_permits: Semaphore,
    breaker: Mutex<Breaker>,
    health: Mutex<ProviderHealth>,
}

/// A complete response.
pub struct Response {
    pub status: StatusCode,
    pub headers: HeaderMap,
    /// Decompressed, at most [`BODY_BYTES_MAX`].
    pub body: Bytes,
}

impl Response {
    /// The body, if the content type is JSON; otherwise [`Error::Malformed`].
    pub fn json_body(&self) -> Result<&[u8], Error> {
        let essence = self
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or("");
        let essence = essence.split(';').next().unwrap_or("").trim();
        if essence.eq_ignore_ascii_case("application/json") {
            Ok(&self.body)
        } else {
            Err(Error::Malformed("content type is not JSON"))
        }
    }

    /// Parses the JSON body of a response with status 2xx. Any other status becomes
    /// [`Response::failure`].
    pub fn success<'a, T: serde::Deserialize<'a>>(&'a self) -> Result<T, Error> {
        if !self.status.is_success() {
            return Err(self.failure());
        }
        parse_json(self.json_body()?)
    }

    /// The default error for a status outside 2xx. Adapters map the statuses that mean more at
    /// their provider.
    #[must_use]
    pub fn failure(&self) -> Error {
        let retry_after = retry_after(&self.headers);
        match self.status.as_u16() {
            429 => Error::RateLimited { retry_after },
            408 | 500.. => Error::Unavailable {
                reason: "server error",
                retry_after,
            },
            status => Error::Rejected { status },
        }
    }
}

fn budget_used_up(retry_after: Duration) -> Error {
    Error::BudgetUsedUp { retry_after }
}

fn window_refused(Refused { wait, by }: Refused) -> Error {
    match by {
        RefusedBy::User => budget_used_up(wait),
        RefusedBy::All => Error::RateLimited {
            retry_after: Some(wait),
        },
        RefusedBy::Store => Error::StoreDown { retry_after: wait },
    }
}

impl Client {
    /// A client with its own connection pool. It shares the budgets of users with the instances
    /// that have the same store.
    ///
    /// Fails with an error message if TLS cannot be set up.
    pub fn new(provider: ProviderName, settings: ClientSettings<'_>) -> Result<Self, String> {
        let ClientSettings {
            call_timeout,
            user_calls_per_minute,
            store,
        } = settings;
        let pool = Pool::new(pool::tls_config(provider)?, GaiResolver::new(), LIMITS);
        Ok(Self {
            provider,
            pool,
            call_timeout,
            window: None,
            budgets: CallBudgets::new(provider.as_str(), store),
            user_calls_per_minute,
            call_permits: CallPermits::default(),
            body_permits: Semaphore::new(BODIES_AT_ONCE_MAX),
            breaker: Mutex::new(Breaker::default()),
            health: Mutex::default(),
        })
    }

    /// Shares the calls of a minute between users, and with the instances that have the same store,
    /// for a provider that limits those of the whole app.
    #[must_use]
    pub fn with_calls_per_minute(self, calls: u32) -> Self {
        Self {
            window: Some(CallWindow::new(
                self.provider.as_str(),
                calls,
                self.budgets.store(),
            )),
            ..self
        }
    }

    /// See [`crate::Provider::syncs_wait`].
    pub(crate) fn syncs_wait(&self) -> bool {
        self.window.as_ref().is_some_and(CallWindow::syncs_wait)
    }

    /// Corrects the shares by what the provider says about the last minute.
    pub(crate) fn correct_window(&self, calls_per_minute: u32, remaining: u32, reset: Duration) {
        if let Some(window) = &self.window {
            window.correct(calls_per_minute, remaining, reset);
        }
    }

    /// Makes a call. `accept` turns the response into a result or an error.
    ///
    /// Transient failures, including those of `accept`, are retried with growing, jittered delays.
    /// A call takes at most three attempts, or one if it is [`RequestBuilder::once`], and never
    /// passes the deadline. Returns the error of the last attempt.
    pub async fn call<T: Send>(
        &self,
        context: &CallContext,
        operation: &'static str,
        build: impl Fn() -> RequestBuilder + Send + Sync,
        mut accept: impl FnMut(&Response) -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        let mut delays = RETRY_DELAYS
            .iter()
            .map(|delay| jittered(*delay, *delay, jitter::random()));
        loop {
            let request = build();
            let is_once = request.is_once;
            let outcome = self.attempt(context, operation, request, &mut accept).await;
            let Err(error) = outcome else { return outcome };
            let delay = if is_once {
                None
            } else {
                retry_delay(&error, delays.next(), context.deadline)
            };
            let Some(delay) = delay else {
                if context.warns_about(&error) {
                    tracing::warn!(provider = %self.provider, operation, %error, "provider call failed");
                }
                return Err(error);
            };
            tracing::debug!(provider = %self.provider, operation, error = %error, "provider call retried");
            tokio::time::sleep(delay).await;
        }
    }

    async fn attempt<T: Send>(
        &self,
        context: &CallContext,
        operation: &'static str,
        request: RequestBuilder,
        accept: &mut (impl FnMut(&Response) -> Result<T, Error> + Send),
    ) -> Result<T, Error> {
        self.breaker
            .lock()
            .check(Instant::now())
            .map_err(|wait| self.breaker_open(wait))?;
        let _call_permit = self.admitted(context).await?;
        let started = Instant::now();
        self.breaker
            .lock()
            .admit(started)
            .map_err(|wait| self.breaker_open(wait))?;
        context.count();
        // For traces only: no level of the log has it.
        let span = tracing::trace_span!(target: "bellbird::traces", "provider_call", provider = %self.provider, operation);
        let response = self.exchange(context, request).instrument(span).await;
        if self
            .breaker
            .lock()
            .record(Instant::now(), self.outcome_of(&response, started))
        {
            tracing::warn!(provider = %self.provider, "circuit breaker opened");
        }
        let outcome = response.and_then(|(response, _body_permit)| accept(&response));
        self.health
            .lock()
            .record(context.wall_clock(), outcome.as_ref().err());
        self.observe(operation, started, outcome.as_ref().err());
        outcome
    }

    /// Waits for a permit, and for the budgets of a request or a sync. Who waits for a budget holds
    /// no permit.
    async fn admitted(&self, context: &CallContext) -> Result<CallPermit<'_>, Error> {
        let mut is_charged = false;
        loop {
            let permit = self.call_permit(context).await?;
            let Err(refused) = self.charge(context, &mut is_charged).await else {
                return Ok(permit);
            };
            drop(permit);
            let reason = match refused {
                Error::BudgetUsedUp { .. } => "user_budget",
                Error::StoreDown { .. } => "store_down",
                _ => "provider_budget",
            };
            let reads_rows =
                context.cause == Cause::Schedule && context.of_sync == Some(SyncPart::Rows);
            let waits = reads_rows && !self.syncs_wait();
            let waited = if waits {
                context.wait(refused).await
            } else {
                context.wait_out(refused).await
            };
            waited.inspect_err(|_| count_rejected(self.provider, reason))?;
        }
    }

    /// Takes the call out of the budget of the user who pays for it, once, and counts it where the
    /// provider limits the calls of all users.
    async fn charge(&self, context: &CallContext, is_charged: &mut bool) -> Result<(), Error> {
        let (now, is_first) = (context.wall_clock(), context.calls() == 0);
        let user_id = context.cause.user();
        if let Some(user_id) = user_id.filter(|_| !*is_charged) {
            let taken = self
                .budgets
                .take(&user_id, self.user_calls_per_minute, is_first, now)
                .await;
            let is_stopped = is_first || matches!(context.cause, Cause::Request(_));
            taken.or_else(|wait| {
                if is_stopped {
                    Err(budget_used_up(wait))
                } else {
                    Ok(())
                }
            })?;
            *is_charged = true;
        }
        if let Some(window) = &self.window {
            let kind = match (user_id, context.of_sync) {
                (Some(_), _) => self.request_kind(is_first),
                (None, Some(SyncPart::Rows)) => CallKind::Sync,
                (None, Some(SyncPart::Refresh)) => CallKind::SyncRefresh,
                (None, None) => CallKind::Job,
            };
            window
                .take(kind, user_id.map(UserId::uuid))
                .await
                .map_err(window_refused)?;
        }
        Ok(())
    }

    fn request_kind(&self, begins: bool) -> CallKind {
        CallKind::Request {
            begins,
            has_share: self.user_calls_per_minute > 0,
        }
    }

    /// See [`crate::Provider::refusal`].
    pub(crate) fn refusal(&self, user: UserId, now: Timestamp) -> Option<Error> {
        let of_budget = self
            .budgets
            .known_refusal(&user, self.user_calls_per_minute, now)
            .map(budget_used_up);
        of_budget.or_else(|| {
            let refused = self
                .window
                .as_ref()?
                .known_refusal(self.request_kind(true), Some(user.uuid()))?;
            Some(window_refused(refused))
        })
    }

    /// Waits for a permit until the deadline. Waiting is not the provider's time.
    async fn call_permit(&self, context: &CallContext) -> Result<CallPermit<'_>, Error> {
        let acquiring = self
            .call_permits
            .acquire(context.cause.user(), context.wall_clock());
        match tokio::time::timeout_at(context.deadline, acquiring).await {
            Ok(permit) => permit.map_err(|_| CLOSED),
            Err(_) => {
                count_rejected(self.provider, "concurrency");
                Err(Error::Deadline)
            }
        }
    }

    pub fn health(&self) -> ProviderHealth {
        let is_breaker_open = self.breaker.lock().check(Instant::now()).is_err();
        ProviderHealth {
            is_breaker_open,
            ..self.health.lock().clone()
        }
    }

    fn breaker_open(&self, wait: Duration) -> Error {
        count_rejected(self.provider, "breaker");
        Error::Unavailable {
            reason: "circuit breaker is open",
            retry_after: Some(wait),
        }
    }

    fn outcome_of(
        &self,
        response: &Result<(Response, SemaphorePermit<'_>), Error>,
        started: Instant,
    ) -> Outcome {
        match response {
            // The deadline of a request may be near when the call begins. That says nothing about
            // the provider.
            Err(
                Error::Deadline
                | Error::Unavailable {
                    reason: TIMED_OUT, ..
                },
            ) if started.elapsed() >= self.call_timeout / 2 => Outcome::Unanswered,
            // Only a missing response and a server error count as unhealthy.
            Err(Error::Unavailable { .. } | Error::Deadline) => Outcome::Failed,
            Ok((response, _)) if response.status.is_server_error() => Outcome::Failed,
            _ => Outcome::Answered,
        }
    }

    /// Sends the request and reads the whole response. The caller holds the permit while it
    /// processes the body.
    async fn exchange(
        &self,
        context: &CallContext,
        request: RequestBuilder,
    ) -> Result<(Response, SemaphorePermit<'_>), Error> {
        let until = context.deadline.min(Instant::now() + self.call_timeout);
        let exchange = async {
            let request = request.build()?;
            let recorded = context
                .recorder
                .as_ref()
                .map(|recorder| (recorder, recorder.masked_request(&request)));
            let response = self
                .pool
                .send(request)
                .await
                .map_err(|error| Error::unavailable(pool::reason(&error)))?;
            self.health
                .lock()
                .compare_clock(context.wall_clock(), response.headers());
            let permit = self.body_permits.acquire().await.map_err(|_| CLOSED)?;
            let response = read(response).await?;
            if let Some((recorder, request)) = recorded {
                recorder.record(request, response.status, &response.headers, &response.body);
            }
            Ok((response, permit))
        };
        match tokio::time::timeout_at(until, exchange).await {
            Ok(response) => response,
            Err(_) if until == context.deadline => Err(Error::Deadline),
            Err(_) => Err(Error::unavailable(TIMED_OUT)),
        }
    }

    fn observe(&self, operation: &'static str, started: Instant, error: Option<&Error>) {
        let provider = self.provider.as_str();
        let outcome = error.map_or("ok", Error::kind);
        metrics::counter!(
            "bellbird_provider_calls_total",
            "provider" => provider, "operation" => operation, "outcome" => outcome
        )
        .increment(1);
        metrics::histogram!("bellbird_provider_call_seconds", "provider" => provider, "operation" => operation)
            .record(started.elapsed());
        if let Some(error) = error {
            tracing::debug!(provider, operation, error = %error, "attempt of provider call failed");
        }
    }
}

/// Counts a call that was not made.
pub(crate) fn count_rejected(provider: ProviderName, reason: &'static str) {
    metrics::counter!(
        "bellbird_provider_calls_rejected_total", "provider" => provider.as_str(), "reason" => reason
    )
    .increment(1);
}

/// Parses JSON into a type that can borrow from `body`.
pub fn parse_json<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Error> {
    // One check of the whole body is faster than a check of each string in it.
    let text = std::str::from_utf8(body).map_err(|_| Error::Malformed("not UTF-8"))?;
    json::from_str(text).map_err(|_| Error::Malformed("not the documented JSON"))
}

/// The delay before the next attempt. None means that the call is not retried.
fn retry_delay(error: &Error, delay: Option<Duration>, deadline: Instant) -> Option<Duration> {
    if !error.is_transient() || matches!(error, Error::Deadline | Error::BudgetUsedUp { .. }) {
        return None;
    }
    let retry_after = error.retry_after().unwrap_or_default();
    if retry_after > RETRY_AFTER_WAIT_MAX {
        return None;
    }
    let delay = delay?.max(retry_after);
    (Instant::now() + delay < deadline).then_some(delay)
}

async fn read(response: hyper::Response<Incoming>) -> Result<Response, Error> {
    let (head, incoming) = response.into_parts();
    let body = pool::read(incoming, BODY_BYTES_MAX)
        .await
        .map_err(|error| match error {
            ReadError::TooLarge => Error::Malformed("body too large"),
            ReadError::CutOff => Error::unavailable("response was cut off"),
        })?;
    let encoding = head
        .headers
        .get(CONTENT_ENCODING)
        .and_then(|encoding| encoding.to_str().ok())
        .unwrap_or("");
    let body = match encoding.trim().to_ascii_lowercase().as_str() {
        _ if body.is_empty() => Bytes::new(),
        "" | "identity" => body,
        "gzip" | "x-gzip" => gunzip(&body)?,
        _ => return Err(Error::Malformed("unsupported content encoding")),
    };
    Ok(Response {
        status: head.status,
        headers: head.headers,
        body,
    })
}

/// Decompresses a body. [`BODY_BYTES_MAX`] applies to the result, so that a small response cannot
/// fill the memory.
fn gunzip(packed: &[u8]) -> Result<Bytes, Error> {
    let mut body = Vec::new();
    let bound = BODY_BYTES_MAX as u64 + 1;
    flate2::read::MultiGzDecoder::new(packed)
        .take(bound)
        .read_to_end(&mut body)
        .map_err(|_| Error::Malformed("invalid gzip body"))?;
    if body.len() > BODY_BYTES_MAX {
        Err(Error::Malformed("body too large"))
    } else {
        Ok(body.into())
    }
}

/// A header that holds a whole number of seconds.
pub(crate) fn seconds(headers: &HeaderMap, name: &str) -> Option<Duration> {
    headers
        .get(name)?
        .to_str()
        .ok()?
        .trim()
        .parse()
        .ok()
        .map(Duration::from_secs)
}

/// Parses `Retry-After` in seconds. The date form is ignored, since none of the providers is known
/// to send it.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    seconds(headers, RETRY_AFTER.as_str())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn gzip_is_unpacked_up_to_the_limit() {
        let pack = |body: &[u8]| {
            let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            packer.write_all(body).unwrap();
            packer.finish().unwrap()
        };
        assert_eq!(gunzip(&pack(b"{}")).as_deref(), Ok(&b"{}"[..]));
        assert_eq!(
            gunzip(&pack(&vec![b' '; BODY_BYTES_MAX + 1])),
            Err(Error::Malformed("body too large"))
        );
        assert_eq!(
            gunzip(b"no gzip"),
            Err(Error::Malformed("invalid gzip body"))
        );
    }

    const USED_UP: Error = Error::BudgetUsedUp {
        retry_after: Duration::from_secs(60),
    };

    fn client(user_calls_per_minute: u32) -> Client {
        let settings = ClientSettings {
            call_timeout: Duration::from_secs(20),
            user_calls_per_minute,
            store: None,
        };
        Client::new(ProviderName::new("test"), settings)
            .unwrap()
            .with_calls_per_minute(250)
    }

    fn context(cause: Cause) -> CallContext {
        CallContext::new(
            Instant::now() + Duration::from_secs(25),
            Timestamp::UNIX_EPOCH,
            cause,
        )
    }

    #[tokio::test(start_paused = true)]
    async fn request_waits_for_its_share_until_its_deadline() {
        let (all, user_id) = (client(300), UserId::new());
        for _ in 0..75 {
            all.admitted(&context(Cause::Request(user_id)))
                .await
                .unwrap();
        }
        let admitted = async |client: &Client, cause: Cause| {
            let started = Instant::now();
            (
                client.admitted(&context(cause)).await.map(drop),
                started.elapsed().as_secs(),
            )
        };
        let request = Cause::Request(user_id);
        assert_eq!(
            admitted(&all, request).await,
            (Err(USED_UP), 0),
            "it would wait beyond its deadline"
        );
        assert_eq!(admitted(&all, Cause::Schedule).await, (Ok(()), 0));
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(admitted(&all, request).await, (Ok(()), 20));

        let few = client(6);
        for _ in 0..6 {
            assert_eq!(admitted(&few, request).await, (Ok(()), 0));
        }
        let used_up = Err(Error::BudgetUsedUp {
            retry_after: Duration::from_secs(10),
        });
        assert_eq!(
            few.refusal(user_id, Timestamp::UNIX_EPOCH),
            used_up.clone().err()
        );
        assert_eq!(
            admitted(&few, Cause::RequestedJob(user_id)).await,
            (used_up, 0),
            "a job is repeated instead"
        );
        assert_eq!(
            admitted(&few, request).await,
            (Ok(()), 10),
            "until the budget has a call"
        );
        assert_eq!(few.refusal(UserId::new(), Timestamp::UNIX_EPOCH), None);
    }

    #[tokio::test(start_paused = true)]
    async fn requested_job_that_has_begun_is_charged_and_not_stopped() {
        let (client, user_id) = (client(6), UserId::new());
        let job = context(Cause::RequestedJob(user_id));
        for _ in 0..20 {
            client.admitted(&job).await.unwrap();
            job.count();
        }
        let refused = client
            .admitted(&context(Cause::RequestedJob(user_id)))
            .await
            .map(drop);
        assert_eq!(
            refused,
            Err(Error::BudgetUsedUp {
                retry_after: Duration::from_secs(70)
            }),
            "all credit is used"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn request_that_waits_is_charged_once() {
        let (client, user_id) = (client(2), UserId::new());
        for _ in 0..250 {
            client.admitted(&context(Cause::Schedule)).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(40)).await;
        for waited in [20, 0] {
            let started = Instant::now();
            client
                .admitted(&context(Cause::Request(user_id)))
                .await
                .unwrap();
            assert_eq!(started.elapsed().as_secs(), waited);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_requests_hold_no_permits() {
        let (client, greedy) = (client(300), UserId::new());
        let request = || context(Cause::Request(greedy));
        for _ in 0..75 {
            client.admitted(&request()).await.unwrap();
        }
        tokio::time::advance(Duration::from_secs(40)).await;
        let requests: Vec<CallContext> = std::iter::repeat_with(request).take(100).collect();
        let mut waiting: Vec<_> = requests
            .iter()
            .map(|context| Box::pin(client.admitted(context)))
            .collect();
        for admitted in &mut waiting {
            assert!(admitted.now_or_never().is_none());
            // One poll of a task may acquire only so many permits.
            tokio::task::yield_now().await;
        }
        let permit = client
            .call_permits
            .acquire(Some(greedy), Timestamp::UNIX_EPOCH);
        assert!(permit.now_or_never().is_some());
    }

    /// Links, refreshes and syncs that a user asks for, as fast as they can.
    #[tokio::test(start_paused = true)]
    async fn jobs_of_one_user_leave_calls_to_others_and_to_the_schedule() {
        let (client, greedy) = (client(300), UserId::new());
        let mut made = 0;
        for second in 0..120 {
            for at in 0..6 {
                let cause = if at % 2 == 0 {
                    Cause::RequestedJob(greedy)
                } else {
                    Cause::Request(greedy)
                };
                let begins = CallContext::new(Instant::now(), Timestamp::UNIX_EPOCH, cause);
                made += usize::from(client.admitted(&begins).await.is_ok());
            }
            let other = client
                .admitted(&context(Cause::Request(UserId::new())))
                .await
                .map(drop);
            assert_eq!(other, Ok(()), "second {second}");
            let sync = client
                .admitted(&context(Cause::Schedule).for_sync())
                .await
                .map(drop);
            assert_eq!(sync, Ok(()), "second {second}");
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert!((60..=180).contains(&made), "{made}");
    }

    #[tokio::test(start_paused = true)]
    async fn retries_transient_errors_before_the_deadline() {
        let now = Instant::now();
        let far = now + Duration::from_secs(25);
        let step = Some(Duration::from_millis(100));
        let limited = |seconds| Error::RateLimited {
            retry_after: Some(Duration::from_secs(seconds)),
        };
        for (error, delay, deadline, expected) in [
            (Error::unavailable("x"), step, far, step),
            (Error::Malformed("x"), step, far, step),
            (limited(1), step, far, Some(Duration::from_secs(1))),
            (limited(30), step, far, None),
            (Error::unavailable("x"), None, far, None),
            (
                Error::unavailable("x"),
                step,
                now + Duration::from_millis(50),
                None,
            ),
            (Error::Rejected { status: 400 }, step, far, None),
            (Error::Deadline, step, far, None),
        ] {
            assert_eq!(retry_delay(&error, delay, deadline), expected, "{error}");
        }
    }
}
