//! Webhook queues, one per provider, that deliver to the URL a test has set. A queue finds events
//! by comparing snapshots of the provider's state, after every call and at short intervals for what
//! the clock changes. So no handler needs to know about webhooks. Without a URL the queue records
//! and sends nothing.

mod control;
mod post;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::Options;
use crate::clock::Clock;
use crate::control::BadRequest;
use crate::members::Members;
use post::{Destination, SignedRequest, post};

/// Deliveries that a queue keeps. When all of them are pending, a new event is dropped.
const DELIVERIES_MAX: usize = 1000;
/// How often, in real time, a queue compares state and checks for due deliveries.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A receiver has at least this much real time. So a test that moves the clock does not time out
/// the delivery in progress.
const RECEIVER_REAL_TIME_MIN: Duration = Duration::from_secs(1);

/// How a provider times, retries and accepts deliveries.
pub(crate) struct DeliveryPolicy {
    /// Limit for a receiver, both on the sandbox's clock and in real time.
    pub(crate) timeout_seconds: u64,
    /// Delay after each failed attempt; a failure after the last one is final.
    pub(crate) retry_seconds: &'static [i64],
    /// Whether a status counts as received.
    pub(crate) is_received: fn(u16) -> bool,
}

pub(crate) trait WebhookSource: Send + Sync + Sized + 'static {
    /// The part of the state from which events follow.
    type Snapshot: Send;
    const DELIVERY_POLICY: DeliveryPolicy;

    fn webhook_queue(&self) -> &WebhookQueue<Self::Snapshot>;
    fn clock(&self) -> &Clock;
    fn snapshot(&self, now: Timestamp) -> Self::Snapshot;
    /// The events that follow from the differences between two snapshots.
    fn compare(
        &self,
        before: &Self::Snapshot,
        after: &Self::Snapshot,
        now: Timestamp,
    ) -> Vec<WebhookEvent>;
    /// Builds the event that a test describes; its name may be unknown.
    fn build_event(
        &self,
        name: &str,
        members: Members,
        now: Timestamp,
    ) -> Result<WebhookEvent, BadRequest>;
    /// The body of attempt number `attempt`, counted from 1.
    fn body(&self, event: &WebhookEvent, attempt: usize) -> Vec<u8>;
    /// The headers of a body; the first is the signature in base64. May block while a key is
    /// generated.
    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)>;
}

#[derive(Debug, Clone)]
pub(crate) struct WebhookEvent {
    pub(crate) name: String,
    /// Its id in the provider's own list of events.
    pub(crate) id: String,
    /// The subscription it belongs to, at providers where users subscribe.
    pub(crate) subscription: Option<String>,
    pub(crate) body: Members,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeliveryState {
    /// Not attempted yet.
    Waiting,
    /// Failed, with another attempt scheduled.
    Retry,
    Sent,
    /// Failed after the last attempt.
    Failed,
    /// Never attempted, because a test requested the loss.
    Lost,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    /// `None` if no response came.
    pub(crate) status: Option<u16>,
}

#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    id: u64,
    pub(crate) event: WebhookEvent,
    pub(crate) created_at: Timestamp,
    pub(crate) state: DeliveryState,
    pub(crate) attempts: Vec<Attempt>,
    next_attempt_at: Timestamp,
    /// The request of the last attempt.
    sent: Option<SignedRequest>,
    /// For duplicates and replays: the delivery that they repeat.
    pub(crate) repeats: Option<u64>,
    /// A replay sends the bytes of another delivery once, without retries.
    is_replay: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sign {
    #[default]
    Right,
    Wrong,
}

struct QueueState {
    destination: Option<Destination>,
    copies: usize,
    lose: u64,
    sign: Sign,
    deliveries: VecDeque<Delivery>,
    next_id: u64,
}

pub(crate) struct WebhookQueue<S> {
    state: Mutex<QueueState>,
    /// The state at the last comparison; `None` while no URL is set.
    last_snapshot: Mutex<Option<S>>,
    wake: Notify,
    is_running: AtomicBool,
    /// Whether events may go to other machines.
    is_anywhere_allowed: bool,
}

impl<S> WebhookQueue<S> {
    pub(crate) fn new(options: &Options) -> Self {
        let state = QueueState {
            destination: None,
            copies: 1,
            lose: 0,
            sign: Sign::Right,
            deliveries: VecDeque::new(),
            next_id: 1,
        };
        Self {
            state: Mutex::new(state),
            last_snapshot: Mutex::new(None),
            wake: Notify::new(),
            is_running: AtomicBool::new(false),
            is_anywhere_allowed: options.webhooks_anywhere,
        }
    }
}

impl<S> WebhookQueue<S> {
    /// Queues an event if a URL is set, and returns the id of its delivery.
    pub(crate) fn add(&self, event: WebhookEvent, now: Timestamp) -> Option<u64> {
        let id = self.state.lock().add(event, now);
        self.wake.notify_one();
        id
    }

    /// The URL that webhooks go to.
    pub(crate) fn url(&self) -> Option<String> {
        self.state
            .lock()
            .destination
            .as_ref()
            .map(|destination| destination.url.clone())
    }

    /// Oldest first.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.state.lock().deliveries.iter().cloned().collect()
    }
}

impl QueueState {
    fn add(&mut self, event: WebhookEvent, now: Timestamp) -> Option<u64> {
        self.destination.as_ref()?;
        let state = if self.lose > 0 {
            DeliveryState::Lost
        } else {
            DeliveryState::Waiting
        };
        self.lose = self.lose.saturating_sub(1);
        let copies = if state == DeliveryState::Lost {
            1
        } else {
            self.copies
        };
        let mut first = None;
        for _ in 0..copies {
            let id = self.push(event.clone(), state, first, None, now)?;
            first = first.or(Some(id));
        }
        first
    }

    fn push(
        &mut self,
        event: WebhookEvent,
        state: DeliveryState,
        repeats: Option<u64>,
        replayed: Option<SignedRequest>,
        now: Timestamp,
    ) -> Option<u64> {
        if self.deliveries.len() >= DELIVERIES_MAX {
            let Some(oldest) = self.deliveries.iter().position(|known| !known.is_pending()) else {
                tracing::warn!(event = event.name, "webhook queue full, event dropped");
                return None;
            };
            self.deliveries.remove(oldest);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.deliveries.push_back(Delivery {
            id,
            event,
            created_at: now,
            state,
            attempts: Vec::new(),
            next_attempt_at: now,
            is_replay: replayed.is_some(),
            sent: replayed,
            repeats,
        });
        Some(id)
    }

    /// Returns the delivery to attempt now: the one due first, then the one queued first.
    fn next_due(&self, now: Timestamp) -> Option<(Destination, Delivery, Sign)> {
        let destination = self.destination.clone()?;
        let due = self
            .deliveries
            .iter()
            .filter(|known| known.is_pending() && known.next_attempt_at <= now);
        due.min_by_key(|known| (known.next_attempt_at, known.id))
            .map(|found| (destination, found.clone(), self.sign))
    }

    fn record_attempt(
        &mut self,
        id: u64,
        sent: SignedRequest,
        attempt: Attempt,
        policy: &DeliveryPolicy,
        now: Timestamp,
    ) {
        // A test may have deleted the delivery meanwhile.
        let Some(delivery) = self.deliveries.iter_mut().find(|known| known.id == id) else {
            return;
        };
        delivery.sent = Some(sent);
        delivery.attempts.push(attempt);
        let retry = policy
            .retry_seconds
            .get(delivery.attempts.len() - 1)
            .filter(|_| !delivery.is_replay);
        delivery.state = match retry {
            _ if attempt.status.is_some_and(policy.is_received) => DeliveryState::Sent,
            Some(&seconds) => {
                delivery.next_attempt_at = now
                    .saturating_add(SignedDuration::from_secs(seconds))
                    .unwrap_or(Timestamp::MAX);
                DeliveryState::Retry
            }
            None => DeliveryState::Failed,
        };
    }
}

impl Delivery {
    /// Whether an attempt is still to come.
    const fn is_pending(&self) -> bool {
        matches!(self.state, DeliveryState::Waiting | DeliveryState::Retry)
    }
}

/// Adds webhooks to a provider's routes: the control routes, and a comparison after every call.
pub(crate) fn attach<N: WebhookSource>(source: &Arc<N>, routes: Router) -> Router {
    let control = control::routes(Arc::clone(source));
    routes
        .merge(control)
        .layer(from_fn_with_state(
            Arc::clone(source),
            enqueue_changes_after::<N>,
        ))
        .layer(from_fn(crate::control::guard))
}

async fn enqueue_changes_after<N: WebhookSource>(
    State(source): State<Arc<N>>,
    request: Request,
    next: Next,
) -> Response {
    let response = next.run(request).await;
    enqueue_changes(&*source);
    response
}

/// Queues the events since the last comparison.
fn enqueue_changes<N: WebhookSource>(source: &N) {
    let mut last_snapshot = source.webhook_queue().last_snapshot.lock();
    let Some(before) = last_snapshot.as_ref() else {
        return;
    };
    let now = source.clock().now();
    let after = source.snapshot(now);
    for event in source.compare(before, &after, now) {
        source.webhook_queue().add(event, now);
    }
    *last_snapshot = Some(after);
}

/// Sets the URL. Comparing starts with the first URL and stops with `None`.
fn set_destination<N: WebhookSource>(source: &Arc<N>, destination: Option<Destination>) {
    let queue = source.webhook_queue();
    let mut last_snapshot = queue.last_snapshot.lock();
    match &destination {
        Some(_) if last_snapshot.is_none() => {
            *last_snapshot = Some(source.snapshot(source.clock().now()))
        }
        Some(_) => {}
        None => *last_snapshot = None,
    }
    let is_on = destination.is_some();
    queue.state.lock().destination = destination;
    if is_on && !queue.is_running.swap(true, Ordering::AcqRel) {
        tokio::spawn(run_deliveries(Arc::downgrade(source)));
    }
}

/// Delivers one at a time, in the order in which they are due, until the provider is dropped.
async fn run_deliveries<N: WebhookSource>(provider: Weak<N>) {
    while let Some(source) = provider.upgrade() {
        enqueue_changes(&*source);
        let now = source.clock().now();
        let next = source.webhook_queue().state.lock().next_due(now);
        match next {
            Some((destination, delivery, sign)) => {
                make_attempt(source, destination, delivery, sign).await
            }
            None => {
                let _ = tokio::time::timeout(POLL_INTERVAL, source.webhook_queue().wake.notified())
                    .await;
            }
        }
    }
}

async fn make_attempt<N: WebhookSource>(
    source: Arc<N>,
    destination: Destination,
    delivery: Delivery,
    sign: Sign,
) {
    let (id, at) = (delivery.id, source.clock().now());
    let writer = Arc::clone(&source);
    // Signing may have to generate a key first.
    let sent = tokio::task::spawn_blocking(move || build_request(&*writer, delivery, sign)).await;
    let Ok(sent) = sent else { return };
    let provider = Arc::downgrade(&source);
    // Drop the reference, so that a sandbox can stop while a receiver hangs.
    drop(source);
    let status = tokio::select! {
        response = post(&destination, &sent) => response.ok(),
        () = receiver_timeout(&provider, at) => None,
    };
    let Some(source) = provider.upgrade() else {
        return;
    };
    let now = source.clock().now();
    source.webhook_queue().state.lock().record_attempt(
        id,
        sent,
        Attempt { at, status },
        &N::DELIVERY_POLICY,
        now,
    );
}

/// Builds the request of an attempt. A replay reuses the stored one.
fn build_request<N: WebhookSource>(source: &N, delivery: Delivery, sign: Sign) -> SignedRequest {
    if let Some(sent) = delivery.sent.filter(|_| delivery.is_replay) {
        return sent;
    }
    let body = source.body(&delivery.event, delivery.attempts.len() + 1);
    let mut headers = source.sign(&body);
    if let (Sign::Wrong, Some((_, signature))) = (sign, headers.first_mut()) {
        *signature = corrupted_signature(signature);
    }
    SignedRequest {
        headers,
        body: body.into(),
    }
}

/// Returns a signature of the right format that does not verify.
fn corrupted_signature(signature: &str) -> String {
    let mut tag = STANDARD.decode(signature).unwrap_or_default();
    if let Some(first) = tag.first_mut() {
        *first ^= 1;
    }
    STANDARD.encode(tag)
}

/// Returns when a receiver that got a request at `at` is out of time, or when the provider is
/// dropped.
async fn receiver_timeout<N: WebhookSource>(provider: &Weak<N>, at: Timestamp) {
    let seconds = N::DELIVERY_POLICY.timeout_seconds;
    let deadline = at
        .saturating_add(Duration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX);
    let started_at = tokio::time::Instant::now();
    while started_at.elapsed() < Duration::from_secs(seconds) {
        let Some(source) = provider.upgrade() else {
            return;
        };
        if started_at.elapsed() >= RECEIVER_REAL_TIME_MIN && source.clock().now() >= deadline {
            return;
        }
        drop(source);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
