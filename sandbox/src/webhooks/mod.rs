//! Webhook queues, one per provider, that deliver to the URL a test has set. A queue finds events
//! by comparing snapshots of the provider's state, after every call and at short intervals for what
//! the clock changes. So no handler needs to know about webhooks. Without a URL the queue records
//! and sends nothing.

mod post;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::bank::Refused;
use crate::members::Members;
use crate::provider::Provider;
use crate::store::RowChange;
use post::{Destination, SignedRequest, post};

/// Deliveries that a queue keeps. When all of them are pending, a new event is dropped.
const DELIVERIES_MAX: usize = 1000;
/// How often, in real time, a queue compares state and checks for due deliveries.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Limit for copies of an event; more is a mistake.
const COPIES_MAX: usize = 100;
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

pub(crate) trait WebhookSource: Provider {
    const DELIVERY_POLICY: DeliveryPolicy;

    fn snapshot(&self, now: Timestamp) -> Self::Snapshot;
    /// The events that follow from the differences between two snapshots, and from the rows that
    /// changed between them.
    fn compare(
        &self,
        before: &Self::Snapshot,
        after: &Self::Snapshot,
        rows: &[RowChange],
        now: Timestamp,
    ) -> Vec<WebhookEvent>;
    /// Builds the event that a test describes; its name may be unknown.
    fn build_event(
        &self,
        name: &str,
        members: Members,
        now: Timestamp,
    ) -> Result<WebhookEvent, Refused>;
    /// The body of attempt number `attempt`, counted from 1.
    fn body(&self, event: &WebhookEvent, _attempt: usize) -> Vec<u8> {
        event.body.to_string().into_bytes()
    }
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

/// How webhooks are signed.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sign {
    #[default]
    Right,
    /// In the right format, but it does not verify.
    Wrong,
}

/// Where and how webhooks are sent. What is `None` keeps its value.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WebhookSettings {
    /// `http://` only; `Some(None)` switches webhooks off.
    #[serde(default, deserialize_with = "present")]
    pub url: Option<Option<String>>,
    /// How often each event is sent, from 1 to 100.
    pub copies: Option<usize>,
    /// How many of the next events are never sent.
    pub lose: Option<u64>,
    pub sign: Option<Sign>,
}

impl WebhookSettings {
    #[must_use]
    pub fn to(url: impl Into<String>) -> Self {
        Self {
            url: Some(Some(url.into())),
            ..Self::default()
        }
    }

    #[must_use]
    pub fn off() -> Self {
        Self {
            url: Some(None),
            ..Self::default()
        }
    }
}

/// Distinguishes `null` from an absent field.
fn present<'de, D: Deserializer<'de>>(value: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(value).map(Some)
}

struct QueueState {
    destination: Option<Destination>,
    copies: usize,
    lose: u64,
    sign: Sign,
    deliveries: VecDeque<Delivery>,
    next_id: u64,
}

pub(crate) struct WebhookQueue {
    state: Mutex<QueueState>,
    wake: Notify,
    is_running: AtomicBool,
    /// Whether events may go to other machines.
    is_anywhere_allowed: bool,
}

impl WebhookQueue {
    pub(crate) fn new(is_anywhere_allowed: bool) -> Self {
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
            wake: Notify::new(),
            is_running: AtomicBool::new(false),
            is_anywhere_allowed,
        }
    }

    /// Queues an event if a URL is set, and returns the id of its delivery.
    pub(crate) fn add(&self, event: WebhookEvent, now: Timestamp) -> Option<u64> {
        let id = self.state.lock().add(event, now);
        self.wake.notify_one();
        id
    }

    /// The URL that webhooks go to.
    pub(crate) fn url(&self) -> Option<String> {
        let state = self.state.lock();
        state.destination.as_ref().map(|to| to.url.clone())
    }

    pub(crate) fn check_url(&self) -> Result<(), Refused> {
        self.url()
            .map(drop)
            .ok_or_else(|| "no URL is set for webhooks".into())
    }

    /// Oldest first.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.state.lock().deliveries.iter().cloned().collect()
    }

    /// The deliveries as control calls show them.
    pub(crate) fn views(&self) -> Vec<Value> {
        self.deliveries().iter().map(Delivery::view).collect()
    }

    /// Ids continue, so that an id never names another delivery.
    pub(crate) fn forget(&self) {
        self.state.lock().deliveries.clear();
    }

    /// Sends the bytes of the last attempt again. A delivery without an attempt goes out as new.
    pub(crate) fn resend(&self, id: u64, now: Timestamp) -> Result<u64, Refused> {
        self.check_url()?;
        let mut queue = self.state.lock();
        let known = queue
            .deliveries
            .iter()
            .find(|known| known.id == id)
            .cloned();
        let known = known.ok_or_else(|| Refused::unknown("delivery", &id.to_string()))?;
        let again = queue.push(
            known.event,
            DeliveryState::Waiting,
            Some(id),
            known.sent,
            now,
        );
        self.wake.notify_one();
        again.ok_or_else(|| "the queue is full".into())
    }
}

/// Changes the settings of a provider's webhooks. Comparing starts with the first URL and stops
/// without one.
pub(crate) fn set<P: WebhookSource>(
    source: &Arc<P>,
    settings: WebhookSettings,
) -> Result<(), Refused> {
    let queue = &source.webhooks;
    if settings
        .copies
        .is_some_and(|copies| !(1..=COPIES_MAX).contains(&copies))
    {
        return Err(format!("\"copies\" must be from 1 to {COPIES_MAX}").into());
    }
    if let Some(url) = settings.url {
        let destination = url.as_deref().map(Destination::parse).transpose()?;
        let is_elsewhere = destination.as_ref().is_some_and(|to| !to.is_this_machine());
        if is_elsewhere && !queue.is_anywhere_allowed {
            return Err("\"url\" must be on this machine: start the sandbox with --webhooks-anywhere for others".into());
        }
        let mut last_snapshot = source.last_snapshot.lock();
        if destination.is_none() {
            *last_snapshot = None;
        } else if last_snapshot.is_none() {
            *last_snapshot = Some(source.snapshot(source.clock.now()));
            source.store.write().row_changes.clear();
        }
        let is_on = destination.is_some();
        queue.state.lock().destination = destination;
        if is_on && !queue.is_running.swap(true, Ordering::AcqRel) {
            tokio::spawn(run_deliveries(Arc::downgrade(source)));
        }
    }
    let mut state = queue.state.lock();
    state.copies = settings.copies.unwrap_or(state.copies);
    state.lose = settings.lose.unwrap_or(state.lose);
    state.sign = settings.sign.unwrap_or(state.sign);
    queue.wake.notify_one();
    Ok(())
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

    fn view(&self) -> Value {
        let statuses: Vec<Option<u16>> =
            self.attempts.iter().map(|attempt| attempt.status).collect();
        json!({
            "id": self.id, "event": self.event.name, "state": self.state, "attempts": statuses.len(),
            "statuses": statuses, "repeats": self.repeats, "body": self.event.body,
            "nextAttemptAt": self.is_pending().then(|| self.next_attempt_at.to_string()),
        })
    }
}

/// Queues the events since the last comparison.
pub(crate) fn enqueue_changes<P: WebhookSource>(source: &P) {
    let mut last_snapshot = source.last_snapshot.lock();
    let Some(before) = last_snapshot.as_ref() else {
        return;
    };
    let now = source.clock.now();
    let after = source.snapshot(now);
    let mut rows = Vec::new();
    if !source.store.read().row_changes.is_empty() {
        std::mem::swap(&mut rows, &mut source.store.write().row_changes);
    }
    for event in source.compare(before, &after, &rows, now) {
        source.webhooks.add(event, now);
    }
    *last_snapshot = Some(after);
}

/// Delivers one at a time, in the order in which they are due, until the provider is dropped.
async fn run_deliveries<P: WebhookSource>(provider: Weak<P>) {
    while let Some(source) = provider.upgrade() {
        enqueue_changes(&*source);
        let now = source.clock.now();
        let next = source.webhooks.state.lock().next_due(now);
        match next {
            Some((destination, delivery, sign)) => {
                make_attempt(source, destination, delivery, sign).await;
            }
            None => {
                let _ = tokio::time::timeout(POLL_INTERVAL, source.webhooks.wake.notified()).await;
            }
        }
    }
}

async fn make_attempt<P: WebhookSource>(
    source: Arc<P>,
    destination: Destination,
    delivery: Delivery,
    sign: Sign,
) {
    let (id, at) = (delivery.id, source.clock.now());
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
    let now = source.clock.now();
    source.webhooks.state.lock().record_attempt(
        id,
        sent,
        Attempt { at, status },
        &P::DELIVERY_POLICY,
        now,
    );
}

/// Builds the request of an attempt. A replay reuses the stored one.
fn build_request<P: WebhookSource>(source: &P, delivery: Delivery, sign: Sign) -> SignedRequest {
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
async fn receiver_timeout<P: WebhookSource>(provider: &Weak<P>, at: Timestamp) {
    let seconds = P::DELIVERY_POLICY.timeout_seconds;
    let deadline = at
        .saturating_add(Duration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX);
    let started_at = tokio::time::Instant::now();
    while started_at.elapsed() < Duration::from_secs(seconds) {
        let Some(source) = provider.upgrade() else {
            return;
        };
        if started_at.elapsed() >= RECEIVER_REAL_TIME_MIN && source.clock.now() >= deadline {
            return;
        }
        drop(source);
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}
