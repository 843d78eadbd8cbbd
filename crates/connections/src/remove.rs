//! Removing a connection: hidden at once, consent withdrawn, everything about it forgotten.
//!
//! What is hidden is due work of its row, and stays so until it is gone: claimed by whoever works on it, the command line
//! or any copy of the service, with a lease that outlives one attempt. Each step may be the last that a program does.
//! A consent may be withdrawn twice that way, which every provider takes, but never not at all.

use std::time::Duration;

use bellbird_domain::{ConnectionId, ConnectionStatus, UserId};
use bellbird_providers::{Call, Error};
use bellbird_storage::{ClaimedRemoval, StorageError};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::schedule::{self, Failure};
use crate::{Connections, ConnectionsError, for_each};

/// How long one attempt may ask the provider.
const ATTEMPT_DEADLINE: Duration = Duration::from_secs(30);
/// How long a removal is somebody's: an attempt, and the time that a slow database takes before and after it.
const LEASE: Duration = Duration::from_secs(120);
/// Removals that one copy of the service works on at the same time.
const AT_ONCE: u32 = 8;
/// How often a command looks whether somebody else is done with a removal.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How the removal of a connection went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Removal {
    /// It is gone.
    Done,
    /// It is hidden; its consent could not be withdrawn yet.
    Waiting {
        /// Why not, in words for the person who hosts.
        reason: String,
        /// When the service tries again; none: when whoever works on it now does not finish.
        next_attempt_at: Option<Timestamp>,
    },
}

/// What happens to the consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consent {
    /// It is withdrawn before anything is forgotten.
    Withdrawn,
    /// It stays as it is at the provider.
    LeftAlone,
}

/// What keeps a consent from being withdrawn.
#[derive(Debug, thiserror::Error)]
enum Obstacle {
    #[error("{0}")]
    Provider(Error),
    #[error(transparent)]
    NotOffered(ConnectionsError),
    #[error("its grant cannot be opened: {0}")]
    Sealed(bellbird_storage::SealError),
}

impl Obstacle {
    fn failure(&self) -> Failure {
        match self {
            Self::Provider(error) if error.is_transient() => Failure::Passing(error.retry_after()),
            _ => Failure::Lasting,
        }
    }
}

/// How one attempt ended.
enum Attempt {
    Done,
    Postponed {
        reason: String,
        until: Timestamp,
    },
    /// The lease ran out, and somebody else goes on.
    Overtaken,
}

impl Connections {
    /// Removes a connection: hides it, and makes the first attempt to withdraw its consent and forget it. Where it is
    /// hidden already, makes an attempt now, unless somebody else does: that one is waited for.
    ///
    /// # Errors
    /// [`ConnectionsError::NotFound`], and those of the database.
    pub async fn remove(&self, id: ConnectionId) -> Result<Removal, ConnectionsError> {
        self.end(id, Consent::Withdrawn).await
    }

    /// Forgets a connection without telling its provider, where the consent stays until the user withdraws it there:
    /// for the host who knows that the provider can never be told again.
    ///
    /// # Errors
    /// As [`Self::remove`].
    pub async fn forget(&self, id: ConnectionId) -> Result<Removal, ConnectionsError> {
        self.end(id, Consent::LeftAlone).await
    }

    async fn end(&self, id: ConnectionId, consent: Consent) -> Result<Removal, ConnectionsError> {
        let connection = self.storage.find_connection_any(id).await?.ok_or(ConnectionsError::NotFound)?;
        let user = connection.user_id;
        let give_up = Instant::now() + ATTEMPT_DEADLINE;
        let (now, lease) = self.lease(LEASE);
        let mut claim = match connection.status {
            ConnectionStatus::Deleting => None,
            _ => self.storage.begin_removal(user, id, now, lease).await?,
        };
        loop {
            if claim.is_none() {
                let (now, lease) = self.lease(LEASE);
                claim = self.storage.claim_removal(user, id, now, lease).await?;
            }
            match claim.take() {
                Some(claim) => match self.attempt(&claim, consent).await? {
                    Attempt::Done => return Ok(Removal::Done),
                    Attempt::Postponed { reason, until } => {
                        return Ok(Removal::Waiting { reason, next_attempt_at: Some(until) });
                    }
                    Attempt::Overtaken => {}
                },
                None if self.storage.find_connection_any(id).await?.is_none() => return Ok(Removal::Done),
                None if Instant::now() >= give_up => {
                    let reason = "another program works on it, or was interrupted while it did".to_owned();
                    return Ok(Removal::Waiting { reason, next_attempt_at: None });
                }
                None => tokio::time::sleep(LOOK_EVERY).await,
            }
        }
    }

    /// Makes an attempt at every removal that is due, a few at a time, and returns when none is. To be called again
    /// and again by a running service; any number of copies may do so at once.
    ///
    /// # Errors
    /// Those of the database. What was claimed by then is due again when its lease ends.
    pub async fn remove_due(&self) -> Result<(), ConnectionsError> {
        loop {
            let (now, lease) = self.lease(LEASE);
            let claims = self.storage.claim_due_removals(now, lease, AT_ONCE).await?;
            if claims.is_empty() {
                return Ok(());
            }
            for_each(claims, |claim| {
                let connections = self.clone();
                async move { connections.attempt(&claim, Consent::Withdrawn).await.map(|_| ()) }
            })
            .await?;
        }
    }

    /// How many connections are hidden and not gone yet, in the whole installation.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn removals_waiting(&self) -> Result<u64, ConnectionsError> {
        Ok(self.storage.count_removals().await?)
    }

    /// The connections that were hidden or went since then, by whichever program, with their owners.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn ended_since(&self, since: Timestamp) -> Result<Vec<(UserId, ConnectionId)>, ConnectionsError> {
        Ok(self.storage.list_ended_connections(since).await?)
    }

    async fn attempt(&self, claim: &ClaimedRemoval, consent: Consent) -> Result<Attempt, ConnectionsError> {
        let id = claim.connection_id;
        let (obstacle, cause) = match consent {
            Consent::Withdrawn => (self.withdraw(claim).await?, "deleted"),
            Consent::LeftAlone => (None, "forgotten"),
        };
        let now = self.clock.now();
        let Some(obstacle) = obstacle else {
            let finished = self.storage.finish_removal(claim, cause, now).await?;
            if finished {
                tracing::info!(connection_id = %id, cause, "connection removed");
            }
            return Ok(if finished { Attempt::Done } else { Attempt::Overtaken });
        };
        let reason = obstacle.to_string();
        let failed = claim.attempts.saturating_add(1);
        // The random end of the id, moved on with each attempt.
        let spread = (id.uuid().as_u128() as u64).wrapping_mul(u64::from(failed));
        let until = now.saturating_add(schedule::delay(failed, obstacle.failure(), spread)).unwrap_or(now);
        if !self.storage.postpone_removal(claim, until, &reason).await? {
            return Ok(Attempt::Overtaken);
        }
        tracing::warn!(connection_id = %id, failed, until = %until, reason, "consent not withdrawn yet");
        Ok(Attempt::Postponed { reason, until })
    }

    /// Withdraws the consent, or says what is in the way. A consent that is not there any more is withdrawn.
    async fn withdraw(&self, claim: &ClaimedRemoval) -> Result<Option<Obstacle>, ConnectionsError> {
        let grant = match self.storage.find_grant(claim.user_id, claim.connection_id).await {
            Ok(Some(grant)) => grant,
            Ok(None) => return Ok(None),
            Err(StorageError::Sealed(error)) => return Ok(Some(Obstacle::Sealed(error))),
            Err(error) => return Err(error.into()),
        };
        let provider = match self.provider(&claim.provider) {
            Ok(provider) => provider,
            Err(error) => return Ok(Some(Obstacle::NotOffered(error))),
        };
        let call = Call::new(Instant::now() + ATTEMPT_DEADLINE, self.clock.now());
        Ok(match provider.withdraw(&call, &grant).await {
            Ok(()) | Err(Error::ReconnectNeeded(ConnectionStatus::Revoked)) => None,
            Err(error) => Some(Obstacle::Provider(error)),
        })
    }
}
