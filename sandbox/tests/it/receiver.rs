//! A webhook receiver that records requests and responds with the statuses that a test sets.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use bellbird_sandbox::Bank;
use parking_lot::Mutex;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::client::text_of;

/// Longer than any wait of these tests.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Clone)]
pub(crate) struct ReceivedRequest {
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl ReceivedRequest {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers[name].to_str().unwrap()
    }
}

/// Statuses of the next responses; 0 never responds.
type Answers = Arc<Mutex<VecDeque<u16>>>;

pub(crate) struct Receiver {
    pub(crate) url: String,
    answers: Answers,
    got: Arc<watch::Sender<Vec<ReceivedRequest>>>,
}

type Shared = (Answers, Arc<watch::Sender<Vec<ReceivedRequest>>>);

async fn receive(
    State((answers, got)): State<Shared>,
    headers: HeaderMap,
    body: Bytes,
) -> StatusCode {
    let status = answers.lock().pop_front().unwrap_or(200);
    got.send_modify(|all| all.push(ReceivedRequest { headers, body }));
    if status == 0 {
        std::future::pending::<()>().await;
    }
    StatusCode::from_u16(status).unwrap()
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/hooks?from=sandbox", socket.local_addr().unwrap());
        let (answers, got) = (Answers::default(), Arc::new(watch::Sender::new(Vec::new())));
        let state = (Arc::clone(&answers), Arc::clone(&got));
        let router = Router::new()
            .route("/hooks", axum::routing::post(receive))
            .with_state(state);
        tokio::spawn(async move { axum::serve(socket, router).await });
        Self { url, answers, got }
    }

    /// Sets the statuses of the next responses. After them the status is 200.
    pub(crate) fn answer(&self, statuses: &[u16]) {
        self.answers.lock().extend(statuses);
    }

    /// Waits for `count` requests, and returns all that were received.
    pub(crate) async fn wait(&self, count: usize) -> Vec<ReceivedRequest> {
        let mut got = self.got.subscribe();
        let all = timeout(TIMEOUT, got.wait_for(|all| all.len() >= count)).await;
        let all = all.unwrap_or_else(|_| {
            panic!(
                "received only {} of {count} requests",
                self.got.borrow().len()
            )
        });
        all.unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.got.borrow().len()
    }

    /// Deletes the recorded requests.
    pub(crate) fn clear(&self) {
        self.got.send_modify(Vec::clear);
    }
}

/// Reads the deliveries until `holds` is true of them.
pub(crate) async fn until(bank: &Bank, holds: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    let polling = async {
        loop {
            let deliveries = bank.deliveries();
            if holds(&deliveries) {
                return deliveries;
            }
            tokio::task::yield_now().await;
        }
    };
    timeout(TIMEOUT, polling)
        .await
        .expect("the deliveries did not reach the expected state")
}

/// Whether there are deliveries and none is waiting or to be retried.
pub(crate) fn all_done(deliveries: &[Value]) -> bool {
    let is_open = |delivery: &Value| ["waiting", "retry"].contains(&text_of(&delivery["state"]));
    !deliveries.is_empty() && !deliveries.iter().any(is_open)
}
