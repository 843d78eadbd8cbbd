//! Deliveries: endpoint by endpoint, several at once, results written in batches.
//!
//! Whoever claims an endpoint serves it alone for a turn of a few seconds, in whichever copy of the service. So an endpoint
//! that is slow, or dead, holds up nobody but itself; those that have been failing have places of their own besides, and
//! cannot take those of the others. A turn ends long before its lease does: nothing is sent that somebody else may be
//! sending, but for what was under way when a program was killed.

use std::sync::Arc;
use std::time::Duration;

use bellbird_storage::{ClaimedEndpoint, DueDelivery, FinishedAttempt, Outcome, StorageError};
use jiff::{SignedDuration, Timestamp};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use url::Url;
use uuid::Uuid;

use crate::Webhooks;
use crate::client::problem::NAME_UNANSWERED;
use crate::client::{Exchange, Message};
use crate::ping::PingError;
use crate::rebuild::{REBUILD_DEADLINE, Unread};
use crate::schedule::has_failed_too_long;
use crate::sign::Signer;
use crate::target::check_url;

/// Endpoints that one copy of the service serves at the same time.
const HEALTHY_AT_ONCE: usize = 32;
/// Besides, of those that have done nothing but fail of late.
const FAILING_AT_ONCE: usize = 8;
/// Deliveries to one endpoint at the same time.
const SENT_AT_ONCE: usize = 16;
/// Deliveries that are looked up at once.
const BATCH: u32 = 128;
/// A turn begins nothing new after this.
const TURN: Duration = Duration::from_secs(10);
/// Only from this attempt of a delivery on, half an hour after its first, is an endpoint disabled for failing.
const LATE_ATTEMPT: u32 = 5;
/// What deliveries on their way get to end when the service stops.
const STOP_PATIENCE: Duration = Duration::from_secs(8);
/// What a slow database may take before and after.
const MARGIN: Duration = Duration::from_secs(20);
/// How often due deliveries are looked for, where nobody wakes us: those of other programs, and those to be tried again.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long events gather before endpoints are claimed: one claim for all of them, and one turn for those of an endpoint.
const GATHERED: Duration = Duration::from_millis(100);
/// How long results gather before they are written down together.
const RESULTS_GATHERED: Duration = Duration::from_millis(5);

/// How long an event can be sent again.
const EVENTS_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
/// Events that are forgotten in one go.
const TIDIED_AT_ONCE: u32 = 500;

/// The metric of attempts, by how they ended.
pub const ATTEMPTS: &str = "bellbird_webhook_attempts_total";

/// What every attempt of a turn needs.
struct Turn {
    claim: ClaimedEndpoint,
    signer: Signer,
    url: Url,
    /// Nothing is sent after this: the lease would end before the answer is there.
    last_call: Instant,
}

/// Why a turn ended before its time.
enum Ended {
    /// Somebody else serves the endpoint, or it is disabled or gone.
    Overtaken,
    /// By us, a moment ago.
    Disabled,
    Storage(StorageError),
    /// An attempt panicked. The endpoint is left alone until its lease ends.
    Broken(JoinError),
}

impl From<StorageError> for Ended {
    fn from(error: StorageError) -> Self {
        Self::Storage(error)
    }
}

impl Webhooks {
    /// Delivers what is due until `stop`, and then ends what is under way.
    pub async fn deliver(&self, stop: CancellationToken) {
        let (mut healthy, mut failing) = (JoinSet::new(), JoinSet::new());
        while !stop.is_cancelled() {
            let is_full = self.begin_turns(&mut healthy, HEALTHY_AT_ONCE, false, &stop).await;
            self.begin_turns(&mut failing, FAILING_AT_ONCE, true, &stop).await;
            tokio::select! {
                () = stop.cancelled() => {}
                Some(_) = healthy.join_next() => {}
                Some(_) = failing.join_next() => {}
                () = self.inner.outbox.wanted.notified() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            // Where endpoints wait for a place, the next one is given away at once.
            if !is_full {
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = tokio::time::sleep(GATHERED) => {}
                }
            }
        }
        while healthy.join_next().await.is_some() {}
        while failing.join_next().await.is_some() {}
    }

    /// Delivers what is due now, and returns when nothing is.
    pub async fn deliver_due(&self) {
        let stop = CancellationToken::new();
        let mut turns = JoinSet::new();
        loop {
            self.begin_turns(&mut turns, HEALTHY_AT_ONCE, false, &stop).await;
            self.begin_turns(&mut turns, HEALTHY_AT_ONCE + FAILING_AT_ONCE, true, &stop).await;
            if turns.join_next().await.is_none() {
                return;
            }
        }
    }

    /// Forgets events that are too old to be sent again, with all that is known of their deliveries, and secrets that sign
    /// no more.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tidy(&self) -> Result<(), StorageError> {
        let before = self.inner.clock.now().saturating_sub(EVENTS_KEPT).unwrap_or(Timestamp::MIN);
        self.inner.storage.delete_old_secrets(self.inner.clock.now()).await?;
        while self.inner.storage.delete_outdated_events(before, TIDIED_AT_ONCE).await? >= TIDIED_AT_ONCE.into() {}
        Ok(())
    }

    /// Claims endpoints for the places that are free. Whether all places are taken now.
    async fn begin_turns(
        &self,
        turns: &mut JoinSet<()>,
        at_once: usize,
        failing: bool,
        stop: &CancellationToken,
    ) -> bool {
        while turns.try_join_next().is_some() {}
        let free = u32::try_from(at_once.saturating_sub(turns.len())).unwrap_or(0);
        if free == 0 {
            return true;
        }
        let now = self.inner.clock.now();
        let lease = now.saturating_add(self.lease()).unwrap_or(now);
        let claims = match self.inner.storage.claim_due_endpoints(now, lease, free, failing).await {
            Ok(claims) => claims,
            Err(error) => {
                tracing::warn!(%error, "due deliveries could not be looked for");
                return false;
            }
        };
        for claim in claims {
            let (webhooks, stop) = (self.clone(), stop.clone());
            turns.spawn(async move { webhooks.take_turn(claim, &stop).await });
        }
        turns.len() >= at_once
    }

    /// A turn, what it began last, and the time that a slow database takes.
    fn lease(&self) -> Duration {
        TURN + REBUILD_DEADLINE + self.inner.settings.timeout + MARGIN
    }

    async fn take_turn(&self, claim: ClaimedEndpoint, stop: &CancellationToken) {
        let id = claim.endpoint_id;
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_PATIENCE).await;
        };
        let served = tokio::select! {
            served = self.serve(&claim, stop) => served,
            // What is on its way is given up, and sent again by whoever comes next.
            () = late => Ok(()),
        };
        match served {
            Ok(()) => {
                if let Err(error) = self.inner.storage.release_endpoint(&claim).await {
                    tracing::warn!(endpoint_id = %id, %error, "an endpoint was not given back; its lease ends");
                }
            }
            Err(Ended::Disabled) => {}
            Err(Ended::Overtaken) => {
                tracing::info!(endpoint_id = %id, "an endpoint is disabled, gone, or somebody else's now");
            }
            Err(Ended::Broken(error)) => tracing::error!(endpoint_id = %id, %error, "a delivery broke"),
            Err(Ended::Storage(error)) => tracing::warn!(endpoint_id = %id, %error, "deliveries were interrupted"),
        }
    }

    async fn serve(&self, claim: &ClaimedEndpoint, stop: &CancellationToken) -> Result<(), Ended> {
        let over = Instant::now() + TURN;
        let Ok(url) = check_url(&claim.url, self.inner.settings.rules) else {
            return self.disable(claim, "address not allowed").await;
        };
        let signer = match self.signer(claim.user_id, claim.endpoint_id).await {
            Ok(Some(signer)) => signer,
            Ok(None) => return Err(Ended::Overtaken),
            Err(PingError::Storage(error)) => return Err(error.into()),
            Err(_) => return self.disable(claim, "secret broken").await,
        };
        let last_call = over + REBUILD_DEADLINE;
        let turn = Arc::new(Turn { claim: claim.clone(), signer, url, last_call });
        let mut failing_since = claim.failing_since;
        loop {
            let due = self.inner.storage.list_due_deliveries(claim, self.inner.clock.now(), BATCH).await?;
            let is_more = due.len() >= BATCH as usize || due.iter().any(|due| due.event.chunk < due.event.total_chunks);
            self.send_all(&turn, due, over, stop, &mut failing_since).await?;
            // What came to be due meanwhile is the next turn's.
            if !is_more || Instant::now() >= over || stop.is_cancelled() {
                return Ok(());
            }
        }
    }

    /// Sends deliveries, several at once, until none is left or the turn is over. Results are written while others are on
    /// their way: as many at once as there are.
    async fn send_all(
        &self,
        turn: &Arc<Turn>,
        due: Vec<DueDelivery>,
        over: Instant,
        stop: &CancellationToken,
        failing_since: &mut Option<Timestamp>,
    ) -> Result<(), Ended> {
        let mut due = due.into_iter();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < SENT_AT_ONCE && Instant::now() < over && !stop.is_cancelled() {
                let Some(delivery) = due.next() else { break };
                let (webhooks, turn) = (self.clone(), Arc::clone(turn));
                under_way.spawn(async move { webhooks.attempt(&turn, &delivery).await });
            }
            let Some(first) = under_way.join_next().await else { return Ok(()) };
            if !under_way.is_empty() {
                tokio::time::sleep(RESULTS_GATHERED).await;
            }
            let mut finished: Vec<FinishedAttempt> = Vec::new();
            for attempt in std::iter::once(first).chain(std::iter::from_fn(|| under_way.try_join_next())) {
                finished.extend(attempt.map_err(Ended::Broken)?);
            }
            if !finished.is_empty() {
                self.write_down(turn, &finished, failing_since).await?;
            }
        }
    }

    async fn write_down(
        &self,
        turn: &Turn,
        finished: &[FinishedAttempt],
        failing_since: &mut Option<Timestamp>,
    ) -> Result<(), Ended> {
        let now = self.inner.clock.now();
        if !self.inner.storage.finish_attempts(&turn.claim, finished, now).await? {
            return Err(Ended::Overtaken);
        }
        let (mut gone, mut at_fault) = (false, false);
        for attempt in finished {
            let outcome = match attempt.outcome {
                Outcome::Delivered => "delivered",
                Outcome::Again(_) => "failed",
                Outcome::Failed => "given_up",
            };
            metrics::counter!(ATTEMPTS, "outcome" => outcome).increment(1);
            gone |= attempt.status == Some(410);
            // A first failure after quiet days says little: it may pass in the next minute.
            at_fault |=
                attempt.endpoint_at_fault && (attempt.attempt >= LATE_ATTEMPT || attempt.outcome == Outcome::Failed);
            log(turn, attempt);
            if attempt.outcome == Outcome::Delivered {
                *failing_since = None;
            } else if attempt.endpoint_at_fault {
                failing_since.get_or_insert(now);
            }
        }
        if gone {
            return self.disable(&turn.claim, "gone").await.and(Err(Ended::Disabled));
        }
        if at_fault && has_failed_too_long(*failing_since, now) {
            return self.disable(&turn.claim, "failing").await.and(Err(Ended::Disabled));
        }
        Ok(())
    }

    async fn disable(&self, claim: &ClaimedEndpoint, because: &str) -> Result<(), Ended> {
        if self.inner.storage.disable_claimed_endpoint(claim, because, self.inner.clock.now()).await? {
            tracing::warn!(endpoint_id = %claim.endpoint_id, because, "endpoint disabled");
        }
        Ok(())
    }

    /// Makes one attempt; none where there was no time for it, or our own database did not answer. The body is that of
    /// memory for the very first one, else its rows are read again.
    async fn attempt(&self, turn: &Turn, delivery: &DueDelivery) -> Option<FinishedAttempt> {
        let (inner, event, claim) = (&self.inner, &delivery.event, &turn.claim);
        let begun = inner.clock.now();
        let remembered = if delivery.is_first { inner.outbox.find(event.id, claim.api_version, begun) } else { None };
        let body = match remembered {
            Some(body) => Ok(body),
            None => {
                let until = turn.last_call.min(Instant::now() + REBUILD_DEADLINE);
                self.rebuild(claim.user_id, event, claim.api_version, delivery.is_first, until).await
            }
        };
        let body = match body {
            Ok(body) => body,
            // Left as it is, to be tried as if nothing had been.
            Err(Unread::Storage | Unread::NoTurn | Unread::Gone) => return None,
            Err(unread) => return Some(self.finished(delivery, begun, Err(unread))),
        };
        if Instant::now() >= turn.last_call {
            return None;
        }
        let sent = inner.clock.now();
        let timestamp = sent.as_second();
        let signature = turn.signer.signature(event.id, timestamp, &body);
        let message = Message { id: event.id, timestamp, signature: &signature, endpoint: claim.endpoint_id, body };
        let exchange = inner.client.post(&turn.url, message).await;
        Some(self.finished(delivery, sent, Ok(exchange)))
    }

    /// What an attempt came to, and when there is another.
    fn finished(&self, delivery: &DueDelivery, at: Timestamp, exchange: Result<Exchange, Unread>) -> FinishedAttempt {
        let event = &delivery.event;
        let attempt = delivery.attempts.saturating_add(1);
        let (status, problem, duration, retry_after, at_fault) = match &exchange {
            Ok(exchange) => {
                // An outage of our own name servers is not theirs.
                let at_fault = exchange.problem != Some(NAME_UNANSWERED);
                (exchange.status, exchange.problem, exchange.duration, exchange.retry_after, at_fault)
            }
            Err(unread) => (None, Some(unread.words()), Duration::ZERO, None, false),
        };
        let outcome = if exchange.as_ref().is_ok_and(Exchange::is_success) {
            Outcome::Delivered
        } else if status == Some(410) {
            Outcome::Failed
        } else {
            let now = self.inner.clock.now();
            let wait = self.inner.settings.schedule.after(attempt, retry_after, spread());
            wait.map_or(Outcome::Failed, |wait| Outcome::Again(now.saturating_add(wait).unwrap_or(now)))
        };
        FinishedAttempt {
            event_id: event.id,
            sync_run_id: event.sync_run_id,
            chunk: event.chunk,
            total_chunks: event.total_chunks,
            attempt,
            at,
            duration_ms: u32::try_from(duration.as_millis()).unwrap_or(u32::MAX),
            status,
            problem,
            endpoint_at_fault: at_fault && outcome != Outcome::Delivered,
            outcome,
        }
    }
}

/// Never with what was sent or answered.
fn log(turn: &Turn, attempt: &FinishedAttempt) {
    let FinishedAttempt { event_id, attempt: number, status, problem, duration_ms, .. } = attempt;
    let endpoint_id = turn.claim.endpoint_id;
    match attempt.outcome {
        Outcome::Delivered => {
            tracing::debug!(%endpoint_id, %event_id, number, status, duration_ms, "event delivered");
        }
        Outcome::Again(next) => {
            tracing::debug!(%endpoint_id, %event_id, number, status, problem, duration_ms, %next, "event not delivered yet");
        }
        Outcome::Failed => {
            tracing::warn!(%endpoint_id, %event_id, number, status, problem, "event given up");
        }
    }
}

/// A random number.
fn spread() -> u64 {
    Uuid::new_v4().as_u128() as u64
}
