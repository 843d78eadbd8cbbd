//! Forgetting what has had its time: links, link sessions, events.

use jiff::{SignedDuration, Timestamp};

use crate::db::{Sql, params, statements};
use crate::error::Result;
use crate::linking::link_sessions::delete_secrets;
use crate::{Storage, StorageError};

/// How long links and link sessions are kept after they expired: long enough to tell somebody who comes late.
const EXPIRED_RETENTION: SignedDuration = SignedDuration::from_hours(24);
/// How long events are kept: far longer than any provider repeats one.
const PROVIDER_EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Rows that go in one transaction: few enough that nobody waits for it.
const DELETE_BATCH_SIZE: i64 = 200;

/// A step of forgetting, without and with the locks of rows: what somebody works on is left for another time.
/// `MATERIALIZED` as in `removals.rs`.
macro_rules! delete_some {
    ($table:literal, $key:literal, $rest:literal, $lock:literal) => {
        concat!(
            "WITH old AS MATERIALIZED (SELECT ",
            $key,
            " FROM ",
            $table,
            " WHERE ",
            $rest,
            " LIMIT $2",
            $lock,
            ") DELETE FROM ",
            $table,
            " WHERE (",
            $key,
            ") IN (SELECT ",
            $key,
            " FROM old)"
        )
    };
}

/// As [`delete_some`]. A granted session is kept until somebody has ended it: nobody else knows of its consent.
macro_rules! delete_sessions {
    ($lock:literal) => {
        concat!(
            delete_some!(
                "link_sessions",
                "user_id, id",
                "expires_at <= $1 AND phase <> 'credentials_obtained' AND (lease_until IS NULL OR lease_until <= $3)",
                $lock
            ),
            " RETURNING user_id, id"
        )
    };
}

statements! {
    HAS_OUTDATED_LINKS = "SELECT id FROM links WHERE expires_at <= $1 LIMIT 1";

    DELETE_LINKS = delete_some!("links", "user_id, id", "expires_at <= $1", ""),
        on_postgres = delete_some!("links", "user_id, id", "expires_at <= $1", " FOR UPDATE SKIP LOCKED");

    HAS_OUTDATED_SESSIONS = "SELECT id FROM link_sessions
        WHERE expires_at <= $1 AND phase <> 'credentials_obtained' AND (lease_until IS NULL OR lease_until <= $2)
        LIMIT 1";

    DELETE_SESSIONS = delete_sessions!(""), on_postgres = delete_sessions!(" FOR UPDATE SKIP LOCKED");

    HAS_OUTDATED_EVENTS = "SELECT provider FROM provider_events WHERE received_at <= $1 LIMIT 1";

    DELETE_EVENTS = delete_some!("provider_events", "provider, event_hash", "received_at <= $1", ""),
        on_postgres =
            delete_some!("provider_events", "provider, event_hash", "received_at <= $1", " FOR UPDATE SKIP LOCKED");
}

impl Storage {
    /// Forgets links and link sessions a day after they expired, the latter with their secrets, and events after 30
    /// days. A session that somebody works on, or that has a credentials and has not ended, stays. Gives the number of
    /// rows that went; secrets do not count. In steps of a few rows, so it may be given up at any moment.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn delete_outdated(&self, now: Timestamp) -> Result<u64> {
        let expired = now.saturating_sub(EXPIRED_RETENTION).map_err(StorageError::unavailable)?;
        let received = now.saturating_sub(PROVIDER_EVENT_RETENTION).map_err(StorageError::unavailable)?;
        let links = self.delete_in_steps(HAS_OUTDATED_LINKS, DELETE_LINKS, expired).await?;
        let sessions = self.delete_outdated_sessions(expired, now).await?;
        let events = self.delete_in_steps(HAS_OUTDATED_EVENTS, DELETE_EVENTS, received).await?;
        Ok(links + sessions + events)
    }

    /// Asks before each step whether there is anything, because a step takes SQLite's one writer.
    async fn delete_in_steps(&self, has_any: Sql, delete: Sql, until: Timestamp) -> Result<u64> {
        let mut deleted = 0;
        while self.db.one(has_any, params![until], |_| Ok(())).await?.is_some() {
            match self.db.run(delete, params![until, DELETE_BATCH_SIZE]).await? {
                // Somebody else is at what is left.
                0 => break,
                rows => deleted += rows,
            }
        }
        Ok(deleted)
    }

    async fn delete_outdated_sessions(&self, expired: Timestamp, now: Timestamp) -> Result<u64> {
        let mut deleted = 0;
        while self.db.one(HAS_OUTDATED_SESSIONS, params![expired, now], |_| Ok(())).await?.is_some() {
            let mut tx = self.db.begin().await?;
            let values = params![expired, DELETE_BATCH_SIZE, now];
            let sessions = tx.all(DELETE_SESSIONS, values, |row| Ok((row.id(0)?, row.id(1)?))).await?;
            let rows = sessions.len() as u64;
            delete_secrets(&mut tx, sessions).await?;
            tx.commit().await?;
            if rows == 0 {
                break;
            }
            deleted += rows;
        }
        Ok(deleted)
    }
}
