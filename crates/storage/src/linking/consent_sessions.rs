//! Stores consent sessions: one visit of a user's browser to a provider's consent page, found by
//! the SHA-256 of its OAuth `state`. `consent_session_claims.rs` continues a session after its
//! callback.

use aws_lc_rs::digest::{Context, SHA256};
use bellbird_domain::{Confirmation, ConnectionId, LinkPhase, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::ConsentSessions;
use crate::db::{Tx, from_row, pair, params, statements};
use crate::digest::{hash, hex};
use crate::error::Result;
use crate::jobs::{self, JobKey, job_kinds};
use crate::linking::links::require_connection;
use crate::locks::{begin_locked_write, lock_user};
use crate::secrets::store::{SecretSlot, delete_secret};

/// Bytes kept of a digest: enough to distinguish consents.
const KNOWN_DIGEST_BYTES: usize = 16;

/// The columns that [`session`] expects, in its order.
macro_rules! columns {
    () => {
        "user_id, id, provider, connection_id, phase, phase_since, outcome, created_at, expires_at, state_hash,
            known_consents, browser_hash, confirmation, connections, failure_reason,
            link_id"
    };
}
pub(crate) use columns;

statements! {
    INSERT = "INSERT INTO consent_sessions
            (user_id, id, state_hash, provider, connection_id, known_consents, phase, phase_since, created_at,
                expires_at, browser_hash, link_id, is_repair)
        VALUES ($1, $2, $3, $4, $5, $6, 'started', $7, $7, $8, $9, $10, $11)";

    FIND = concat!("SELECT ", columns!(), " FROM consent_sessions WHERE state_hash = $1");

    /// Not those whose connection was removed, works again or was renewed by another session since.
    /// The renewal of one that works is not in the audit.
    LIST_UNFINISHED = concat!(
        "SELECT ",
        columns!(),
        " FROM consent_sessions WHERE user_id = $1 AND browser_hash = $2 AND expires_at > $3
            AND (confirmation = 'open' AND phase = 'started' OR confirmation = 'confirmed' AND phase <> 'ended')
            AND (is_repair = 0 OR EXISTS (SELECT 1 FROM connections c WHERE c.user_id = $1
                AND c.id = consent_sessions.connection_id AND c.status <> 'deleting'))
            AND NOT EXISTS (SELECT 1 FROM connection_audit a WHERE a.user_id = $1
                AND a.connection_id = consent_sessions.connection_id AND a.id > consent_sessions.id
                AND a.to_status = 'active')
            AND NOT EXISTS (SELECT 1 FROM consent_sessions o WHERE o.user_id = $1
                AND o.phase_since >= consent_sessions.created_at
                AND o.connections LIKE '%' || CAST(consent_sessions.connection_id AS TEXT) || '%')
            ORDER BY created_at DESC, id"
    );

    LIST_OF_LINK = concat!(
        "SELECT ",
        columns!(),
        " FROM consent_sessions WHERE user_id = $1 AND link_id = $2 ORDER BY created_at DESC, id DESC"
    );

    CONFIRM = "UPDATE consent_sessions SET confirmation = 'confirmed'
        WHERE user_id = $1 AND id = $2 AND browser_hash = $3 AND confirmation = 'open' AND phase = 'started'
            AND expires_at > $4";

    DENY = "UPDATE consent_sessions SET confirmation = 'denied'
        WHERE user_id = $1 AND id = $2 AND confirmation <> 'denied' AND phase <> 'ended'";

    DENY_ENDED = "UPDATE consent_sessions SET confirmation = 'denied', outcome = 'withdrawn'
        WHERE user_id = $1 AND id = $2 AND phase = 'ended'";

    LIST_OTHERS = "SELECT connection_id, phase, expires_at FROM consent_sessions
        WHERE user_id = $1 AND provider = $2 AND id <> $3 AND created_at >= $4";

    COUNT_OPEN = "SELECT COUNT(*) FROM consent_sessions
        WHERE user_id = $1 AND provider = $2 AND phase <> 'ended' AND expires_at > $3";

    CLEAR_CONNECTION = "UPDATE consent_sessions SET connection_id = NULL WHERE user_id = $1 AND connection_id = $2";

    CLEAR_RESULT = "UPDATE consent_sessions SET connections = REPLACE(connections, $2, '')
        WHERE user_id = $1 AND connections <> ''";

    DELETE_OF_USER = "DELETE FROM consent_sessions WHERE user_id = $1 RETURNING user_id, id";
}

/// Without `Debug`, because it holds the state.
#[derive(Clone, Copy)]
pub struct NewConsentSession<'a> {
    /// The user for whom an institution is linked.
    pub user_id: UserId,
    /// The link that starts it.
    pub link_id: Uuid,
    pub provider: &'a str,
    /// The connection to repair. None: a new connection.
    pub connection_id: Option<ConnectionId>,
    /// The provider's ids of the consents that the user already has. Only salted digests of them
    /// are stored.
    pub known_consents: &'a [&'a str],
    /// The cookie of the browser that starts the session. Only its SHA-256 is stored.
    pub browser: &'a str,
    /// The secret OAuth `state`, which the callback returns.
    pub state: &'a str,
    /// A later callback is rejected.
    pub expires_at: Timestamp,
    /// When to ask the provider for the outcome if no callback is received.
    pub next_attempt_at: Timestamp,
    /// How many open sessions the user may have at the provider, with this one.
    pub open_max: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsentSession {
    /// The user for whom an institution is linked.
    pub user_id: UserId,
    /// The link that started it, which may be gone.
    pub link_id: Uuid,
    pub provider: String,
    /// The connection to repair. None: a new connection, or the one to repair was removed.
    pub connection_id: Option<ConnectionId>,
    pub phase: LinkPhase,
    /// When that phase began.
    pub phase_since: Timestamp,
    /// How the session ended, as one word.
    pub outcome: Option<String>,
    /// Why it failed, as a sentence for the user.
    pub failure_reason: Option<String>,
    pub confirmation: Confirmation,
    /// The connections that the ended session created or repaired.
    pub connections: Vec<ConnectionId>,
    pub created_at: Timestamp,
    /// A later callback is rejected.
    pub expires_at: Timestamp,
    pub(crate) id: Uuid,
    pub(crate) state_hash: Vec<u8>,
    pub(crate) browser_hash: Vec<u8>,
    /// Digests of the consents that the user had when the session started.
    pub(crate) known_consents: Vec<String>,
}

/// Another consent session of the same user at the same provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherConsentSession {
    /// The connection to repair, if any.
    pub connection_id: Option<ConnectionId>,
    pub phase: LinkPhase,
    pub expires_at: Timestamp,
}

impl ConsentSessions<'_> {
    /// Lists other consent sessions of the same user and provider that were created at `since` or
    /// later.
    pub async fn list_other(
        self,
        session: &ConsentSession,
        since: Timestamp,
    ) -> Result<Vec<OtherConsentSession>> {
        let values = params![session.user_id, &session.provider, session.id, since];
        self.db.all(LIST_OTHERS, values, other_session).await
    }

    /// Stores a session in the phase [`LinkPhase::Started`]. Returns false, and stores nothing, if
    /// too many are open.
    ///
    /// # Errors
    /// [`StorageError::NotFound`](crate::StorageError::NotFound) if the user or the connection to
    /// repair does not exist, [`StorageError::Conflict`](crate::StorageError::Conflict) if the
    /// state does.
    pub async fn insert(self, new: &NewConsentSession<'_>, now: Timestamp) -> Result<bool> {
        let mut tx = self.db.begin().await?;
        lock_user(&mut tx, new.user_id).await?;
        let values = params![new.user_id, new.provider, now];
        if tx.count(COUNT_OPEN, values).await? >= new.open_max {
            tx.rollback().await;
            return Ok(false);
        }
        require_connection(&mut tx, new.user_id, new.connection_id).await?;
        let (id, state, browser) = (Uuid::now_v7(), hash(new.state), hash(new.browser));
        let known_consents: Vec<String> = new
            .known_consents
            .iter()
            .map(|consent| known_consent_digest(state.as_ref(), consent))
            .collect();
        let known_consents = known_consents.join(" ");
        let values = params![
            new.user_id,
            id,
            &state,
            new.provider,
            new.connection_id,
            &known_consents,
            now,
            new.expires_at,
            &browser,
            new.link_id,
            new.connection_id.is_some()
        ];
        tx.execute_or_conflict(INSERT, values, "this state").await?;
        let job = JobKey::new(job_kinds::CONSENT_SESSION, new.user_id, id);
        jobs::insert(&mut tx, &job, new.provider, Some(new.next_attempt_at)).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// How many sessions of a user and provider have neither ended nor expired.
    pub async fn count_open(self, user: UserId, provider: &str, now: Timestamp) -> Result<u64> {
        self.db
            .count(COUNT_OPEN, params![user, provider, now])
            .await
    }

    /// Finds the session with this state, also an ended or expired one until cleanup deletes it.
    pub async fn find(self, state: &str) -> Result<Option<ConsentSession>> {
        self.db.one(FIND, params![&hash(state)], session).await
    }

    /// Lists the user's sessions that this browser started and that wait: for a callback or a
    /// confirmation, or, once confirmed, for the provider. Without repairs that are needed no more.
    pub async fn list_unfinished(
        self,
        user: UserId,
        browser: &str,
        now: Timestamp,
    ) -> Result<Vec<ConsentSession>> {
        self.db
            .all(LIST_UNFINISHED, params![user, &hash(browser), now], session)
            .await
    }

    /// Lists the sessions that a link has started, newest first.
    pub async fn list_of_link(self, user: UserId, link: Uuid) -> Result<Vec<ConsentSession>> {
        self.db
            .all(LIST_OF_LINK, params![user, link], session)
            .await
    }

    /// Confirms a session without a callback, and makes it due. Returns its job, or None unless
    /// this browser started the session and it is open.
    pub async fn confirm(
        self,
        user: UserId,
        id: Uuid,
        browser: &str,
        now: Timestamp,
    ) -> Result<Option<JobKey>> {
        let browser = hash(browser);
        let values = params![user, id, &browser, now];
        let Some(mut tx) = begin_locked_write(&self.db, user, CONFIRM, values).await? else {
            return Ok(None);
        };
        let job = JobKey::new(job_kinds::CONSENT_SESSION, user, id);
        jobs::restart(&mut tx, &job, Some(now)).await?;
        tx.commit().await?;
        Ok(Some(job))
    }

    /// Denies an open session, and makes it due. The holder of its job loses the lease. Returns
    /// false if the session has ended or was denied before.
    pub async fn deny(self, session: &ConsentSession, now: Timestamp) -> Result<bool> {
        let values = params![session.user_id, session.id];
        let Some(mut tx) = begin_locked_write(&self.db, session.user_id, DENY, values).await?
        else {
            return Ok(false);
        };
        jobs::restart(&mut tx, &session.job(), Some(now)).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Records that what an ended session connected is withdrawn.
    pub async fn deny_ended(self, session: &ConsentSession) -> Result<()> {
        self.db
            .execute(DENY_ENDED, params![session.user_id, session.id])
            .await
    }
}

impl ConsentSession {
    /// Whether the browser with this cookie started the session, or confirmed it on the callback
    /// page.
    pub fn is_bound_to(&self, browser: &str) -> bool {
        self.browser_hash == hash(browser).as_ref()
    }

    pub fn id(&self) -> Uuid {
        self.id
    }

    /// The slot of the callback parameters, and later of the credentials.
    pub(crate) fn secret_slot(&self) -> SecretSlot {
        SecretSlot::consent_session(self.user_id, self.id)
    }

    pub fn job(&self) -> JobKey {
        JobKey::new(job_kinds::CONSENT_SESSION, self.user_id, self.id)
    }
}

/// Clears a deleted connection from the user's sessions. The caller holds the lock on the user's
/// row.
pub(crate) async fn clear_connection(
    tx: &mut Tx,
    user: UserId,
    connection: ConnectionId,
) -> Result<()> {
    tx.run(CLEAR_CONNECTION, params![user, connection]).await?;
    tx.execute(CLEAR_RESULT, params![user, connection]).await
}

/// Deletes the user's sessions, but not their jobs. The caller holds the lock on the user's row.
pub(crate) async fn delete_sessions(tx: &mut Tx, user: UserId) -> Result<()> {
    let deleted = tx.all(DELETE_OF_USER, params![user], pair).await?;
    delete_secrets(tx, deleted).await
}

/// Deletes the secrets of sessions in the order of key rotation, so that the two cannot deadlock.
pub(crate) async fn delete_secrets(tx: &mut Tx, mut sessions: Vec<(UserId, Uuid)>) -> Result<()> {
    sessions.sort_unstable();
    for (user, session) in sessions {
        delete_secret(tx, &SecretSlot::consent_session(user, session)).await?;
    }
    Ok(())
}

from_row! {
    fn other_session(row) -> OtherConsentSession {
        connection_id, phase, expires_at,
    }
}

from_row! {
    /// Reads a session from the first columns of a row.
    pub(crate) fn session(row) -> ConsentSession {
        user_id, id, provider, connection_id, phase, phase_since, outcome, created_at, expires_at,
        state_hash, known_consents = row.text(10)?.split_whitespace().map(str::to_owned).collect(),
        browser_hash, confirmation,
        connections = row.text(13)?.split_whitespace().filter_map(|id| id.parse().ok()).collect(),
        failure_reason, link_id,
    }
}

/// The stored form of a consent id. The session's state salts it, so equal ids differ between
/// sessions.
pub(crate) fn known_consent_digest(state_hash: &[u8], consent: &str) -> String {
    let mut context = Context::new(&SHA256);
    context.update(state_hash);
    context.update(consent.as_bytes());
    let digest = context.finish();
    hex(&digest.as_ref()[..KNOWN_DIGEST_BYTES])
}
