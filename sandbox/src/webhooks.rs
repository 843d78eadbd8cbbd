//! Webhooks: one queue a provider, which delivers what has happened to where a test listens. What has happened is
//! found by looking: after every call, and from time to time for what the clock brings about, the provider's state is
//! compared with how it was. So no handler needs to know of webhooks. Without a destination there is nothing to do.

mod control;
mod post;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::clock::Clock;
use crate::control::BadRequest;
use crate::members::Members;
use post::{Destination, SignedRequest, post};

/// Deliveries that are remembered. When all of them are still to be made, another event is dropped.
const DELIVERIES_MAX: usize = 1000;
/// How often, in real time, the sandbox's clock is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// A receiver has at least this much real time, so that a test which moves the clock ends no delivery that is just
/// being made.
const RECEIVER_REAL_TIME_MIN: Duration = Duration::from_secs(1);

/// What a provider promises of its deliveries.
pub(crate) struct DeliveryPolicy {
    /// How long a receiver may take: on the sandbox's clock, and in real time at most.
    pub(crate) timeout_seconds: u64,
    /// How long after each failed attempt the next one is made; after the last there is none.
    pub(crate) retry_seconds: &'static [i64],
    /// Which answers count as received.
    pub(crate) is_received: fn(u16) -> bool,
}

/// A provider that sends webhooks.
pub(crate) trait WebhookSource: Send + Sync + Sized + 'static {
    /// What is compared: as much of the state as events tell of.
    type Snapshot: Send;
    const DELIVERY_POLICY: DeliveryPolicy;

    fn webhook_queue(&self) -> &WebhookQueue<Self::Snapshot>;
    fn clock(&self) -> &Clock;
    /// The state now.
    fn snapshot(&self, now: Timestamp) -> Self::Snapshot;
    /// What has happened between two states.
    fn compare(&self, before: &Self::Snapshot, after: &Self::Snapshot, now: Timestamp) -> Vec<WebhookEvent>;
    /// The event that a test describes, known or not.
    fn build_event(&self, name: &str, members: Members, now: Timestamp) -> Result<WebhookEvent, BadRequest>;
    /// The body of an attempt; the first is 1.
    fn body(&self, event: &WebhookEvent, attempt: usize) -> Vec<u8>;
    /// The headers of a body, first the signature in base64. May take a while.
    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)>;
}

/// Something to tell.
#[derive(Debug, Clone)]
pub(crate) struct WebhookEvent {
    pub(crate) name: String,
    /// What it is called in the provider's own lists.
    pub(crate) id: String,
    /// For whom it is, where users subscribe.
    pub(crate) subscription: Option<String>,
    pub(crate) body: Members,
}

/// How a delivery stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DeliveryState {
    /// Not attempted yet.
    Waiting,
    /// Attempted in vain, and to be attempted again.
    Retry,
    Sent,
    /// Given up.
    Failed,
    /// Never attempted, as a test has asked.
    Lost,
}

/// One try to deliver.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    /// `None` when there was no answer.
    pub(crate) status: Option<u16>,
}

/// An event on its way to the destination.
#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    id: u64,
    pub(crate) event: WebhookEvent,
    pub(crate) created_at: Timestamp,
    pub(crate) state: DeliveryState,
    pub(crate) attempts: Vec<Attempt>,
    next_attempt_at: Timestamp,
    /// The bytes of the last attempt.
    sent: Option<SignedRequest>,
    /// Set on duplicates and replays: the delivery that they repeat.
    pub(crate) repeats: Option<u64>,
    /// A replay sends the very bytes of another delivery, once.
    is_replay: bool,
}

/// How deliveries are signed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Sign {
    #[default]
    Right,
    Wrong,
}

/// What is to be delivered, and how.
struct QueueState {
    destination: Option<Destination>,
    copies: usize,
    lose: u64,
    sign: Sign,
    deliveries: VecDeque<Delivery>,
    next_id: u64,
}

/// The webhooks of one provider.
pub(crate) struct WebhookQueue<S> {
    state: Mutex<QueueState>,
    /// How the state was at the last look; `None` as long as there is no destination.
    last_snapshot: Mutex<Option<S>>,
    wake: Notify,
    is_running: AtomicBool,
}

impl<S> Default for WebhookQueue<S> {
    fn default() -> Self {
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
        }
    }
}

impl<S> WebhookQueue<S> {
    /// Puts an event in the queue, if anybody listens. The id of its delivery.
    pub(crate) fn add(&self, event: WebhookEvent, now: Timestamp) -> Option<u64> {
        let id = self.state.lock().add(event, now);
        self.wake.notify_one();
        id
    }

    /// Where webhooks go.
    pub(crate) fn url(&self) -> Option<String> {
        self.state.lock().destination.as_ref().map(|destination| destination.url.clone())
    }

    /// The deliveries, oldest first.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.state.lock().deliveries.iter().cloned().collect()
    }
}

impl QueueState {
    fn add(&mut self, event: WebhookEvent, now: Timestamp) -> Option<u64> {
        self.destination.as_ref()?;
        let state = if self.lose > 0 { DeliveryState::Lost } else { DeliveryState::Waiting };
        self.lose = self.lose.saturating_sub(1);
        let copies = if state == DeliveryState::Lost { 1 } else { self.copies };
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
                tracing::warn!(event = event.name, "the sandbox dropped a webhook: its queue is full");
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

    /// The delivery to attempt now: what is due first, and of those what came first.
    fn next_due(&self, now: Timestamp) -> Option<(Destination, Delivery, Sign)> {
        let destination = self.destination.clone()?;
        let due = self.deliveries.iter().filter(|known| known.is_pending() && known.next_attempt_at <= now);
        due.min_by_key(|known| (known.next_attempt_at, known.id)).map(|found| (destination, found.clone(), self.sign))
    }

    fn record_attempt(
        &mut self,
        id: u64,
        sent: SignedRequest,
        attempt: Attempt,
        policy: &DeliveryPolicy,
        now: Timestamp,
    ) {
        // It may have been forgotten in the meantime.
        let Some(delivery) = self.deliveries.iter_mut().find(|known| known.id == id) else { return };
        delivery.sent = Some(sent);
        delivery.attempts.push(attempt);
        let retry = policy.retry_seconds.get(delivery.attempts.len() - 1).filter(|_| !delivery.is_replay);
        delivery.state = match retry {
            _ if attempt.status.is_some_and(policy.is_received) => DeliveryState::Sent,
            Some(&seconds) => {
                delivery.next_attempt_at =
                    now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
                DeliveryState::Retry
            }
            None => DeliveryState::Failed,
        };
    }
}

impl Delivery {
    /// Whether there is still something to do.
    const fn is_pending(&self) -> bool {
        matches!(self.state, DeliveryState::Waiting | DeliveryState::Retry)
    }
}

/// A provider's routes with its webhooks: the control interface beside them, and a look after every call.
pub(crate) fn attach<N: WebhookSource>(source: &Arc<N>, routes: Router) -> Router {
    let control = control::routes(Arc::clone(source));
    routes.merge(control).layer(from_fn_with_state(Arc::clone(source), enqueue_changes_after::<N>))
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

/// Puts what has happened since the last look into the queue.
fn enqueue_changes<N: WebhookSource>(source: &N) {
    let mut last_snapshot = source.webhook_queue().last_snapshot.lock();
    let Some(before) = last_snapshot.as_ref() else { return };
    let now = source.clock().now();
    let after = source.snapshot(now);
    for event in source.compare(before, &after, now) {
        source.webhook_queue().add(event, now);
    }
    *last_snapshot = Some(after);
}

/// Begins to look, or to look no more.
fn set_destination<N: WebhookSource>(source: &Arc<N>, destination: Option<Destination>) {
    let queue = source.webhook_queue();
    let mut last_snapshot = queue.last_snapshot.lock();
    match &destination {
        Some(_) if last_snapshot.is_none() => *last_snapshot = Some(source.snapshot(source.clock().now())),
        Some(_) => {}
        None => *last_snapshot = None,
    }
    let is_on = destination.is_some();
    queue.state.lock().destination = destination;
    if is_on && !queue.is_running.swap(true, Ordering::AcqRel) {
        tokio::spawn(run_deliveries(Arc::downgrade(source)));
    }
}

/// Delivers one after the other, in the order in which they are due, until the provider is gone.
async fn run_deliveries<N: WebhookSource>(provider: Weak<N>) {
    while let Some(source) = provider.upgrade() {
        enqueue_changes(&*source);
        let now = source.clock().now();
        let next = source.webhook_queue().state.lock().next_due(now);
        match next {
            Some((destination, delivery, sign)) => make_attempt(source, destination, delivery, sign).await,
            None => {
                let _ = tokio::time::timeout(POLL_INTERVAL, source.webhook_queue().wake.notified()).await;
            }
        }
    }
}

async fn make_attempt<N: WebhookSource>(source: Arc<N>, destination: Destination, delivery: Delivery, sign: Sign) {
    let (id, at) = (delivery.id, source.clock().now());
    let writer = Arc::clone(&source);
    // A signature may need a key that has to be made first.
    let sent = tokio::task::spawn_blocking(move || build_request(&*writer, delivery, sign)).await;
    let Ok(sent) = sent else { return };
    let provider = Arc::downgrade(&source);
    // A sandbox that stops does not wait for a receiver that hangs.
    drop(source);
    let status = tokio::select! {
        answer = post(&destination, &sent) => answer.ok(),
        () = receiver_timeout(&provider, at) => None,
    };
    let Some(source) = provider.upgrade() else { return };
    let now = source.clock().now();
    source.webhook_queue().state.lock().record_attempt(id, sent, Attempt { at, status }, &N::DELIVERY_POLICY, now);
}

/// What goes over the wire. A replay is what it was.
fn build_request<N: WebhookSource>(source: &N, delivery: Delivery, sign: Sign) -> SignedRequest {
    if let Some(sent) = delivery.sent.filter(|_| delivery.is_replay) {
        return sent;
    }
    let body = source.body(&delivery.event, delivery.attempts.len() + 1);
    let mut headers = source.sign(&body);
    if let (Sign::Wrong, Some((_, signature))) = (sign, headers.first_mut()) {
        *signature = corrupted_signature(signature);
    }
    SignedRequest { headers, body: body.into() }
}

/// A signature of the right form that is not the right one.
fn corrupted_signature(signature: &str) -> String {
    let mut tag = STANDARD.decode(signature).unwrap_or_default();
    if let Some(first) = tag.first_mut() {
        *first ^= 1;
    }
    STANDARD.encode(tag)
}

/// Ends when a receiver that got something at `at` has had its time, or when the provider is gone.
async fn receiver_timeout<N: WebhookSource>(provider: &Weak<N>, at: Timestamp) {
    let seconds = N::DELIVERY_POLICY.timeout_seconds;
    let over = at.saturating_add(Duration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let started_at = tokio::time::Instant::now();
    while started_at.elapsed() < Duration::from_secs(seconds) {
        let Some(source) = provider.upgrade() else { return };
        if started_at.elapsed() >= RECEIVER_REAL_TIME_MIN && source.clock().now() >= over {
            return;
        }
        drop(source);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
