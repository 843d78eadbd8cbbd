//! Records a status change that the user sees: the audit row, and the `connection.updated` event for the endpoints that
//! subscribe to it. Both belong to the transaction that changes the status, so a crash loses neither.

use bellbird_domain::{EventId, EventType, SyncRunId};
use jiff::Timestamp;

use crate::connections::audit::{self, StatusChange};
use crate::db::{Row, Tx, params, statements};
use crate::error::Result;
use crate::webhooks::webhook_events::{self, ConnectionStatusChange, EventOrigin, NewWebhookEvent};

statements! {
    FIND = "SELECT provider, institution_name, last_refreshed_at FROM connections WHERE user_id = $1 AND id = $2";
}

/// A new connection has no event: the user has linked it just now. Call this after the other writes to the connection,
/// which the event shows. The caller holds the lock on the user's row.
pub(crate) async fn record(
    tx: &mut Tx,
    change: &StatusChange<'_>,
    now: Timestamp,
    first_attempt_at: Timestamp,
) -> Result<()> {
    audit::record(tx, change, now).await?;
    let (Some(previous_status), Some(status)) = (change.from, change.to) else { return Ok(()) };
    let facts = |row: &Row<'_>| Ok((row.text(0)?.to_owned(), row.text(1)?.to_owned(), row.opt_time(2)?));
    let Some(facts) = tx.one(FIND, params![change.user, change.connection], facts).await? else { return Ok(()) };
    let (provider, institution_name, last_refreshed_at) = facts;
    let status_change =
        ConnectionStatusChange { provider, institution_name, status, previous_status, last_refreshed_at };
    let id = EventId::new();
    let origin = EventOrigin {
        user: change.user,
        connection: Some(change.connection),
        fence: None,
        // A run of its own, so that the event waits for no other.
        run: SyncRunId::from(id.uuid()),
        event_type: EventType::ConnectionUpdated,
        date_range: (now, now),
        status_change: Some(&status_change),
        now,
    };
    let events = [NewWebhookEvent { updated_count: 1, ..NewWebhookEvent::without_rows(id) }];
    tx.batch(&webhook_events::insert_events(&origin, &events, first_attempt_at)).await.map(|_| ())
}
