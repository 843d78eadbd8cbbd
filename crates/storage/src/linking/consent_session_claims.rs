//! Records the progress of consent sessions: callback parameters become credentials, and
//! credentials become a connection.
//!
//! Each result is sealed and stored before the next step, so a killed program continues where it
//! stopped. An open session has a job (see `jobs/mod.rs`), which ends with the session.

use bellbird_domain::{Confirmation, LinkPhase};
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use crate::db::{params, statements};
use crate::digest::hash;
use crate::error::Result;
use crate::jobs::{self, ClaimedJob};
use crate::linking::consent_sessions::{ConsentSession, columns, known_consent_digest, session};
use crate::linking::links;
use crate::locks::lock_user_if_exists;
use crate::secrets::store::delete_secret;
use crate::{ConsentSessions, StorageError};

statements! {
    FIND = concat!(
        "SELECT ",
        columns!(),
        " FROM consent_sessions WHERE user_id = $1 AND id = $2 AND phase <> 'ended'"
    );

    RECEIVE_CALLBACK = concat!(
        "UPDATE consent_sessions SET phase = 'callback_received', phase_since = $2,
            confirmation = CASE WHEN confirmation = 'denied' THEN confirmation ELSE $3 END, browser_hash = $4
        WHERE state_hash = $1 AND phase = 'started' AND expires_at > $2
        RETURNING ",
        columns!()
    );

    STORE_CREDENTIALS = "UPDATE consent_sessions SET phase = 'credentials_obtained', phase_since = $3
        WHERE user_id = $1 AND id = $2 AND phase = 'callback_received'";

    END = "UPDATE consent_sessions SET phase = 'ended', outcome = $3, connections = $4, failure_reason = $5
        WHERE user_id = $1 AND id = $2";
}

/// The right to work on one session, until the lease of its job ends and another instance claims
/// it.
#[derive(Debug)]
pub struct ClaimedConsentSession {
    pub session: ConsentSession,
    /// The callback parameters, or the credentials obtained for them. None also if the secret
    /// cannot be opened.
    pub secret: Option<SecretString>,
    pub job: ClaimedJob,
}

impl ClaimedConsentSession {
    /// Whether the user already had the consent with this provider id when the session started.
    pub fn had_consent(&self, consent: &str) -> bool {
        self.session
            .known_consents
            .contains(&known_consent_digest(&self.session.state_hash, consent))
    }
}

impl ConsentSessions<'_> {
    /// Seals the parameters of the first callback, records whether the user confirmed, and claims
    /// the session. Of several concurrent callers, exactly one gets the claim. None if the state is
    /// unknown, the session has expired, or a callback was received before.
    ///
    /// `browser` is the cookie of the browser that confirms the session, if it is another one than
    /// that which started it. From then on, the session is bound to this browser.
    pub async fn receive_callback(
        self,
        state: &str,
        callback_params: &SecretString,
        (confirmation, browser): (Confirmation, Option<&str>),
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedConsentSession>> {
        let found = self.find(state).await?;
        let Some(found) =
            found.filter(|found| found.phase == LinkPhase::Started && found.expires_at > now)
        else {
            return Ok(None);
        };
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, found.user_id).await? {
            return Ok(None);
        }
        let state_hash = hash(state);
        let browser_hash = browser.map(hash);
        let browser_hash = browser_hash
            .as_ref()
            .map_or(found.browser_hash.as_slice(), AsRef::as_ref);
        let values = params![&state_hash, now, confirmation, browser_hash];
        let Some(session) = tx.one(RECEIVE_CALLBACK, values, session).await? else {
            tx.rollback().await;
            return Ok(None);
        };
        // An earlier claim loses its lease. If this one is killed, the job is due when its lease
        // ends.
        let key = session.job();
        jobs::restart(&mut tx, &key, Some(now)).await?;
        let Some(job) = jobs::claim(&mut tx, self.holder, &key, now, lease_until).await? else {
            tx.rollback().await;
            return Ok(None);
        };
        self.secrets()
            .store(&mut tx, &session.secret_slot(), callback_params)
            .await?;
        tx.commit().await?;
        Ok(Some(ClaimedConsentSession {
            session,
            secret: Some(callback_params.clone()),
            job,
        }))
    }

    /// The open session of a claimed job. If its secret cannot be opened, it has none, so that the
    /// caller can end the session.
    pub async fn find_claimed(self, job: &ClaimedJob) -> Result<Option<ClaimedConsentSession>> {
        let id = job.subject_id::<Uuid>();
        let Some(session) = self
            .db
            .one(FIND, params![job.user_id(), id], session)
            .await?
        else {
            return Ok(None);
        };
        let secret = match self.secrets().find(&session.secret_slot()).await {
            Err(StorageError::Sealed(error)) => {
                tracing::warn!(%error, "could not open consent session secret");
                None
            }
            found => found?,
        };
        Ok(Some(ClaimedConsentSession {
            session,
            secret,
            job: job.clone(),
        }))
    }

    /// Seals the credentials in place of the callback parameters, and extends the lease. Returns
    /// false, and changes nothing, if the lease was lost.
    pub async fn store_credentials(
        self,
        claim: &ClaimedConsentSession,
        credentials: &SecretString,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<bool> {
        let ConsentSession { user_id, id, .. } = claim.session;
        let mut tx = self.db.begin().await?;
        if !lock_user_if_exists(&mut tx, user_id).await?
            || !jobs::renew(&mut tx, &claim.job, lease_until).await?
            || !tx
                .changes(STORE_CREDENTIALS, params![user_id, id, now])
                .await?
        {
            tx.rollback().await;
            return Ok(false);
        }
        self.secrets()
            .store(&mut tx, &claim.session.secret_slot(), credentials)
            .await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Ends a session and deletes its secret. `outcome` is one word. The claim's session names the
    /// connections that it created, repaired or renewed, after which its link session has
    /// connected, and why it failed. Returns false, and changes nothing, if the lease was lost.
    pub async fn end(self, claim: &ClaimedConsentSession, outcome: &str) -> Result<bool> {
        let ConsentSession { user_id, id, .. } = claim.session;
        let Some(mut tx) = jobs::begin_deleted(&self.db, &claim.job).await? else {
            return Ok(false);
        };
        let connections: Vec<String> = claim
            .session
            .connections
            .iter()
            .map(ToString::to_string)
            .collect();
        let (connections, reason) = (
            connections.join(" "),
            claim.session.failure_reason.as_deref(),
        );
        tx.run(END, params![user_id, id, outcome, &connections, reason])
            .await?;
        if !connections.is_empty() {
            links::set_connected(&mut tx, user_id, claim.session.link_id).await?;
        }
        delete_secret(&mut tx, &claim.session.secret_slot()).await?;
        tx.commit().await?;
        Ok(true)
    }
}
