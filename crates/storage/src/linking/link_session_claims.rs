//! Records the progress of link sessions: callback parameters become credentials, and credentials become a connection.
//!
//! Each result is sealed and stored before the next step, so a killed program continues where it stopped. An open
//! session has a job (see `jobs.rs`), which ends with the session.

use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use crate::db::{Param, Row, params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::jobs::{self, ClaimedJob};
use crate::linking::link_sessions::{LinkPhase, LinkSession, columns, known_consent_digest, session};
use crate::locks::lock_user_if_exists;
use crate::secrets::store::delete_secret;
use crate::{Storage, StorageError};

statements! {
    FIND = concat!(
        "SELECT ",
        columns!(),
        ", state_hash, known_consents FROM link_sessions WHERE user_id = $1 AND id = $2 AND phase <> 'ended'"
    );

    RECEIVE_CALLBACK = concat!(
        "UPDATE link_sessions SET phase = 'callback_received', phase_since = $2
        WHERE state_hash = $1 AND phase = 'started' AND expires_at > $2
        RETURNING ",
        columns!(),
        ", state_hash, known_consents"
    );

    STORE_CREDENTIALS = "UPDATE link_sessions SET phase = 'credentials_obtained', phase_since = $3
        WHERE user_id = $1 AND id = $2 AND phase = 'callback_received'";

    END = "UPDATE link_sessions SET phase = 'ended', outcome = $3 WHERE user_id = $1 AND id = $2";
}

/// The right to work on one session, until the lease of its job ends and another instance claims it.
#[derive(Debug)]
pub struct ClaimedLinkSession {
    pub session: LinkSession,
    /// The callback parameters, or the credentials obtained for them. None also if the secret cannot be opened.
    pub secret: Option<SecretString>,
    pub job: ClaimedJob,
    state_hash: Vec<u8>,
    known_consents: Vec<String>,
}

impl ClaimedLinkSession {
    /// Whether the user already had the consent with this provider id when the session started.
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
        let Some(stored) = tx.one(RECEIVE_CALLBACK, params![hash(state).as_ref(), now], stored).await? else {
            tx.rollback().await;
            return Ok(None);
        };
        // An earlier claim loses its lease. If this one is killed, the job is due when its lease ends.
        let key = stored.session.job();
        jobs::restart(&mut tx, &key, Some(now)).await?;
        let Some(job) = jobs::claim(&mut tx, &key, now, lease_until).await? else {
            tx.rollback().await;
            return Ok(None);
        };
        let mut claim = stored.claimed_as(job);
        self.store_secret(&mut tx, &claim.session.secret_slot(), callback_params).await?;
        tx.commit().await?;
        claim.secret = Some(callback_params.clone());
        Ok(Some(claim))
    }

    /// The open session of a claimed job. If its secret cannot be opened, it has none, so that the caller can end the
    /// session.
    pub async fn find_claimed_link_session(&self, job: &ClaimedJob) -> Result<Option<ClaimedLinkSession>> {
        let id = job.subject_id::<Uuid>();
        let Some(stored) = self.db.one(FIND, params![job.user_id(), Param::Id(id)], stored).await? else {
            return Ok(None);
        };
        let mut claim = stored.claimed_as(job.clone());
        match self.find_secret(&claim.session.secret_slot()).await {
            Ok(secret) => claim.secret = secret,
            Err(StorageError::Sealed(error)) => {
                tracing::warn!(%error, "could not open link session secret");
            }
            Err(error) => return Err(error),
        }
        Ok(Some(claim))
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
        let values = params![user_id, Param::Id(id), now];
        if !jobs::renew(&mut tx, &claim.job, lease_until).await? || tx.run(STORE_CREDENTIALS, values).await? == 0 {
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
        if !jobs::delete(&mut tx, &claim.job).await? {
            tx.rollback().await;
            return Ok(false);
        }
        tx.run(END, params![user_id, Param::Id(id), outcome]).await?;
        delete_secret(&mut tx, &claim.session.secret_slot()).await?;
        tx.commit().await?;
        Ok(true)
    }
}

/// A session without the claim of its job.
struct Stored {
    session: LinkSession,
    state_hash: Vec<u8>,
    known_consents: Vec<String>,
}

impl Stored {
    fn claimed_as(self, job: ClaimedJob) -> ClaimedLinkSession {
        let Self { session, state_hash, known_consents } = self;
        ClaimedLinkSession { session, secret: None, job, state_hash, known_consents }
    }
}

fn stored(row: &Row<'_>) -> Result<Stored> {
    Ok(Stored {
        session: session(row)?,
        state_hash: row.blob(9)?.to_vec(),
        known_consents: row.text(10)?.split_whitespace().map(str::to_owned).collect(),
    })
}
