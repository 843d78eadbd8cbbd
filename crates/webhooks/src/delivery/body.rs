//! Makes the body of an event: from memory, from what is stored with the event, or from its rows,
//! which are read from the provider again.

use std::sync::Arc;

use bellbird_domain::EventType;
use bellbird_storage::{DueDelivery, WebhookEvent};
use bytes::Bytes;
use tokio::time::Instant;

use super::claim::TimeSlice;
use super::rebuild::REBUILD_DEADLINE;
use super::send::Exchange;
use crate::Webhooks;
use crate::event::buffer::EventRows;
use crate::event::payload::{self, Envelope, Format};

/// Why there is no body to send.
pub(super) enum NoBody {
    /// No time is left, the database failed, or the connection was removed. It was no attempt, so
    /// the delivery stays due.
    NotNow,
    /// The provider was not read, because the endpoint cannot be reached.
    NotReached(Exchange),
    /// The text in the delivery log.
    Failed(&'static str),
}

impl Webhooks {
    /// The body of an event that is due, from its rows if it has some. Those that were read again
    /// are written as those of a sync.
    pub(super) async fn body(
        &self,
        slice: &TimeSlice,
        delivery: &DueDelivery,
    ) -> Result<Bytes, NoBody> {
        let (event, format) = (&delivery.event, Format::from(&slice.claim));
        let (buffer, now) = (&self.inner.event_buffer, self.inner.clock.now());
        let held = buffer.find_rows(event.id, now, delivery.is_first());
        let is_held = held.is_some();
        let body = match held {
            Some(rows) => rows.body(format),
            None if event.has_rows() => self.read_again(slice, delivery).await?.body(format),
            None => body_without_rows(event, format),
        };
        let is_late = Instant::now() >= slice.cutoff;
        if is_late || !is_held && !self.is_still_due(slice, delivery).await {
            return Err(NoBody::NotNow);
        }
        Ok(body)
    }

    /// The provider is not read for an endpoint that cannot be reached: one that has failed before
    /// has to accept a connection first.
    async fn read_again(
        &self,
        slice: &TimeSlice,
        delivery: &DueDelivery,
    ) -> Result<Arc<EventRows>, NoBody> {
        let (inner, claim) = (&self.inner, &slice.claim);
        if delivery.attempts > 0 || claim.is_unhealthy {
            let connect_time = slice.connect_time(delivery);
            let connected = inner.client.connect(&slice.url, connect_time).await;
            connected.map_err(NoBody::NotReached)?;
        }
        let deadline = slice.cutoff.min(Instant::now() + REBUILD_DEADLINE);
        self.rebuild(claim, delivery, deadline)
            .await
            .map_err(|error| error.message().map_or(NoBody::NotNow, NoBody::Failed))
    }
}

/// The body of an event without rows to read, from what is stored with it. Equal in every attempt.
fn body_without_rows(event: &WebhookEvent, format: Format<'_>) -> Bytes {
    let envelope = Envelope::from(event);
    if !event.removed.is_empty() {
        return payload::removed_body(&envelope, format, &event.removed);
    }
    let object = match event.event_type {
        EventType::UserRemoved => format.user.map(payload::user),
        _ => event
            .connection_id
            .zip(event.shown.as_ref())
            .map(|(id, shown)| payload::connection(id, shown)),
    };
    payload::object_body(&envelope, format, object)
}
