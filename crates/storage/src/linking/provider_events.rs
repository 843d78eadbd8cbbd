//! Finds the connections and consent sessions that a provider event affects, and stores processed
//! events to skip redeliveries. An event only triggers a refresh, so nothing but its SHA-256 is
//! kept.

use std::collections::BTreeSet;

use bellbird_domain::{ConnectionId, UserId};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::ProviderEvents;
use crate::db::{Param, pair, params, scalar, statements, strip_nul};
use crate::digest::{hash, provider_user_digest};
use crate::error::Result;
use crate::jobs::{JobKey, job_kinds};

statements! {
    FIND_BY_CONNECTION = "SELECT user_id, id FROM connections
        WHERE provider = $1 AND provider_connection_id = $2 AND status <> 'deleting'";

    FIND_BY_ACCOUNT = "SELECT c.user_id, c.id FROM accounts a CROSS JOIN connections c
        WHERE a.provider_account_id = $2 AND c.user_id = a.user_id AND c.id = a.connection_id
            AND c.provider = $1 AND c.status <> 'deleting'";

    FIND_BY_PROVIDER_USER = "SELECT user_id, id FROM connections
        WHERE provider = $1 AND provider_user_digest = $2 AND status <> 'deleting'";

    FIND_BY_USER = "SELECT user_id, id FROM connections WHERE provider = $1 AND user_id = $2 AND status <> 'deleting'";

    FIND_REGISTERED = "SELECT user_id FROM provider_users WHERE provider = $1 AND provider_user_digest = $2";

    LIST_SESSIONS = "SELECT id FROM consent_sessions WHERE user_id = $1 AND provider = $2 AND phase <> 'ended'";

    HAS_EVENT = "SELECT received_at FROM provider_events WHERE provider = $1 AND event_hash = $2";

    INSERT_EVENT = "INSERT INTO provider_events (provider, event_hash, received_at) VALUES ($1, $2, $3)
        ON CONFLICT (provider, event_hash) DO NOTHING";
}

/// What a provider event names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AffectedRef<'a> {
    /// The provider's id of a consent.
    Connection(&'a str),
    /// The provider's id of an account.
    Account(&'a str),
    /// The provider's id of the user who gave a consent.
    ProviderUser(&'a str),
    /// One of our users.
    User(UserId),
}

impl ProviderEvents<'_> {
    /// Finds the affected connections of all users, each once, without those being deleted.
    pub async fn find_affected(
        self,
        provider: &str,
        affected: &[AffectedRef<'_>],
    ) -> Result<Vec<(UserId, ConnectionId)>> {
        let mut found = BTreeSet::new();
        for affected in affected {
            let text;
            let (find, value) = match affected {
                AffectedRef::Connection(id) => {
                    text = strip_nul(id);
                    (FIND_BY_CONNECTION, Param::Text(&text))
                }
                AffectedRef::Account(id) => {
                    text = strip_nul(id);
                    (FIND_BY_ACCOUNT, Param::Text(&text))
                }
                AffectedRef::ProviderUser(id) => {
                    text = provider_user_digest(id).into();
                    (FIND_BY_PROVIDER_USER, Param::Text(&text))
                }
                AffectedRef::User(user) => (FIND_BY_USER, Param::from(*user)),
            };
            let values = [Param::from(provider), value];
            found.extend(
                self.db
                    .all(find, &values, pair::<UserId, ConnectionId>)
                    .await?,
            );
        }
        Ok(found.into_iter().collect())
    }

    /// Makes consent sessions that have not ended at a provider due now: those of users with an
    /// affected connection, of users registered under an affected provider id, and of users named
    /// directly.
    pub async fn wake_consent_sessions(
        self,
        provider: &str,
        affected: &[AffectedRef<'_>],
        now: Timestamp,
    ) -> Result<()> {
        for user in self.find_affected_users(provider, affected).await? {
            let sessions: Vec<Uuid> = self
                .db
                .all(LIST_SESSIONS, params![user, provider], scalar)
                .await?;
            for session in sessions {
                let job = JobKey::new(job_kinds::CONSENT_SESSION, user, session);
                self.jobs().request(&job, now, SignedDuration::ZERO).await?;
            }
        }
        Ok(())
    }

    async fn find_affected_users(
        self,
        provider: &str,
        affected: &[AffectedRef<'_>],
    ) -> Result<BTreeSet<UserId>> {
        let connections = self.find_affected(provider, affected).await?;
        let mut users: BTreeSet<UserId> = connections.into_iter().map(|(user, _)| user).collect();
        for affected in affected {
            match affected {
                AffectedRef::User(user) => {
                    users.insert(*user);
                }
                AffectedRef::ProviderUser(id) => {
                    let provider_user = provider_user_digest(id);
                    let values = params![provider, &*provider_user];
                    users.extend(
                        self.db
                            .all(FIND_REGISTERED, values, scalar::<UserId>)
                            .await?,
                    );
                }
                AffectedRef::Connection(_) | AffectedRef::Account(_) => {}
            }
        }
        Ok(users)
    }

    /// Whether an event was processed before. `event` identifies it: its provider id, or its body.
    pub async fn has(self, provider: &str, event: &str) -> Result<bool> {
        self.db
            .exists(HAS_EVENT, params![provider, &hash(event)])
            .await
    }

    /// Records a processed event. Idempotent.
    pub async fn insert(self, provider: &str, event: &str, now: Timestamp) -> Result<()> {
        self.db
            .execute(INSERT_EVENT, params![provider, &hash(event), now])
            .await
    }
}
