//! A webhook endpoint on this machine. It records every request and responds as a test sets it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, Version};
use axum::response::{IntoResponse as _, Response};
use bellbird_api::serve::{self, ServeOptions};
use bellbird_connections::SyncReport;
use bellbird_domain::{ApiVersion, Connection, EventType, User, UserId};
use bellbird_storage::{Endpoint, NewEndpoint, in_tx};
use bellbird_webhooks::delivery::sign::new_secret;
use bytes::Bytes;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio_util::sync::CancellationToken;

use crate::support::harness::{App, Person, Setup};

#[derive(Clone)]
pub(crate) enum Reply {
    Status(u16),
    /// A status and a header.
    WithHeader(u16, &'static str, String),
    /// A status, at the next [`Receiver::release`].
    Held(u16),
    /// Reads the request and never responds.
    Never,
}

#[derive(Debug, Clone)]
pub(crate) struct ReceivedEvent {
    /// Such as `POST /hook HTTP/1.1`.
    pub(crate) request_line: String,
    pub(crate) user_agent: String,
    pub(crate) id: String,
    pub(crate) timestamp: i64,
    pub(crate) signature: String,
    pub(crate) endpoint: String,
    pub(crate) raw: Bytes,
    pub(crate) body: Value,
}

/// The chunks that these events are, in their order.
pub(crate) fn chunks(received: &[ReceivedEvent]) -> Vec<u64> {
    let positions = received.iter().map(ReceivedEvent::chunk_position);
    positions.map(|position| position.chunk).collect()
}

impl ReceivedEvent {
    pub(crate) fn rows(&self, list: &str) -> &[Value] {
        self.body["data"][list].as_array().expect("a list of rows")
    }

    pub(crate) fn counts(&self) -> RowCounts {
        RowCounts {
            new: self.rows("new").len(),
            updated: self.rows("updated").len(),
        }
    }

    pub(crate) fn chunk_position(&self) -> ChunkPosition {
        let number = |name: &str| self.body["metadata"][name].as_u64().expect("a number");
        ChunkPosition {
            chunk: number("chunk"),
            total: number("total_chunks"),
        }
    }
}

/// How many rows an event reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowCounts {
    pub(crate) new: usize,
    pub(crate) updated: usize,
}

/// Which chunk of a sync run an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkPosition {
    /// From 1.
    pub(crate) chunk: u64,
    pub(crate) total: u64,
}

/// The counts of a sync report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SyncCounts {
    pub(crate) new: usize,
    pub(crate) updated: usize,
    pub(crate) events: usize,
}

impl SyncCounts {
    /// Of a sync that finds nothing new.
    pub(crate) const NONE: Self = Self {
        new: 0,
        updated: 0,
        events: 0,
    };

    /// Of a sync that finds one new row.
    pub(crate) const ONE_NEW: Self = Self {
        new: 1,
        updated: 0,
        events: 1,
    };

    pub(crate) fn of(report: &SyncReport) -> Self {
        Self {
            new: report.new_count,
            updated: report.updated_count,
            events: report.events,
        }
    }
}

struct ReceiverState {
    default_reply: Reply,
    next_replies: VecDeque<Reply>,
    /// Cancelled by the next [`Receiver::release`].
    released: CancellationToken,
    received: Vec<ReceivedEvent>,
    in_flight: usize,
    in_flight_max: usize,
}

/// A request that has no response yet, and whose sender has not disconnected.
struct InFlight(Arc<Mutex<ReceiverState>>);

impl InFlight {
    fn start(state: Arc<Mutex<ReceiverState>>) -> Self {
        let mut locked = state.lock().unwrap();
        locked.in_flight += 1;
        locked.in_flight_max = locked.in_flight_max.max(locked.in_flight);
        drop(locked);
        Self(state)
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.lock().unwrap().in_flight -= 1;
    }
}

/// Listens until it is dropped.
pub(crate) struct Receiver {
    pub(crate) url: String,
    state: Arc<Mutex<ReceiverState>>,
    stop: CancellationToken,
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Receiver {
    /// Starts a receiver that accepts every request.
    pub(crate) async fn start() -> Self {
        let state = Arc::new(Mutex::new(ReceiverState {
            default_reply: Reply::Status(204),
            next_replies: VecDeque::new(),
            released: CancellationToken::new(),
            received: Vec::new(),
            in_flight: 0,
            in_flight_max: 0,
        }));
        let router = Router::new()
            .fallback(receive)
            .with_state(Arc::clone(&state));
        let listener = serve::listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let url = format!("http://{}/hook", listener.address());
        let stop = CancellationToken::new();
        // A receiver that is down takes no request on the connections that deliveries keep.
        let options = ServeOptions {
            drain: Duration::ZERO,
            ..ServeOptions::default()
        };
        tokio::spawn(serve::serve(listener, router, options, stop.clone()));
        Self { url, state, stop }
    }

    /// Sets the reply to all later requests.
    pub(crate) fn reply_with(&self, reply: Reply) {
        self.state.lock().unwrap().default_reply = reply;
    }

    /// Sets the replies to the next requests. The requests after those get the default reply.
    pub(crate) fn reply_next_with(&self, replies: impl IntoIterator<Item = Reply>) {
        self.state.lock().unwrap().next_replies = replies.into_iter().collect();
    }

    /// Responds to the requests whose responses are held.
    pub(crate) fn release(&self) {
        std::mem::take(&mut self.state.lock().unwrap().released).cancel();
    }

    /// Whether a request came since the last [`Receiver::drain`].
    pub(crate) fn has_requests(&self) -> bool {
        !self.state.lock().unwrap().received.is_empty()
    }

    /// The number of requests since the last [`Receiver::drain`].
    pub(crate) fn request_count(&self) -> usize {
        self.state.lock().unwrap().received.len()
    }

    /// The most requests that came at the same time.
    pub(crate) fn in_flight_max(&self) -> usize {
        self.state.lock().unwrap().in_flight_max
    }

    /// Takes the recorded requests, in the order in which they came.
    pub(crate) fn drain(&self) -> Vec<ReceivedEvent> {
        std::mem::take(&mut self.state.lock().unwrap().received)
    }
}

async fn receive(
    State(state): State<Arc<Mutex<ReceiverState>>>,
    (method, uri, version): (Method, Uri, Version),
    headers: HeaderMap,
    raw: Bytes,
) -> Response {
    let _in_flight = InFlight::start(Arc::clone(&state));
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/json");
    let received = ReceivedEvent {
        request_line: format!("{method} {uri} {version:?}"),
        user_agent: header("user-agent"),
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp").parse().unwrap(),
        signature: header("webhook-signature"),
        endpoint: header("bellbird-endpoint"),
        body: serde_json::from_slice(&raw).unwrap(),
        raw,
    };
    let (reply, released) = {
        let mut state = state.lock().unwrap();
        state.received.push(received);
        let next = state.next_replies.pop_front();
        let reply = next.unwrap_or_else(|| state.default_reply.clone());
        (reply, state.released.clone())
    };
    let status = |status| StatusCode::from_u16(status).unwrap();
    match reply {
        Reply::Status(code) => status(code).into_response(),
        Reply::WithHeader(code, name, value) => (status(code), [(name, value)]).into_response(),
        Reply::Held(code) => {
            released.cancelled().await;
            status(code).into_response()
        }
        Reply::Never => std::future::pending().await,
    }
}

/// A receiver that is registered as an endpoint.
pub(crate) struct Hook {
    pub(crate) receiver: Receiver,
    pub(crate) endpoint: Endpoint,
    secret: SecretString,
}

impl Hook {
    pub(crate) fn new(receiver: Receiver, endpoint: Endpoint, secret: SecretString) -> Self {
        Self {
            receiver,
            endpoint,
            secret,
        }
    }

    /// Takes the recorded events. Asserts that the reference implementation makes the same
    /// signature for each.
    pub(crate) fn drain(&self) -> Vec<ReceivedEvent> {
        let received = self.receiver.drain();
        let reference = Webhook::new(self.secret.expose_secret()).unwrap();
        for event in &received {
            assert_eq!(event.endpoint, self.endpoint.id.to_string());
            assert_eq!(event.body["id"], event.id);
            assert_eq!(
                event.signature,
                reference
                    .sign(&event.id, event.timestamp, &event.raw)
                    .unwrap()
            );
            let metadata = &event.body["metadata"];
            assert_eq!(metadata["new_count"], json!(event.counts().new));
            assert_eq!(metadata["updated_count"], json!(event.counts().updated));
        }
        received
    }
}

impl App {
    /// An endpoint of the user, for events of these types.
    pub(crate) async fn hook_for(&self, user: &User, events: &[EventType]) -> Hook {
        self.hook_of(user.id, events).await
    }

    /// An endpoint that gets the events of all users.
    pub(crate) async fn hook_for_all(&self, events: &[EventType]) -> Hook {
        self.hook_of(UserId::INSTALLATION, events).await
    }

    async fn hook_of(&self, owner: UserId, events: &[EventType]) -> Hook {
        let receiver = Receiver::start().await;
        let secret = new_secret();
        let new = NewEndpoint {
            user_id: owner,
            url: &receiver.url,
            event_types: events,
            api_version: ApiVersion::DEFAULT,
            secret: &secret,
        };
        let endpoint = in_tx!(
            self.storage,
            endpoints::insert(self.storage.secrets(), &new, 20, self.clock.now())
        )
        .await
        .unwrap();
        Hook::new(receiver, endpoint, secret)
    }

    /// An endpoint of the user, for the events that an endpoint gets by default.
    pub(crate) async fn hook(&self, user: &User) -> Hook {
        self.hook_for(
            user,
            &[EventType::TransactionsSynced, EventType::TradesSynced],
        )
        .await
    }

    pub(crate) async fn sync(&self, connection: &Connection) -> SyncReport {
        self.connections
            .syncs()
            .run(connection.user_id, connection.id)
            .await
            .unwrap()
    }

    /// Syncs, and asserts that this finds nothing.
    pub(crate) async fn assert_nothing_new(&self, connection: &Connection) {
        let counts = SyncCounts::of(&self.sync(connection).await);
        assert_eq!(counts, SyncCounts::NONE, "{}", connection.provider);
    }

    /// A service, and a person at the provider whose first connection has had its initial sync.
    pub(crate) async fn synced_at(provider: &str) -> (Self, Person, Hook) {
        let app = Self::start(Setup::default()).await;
        let (person, hook) = app.synced_person(provider).await;
        (app, person, hook)
    }

    /// A person at the provider whose first connection has had its initial sync, and their
    /// endpoint.
    pub(crate) async fn synced_person(&self, provider: &str) -> (Person, Hook) {
        let person = self.person_at(provider).await;
        let hook = self.hook(&person.user).await;
        self.complete_initial_sync(&person.connections[0], &hook)
            .await;
        (person, hook)
    }

    /// Runs the first sync of the connection and takes its events from the endpoint.
    pub(crate) async fn complete_initial_sync(
        &self,
        connection: &Connection,
        hook: &Hook,
    ) -> SyncReport {
        let report = self.sync(connection).await;
        self.webhooks.run_due_deliveries().await;
        assert!(!hook.drain().is_empty());
        self.reset_calls();
        report
    }
}
