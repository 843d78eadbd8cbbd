//! Following changes over HTTP: a client that does what the documentation says has the provider's
//! rows.

mod cost;
mod cursors;
mod errors;
mod following;
mod hostile;
mod many_connections;
mod paging;
mod restored;

use jiff::SignedDuration;
use serde_json::Value;

use crate::support::follower::Follower;
use crate::support::harness::{App, Setup};

const HOUR: SignedDuration = SignedDuration::from_hours(1);
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// After it, a request syncs the connection.
const STALE: SignedDuration = SignedDuration::from_secs(61);
/// Three complete reads that far apart are more than a day.
const BETWEEN_MISSES: SignedDuration = SignedDuration::from_hours(13);

/// Without the cache of trades, so that `/v1` shows what the provider lists.
fn setup() -> Setup {
    Setup::with(|settings| settings.caches.trades_cache = std::time::Duration::ZERO)
}

/// Lets three complete reads miss what is gone. Returns the entries.
async fn follow_past_misses(app: &App, copy: &mut Follower) -> Vec<Value> {
    let mut entries = Vec::new();
    for _ in 0..3 {
        app.advance_clock(BETWEEN_MISSES);
        entries.extend(copy.follow(app).await);
    }
    entries
}
