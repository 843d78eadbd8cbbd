//! Receives Bellbird's webhooks: verifies each, skips what came before, prints a line of JSON for each event.
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

struct Receiver {
    webhook: Webhook,
    /// Ids of events that were taken, the oldest first. In a real receiver: a table, so that a restart does not lose them.
    taken: Mutex<VecDeque<String>>,
}

/// What you do with an event. If it takes long, put the event into a queue of your own here, and work later.
/// Of two events that tell of one row, keep what the one with the later `created` says; where that is
/// equal, the one with the later `webhook-timestamp`.
fn take(event: &Value) -> std::io::Result<()> {
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

// `Bytes` is the body as it came: what is signed are the bytes.
async fn receive(State(receiver): State<Arc<Receiver>>, headers: HeaderMap, body: Bytes) -> StatusCode {
    if receiver.webhook.verify(&body, &headers).is_err() {
        return StatusCode::BAD_REQUEST;
    }
    let Ok(event) = serde_json::from_slice::<Value>(&body) else { return StatusCode::BAD_REQUEST };
    let id = event["id"].as_str().unwrap_or_default();
    let mut taken = receiver.taken.lock().unwrap_or_else(PoisonError::into_inner);
    if !taken.iter().any(|one| one == id) {
        if take(&event).is_err() {
            return StatusCode::INTERNAL_SERVER_ERROR; // not taken: it will come again
        }
        taken.push_back(id.to_owned());
        if taken.len() > IDS_MAX {
            taken.pop_front();
        }
    }
    StatusCode::NO_CONTENT
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let webhook = Webhook::new(&std::env::var("BELLBIRD_WEBHOOK_SECRET")?)?;
    let receiver = Arc::new(Receiver { webhook, taken: Mutex::default() });
    let port = std::env::args().nth(1).or_else(|| std::env::var("PORT").ok());
    let port = port.map_or(Ok(9000), |port| port.parse())?;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    let limit = DefaultBodyLimit::max(BODY_BYTES_MAX);
    let app = Router::new().route("/", post(receive)).layer(limit).with_state(receiver);
    writeln!(std::io::stderr(), "listening on http://127.0.0.1:{port}/")?;
    axum::serve(listener, app).await?;
    Ok(())
}
