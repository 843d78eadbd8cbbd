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
use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use standardwebhooks::Webhook;
use tokio_util::sync::CancellationToken;

use crate::harness::App;

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
pub(crate) struct Taken {
    pub(crate) id: String,
    pub(crate) timestamp: i64,
    pub(crate) signature: String,
    pub(crate) endpoint: String,
    pub(crate) raw: Bytes,
    pub(crate) body: Value,
}

impl Taken {
    pub(crate) fn rows(&self, list: &str) -> &[Value] {
        self.body["data"][list].as_array().expect("a list of rows")
    }

    pub(crate) fn counts(&self) -> (usize, usize) {
        (self.rows("new").len(), self.rows("updated").len())
    }

    /// Its number among how many.
    pub(crate) fn place(&self) -> (u64, u64) {
        let number = |name: &str| self.body["metadata"][name].as_u64().expect("a number");
        (number("chunk"), number("total_chunks"))
    }
}

struct Answers {
    usual: Reply,
    next: VecDeque<Reply>,
    taken: Vec<Taken>,
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
        let answers = Arc::new(Mutex::new(Answers { usual, next: VecDeque::new(), taken: Vec::new() }));
        let router = Router::new().fallback(take).with_state(Arc::clone(&answers));
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

    /// Whether something came since it was last taken.
    pub(crate) fn has_some(&self) -> bool {
        !self.answers.lock().unwrap().taken.is_empty()
    }

    /// What came since this was last asked, in the order in which it came.
    pub(crate) fn take(&self) -> Vec<Taken> {
        std::mem::take(&mut self.answers.lock().unwrap().taken)
    }
}

async fn take(State(answers): State<Arc<Mutex<Answers>>>, headers: HeaderMap, raw: Bytes) -> Response {
    let header = |name: &str| headers[name].to_str().unwrap().to_owned();
    assert_eq!(header("content-type"), "application/json");
    let taken = Taken {
        id: header("webhook-id"),
        timestamp: header("webhook-timestamp").parse().unwrap(),
        signature: header("webhook-signature"),
        endpoint: header("bellbird-endpoint"),
        body: serde_json::from_slice(&raw).unwrap(),
        raw,
    };
    let reply = {
        let mut answers = answers.lock().unwrap();
        answers.taken.push(taken);
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
    pub(crate) fn take(&self) -> Vec<Taken> {
        let taken = self.receiver.take();
        let reference = Webhook::new(self.secret.expose_secret()).unwrap();
        for one in &taken {
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
        taken
    }
}

impl App {
    /// An endpoint of the user, for events of these types.
    pub(crate) async fn hook_for(&self, user: &User, events: &[EventType]) -> Hook {
        let receiver = Receiver::start().await;
        let secret = new_secret().unwrap();
        let new = NewEndpoint { user_id: user.id, url: &receiver.url, events, secret: &secret };
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
    pub(crate) async fn begin(&self, connection: &Connection, hook: &Hook) -> SyncReport {
        let report = self.sync(connection).await;
        self.webhooks.deliver_due().await;
        assert!(!hook.take().is_empty());
        self.forget_calls().await;
        report
    }

    /// What the endpoint was sent by now.
    pub(crate) async fn delivered_to(&self, hook: &Hook) -> Vec<Taken> {
        self.webhooks.deliver_due().await;
        hook.take()
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
    pub(crate) async fn pass_to_next_attempt(&self, hook: &Hook) -> bool {
        let next = self.deliveries_to(hook).await.iter().filter_map(|delivery| delivery.next_attempt_at).min();
        let Some(next) = next else { return false };
        let wait = next.duration_since(self.clock.now()).as_secs().max(0);
        self.pass(SignedDuration::from_secs(wait + 1)).await;
        true
    }

    /// The provider's id of an account of the connection that has rows.
    pub(crate) async fn account_at(&self, connection: &Connection) -> String {
        let accounts = self.storage.list_connection_accounts(connection.user_id, connection.id).await.unwrap();
        let usual =
            accounts.iter().find(|account| matches!(account.account_type.as_str(), "transaction" | "investment"));
        usual.expect("an account").provider_account_id.clone()
    }

    /// Adds a row to an account of the connection, at the provider and at that time; gives its id there.
    pub(crate) async fn add_row(&self, connection: &Connection, text: &str, at: Timestamp) -> String {
        let account = self.account_at(connection).await;
        let at = at.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string();
        let row = match connection.provider.as_str() {
            "fiskil" => {
                json!({"account_id": account, "amount": "-12.34", "description": text, "posting_date_time": at})
            }
            "akahu" => json!({"_account": account, "amount": -12.34, "description": text, "date": at}),
            _ => json!({"account": account, "trade_date": at, "description": text, "units": 1.5, "price": 2}),
        };
        self.put_row(connection, row).await
    }

    /// Adds a row in the provider's own form; gives its id there.
    pub(crate) async fn put_row(&self, connection: &Connection, row: Value) -> String {
        let provider = connection.provider.as_str();
        let row = self.control_of(provider, Method::POST, rows_at(provider), row).await;
        let id = ["fiskil_id", "_id", "id"].iter().find_map(|name| row[*name].as_str());
        id.unwrap_or_else(|| panic!("no id in {row}")).to_owned()
    }

    pub(crate) async fn change_row(&self, connection: &Connection, id: &str, members: Value) {
        let path = format!("{}/{id}", rows_at(&connection.provider));
        self.control_of(&connection.provider, Method::PATCH, &path, members).await;
    }

    pub(crate) async fn remove_row(&self, connection: &Connection, id: &str) {
        let path = format!("{}/{id}", rows_at(&connection.provider));
        self.control_of(&connection.provider, Method::DELETE, &path, json!({})).await;
    }

    /// Calls of a provider since they were last forgotten.
    pub(crate) async fn calls_in_all(&self, provider: &str) -> u64 {
        self.calls_of(provider).await.values().sum()
    }
}

fn rows_at(provider: &str) -> &'static str {
    if provider == "snaptrade" { "/trades" } else { "/transactions" }
}
