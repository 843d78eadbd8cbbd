//! Webhook queues, one per provider, that deliver to the URL a test has set. A queue finds events
//! by comparing the provider's state with an earlier one, after every call and at short intervals
//! for what the clock changes. So no handler needs to know about webhooks. Without a URL the queue
//! records and sends nothing.

mod post;
mod queue;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;

use crate::host::is_this_machine;
use crate::members::Members;
use crate::provider::Provider;
use crate::refused::Refused;
use crate::store::{Moment, RowChange};
use post::{SignedRequest, post};
use queue::Attempt;
pub(crate) use queue::{Delivery, DeliveryPolicy, WebhookEvent, WebhookQueue};
pub use queue::{Sign, WebhookSettings};

/// How often, in real time, a queue compares state and checks for due deliveries.
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Limit for copies of an event; more is a mistake.
const COPIES_MAX: usize = 100;
/// A receiver has at least this much real time. So a test that moves the clock does not time out
/// the delivery in progress.
const RECEIVER_REAL_TIME_MIN: Duration = Duration::from_secs(1);

pub(crate) trait WebhookSource: Provider {
    const DELIVERY_POLICY: DeliveryPolicy;

    /// The events that follow from the differences between two moments, and from the rows that
    /// changed between them.
    fn compare(
        &self,
        before: &Moment<Self>,
        after: &Moment<Self>,
        rows: &[RowChange],
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
        let to = url.as_deref().map(post::parse).transpose()?;
        let is_elsewhere = to.is_some_and(|to| !is_this_machine(&to));
        if is_elsewhere && !queue.is_anywhere_allowed {
            return Err("\"url\" must be on this machine: start the sandbox with --webhooks-anywhere for others".into());
        }
        let mut compared = source.compared.lock();
        if url.is_none() {
            *compared = None;
        } else if compared.is_none() {
            source.store.write().row_changes.clear();
            *compared = Some(source.store.moment(source.clock.now(), None));
        }
        let is_on = url.is_some();
        queue.state.lock().destination = url;
        if is_on && !queue.is_running.swap(true, Ordering::AcqRel) {
            tokio::spawn(run_deliveries(Arc::downgrade(source)));
        }
    }
    let mut state = queue.state.lock();
    state.copies = settings.copies.unwrap_or(state.copies);
    state.sign = settings.sign.unwrap_or(state.sign);
    queue.wake.notify_one();
    Ok(())
}

/// Queues the events since the last comparison.
pub(crate) fn enqueue_changes<P: WebhookSource>(source: &P) {
    let mut compared = source.compared.lock();
    let Some(before) = compared.as_ref() else {
        return;
    };
    let now = source.clock.now();
    let after = source.store.moment(now, Some(before));
    let mut rows = Vec::new();
    if !source.store.read().row_changes.is_empty() {
        std::mem::swap(&mut rows, &mut source.store.write().row_changes);
    }
    for event in source.compare(before, &after, &rows) {
        source.webhooks.add(event, now);
    }
    *compared = Some(after);
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
    destination: String,
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
        status = post(destination, &sent) => status,
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

/// The items that only the first of two lists has, by what identifies an item.
pub(crate) fn only_in<'a, T, K: PartialEq>(
    list: &'a [T],
    other: &'a [T],
    key: impl Fn(&'a T) -> K,
) -> impl Iterator<Item = &'a T> {
    list.iter()
        .filter(move |&item| !other.iter().any(|known| key(known) == key(item)))
}
