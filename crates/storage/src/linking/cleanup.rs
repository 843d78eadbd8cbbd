//! Deletes expired links, expired link sessions and old provider events.

use jiff::{SignedDuration, Timestamp};

use crate::db::{Sql, params, statements};
use crate::error::Result;
use crate::linking::link_sessions::delete_secrets;
use crate::{Storage, StorageError};

/// How long an expired link or link session is kept, so that its user can read why it no longer works.
const EXPIRED_RETENTION: SignedDuration = SignedDuration::from_hours(24);
/// Far longer than any provider repeats an event.
const PROVIDER_EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);
/// Rows deleted in one transaction: few enough that other writers hardly wait.
const DELETE_BATCH_SIZE: i64 = 200;

/// Deletes up to `$2` rows. On PostgreSQL, `$lock` skips rows that another transaction has locked, and a later cleanup
/// deletes them. `MATERIALIZED` picks the rows once, as in `connections/removals.rs`.
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

/// As [`delete_some`]. A session with credentials stays until it has ended, because only its secret knows the consent.
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
    /// Deletes links and link sessions 24 hours after they expire, and provider events after 30 days. A session stays
    /// while it is leased, or if it has credentials and has not ended. Returns the number of deleted rows, without
    /// secrets.
    ///
    /// It works in small transactions, so the caller may cancel it at any time.
    pub async fn delete_outdated(&self, now: Timestamp) -> Result<u64> {
        let expired = now.saturating_sub(EXPIRED_RETENTION).map_err(StorageError::unavailable)?;
        let received = now.saturating_sub(PROVIDER_EVENT_RETENTION).map_err(StorageError::unavailable)?;
        let links = self.delete_in_steps(HAS_OUTDATED_LINKS, DELETE_LINKS, expired).await?;
        let sessions = self.delete_outdated_sessions(expired, now).await?;
        let events = self.delete_in_steps(HAS_OUTDATED_EVENTS, DELETE_EVENTS, received).await?;
        Ok(links + sessions + events)
    }

    /// Checks before each step whether a row is left, because a step takes SQLite's one writer.
    async fn delete_in_steps(&self, has_any: Sql, delete: Sql, until: Timestamp) -> Result<u64> {
        let mut deleted = 0;
        while self.db.one(has_any, params![until], |_| Ok(())).await?.is_some() {
            match self.db.run(delete, params![until, DELETE_BATCH_SIZE]).await? {
                // Another transaction has locked the rows that are left.
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
