//! Deletes expired links, sessions, consent sessions and setup tokens, and old provider events.

use std::collections::BTreeMap;

use bellbird_domain::{TimestampExt as _, UserId};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::ConsentSessions;
use crate::db::{pair, params, statements};
use crate::error::Result;
use crate::jobs::{self, JobKey, job_kinds};
use crate::linking::consent_sessions::delete_secrets;
use crate::locks::lock_user_if_exists;
use crate::outdated::{DELETE_BATCH_SIZE, delete_in_steps, delete_some};

/// How long an expired link or consent session is kept, so that its user can read why it no longer
/// works.
const EXPIRED_RETENTION: SignedDuration = SignedDuration::from_hours(24);
/// Far longer than any provider repeats an event.
const PROVIDER_EVENT_RETENTION: SignedDuration = SignedDuration::from_hours(30 * 24);

/// A claim of a claimed token is noticed for 30 days, in microseconds.
macro_rules! token_is_outdated {
    () => {
        "expires_at <= $1 AND (key_id IS NULL OR expires_at <= $1 - 2592000000000)"
    };
}

statements! {
    HAS_OUTDATED_LINKS = "SELECT id FROM links WHERE expires_at <= $1 LIMIT 1";

    DELETE_LINKS = delete_some!("links", "user_id, id", "expires_at <= $1", ""),
        on_postgres = delete_some!("links", "user_id, id", "expires_at <= $1", " FOR UPDATE SKIP LOCKED");

    HAS_OUTDATED_SETUP_TOKENS = concat!("SELECT id FROM setup_tokens WHERE ", token_is_outdated!(), " LIMIT 1");

    DELETE_SETUP_TOKENS = delete_some!("setup_tokens", "user_id, id", token_is_outdated!(), ""),
        on_postgres = delete_some!("setup_tokens", "user_id, id", token_is_outdated!(), " FOR UPDATE SKIP LOCKED");

    HAS_OUTDATED_SIGN_IN_LINKS = "SELECT id FROM sign_in_links WHERE expires_at <= $1 LIMIT 1";

    DELETE_SIGN_IN_LINKS = delete_some!("sign_in_links", "user_id, id", "expires_at <= $1", ""),
        on_postgres = delete_some!("sign_in_links", "user_id, id", "expires_at <= $1", " FOR UPDATE SKIP LOCKED");

    HAS_OUTDATED_SESSIONS = "SELECT id FROM sessions WHERE expires_at <= $1 LIMIT 1";

    DELETE_SESSIONS = delete_some!("sessions", "user_id, id", "expires_at <= $1", ""),
        on_postgres = delete_some!("sessions", "user_id, id", "expires_at <= $1", " FOR UPDATE SKIP LOCKED");

    /// A session with credentials stays until it has ended, because only its secret knows the
    /// consent.
    LIST_OUTDATED_SESSIONS = "SELECT user_id, id FROM consent_sessions
        WHERE expires_at <= $1 AND phase <> 'credentials_obtained' ORDER BY expires_at LIMIT $2";

    DELETE_SESSION = "DELETE FROM consent_sessions WHERE user_id = $1 AND id = $2 AND phase <> 'credentials_obtained'
            AND NOT EXISTS (SELECT j.subject FROM jobs j
                WHERE j.user_id = $1 AND j.kind = 'consent_session'
                    AND j.subject = CAST(consent_sessions.id AS TEXT))";

    HAS_OUTDATED_EVENTS = "SELECT provider FROM provider_events WHERE received_at <= $1 LIMIT 1";

    DELETE_EVENTS = delete_some!("provider_events", "provider, event_hash", "received_at <= $1", ""),
        on_postgres =
            delete_some!("provider_events", "provider, event_hash", "received_at <= $1", " FOR UPDATE SKIP LOCKED");
}

impl ConsentSessions<'_> {
    /// Deletes sessions, sign-in links and unclaimed setup tokens that have expired, links and
    /// consent sessions 24 hours after they expire, claimed setup tokens 30 days after that, and
    /// provider events after 30 days. A consent session stays while it is leased, or if it has
    /// credentials and has not ended. Returns the number of deleted rows, without secrets.
    ///
    /// It works in small transactions, so the caller may cancel it at any time.
    pub async fn delete_outdated(self, now: Timestamp) -> Result<u64> {
        let expired = now.minus(EXPIRED_RETENTION);
        let received = now.minus(PROVIDER_EVENT_RETENTION);
        let mut deleted = self.delete_outdated_sessions(expired, now).await?;
        for (has_any, delete, until) in [
            (HAS_OUTDATED_LINKS, DELETE_LINKS, expired),
            (HAS_OUTDATED_EVENTS, DELETE_EVENTS, received),
            (HAS_OUTDATED_SETUP_TOKENS, DELETE_SETUP_TOKENS, now),
            (HAS_OUTDATED_SIGN_IN_LINKS, DELETE_SIGN_IN_LINKS, now),
            (HAS_OUTDATED_SESSIONS, DELETE_SESSIONS, now),
        ] {
            deleted += delete_in_steps(&self.db, has_any, delete, until.into()).await?;
        }
        Ok(deleted)
    }

    async fn delete_outdated_sessions(self, expired: Timestamp, now: Timestamp) -> Result<u64> {
        let mut deleted = 0;
        loop {
            let outdated = self
                .db
                .all(
                    LIST_OUTDATED_SESSIONS,
                    params![expired, DELETE_BATCH_SIZE],
                    pair,
                )
                .await?;
            let mut by_user: BTreeMap<UserId, Vec<Uuid>> = BTreeMap::new();
            for (user, session) in outdated {
                by_user.entry(user).or_default().push(session);
            }
            let before = deleted;
            for (user, sessions) in by_user {
                deleted += self.delete_sessions_of(user, &sessions, now).await?;
            }
            // Only sessions that are leased are left, if any.
            if deleted == before {
                return Ok(deleted);
            }
        }
    }

    async fn delete_sessions_of(
        self,
        user: UserId,
        sessions: &[Uuid],
        now: Timestamp,
    ) -> Result<u64> {
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user).await? {
            tx.rollback().await;
            return Ok(0);
        }
        let mut deleted = Vec::with_capacity(sessions.len());
        for session in sessions {
            jobs::delete_free(
                &mut tx,
                &JobKey::new(job_kinds::CONSENT_SESSION, user, session),
                now,
            )
            .await?;
            if tx.changes(DELETE_SESSION, params![user, *session]).await? {
                deleted.push((user, *session));
            }
        }
        let rows = deleted.len() as u64;
        delete_secrets(&mut tx, deleted).await?;
        tx.commit().await?;
        Ok(rows)
    }
}
