//! An endpoint within the test. It verifies and records every request, and sometimes fails or
//! responds late.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::Value;
use standardwebhooks::{
    HEADER_WEBHOOK_ID, HEADER_WEBHOOK_SIGNATURE, HEADER_WEBHOOK_TIMESTAMP, Webhook,
};
use tokio::sync::watch;

use crate::support::process::text;
use crate::support::random::Random;

/// How long a slow response takes.
const SLOW_ANSWER: Duration = Duration::from_millis(250);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Behaviour {
    /// Accepts every request at once.
    Reliable,
    /// Of ten requests it responds to one with 500 and to one late.
    Flaky,
    /// Accepts every request late.
    Slow,
}

/// An endpoint. It listens until the test ends.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) url: String,
    secret: Arc<OnceLock<String>>,
    seen: Arc<Mutex<Seen>>,
    behaviour: Behaviour,
    random: Arc<Mutex<Random>>,
    is_down: Arc<AtomicBool>,
    takes_any_time: Arc<AtomicBool>,
    /// How many requests it accepts before further ones wait.
    pauses_after: Arc<watch::Sender<usize>>,
}

/// What an endpoint has recorded.
#[derive(Default)]
struct Seen {
    /// Requests that the service must not send.
    wrong: Vec<String>,
    /// Events that got 2xx, in that order.
    accepted: Vec<Value>,
    /// The accepted chunks of each sync run.
    chunks: BTreeMap<String, BTreeSet<u64>>,
    requests: usize,
}

/// What an endpoint has counted.
pub(crate) struct EndpointCounts {
    pub(crate) requests: usize,
    pub(crate) accepted: usize,
    /// Distinct events among the accepted requests.
    pub(crate) events: usize,
}

impl fmt::Display for EndpointCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            requests,
            accepted,
            events,
        } = self;
        write!(
            f,
            "{requests} webhook requests, {accepted} accepted, {events} events"
        )
    }
}

impl Endpoint {
    pub(crate) async fn start(behaviour: Behaviour, seed: u64) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = Self {
            url: format!("http://{}/", listener.local_addr().unwrap()),
            secret: Arc::default(),
            seen: Arc::default(),
            is_down: Arc::default(),
            takes_any_time: Arc::default(),
            pauses_after: Arc::new(watch::Sender::new(usize::MAX)),
            behaviour,
            random: Arc::new(Mutex::new(Random::new(seed))),
        };
        let routes = Router::new()
            .route("/", post(receive))
            .with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        endpoint
    }

    /// Sets the secret that signs requests.
    pub(crate) fn set_secret(&self, secret: &str) {
        self.secret.set(secret.to_owned()).unwrap();
    }

    /// While it is down, it responds to every request with 503.
    pub(crate) fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::SeqCst);
    }

    /// From now on, it verifies the signature, and not how old it is.
    pub(crate) fn take_any_time(&self) {
        self.takes_any_time.store(true, Ordering::SeqCst);
    }

    /// Once it has accepted so many requests, further ones wait for their response until
    /// [`Self::go_on`].
    pub(crate) fn pause_after(&self, accepted: usize) {
        self.pauses_after.send_replace(accepted);
    }

    pub(crate) fn go_on(&self) {
        self.pauses_after.send_replace(usize::MAX);
    }

    /// The accepted events in their order, repeated deliveries included.
    pub(crate) fn accepted(&self) -> Vec<Value> {
        self.seen.lock().unwrap().accepted.clone()
    }

    pub(crate) fn counts(&self) -> EndpointCounts {
        let seen = self.seen.lock().unwrap();
        let ids = seen.accepted.iter().map(|event| text(event, "id"));
        let events: BTreeSet<&str> = ids.collect();
        EndpointCounts {
            requests: seen.requests,
            accepted: seen.accepted.len(),
            events: events.len(),
        }
    }

    /// The ids of the rows that events reported as new.
    pub(crate) fn new_rows(&self) -> BTreeSet<String> {
        let seen = self.seen.lock().unwrap();
        let rows = seen
            .accepted
            .iter()
            .flat_map(|event| event["data"]["new"].as_array().unwrap());
        rows.map(|row| text(row, "id").to_owned()).collect()
    }

    /// Asserts that no request was wrong or out of order.
    pub(crate) fn assert_in_order(&self) {
        assert_eq!(self.seen.lock().unwrap().wrong, Vec::<String>::new());
    }

    /// Asserts that every chunk of every sync run came.
    pub(crate) fn assert_complete(&self) {
        let seen = self.seen.lock().unwrap();
        for event in &seen.accepted {
            let metadata = &event["metadata"];
            let chunks = &seen.chunks[text(metadata, "sync_run_id")];
            let all: BTreeSet<u64> = (1..=number(metadata, "total_chunks")).collect();
            assert_eq!(*chunks, all, "{metadata}");
        }
    }

    /// Verifies a request. Returns its event, or what is wrong with the request.
    fn verify(&self, headers: &HeaderMap, body: &[u8]) -> Result<Value, String> {
        let secret = self
            .secret
            .get()
            .ok_or("a request before there is an endpoint")?;
        let webhook = Webhook::new(secret).map_err(|error| error.to_string())?;
        if self.takes_any_time.load(Ordering::SeqCst) {
            let header = |name| {
                headers
                    .get(name)
                    .and_then(|value| value.to_str().ok())
                    .unwrap_or_default()
            };
            let time = header(HEADER_WEBHOOK_TIMESTAMP)
                .parse()
                .map_err(|_| "no time")?;
            let signature = webhook
                .sign(header(HEADER_WEBHOOK_ID), time, body)
                .map_err(|error| error.to_string())?;
            if !header(HEADER_WEBHOOK_SIGNATURE)
                .split(' ')
                .any(|sent| sent == signature)
            {
                return Err("signature".to_owned());
            }
        } else {
            webhook
                .verify(body, headers)
                .map_err(|error| format!("signature: {error}"))?;
        }
        let event: Value = serde_json::from_slice(body).map_err(|error| error.to_string())?;
        if headers
            .get("webhook-id")
            .is_none_or(|id| event["id"] != id.to_str().unwrap_or_default())
        {
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
    /// Records a request. A chunk may come only after the previous one was accepted.
    fn begin(&mut self, event: &Value) {
        self.requests += 1;
        let metadata = &event["metadata"];
        let (run, chunk) = (text(metadata, "sync_run_id"), number(metadata, "chunk"));
        let is_next = chunk == 1
            || self
                .chunks
                .get(run)
                .is_some_and(|accepted| accepted.contains(&(chunk - 1)));
        if !is_next {
            self.wrong.push(format!("out of order: {metadata}"));
        }
    }

    fn accept(&mut self, event: Value) {
        let metadata = &event["metadata"];
        let run = text(metadata, "sync_run_id").to_owned();
        self.chunks
            .entry(run)
            .or_default()
            .insert(number(metadata, "chunk"));
        self.accepted.push(event);
    }
}

async fn receive(State(endpoint): State<Endpoint>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if endpoint.is_down.load(Ordering::SeqCst) {
        return StatusCode::SERVICE_UNAVAILABLE;
    }
    let event = match endpoint.verify(&headers, &body) {
        Ok(event) => event,
        Err(wrong) => {
            endpoint.seen.lock().unwrap().wrong.push(wrong);
            return StatusCode::BAD_REQUEST;
        }
    };
    endpoint.seen.lock().unwrap().begin(&event);
    // If the sender is killed meanwhile, the rest of this function never runs.
    let number = endpoint.random.lock().unwrap().below(10);
    match (endpoint.behaviour, number) {
        (Behaviour::Flaky, 0) => return StatusCode::INTERNAL_SERVER_ERROR,
        (Behaviour::Flaky, 1) | (Behaviour::Slow, _) => tokio::time::sleep(SLOW_ANSWER).await,
        _ => {}
    }
    let accepted = endpoint.seen.lock().unwrap().accepted.len();
    let mut pauses_after = endpoint.pauses_after.subscribe();
    let is_open = |after: &usize| accepted < *after;
    // The endpoint has the sender, so there is one.
    drop(pauses_after.wait_for(is_open).await.unwrap());
    endpoint.seen.lock().unwrap().accept(event);
    StatusCode::NO_CONTENT
}

pub(crate) fn number(value: &Value, name: &str) -> u64 {
    value[name]
        .as_u64()
        .unwrap_or_else(|| panic!("no {name} in {value}"))
}
