//! Link sessions: one trip of a browser to a provider and back. The provider sends the browser back with a `state` that
//! only this trip has; it is known by its SHA-256. What becomes of what it brings is in `link_session_claims.rs`.

use aws_lc_rs::digest::{Context, SHA256};
use bellbird_domain::{ConnectionId, UserId};
use jiff::Timestamp;
use uuid::Uuid;

use crate::Storage;
use crate::db::{Param, Row, Tx, params, statements};
use crate::digest::{hash, hex};
use crate::error::Result;
use crate::linking::links::require_connection;
use crate::locks::lock_user;
use crate::secrets::store::{SecretSlot, delete_secret};

/// How much of a digest tells one consent from another.
const KNOWN_DIGEST_BYTES: usize = 16;

/// The columns of every read of sessions, in the order that [`session`] expects.
macro_rules! columns {
    ($table:literal) => {
        concat!($table, "user_id, ", $table, "id, provider, connection_id, phase, outcome, created_at, expires_at")
    };
}
pub(crate) use columns;

statements! {
    INSERT = "INSERT INTO link_sessions
            (user_id, id, state_hash, provider, connection_id, known_consents, phase, created_at, expires_at,
                next_attempt_at)
        VALUES ($1, $2, $3, $4, $5, $6, 'started', $7, $8, $9)";

    FIND = concat!("SELECT ", columns!(""), " FROM link_sessions WHERE state_hash = $1");

    LIST_OTHERS = "SELECT connection_id, phase FROM link_sessions
        WHERE user_id = $1 AND provider = $2 AND id <> $3 AND created_at >= $4";

    CLEAR_CONNECTION = "UPDATE link_sessions SET connection_id = NULL WHERE user_id = $1 AND connection_id = $2";

    DELETE_OF_USER = "DELETE FROM link_sessions WHERE user_id = $1 RETURNING user_id, id";
}

/// A trip that begins. Without `Debug`: it holds the state.
#[derive(Clone, Copy)]
pub struct NewLinkSession<'a> {
    /// For whom something is linked.
    pub user_id: UserId,
    /// Where the browser is sent.
    pub provider: &'a str,
    /// The connection to repair; none: a new one.
    pub connection_id: Option<ConnectionId>,
    /// The provider's ids of the consents that the user has there already. Kept as salted digests only.
    pub known_consents: &'a [&'a str],
    /// What the browser will bring back, and nobody else knows.
    pub state: &'a str,
    /// The browser has to be back before this instant.
    pub expires_at: Timestamp,
    /// When to see what became of it, should it not come back.
    pub next_attempt_at: Timestamp,
}

/// How far a trip has got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkPhase {
    /// The browser was sent away.
    Started,
    /// It is back, and what it brought is sealed.
    CallbackReceived,
    /// The provider gave a credentials for that, which is sealed.
    CredentialsObtained,
    /// Over, well or not: the outcome says it.
    Ended,
}

impl LinkPhase {
    /// The word used in the database.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::CallbackReceived => "callback_received",
            Self::CredentialsObtained => "credentials_obtained",
            Self::Ended => "ended",
        }
    }
}

/// A word that is no phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("unknown phase")]
pub struct UnknownPhase;

impl std::str::FromStr for LinkPhase {
    type Err = UnknownPhase;

    fn from_str(text: &str) -> std::result::Result<Self, UnknownPhase> {
        [Self::Started, Self::CallbackReceived, Self::CredentialsObtained, Self::Ended]
            .into_iter()
            .find(|phase| phase.as_str() == text)
            .ok_or(UnknownPhase)
    }
}

/// A trip of a browser to a provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinkSession {
    /// For whom something is linked.
    pub user_id: UserId,
    /// Where the browser was sent.
    pub provider: String,
    /// The connection to repair; none: a new one, or the one to repair is gone.
    pub connection_id: Option<ConnectionId>,
    /// How far it has got.
    pub phase: LinkPhase,
    /// How it ended, in a short word.
    pub outcome: Option<String>,
    /// When it began.
    pub created_at: Timestamp,
    /// The browser has to be back before this instant.
    pub expires_at: Timestamp,
    pub(crate) id: Uuid,
}

/// Another trip of the same user to the same provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherLinkSession {
    /// What it is to repair, if anything.
    pub connection_id: Option<ConnectionId>,
    /// How far it has got.
    pub phase: LinkPhase,
}

impl Storage {
    /// The other trips of a trip's user to the same provider that began since then.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn list_other_link_sessions(
        &self,
        session: &LinkSession,
        since: Timestamp,
    ) -> Result<Vec<OtherLinkSession>> {
        let values = params![session.user_id, session.provider.as_str(), Param::Id(session.id), since];
        self.db.all(LIST_OTHERS, values, other).await
    }

    /// Begins a session.
    ///
    /// # Errors
    /// [`StorageError::NotFound`](crate::StorageError::NotFound) without such a user, or when they have
    /// no such connection to repair;
    /// [`StorageError::Conflict`](crate::StorageError::Conflict) for a state that is there.
    pub async fn insert_link_session(&self, new: &NewLinkSession<'_>, now: Timestamp) -> Result<()> {
        let mut tx = self.db.begin().await?;
        lock_user(&mut tx, new.user_id).await?;
        require_connection(&mut tx, new.user_id, new.connection_id).await?;
        let (id, state) = (Param::Id(Uuid::now_v7()), hash(new.state));
        let known_consents: Vec<String> =
            new.known_consents.iter().map(|consent| known_consent_digest(state.as_ref(), consent)).collect();
        let known_consents = known_consents.join(" ");
        let values = params![
            new.user_id,
            id,
            state.as_ref(),
            new.provider,
            new.connection_id,
            known_consents.as_str(),
            now,
            new.expires_at,
            new.next_attempt_at
        ];
        tx.run(INSERT, values).await.map_err(|error| error.or_conflict("this state"))?;
        tx.commit().await
    }

    /// The session with this state; those that ended or expired too, while they are kept.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_link_session(&self, state: &str) -> Result<Option<LinkSession>> {
        self.db.one(FIND, params![hash(state).as_ref()], session).await
    }
}

impl LinkSession {
    /// Where what it has got so far is kept.
    pub(crate) fn secret_slot(&self) -> SecretSlot {
        SecretSlot::link_session(self.user_id, self.id)
    }
}

/// Leaves the sessions of a connection that goes without it. The user's row is locked.
pub(crate) async fn clear_connection(tx: &mut Tx, user: UserId, connection: ConnectionId) -> Result<()> {
    tx.run(CLEAR_CONNECTION, params![user, connection]).await.map(|_| ())
}

/// Forgets a user's sessions. The user's row is locked.
pub(crate) async fn delete_sessions(tx: &mut Tx, user: UserId) -> Result<()> {
    let deleted = tx.all(DELETE_OF_USER, params![user], |row| Ok((row.id(0)?, row.id(1)?))).await?;
    delete_secrets(tx, deleted).await
}

/// Forgets the secrets of sessions, in the order in which they are sealed anew, so that neither waits for the other.
pub(crate) async fn delete_secrets(tx: &mut Tx, mut sessions: Vec<(UserId, Uuid)>) -> Result<()> {
    sessions.sort_unstable();
    for (user, session) in sessions {
        delete_secret(tx, &SecretSlot::link_session(user, session)).await?;
    }
    Ok(())
}

fn other(row: &Row<'_>) -> Result<OtherLinkSession> {
    Ok(OtherLinkSession { connection_id: row.opt_id(0)?, phase: row.word(1, "the phase of a link session")? })
}

/// A session of the columns that every read of sessions begins with.
pub(crate) fn session(row: &Row<'_>) -> Result<LinkSession> {
    Ok(LinkSession {
        user_id: row.id(0)?,
        id: row.id(1)?,
        provider: row.text(2)?.to_owned(),
        connection_id: row.opt_id(3)?,
        phase: row.word(4, "the phase of a link session")?,
        outcome: row.opt_text(5)?.map(str::to_owned),
        created_at: row.time(6)?,
        expires_at: row.time(7)?,
    })
}

/// The form in which a session keeps the id of a consent: another one in each session, for their states differ.
pub(crate) fn known_consent_digest(state_hash: &[u8], consent: &str) -> String {
    let mut context = Context::new(&SHA256);
    context.update(state_hash);
    context.update(consent.as_bytes());
    let digest = context.finish();
    hex(&digest.as_ref()[..KNOWN_DIGEST_BYTES])
}
