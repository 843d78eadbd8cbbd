//! An endpoint of a user, on this machine: it keeps what it is sent, and answers as it is told to.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use bellbird::serve::{self, ServeOptions};
use bellbird_connections::SyncReport;
use bellbird_domain::{Connection, DeliveryState, EndpointStatus, EventType, User};
use bellbird_storage::{AttemptRecord, DeliveryRecord, Endpoint, NewEndpoint};
use bellbird_webhooks::sign::new_secret;
use bytes::Bytes;
use jiff::SignedDuration;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio_util::sync::CancellationToken;

use crate::support::harness::App;

/// How a request is answered.
#[derive(Clone)]
pub(crate) enum Reply {
    Status(u16),
    With(u16, &'static str, String),
    /// The request is read, and nothing comes back.
    Never,
}

/// What came in one request.
#[derive(Debug, Clone)]
pub(crate) struct ReceivedEvent {
    pub(crate) id: String,
    pub(crate) timestamp: i64,
    pub(crate) signature: String,
    pub(crate) endpoint: String,
    pub(crate) raw: Bytes,
    pub(crate) body: Value,
}

impl ReceivedEvent {
    pub(crate) fn rows(&self, list: &str) -> &[Value] {
        self.body["data"][list].as_array().expect("a list of rows")
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.rows("new").len(), self.rows("updated").len())
    }

    /// Its number among how many.
    pub(crate) fn chunk_position(&self) -> (u64, u64) {
        let number = |name: &str| self.body["metadata"][name].as_u64().expect("a number");
        (number("chunk"), number("total_chunks"))
    }
}

struct Answers {
    usual: Reply,
    next: VecDeque<Reply>,
    received: Vec<ReceivedEvent>,
}

/// Listens until it is dropped.
pub(crate) struct Receiver {
    pub(crate) url: String,
    answers: Arc<Mutex<Answers>>,
    stop: CancellationToken,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Receiver {
    /// One that takes everything.
    pub(crate) async fn start() -> Self {
        let usual = Reply::Status(204);
        let answers = Arc::new(Mutex::new(Answers { usual, next: VecDeque::new(), received: Vec::new() }));
        let router = Router::new().fallback(receive).with_state(Arc::clone(&answers));
        let listener = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let url = format!("http://{}/hook", listener.address());
        let stop = CancellationToken::new();
        tokio::spawn(serve::serve(listener, router, ServeOptions::default(), stop.clone()));
        Self { url, answers, stop }
    }

    /// How it answers from now on.
    pub(crate) fn answers(&self, reply: Reply) {
        self.answers.lock().unwrap().usual = reply;
    }

    /// How it answers the next requests; later ones as usual.
    pub(crate) fn answers_next(&self, replies: impl IntoIterator<Item = Reply>) {
        self.answers.lock().unwrap().next = replies.into_iter().collect();
    }

    /// Whether something came since it was last received.
    pub(crate) fn has_some(&self) -> bool {
        !self.answers.lock().unwrap().received.is_empty()
    }

    /// What came since this was last asked, in the order in which it came.
    pub(crate) fn drain(&self) -> Vec<ReceivedEvent> {
        std::mem::take(&mut self.answers.lock().unwrap().received)
    }
}

async fn receive(State(answers): State<Arc<Mutex<Answers>>>, headers: HeaderMap, raw: Bytes) -> Response {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/json");
    let received = ReceivedEvent {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp").parse().unwrap(),
        signature: header("webhook-signature"),
        endpoint: header("bellbird-endpoint"),
        body: serde_json::from_slice(&raw).unwrap(),
        raw,
    };
    let reply = {
        let mut answers = answers.lock().unwrap();
        answers.received.push(received);
        answers.next.pop_front().unwrap_or_else(|| answers.usual.clone())
    };
    let status = |status| StatusCode::from_u16(status).unwrap();
    match reply {
        Reply::Status(code) => status(code).into_response(),
        Reply::With(code, name, value) => (status(code), [(name, value)]).into_response(),
        Reply::Never => std::future::pending().await,
    }
}

/// A receiver that is an endpoint.
pub(crate) struct Hook {
    pub(crate) receiver: Receiver,
    pub(crate) endpoint: Endpoint,
    secret: SecretString,
}

impl Hook {
    /// What came since this was last asked, each with a signature that the reference implementation makes too.
    pub(crate) fn drain(&self) -> Vec<ReceivedEvent> {
        let received = self.receiver.drain();
        let reference = Webhook::new(self.secret.expose_secret()).unwrap();
        for one in &received {
            assert_eq!(one.endpoint, self.endpoint.id.to_string());
            assert_eq!(one.body["id"], one.id);
            assert_eq!(one.signature, reference.sign(&one.id, one.timestamp, &one.raw).unwrap());
            let metadata = &one.body["metadata"];
            assert_eq!(
                (&metadata["new_count"], &metadata["updated_count"]),
                (&json!(one.counts().0), &json!(one.counts().1)),
                "counts are those of the lists"
            );
        }
        received
    }
}

impl App {
    /// An endpoint of the user, for events of these types.
    pub(crate) async fn hook_for(&self, user: &User, events: &[EventType]) -> Hook {
        let receiver = Receiver::start().await;
        let secret = new_secret().unwrap();
        let new = NewEndpoint { user_id: user.id, url: &receiver.url, event_types: events, secret: &secret };
        let endpoint = self.storage.insert_endpoint(&new, 20, self.clock.now()).await.unwrap();
        Hook { receiver, endpoint, secret }
    }

    /// An endpoint of the user, for everything.
    pub(crate) async fn hook(&self, user: &User) -> Hook {
        self.hook_for(user, EventType::SUBSCRIBABLE).await
    }

    pub(crate) async fn sync(&self, connection: &Connection) -> SyncReport {
        self.connections.sync(connection.user_id, connection.id).await.unwrap()
    }

    /// The first sync, and what it tells is out of the way.
    pub(crate) async fn complete_initial_sync(&self, connection: &Connection, hook: &Hook) -> SyncReport {
        let report = self.sync(connection).await;
        self.webhooks.run_due_deliveries().await;
        assert!(!hook.drain().is_empty());
        self.reset_calls().await;
        report
    }

    /// What the endpoint was sent by now.
    pub(crate) async fn delivered_to(&self, hook: &Hook) -> Vec<ReceivedEvent> {
        self.webhooks.run_due_deliveries().await;
        hook.drain()
    }

    /// All deliveries to the endpoint, as the events came to be.
    pub(crate) async fn deliveries_to(&self, hook: &Hook) -> Vec<DeliveryRecord> {
        let (user, id) = (hook.endpoint.user_id, hook.endpoint.id);
        let mut all = self.storage.list_deliveries(user, id, None, 10_000).await.unwrap();
        all.reverse();
        all
    }

    pub(crate) async fn states_at(&self, hook: &Hook) -> Vec<DeliveryState> {
        self.deliveries_to(hook).await.iter().map(|delivery| delivery.state).collect()
    }

    pub(crate) async fn attempts_of(&self, hook: &Hook, delivery: &DeliveryRecord) -> Vec<AttemptRecord> {
        let (user, id) = (hook.endpoint.user_id, hook.endpoint.id);
        self.storage.list_attempts(user, id, delivery.event_id).await.unwrap()
    }

    /// The endpoint as it stands.
    pub(crate) async fn endpoint_of(&self, hook: &Hook) -> Endpoint {
        self.storage.find_endpoint_any(hook.endpoint.id).await.unwrap().unwrap()
    }

    pub(crate) async fn assert_enabled(&self, hook: &Hook) {
        assert_eq!(self.endpoint_of(hook).await.status, EndpointStatus::Enabled);
    }

    /// Time passes until the next attempt for the endpoint is due; false when there is none.
    pub(crate) async fn advance_to_next_attempt(&self, hook: &Hook) -> bool {
        let next = self.deliveries_to(hook).await.iter().filter_map(|delivery| delivery.next_attempt_at).min();
        let Some(next) = next else { return false };
        let wait = next.duration_since(self.clock.now()).as_secs().max(0);
        self.advance_clock(SignedDuration::from_secs(wait + 1)).await;
        true
    }
}
