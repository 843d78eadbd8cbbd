//! An endpoint within the test: it checks what it is sent, fails and dawdles now and then, and remembers all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use standardwebhooks::Webhook;

use super::random::Random;
use crate::support::process::text;

/// How long it dawdles.
const SLOWNESS: Duration = Duration::from_millis(250);

/// How an endpoint behaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Behaviour {
    /// It takes all at once.
    Reliable,
    /// Of ten requests it answers one with 500, and dawdles over one.
    Flaky,
}

/// A receiver. Lives as long as the test.
#[derive(Clone)]
pub(super) struct Endpoint {
    pub(super) url: String,
    secret: Arc<OnceLock<String>>,
    seen: Arc<Mutex<Seen>>,
    flakiness: Option<Arc<Mutex<Random>>>,
}

/// What it has seen.
#[derive(Default)]
struct Seen {
    /// Whatever must not be.
    wrong: Vec<String>,
    /// What was answered with 2xx, in that order.
    accepted: Vec<Value>,
    /// The chunks of each run among them.
    chunks: BTreeMap<String, BTreeSet<u64>>,
    requests: usize,
}

impl Endpoint {
    pub(super) async fn start(behaviour: Behaviour, seed: u64) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Self {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            secret: Arc::default(),
            seen: Arc::default(),
            flakiness: (behaviour == Behaviour::Flaky).then(|| Arc::new(Mutex::new(Random::new(seed)))),
        };
        let routes = Router::new().route("/", post(receive)).with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        endpoint
    }

    /// What requests are signed with from now on.
    pub(super) fn set_secret(&self, secret: &str) {
        self.secret.set(secret.to_owned()).unwrap();
    }

    /// What it has accepted, in that order, some of it more than once.
    pub(super) fn accepted(&self) -> Vec<Value> {
        self.seen.lock().unwrap().accepted.clone()
    }

    /// How many requests there were, how many it took, and how many events those were.
    pub(super) fn counts(&self) -> [usize; 3] {
        let seen = self.seen.lock().unwrap();
        let events: BTreeSet<&str> = seen.accepted.iter().map(|event| text(event, "id")).collect();
        [seen.requests, seen.accepted.len(), events.len()]
    }

    /// The ids of the rows that it was told of as new.
    pub(super) fn new_rows(&self) -> BTreeSet<String> {
        let seen = self.seen.lock().unwrap();
        let rows = seen.accepted.iter().flat_map(|event| event["data"]["new"].as_array().unwrap());
        rows.map(|row| text(row, "id").to_owned()).collect()
    }

    /// All chunks of every run came, in order, each of them in its own right.
    pub(super) fn assert_in_order(&self) {
        let seen = self.seen.lock().unwrap();
        assert_eq!(seen.wrong, Vec::<String>::new());
        for event in &seen.accepted {
            let metadata = &event["metadata"];
            let chunks = &seen.chunks[text(metadata, "sync_run_id")];
            let all: BTreeSet<u64> = (1..=number(metadata, "total_chunks")).collect();
            assert_eq!(*chunks, all, "{metadata}");
        }
    }

    /// What is wrong with a request; none: its event.
    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Value, String> {
        let secret = self.secret.get().ok_or("a request before there is an endpoint")?;
        let webhook = Webhook::new(secret).map_err(|error| error.to_string())?;
        webhook.verify(body, headers).map_err(|error| format!("signature: {error}"))?;
        let event: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if headers.get("webhook-id").is_none_or(|id| event["id"] != id.to_str().unwrap_or_default()) {
            return Err(format!("webhook-id is not {}", event["id"]));
        }
        for (rows, count) in [("new", "new_count"), ("updated", "updated_count")] {
            let rows = event["data"][rows].as_array().ok_or("no rows")?;
            if event["metadata"][count] != rows.len() {
                return Err(format!("{count} is wrong: {}", event["metadata"]));
            }
        }
        Ok(event)
    }
}

impl Seen {
    /// A chunk may only come when the one before it was accepted.
    fn begin(&mut self, event: &Value) {
        self.requests += 1;
        let metadata = &event["metadata"];
        let (run, chunk) = (text(metadata, "sync_run_id"), number(metadata, "chunk"));
        let is_next = chunk == 1 || self.chunks.get(run).is_some_and(|accepted| accepted.contains(&(chunk - 1)));
        if !is_next {
            self.wrong.push(format!("out of order: {metadata}"));
        }
    }

    fn accept(&mut self, event: Value) {
        let metadata = &event["metadata"];
        let run = text(metadata, "sync_run_id").to_owned();
        self.chunks.entry(run).or_default().insert(number(metadata, "chunk"));
        self.accepted.push(event);
    }
}

async fn receive(State(endpoint): State<Endpoint>, headers: HeaderMap, body: Bytes) -> StatusCode {
    let event = match endpoint.read(&headers, &body) {
        Ok(event) => event,
        Err(wrong) => {
            endpoint.seen.lock().unwrap().wrong.push(wrong);
            return StatusCode::BAD_REQUEST;
        }
    };
    endpoint.seen.lock().unwrap().begin(&event);
    // The sender may be killed meanwhile: then the rest of this is never run.
    match endpoint.flakiness.as_ref().map(|flakiness| flakiness.lock().unwrap().below(10)) {
        Some(0) => return StatusCode::INTERNAL_SERVER_ERROR,
        Some(1) => tokio::time::sleep(SLOWNESS).await,
        _ => {}
    }
    endpoint.seen.lock().unwrap().accept(event);
    StatusCode::NO_CONTENT
}

pub(super) fn number(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap_or_else(|| panic!("no {name} in {value}"))
}
