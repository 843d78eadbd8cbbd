//! A provider's queue of webhooks: the settings, the deliveries and their attempts.

use std::collections::VecDeque;
use std::sync::atomic::AtomicBool;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};
use tokio::sync::Notify;

use super::post::SignedRequest;
use crate::clock::after;
use crate::members::Members;
use crate::refused::Refused;

/// Deliveries that a queue keeps. When all of them are pending, a new event is dropped.
const DELIVERIES_MAX: usize = 1000;

/// How a provider times, retries and accepts deliveries.
pub(crate) struct DeliveryPolicy {
    /// Limit for a receiver, both on the sandbox's clock and in real time.
    pub(crate) timeout_seconds: u64,
    /// Delay after each failed attempt; a failure after the last one is final.
    pub(crate) retry_seconds: &'static [i64],
    /// Whether a status counts as received.
    pub(crate) is_received: fn(u16) -> bool,
}

#[derive(Debug, Clone)]
pub(crate) struct WebhookEvent {
    pub(crate) name: String,
    /// The subscription it belongs to, at providers where users subscribe.
    pub(crate) subscription: Option<String>,
    pub(crate) body: Members,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum DeliveryState {
    /// Not attempted yet.
    Waiting,
    /// Failed, with another attempt scheduled.
    Retry,
    Sent,
    /// Failed after the last attempt.
    Failed,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    pub(crate) at: Timestamp,
    /// `None` if no response came.
    pub(crate) status: Option<u16>,
}

#[derive(Debug, Clone)]
pub(crate) struct Delivery {
    pub(super) id: u64,
    pub(crate) event: WebhookEvent,
    state: DeliveryState,
    pub(crate) attempts: Vec<Attempt>,
    next_attempt_at: Timestamp,
    /// The request of the last attempt.
    pub(super) sent: Option<SignedRequest>,
    /// For duplicates and replays: the delivery that they repeat.
    repeats: Option<u64>,
    /// A replay sends the bytes of another delivery once, without retries.
    pub(super) is_replay: bool,
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

pub(super) struct QueueState {
    /// As it was given, and checked.
    pub(super) destination: Option<String>,
    pub(super) copies: usize,
    pub(super) sign: Sign,
    deliveries: VecDeque<Delivery>,
    next_id: u64,
}

pub(crate) struct WebhookQueue {
    pub(super) state: Mutex<QueueState>,
    pub(super) wake: Notify,
    pub(super) is_running: AtomicBool,
    /// Whether events may go to other machines.
    pub(super) is_anywhere_allowed: bool,
}

impl WebhookQueue {
    pub(crate) fn new(is_anywhere_allowed: bool) -> Self {
        let state = QueueState {
            destination: None,
            copies: 1,
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
        self.state.lock().destination.clone()
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
        let again = queue.push(known.event, Some(id), known.sent, now);
        self.wake.notify_one();
        again.ok_or_else(|| "the queue is full".into())
    }
}

impl QueueState {
    fn add(&mut self, event: WebhookEvent, now: Timestamp) -> Option<u64> {
        self.destination.as_ref()?;
        let mut first = None;
        for _ in 0..self.copies {
            let id = self.push(event.clone(), first, None, now)?;
            first = first.or(Some(id));
        }
        first
    }

    fn push(
        &mut self,
        event: WebhookEvent,
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
            state: DeliveryState::Waiting,
            attempts: Vec::new(),
            next_attempt_at: now,
            is_replay: replayed.is_some(),
            sent: replayed,
            repeats,
        });
        Some(id)
    }

    /// Returns the delivery to attempt now: the one due first, then the one queued first.
    pub(super) fn next_due(&self, now: Timestamp) -> Option<(String, Delivery, Sign)> {
        let destination = self.destination.clone()?;
        let due = self
            .deliveries
            .iter()
            .filter(|known| known.is_pending() && known.next_attempt_at <= now);
        due.min_by_key(|known| (known.next_attempt_at, known.id))
            .map(|found| (destination, found.clone(), self.sign))
    }

    pub(super) fn record_attempt(
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
                delivery.next_attempt_at = after(now, SignedDuration::from_secs(seconds));
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
