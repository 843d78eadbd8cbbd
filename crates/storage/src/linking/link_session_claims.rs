//! Claims link sessions and records their progress: callback parameters become credentials, and credentials become a
//! connection.
//!
//! Each result is sealed and stored before the next step, so a killed program continues where it stopped. The holder of
//! a claim has a lease and a fence, as in `connections/removals.rs`. Postponing or ending a session releases its lease.

use jiff::Timestamp;
use secrecy::SecretString;

use crate::db::{Param, Row, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::linking::link_sessions::{LinkPhase, LinkSession, columns, known_consent_digest, session};
use crate::locks::lock_user_if_exists;
use crate::secrets::store::delete_secret;
use crate::{Storage, StorageError};

/// Claims up to `$3` due rows until `$2`, as in `connections/removals.rs`.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (
                SELECT user_id, id FROM link_sessions
                WHERE phase <> 'ended' AND next_attempt_at <= $1 AND (lease_until IS NULL OR lease_until <= $1)
                ORDER BY next_attempt_at LIMIT $3",
            $lock,
            ")
            UPDATE link_sessions SET lease_until = $2, fence = fence + 1
            FROM due WHERE link_sessions.user_id = due.user_id AND link_sessions.id = due.id
            RETURNING ",
            columns!("link_sessions."),
            ", attempts, next_attempt_at, fence, state_hash, known_consents"
        )
    };
}

statements! {
    /// Raising the fence makes an earlier claim lose its lease. `next_attempt_at` is now, so that another instance can
    /// claim the session when this lease ends.
    RECEIVE_CALLBACK = concat!(
        "UPDATE link_sessions SET phase = 'callback_received', phase_since = $2, attempts = 0, next_attempt_at = $2,
            lease_until = $3, fence = fence + 1
        WHERE state_hash = $1 AND phase = 'started' AND expires_at > $2
        RETURNING ",
        columns!(""),
        ", attempts, next_attempt_at, fence, state_hash, known_consents"
    );

    /// Runs before [`CLAIM_DUE`], which takes SQLite's one writer even if nothing is due.
    IS_DUE = "SELECT id FROM link_sessions
        WHERE phase <> 'ended' AND next_attempt_at <= $1 AND (lease_until IS NULL OR lease_until <= $1) LIMIT 1";

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    STORE_CREDENTIALS = "UPDATE link_sessions
        SET phase = 'credentials_obtained', phase_since = $4, attempts = 0, lease_until = $5
        WHERE user_id = $1 AND id = $2 AND phase = 'callback_received' AND fence = $3 AND lease_until IS NOT NULL";

    END = "UPDATE link_sessions SET phase = 'ended', outcome = $4, lease_until = NULL
        WHERE user_id = $1 AND id = $2 AND phase <> 'ended' AND fence = $3 AND lease_until IS NOT NULL";

    /// If a provider event has changed `next_attempt_at` since the claim (see [`Storage::wake_link_sessions`]), that
    /// time stays.
    POSTPONE = "UPDATE link_sessions SET attempts = attempts + 1, lease_until = NULL,
            next_attempt_at = CASE WHEN next_attempt_at = $4 THEN $5 ELSE next_attempt_at END
        WHERE user_id = $1 AND id = $2 AND phase <> 'ended' AND fence = $3 AND lease_until IS NOT NULL";
}

/// The right to work on one session, until the lease ends and another instance claims it.
#[derive(Debug)]
pub struct ClaimedLinkSession {
    pub session: LinkSession,
    /// The callback parameters, or the credentials obtained for them. None also if the secret cannot be opened.
    pub secret: Option<SecretString>,
    /// Failures in the current phase.
    pub attempts: u32,
    next_attempt_at: Timestamp,
    fence: i64,
    state_hash: Vec<u8>,
    known_consents: Vec<String>,
}

impl ClaimedLinkSession {
    /// Whether the user already had the consent with this provider id when the session started.
    #[must_use]
    pub fn had_consent(&self, consent: &str) -> bool {
        self.known_consents.contains(&known_consent_digest(&self.state_hash, consent))
    }
}

impl Storage {
    /// Seals the parameters of the first callback, and claims the session. Of several concurrent callers, exactly one
    /// gets the claim. None if the state is unknown, the session has expired, or a callback was received before.
    pub async fn receive_link_callback(
        &self,
        state: &str,
        callback_params: &SecretString,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedLinkSession>> {
        let found = self.find_link_session(state).await?;
        let Some(found) = found.filter(|found| found.phase == LinkPhase::Started && found.expires_at > now) else {
            return Ok(None);
        };
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, found.user_id).await? {
            return Ok(None);
        }
        let Some(mut claim) =
            tx.one(RECEIVE_CALLBACK, params![hash(state).as_ref(), now, lease_until], claimed).await?
        else {
            tx.rollback().await;
            return Ok(None);
        };
        self.store_secret(&mut tx, &claim.session.secret_slot(), callback_params).await?;
        tx.commit().await?;
        claim.secret = Some(callback_params.clone());
        Ok(Some(claim))
    }

    /// Claims up to `limit` due sessions without a lease, the longest due first. If a secret cannot be opened, the
    /// claim has none, so that the caller can end the session.
    pub async fn claim_due_link_sessions(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: u32,
    ) -> Result<Vec<ClaimedLinkSession>> {
        let mut claims = self.db.claim_due((IS_DUE, CLAIM_DUE), now, lease_until, limit, claimed).await?;
        for claim in &mut claims {
            match self.find_secret(&claim.session.secret_slot()).await {
                Ok(secret) => claim.secret = secret,
                Err(StorageError::Sealed(error)) => {
                    tracing::warn!(%error, "could not open link session secret");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(claims)
    }

    /// Seals the credentials in place of the callback parameters, and extends the lease. Returns false, and changes
    /// nothing, if the lease was lost.
    pub async fn store_link_credentials(
        &self,
        claim: &ClaimedLinkSession,
        credentials: &SecretString,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<bool> {
        let LinkSession { user_id, id, .. } = claim.session;
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user_id).await? {
            return Ok(false);
        }
        if tx.run(STORE_CREDENTIALS, params![user_id, Param::Id(id), claim.fence, now, lease_until]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        self.store_secret(&mut tx, &claim.session.secret_slot(), credentials).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Ends a session and deletes its secret. `outcome` is one word. Returns false, and changes nothing, if the lease
    /// was lost.
    pub async fn end_link_session(&self, claim: &ClaimedLinkSession, outcome: &str) -> Result<bool> {
        let LinkSession { user_id, id, .. } = claim.session;
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user_id).await? {
            return Ok(false);
        }
        if tx.run(END, params![user_id, Param::Id(id), claim.fence, outcome]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        delete_secret(&mut tx, &claim.session.secret_slot()).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Releases a session after a failed attempt. It is due again at `until`, or at once if a provider event made it
    /// due meanwhile.
    ///
    /// Returns false, and changes nothing, if the lease was lost.
    pub async fn postpone_link_session(&self, claim: &ClaimedLinkSession, until: Timestamp) -> Result<bool> {
        let LinkSession { user_id, id, .. } = claim.session;
        let values = params![user_id, Param::Id(id), claim.fence, claim.next_attempt_at, until];
        Ok(self.db.run(POSTPONE, values).await? > 0)
    }
}

fn claimed(row: &Row<'_>) -> Result<ClaimedLinkSession> {
    Ok(ClaimedLinkSession {
        session: session(row)?,
        secret: None,
        attempts: row.attempts(9)?,
        next_attempt_at: row.time(10)?,
        fence: row.int(11)?,
        state_hash: row.blob(12)?.to_vec(),
        known_consents: row.text(13)?.split_whitespace().map(str::to_owned).collect(),
    })
}
