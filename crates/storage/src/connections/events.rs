//! The webhook events about connections: `connection.created`, `connection.updated`,
//! `connection.expiring` and `connection.removed`; and about users: `user.removed`. Each belongs to
//! the transaction that makes it true, so a crash loses neither.

use bellbird_domain::{ConnectionId, EventId, EventType, SyncRunId, UserId};
use jiff::Timestamp;

use crate::connections::audit::{self, StatusChange};
use crate::db::{Tx, from_row, params, statements};
use crate::error::Result;
use crate::webhooks::webhook_events::{self, EventConnection, EventOrigin, NewWebhookEvent};

statements! {
    FIND = "SELECT provider, institution_name, last_refreshed_at, consent_expires_at, status, category, institution_id
        FROM connections WHERE user_id = $1 AND id = $2";
}

/// Records a status change that the user sees, or a new connection: the audit row, and the event.
/// Call this after the other writes to the connection, which the event shows. The caller holds the
/// lock on the user's row.
pub(crate) async fn record(
    tx: &mut Tx,
    change: &StatusChange<'_>,
    now: Timestamp,
    first_attempt_at: Timestamp,
) -> Result<()> {
    audit::record(tx, change, now).await?;
    let of = (change.user, change.connection);
    let Some(mut shown) = find(tx, of).await? else {
        return Ok(());
    };
    shown.previous_status = change.from;
    let event_type = if change.from.is_some() {
        EventType::ConnectionUpdated
    } else {
        EventType::ConnectionCreated
    };
    insert(
        tx,
        (of.0, Some(of.1)),
        event_type,
        Some(&shown),
        now,
        first_attempt_at,
    )
    .await
}

/// The event of what no status change says: that a consent ends soon, that a removal has begun, or
/// that a user is removed. Only the first one shows the connection. The last one belongs to no
/// connection. The caller holds the lock on the user's row.
pub(crate) async fn insert_now(
    tx: &mut Tx,
    of: (UserId, Option<ConnectionId>),
    event_type: EventType,
    now: Timestamp,
) -> Result<()> {
    let shown = match of {
        (user, Some(connection)) if event_type == EventType::ConnectionExpiring => {
            find(tx, (user, connection)).await?
        }
        _ => None,
    };
    insert(tx, of, event_type, shown.as_ref(), now, now).await
}

async fn find(
    tx: &mut Tx,
    (user, connection): (UserId, ConnectionId),
) -> Result<Option<EventConnection>> {
    tx.one(FIND, params![user, connection], shown).await
}

async fn insert(
    tx: &mut Tx,
    (user, connection): (UserId, Option<ConnectionId>),
    event_type: EventType,
    shown: Option<&EventConnection>,
    now: Timestamp,
    first_attempt_at: Timestamp,
) -> Result<()> {
    let id = EventId::new();
    let origin = EventOrigin {
        user,
        connection,
        claim: None,
        // A run of its own, so that the event waits for no other.
        run: SyncRunId::from(id.uuid()),
        event_type,
        date_range: (now, now),
        shown,
        now,
    };
    let is_new = event_type == EventType::ConnectionCreated;
    let new_count = u32::from(is_new);
    let is_of_user = event_type == EventType::UserRemoved;
    let updated_count = u32::from(shown.is_some() && !is_new || is_of_user);
    let events = [NewWebhookEvent {
        new_count,
        updated_count,
        ..NewWebhookEvent::without_rows(id)
    }];
    tx.batch(&webhook_events::insert_events(
        &origin,
        &events,
        first_attempt_at,
    ))
    .await
    .map(|_| ())
}

from_row! {
    fn shown(row) -> EventConnection {
        provider, institution_name, last_refreshed_at, consent_expires_at, status, category,
        institution_id, previous_status = None,
    }
}
