//! Tests of webhook events.

mod events;
mod health;
mod installation;
mod interrupted;
mod rebuild;
mod retention;
mod retries;
mod status_changes;
mod unopenable;

use jiff::SignedDuration;

use crate::support::harness::{App, Setup};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Longer than bodies stay in memory.
const BODY_EXPIRED: SignedDuration = SignedDuration::from_secs(121);

/// An application whose events have at most `rows` rows.
async fn with_chunks_of(rows: u32) -> App {
    App::start(Setup::with(|settings| settings.webhooks.chunk_rows = rows)).await
}
