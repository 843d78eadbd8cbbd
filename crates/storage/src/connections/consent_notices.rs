//! Tells endpoints that a consent ends soon: 14 days before, and 3 days before.

use bellbird_domain::{ConnectionId, EventType, TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::Connections;
use crate::connections::events;
use crate::connections::overview::ENDING_WITHIN;
use crate::db::{pair, params, statements};
use crate::error::Result;
use crate::locks::begin_locked_write;

/// The second event about a consent that ends.
const AGAIN_WITHIN: SignedDuration = SignedDuration::from_hours(3 * 24);
/// Connections in one read.
const BATCH_SIZE: i64 = 500;

/// An active connection whose next notice is due: `$1` is now, `$2` is 14 days later and `$3` is 3
/// days later.
macro_rules! is_due {
    () => {
        "status = 'active' AND consent_expires_at > $1 AND consent_expires_at <= $2
            AND (consent_notice_days IS NULL OR consent_notice_days > 3 AND consent_expires_at <= $3)"
    };
}

statements! {
    LIST = concat!(
        "SELECT user_id, id FROM connections WHERE ",
        is_due!(),
        " ORDER BY consent_expires_at LIMIT $4"
    );

    NOTE = concat!(
        "UPDATE connections SET consent_notice_days = CASE WHEN consent_expires_at <= $3 THEN 3 ELSE 14 END
        WHERE user_id = $4 AND id = $5 AND ",
        is_due!()
    );
}

impl Connections<'_> {
    /// Stores a `connection.expiring` event for each active connection whose consent ends within 14
    /// days, and another within 3 days. Returns the number of connections.
    pub async fn report_expiring(self, now: Timestamp) -> Result<u64> {
        let (first, second) = (now.plus(ENDING_WITHIN), now.plus(AGAIN_WITHIN));
        let mut reported = 0;
        loop {
            let due: Vec<(UserId, ConnectionId)> = self
                .db
                .all(LIST, params![now, first, second, BATCH_SIZE], pair)
                .await?;
            let reported_before = reported;
            for (user, id) in due {
                let values = params![now, first, second, user, id];
                let Some(mut tx) = begin_locked_write(&self.db, user, NOTE, values).await? else {
                    continue;
                };
                let event_type = EventType::ConnectionExpiring;
                events::insert_now(&mut tx, (user, Some(id)), event_type, now).await?;
                tx.commit().await?;
                reported += 1;
            }
            if reported == reported_before {
                return Ok(reported);
            }
        }
    }
}
