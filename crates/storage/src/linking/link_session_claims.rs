//! Working on link sessions: what came back with a browser becomes a credentials, and a credentials a connection.
//!
//! What came back is sealed before anything is done with it, and so is the credentials that is got for it, so that a
//! program that is killed in between goes on where it stopped: whoever works on a session holds a lease on it and has a
//! fencing number, as with removals. A claim ends when its lease is given back.

use jiff::Timestamp;
use secrecy::SecretString;

use crate::db::{Param, Row, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::linking::link_sessions::{LinkPhase, LinkSession, columns, known_consent_digest, session};
use crate::locks::lock_user_if_exists;
use crate::secrets::store::delete_secret;
use crate::{Storage, StorageError};

/// The claim of what is due, as in `removals.rs`.
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
    /// Whoever works on it meanwhile is overtaken. Due from now on, so that it is claimed when the lease ends.
    RECEIVE_CALLBACK = concat!(
        "UPDATE link_sessions SET phase = 'callback_received', attempts = 0, next_attempt_at = $2, lease_until = $3,
            fence = fence + 1
        WHERE state_hash = $1 AND phase = 'started' AND expires_at > $2
        RETURNING ",
        columns!(""),
        ", attempts, next_attempt_at, fence, state_hash, known_consents"
    );


    /// Asked before [`CLAIM_DUE`], which takes SQLite's one writer.
    IS_DUE = "SELECT id FROM link_sessions
        WHERE phase <> 'ended' AND next_attempt_at <= $1 AND (lease_until IS NULL OR lease_until <= $1) LIMIT 1";

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    STORE_CREDENTIALS = "UPDATE link_sessions SET phase = 'credentials_obtained', attempts = 0, lease_until = $4
        WHERE user_id = $1 AND id = $2 AND phase = 'callback_received' AND fence = $3 AND lease_until IS NOT NULL";

    END = "UPDATE link_sessions SET phase = 'ended', outcome = $4, lease_until = NULL
        WHERE user_id = $1 AND id = $2 AND phase <> 'ended' AND fence = $3 AND lease_until IS NOT NULL";

    /// When it was made due again since it was claimed, it stays so.
    POSTPONE = "UPDATE link_sessions SET attempts = attempts + 1, lease_until = NULL,
            next_attempt_at = CASE WHEN next_attempt_at = $4 THEN $5 ELSE next_attempt_at END
        WHERE user_id = $1 AND id = $2 AND phase <> 'ended' AND fence = $3 AND lease_until IS NOT NULL";
}

/// The right to work on one session, until the lease ends or somebody else claims it after that.
#[derive(Debug)]
pub struct ClaimedLinkSession {
    /// The session.
    pub session: LinkSession,
    /// The answer of one that is returned, the credentials of one that is granted; none also when it does not open.
    pub secret: Option<SecretString>,
    /// Attempts that failed so far in this phase.
    pub attempts: u32,
    next_attempt_at: Timestamp,
    fence: i64,
    state_hash: Vec<u8>,
    known_consents: Vec<String>,
}

impl ClaimedLinkSession {
    /// Whether the user had the consent with this id of the provider when the trip began.
    #[must_use]
    pub fn had_consent(&self, consent: &str) -> bool {
        self.known_consents.contains(&known_consent_digest(&self.state_hash, consent))
    }
}

impl Storage {
    /// The browser is back, for the first time and in time: `callback_params` is sealed, and the session is the
    /// caller's until the lease ends. None otherwise: exactly one of several callers at once gets it.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Claims a few of the sessions that are due and that nobody works on, those that are due longest first. One whose
    /// secret does not open comes without it, so that it can be ended.
    ///
    /// # Errors
    /// Those of the database.
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
                    tracing::warn!(%error, "the secret of a link session does not open");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(claims)
    }

    /// Notes that the provider gave a credentials for a returned session's answer: it is sealed in its place, and the
    /// lease goes on. False when somebody else has overtaken the claim; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn store_link_credentials(
        &self,
        claim: &ClaimedLinkSession,
        credentials: &SecretString,
        lease_until: Timestamp,
    ) -> Result<bool> {
        let LinkSession { user_id, id, .. } = claim.session;
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user_id).await? {
            return Ok(false);
        }
        if tx.run(STORE_CREDENTIALS, params![user_id, Param::Id(id), claim.fence, lease_until]).await? == 0 {
            tx.rollback().await;
            return Ok(false);
        }
        self.store_secret(&mut tx, &claim.session.secret_slot(), credentials).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Ends a session with a short word for how; its secret goes. False when somebody else has overtaken the claim;
    /// nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
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

    /// Gives a session back after a failed attempt: it is due again then, or at once when it was hurried meanwhile.
    /// False when somebody else has overtaken the claim; nothing is changed then.
    ///
    /// # Errors
    /// Those of the database.
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
        attempts: row.attempts(8)?,
        next_attempt_at: row.time(9)?,
        fence: row.int(10)?,
        state_hash: row.blob(11)?.to_vec(),
        known_consents: row.text(12)?.split_whitespace().map(str::to_owned).collect(),
    })
}
