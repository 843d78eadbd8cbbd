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
use crate::control::Misuse;
use crate::members::Members;
use post::{Destination, Sent, post};

/// Deliveries that are remembered. When all of them are still to be made, another event is dropped.
const DELIVERIES_MAX: usize = 1000;
/// How often, in real time, the sandbox's clock is looked at.
const POLL: Duration = Duration::from_millis(20);
/// A receiver has at least this much real time, so that a test which moves the clock ends no delivery that is just
/// being made.
const GRACE: Duration = Duration::from_secs(1);

/// What a provider promises of its deliveries.
pub(crate) struct Rules {
    /// How long a receiver may take: on the sandbox's clock, and in real time at most.
    pub(crate) timeout_seconds: u64,
    /// How long after each failed attempt the next one is made; after the last there is none.
    pub(crate) retry_seconds: &'static [i64],
    /// Which answers count as received.
    pub(crate) is_received: fn(u16) -> bool,
}

/// A provider that sends webhooks.
pub(crate) trait Notifier: Send + Sync + Sized + 'static {
    /// What is compared: as much of the state as events tell of.
    type Seen: Send;
    const RULES: Rules;

    fn outbox(&self) -> &Outbox<Self::Seen>;
    fn clock(&self) -> &Clock;
    /// The state now.
    fn see(&self, now: Timestamp) -> Self::Seen;
    /// What has happened between two states.
    fn compare(&self, before: &Self::Seen, after: &Self::Seen, now: Timestamp) -> Vec<Event>;
    /// The event that a test describes, known or not.
    fn describe(&self, name: &str, members: Members, now: Timestamp) -> Result<Event, Misuse>;
    /// The body of an attempt; the first is 1.
    fn body(&self, event: &Event, attempt: usize) -> Vec<u8>;
    /// The headers of a body, first the signature in base64. May take a while.
    fn sign(&self, body: &[u8]) -> Vec<(&'static str, String)>;
}

/// Something to tell.
#[derive(Debug, Clone)]
pub(crate) struct Event {
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
pub(crate) enum Standing {
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
    pub(crate) event: Event,
    pub(crate) made_at: Timestamp,
    pub(crate) standing: Standing,
    pub(crate) attempts: Vec<Attempt>,
    due: Timestamp,
    /// The bytes of the last attempt.
    sent: Option<Sent>,
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
struct Queue {
    destination: Option<Destination>,
    copies: usize,
    lose: u64,
    sign: Sign,
    deliveries: VecDeque<Delivery>,
    next_id: u64,
}

/// The webhooks of one provider.
pub(crate) struct Outbox<S> {
    queue: Mutex<Queue>,
    /// How the state was at the last look; `None` as long as there is no destination.
    seen: Mutex<Option<S>>,
    wake: Notify,
    is_working: AtomicBool,
}

impl<S> Default for Outbox<S> {
    fn default() -> Self {
        let queue =
            Queue { destination: None, copies: 1, lose: 0, sign: Sign::Right, deliveries: VecDeque::new(), next_id: 1 };
        Self {
            queue: Mutex::new(queue),
            seen: Mutex::new(None),
            wake: Notify::new(),
            is_working: AtomicBool::new(false),
        }
    }
}

impl<S> Outbox<S> {
    /// Puts an event in the queue, if anybody listens. The id of its delivery.
    pub(crate) fn add(&self, event: Event, now: Timestamp) -> Option<u64> {
        let id = self.queue.lock().add(event, now);
        self.wake.notify_one();
        id
    }

    /// Where webhooks go.
    pub(crate) fn url(&self) -> Option<String> {
        self.queue.lock().destination.as_ref().map(|destination| destination.url.clone())
    }

    /// The deliveries, oldest first.
    pub(crate) fn deliveries(&self) -> Vec<Delivery> {
        self.queue.lock().deliveries.iter().cloned().collect()
    }
}

impl Queue {
    fn add(&mut self, event: Event, now: Timestamp) -> Option<u64> {
        self.destination.as_ref()?;
        let standing = if self.lose > 0 { Standing::Lost } else { Standing::Waiting };
        self.lose = self.lose.saturating_sub(1);
        let copies = if standing == Standing::Lost { 1 } else { self.copies };
        let mut first = None;
        for _ in 0..copies {
            let id = self.push(event.clone(), standing, first, None, now)?;
            first = first.or(Some(id));
        }
        first
    }

    fn push(
        &mut self,
        event: Event,
        standing: Standing,
        repeats: Option<u64>,
        replayed: Option<Sent>,
        now: Timestamp,
    ) -> Option<u64> {
        if self.deliveries.len() >= DELIVERIES_MAX {
            let Some(oldest) = self.deliveries.iter().position(|known| !known.is_open()) else {
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
            made_at: now,
            standing,
            attempts: Vec::new(),
            due: now,
            is_replay: replayed.is_some(),
            sent: replayed,
            repeats,
        });
        Some(id)
    }

    /// The delivery to attempt now: what is due first, and of those what came first.
    fn next(&self, now: Timestamp) -> Option<(Destination, Delivery, Sign)> {
        let destination = self.destination.clone()?;
        let due = self.deliveries.iter().filter(|known| known.is_open() && known.due <= now);
        due.min_by_key(|known| (known.due, known.id)).map(|found| (destination, found.clone(), self.sign))
    }

    fn attempted(&mut self, id: u64, sent: Sent, attempt: Attempt, rules: &Rules, now: Timestamp) {
        // It may have been forgotten in the meantime.
        let Some(delivery) = self.deliveries.iter_mut().find(|known| known.id == id) else { return };
        delivery.sent = Some(sent);
        delivery.attempts.push(attempt);
        let retry = rules.retry_seconds.get(delivery.attempts.len() - 1).filter(|_| !delivery.is_replay);
        delivery.standing = match retry {
            _ if attempt.status.is_some_and(rules.is_received) => Standing::Sent,
            Some(&seconds) => {
                delivery.due = now.saturating_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
                Standing::Retry
            }
            None => Standing::Failed,
        };
    }
}

impl Delivery {
    /// Whether there is still something to do.
    const fn is_open(&self) -> bool {
        matches!(self.standing, Standing::Waiting | Standing::Retry)
    }
}

/// A provider's routes with its webhooks: the control interface beside them, and a look after every call.
pub(crate) fn attach<N: Notifier>(notifier: &Arc<N>, routes: Router) -> Router {
    let control = control::routes(Arc::clone(notifier));
    routes.merge(control).layer(from_fn_with_state(Arc::clone(notifier), look_after::<N>))
}

async fn look_after<N: Notifier>(State(notifier): State<Arc<N>>, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    look(&*notifier);
    response
}

/// Puts what has happened since the last look into the queue.
fn look<N: Notifier>(notifier: &N) {
    let mut seen = notifier.outbox().seen.lock();
    let Some(before) = seen.as_ref() else { return };
    let now = notifier.clock().now();
    let after = notifier.see(now);
    for event in notifier.compare(before, &after, now) {
        notifier.outbox().add(event, now);
    }
    *seen = Some(after);
}

/// Begins to look, or to look no more.
fn listen<N: Notifier>(notifier: &Arc<N>, destination: Option<Destination>) {
    let outbox = notifier.outbox();
    let mut seen = outbox.seen.lock();
    match &destination {
        Some(_) if seen.is_none() => *seen = Some(notifier.see(notifier.clock().now())),
        Some(_) => {}
        None => *seen = None,
    }
    let is_on = destination.is_some();
    outbox.queue.lock().destination = destination;
    if is_on && !outbox.is_working.swap(true, Ordering::AcqRel) {
        tokio::spawn(work(Arc::downgrade(notifier)));
    }
}

/// Delivers one after the other, in the order in which they are due, until the provider is gone.
async fn work<N: Notifier>(provider: Weak<N>) {
    while let Some(notifier) = provider.upgrade() {
        look(&*notifier);
        let now = notifier.clock().now();
        let next = notifier.outbox().queue.lock().next(now);
        match next {
            Some((destination, delivery, sign)) => attempt(notifier, destination, delivery, sign).await,
            None => {
                let _ = tokio::time::timeout(POLL, notifier.outbox().wake.notified()).await;
            }
        }
    }
}

async fn attempt<N: Notifier>(notifier: Arc<N>, destination: Destination, delivery: Delivery, sign: Sign) {
    let (id, at) = (delivery.id, notifier.clock().now());
    let writer = Arc::clone(&notifier);
    // A signature may need a key that has to be made first.
    let sent = tokio::task::spawn_blocking(move || bytes(&*writer, delivery, sign)).await;
    let Ok(sent) = sent else { return };
    let provider = Arc::downgrade(&notifier);
    // A sandbox that stops does not wait for a receiver that hangs.
    drop(notifier);
    let status = tokio::select! {
        answer = post(&destination, &sent) => answer.ok(),
        () = overtime(&provider, at) => None,
    };
    let Some(notifier) = provider.upgrade() else { return };
    let now = notifier.clock().now();
    notifier.outbox().queue.lock().attempted(id, sent, Attempt { at, status }, &N::RULES, now);
}

/// What goes over the wire. A replay is what it was.
fn bytes<N: Notifier>(notifier: &N, delivery: Delivery, sign: Sign) -> Sent {
    if let Some(sent) = delivery.sent.filter(|_| delivery.is_replay) {
        return sent;
    }
    let body = notifier.body(&delivery.event, delivery.attempts.len() + 1);
    let mut headers = notifier.sign(&body);
    if let (Sign::Wrong, Some((_, signature))) = (sign, headers.first_mut()) {
        *signature = spoiled(signature);
    }
    Sent { headers, body: body.into() }
}

/// A signature of the right form that is not the right one.
fn spoiled(signature: &str) -> String {
    let mut tag = STANDARD.decode(signature).unwrap_or_default();
    if let Some(first) = tag.first_mut() {
        *first ^= 1;
    }
    STANDARD.encode(tag)
}

/// Ends when a receiver that got something at `at` has had its time, or when the provider is gone.
async fn overtime<N: Notifier>(provider: &Weak<N>, at: Timestamp) {
    let seconds = N::RULES.timeout_seconds;
    let over = at.saturating_add(Duration::from_secs(seconds)).unwrap_or(Timestamp::MAX);
    let began = tokio::time::Instant::now();
    while began.elapsed() < Duration::from_secs(seconds) {
        let Some(notifier) = provider.upgrade() else { return };
        if began.elapsed() >= GRACE && notifier.clock().now() >= over {
            return;
        }
        drop(notifier);
        tokio::time::sleep(POLL).await;
    }
}
