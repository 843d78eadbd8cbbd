//! Receives Bellbird's webhooks: verifies each event, skips repeated ones, and prints one line of
//! JSON for each.
//!
//! `BELLBIRD_WEBHOOK_SECRET=whsec_... cargo run -p bellbird-webhooks --example receiver 9000`

use std::collections::VecDeque;
use std::error::Error;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use serde_json::{Value, json};
use standardwebhooks::Webhook;

const BODY_BYTES_MAX: usize = 4 * 1024 * 1024;
const IDS_MAX: usize = 10_000;

type SharedReceiver = State<Arc<Receiver>>;

struct Receiver {
    webhook: Webhook,
    /// Ids of handled events, the oldest first. In production use a database table, so that a
    /// restart keeps them.
    handled: Mutex<VecDeque<String>>,
}

/// Your own handling. If it takes long, put the event into your own queue here and process it
/// later. If two events contain the same row, keep the row of the event with the later `created`.
/// If those are equal, the later `webhook-timestamp` wins.
fn handle(event: &Value) -> std::io::Result<()> {
    let metadata = &event["metadata"];
    let line = json!({
        "id": event["id"],
        "type": event["type"],
        "new_count": metadata["new_count"],
        "updated_count": metadata["updated_count"],
        "chunk": metadata["chunk"],
        "total_chunks": metadata["total_chunks"],
    });
    writeln!(std::io::stdout(), "{line}")
}

// `Bytes` keeps the raw body, because the signature covers its exact bytes.
async fn receive(State(receiver): SharedReceiver, headers: HeaderMap, body: Bytes) -> StatusCode {
    if receiver.webhook.verify(&body, &headers).is_err() {
        return StatusCode::BAD_REQUEST;
    }
    let Ok(event) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST;
    };
    let id = event["id"].as_str().unwrap_or_default();
    let mut handled = receiver
        .handled
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !handled.iter().any(|one| one == id) {
        if handle(&event).is_err() {
            return StatusCode::INTERNAL_SERVER_ERROR; // not handled: Bellbird retries
        }
        handled.push_back(id.to_owned());
        if handled.len() > IDS_MAX {
            handled.pop_front();
        }
    }
    StatusCode::NO_CONTENT
}

#[tokio::main]
#[expect(clippy::disallowed_methods, reason = "an example has no settings")]
async fn main() -> Result<(), Box<dyn Error>> {
    let webhook = Webhook::new(&std::env::var("BELLBIRD_WEBHOOK_SECRET")?)?;
    let receiver = Arc::new(Receiver {
        webhook,
        handled: Mutex::default(),
    });
    let port = std::env::args()
        .nth(1)
        .or_else(|| std::env::var("PORT").ok());
    let port = port.map_or(Ok(9000), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let limit = DefaultBodyLimit::max(BODY_BYTES_MAX);
    let app = Router::new()
        .route("/", post(receive))
        .layer(limit)
        .with_state(receiver);
    writeln!(std::io::stderr(), "listening on http://127.0.0.1:{port}/")?;
    axum::serve(listener, app).await?;
    Ok(())
}
