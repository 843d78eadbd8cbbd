//! Inbound events of providers: whom they are about, and which were taken already. An event is a hint to look, so
//! nothing of it is kept but the SHA-256 of what tells it from others.

use std::collections::BTreeSet;

use bellbird_domain::{ConnectionId, UserId};
use jiff::Timestamp;

use crate::Storage;
use crate::db::{Row, params, statements, strip_nul};
use crate::digest::{hash, provider_user_digest};
use crate::error::Result;
use crate::locks::lock_user_if_exists;

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

    HAS_SESSION = "SELECT id FROM link_sessions WHERE user_id = $1 AND provider = $2 AND phase <> 'ended' LIMIT 1";

    /// One that somebody works on is due when they give it back.
    WAKE = "UPDATE link_sessions SET next_attempt_at = $3 WHERE user_id = $1 AND provider = $2 AND phase <> 'ended'";

    HAS_EVENT = "SELECT received_at FROM provider_events WHERE provider = $1 AND event_hash = $2";

    INSERT_EVENT = "INSERT INTO provider_events (provider, event_hash, received_at) VALUES ($1, $2, $3)
        ON CONFLICT (provider, event_hash) DO NOTHING";
}

/// Whom or what an event names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AffectedRef<'a> {
    /// The provider's id of a consent.
    Connection(&'a str),
    /// The provider's id of an account.
    Account(&'a str),
    /// The provider's id of whoever gave a consent.
    ProviderUser(&'a str),
    /// A user of ours.
    User(UserId),
}

impl Storage {
    /// The connections of a provider that these are about, each once, those being deleted left out. Of whatever user.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn find_affected_connections(
        &self,
        provider: &str,
        affected: &[AffectedRef<'_>],
    ) -> Result<Vec<(UserId, ConnectionId)>> {
        let mut found = BTreeSet::new();
        for affected in affected {
            found.extend(match affected {
                AffectedRef::Connection(id) => {
                    self.db.all(FIND_BY_CONNECTION, params![provider, &*strip_nul(id)], ids).await?
                }
                AffectedRef::Account(id) => {
                    self.db.all(FIND_BY_ACCOUNT, params![provider, &*strip_nul(id)], ids).await?
                }
                AffectedRef::ProviderUser(id) => {
                    self.db.all(FIND_BY_PROVIDER_USER, params![provider, &*provider_user_digest(id)], ids).await?
                }
                AffectedRef::User(user) => self.db.all(FIND_BY_USER, params![provider, *user], ids).await?,
            });
        }
        Ok(found.into_iter().collect())
    }

    /// Makes the link sessions at a provider due now that have not ended and whose users these may be about: the users
    /// of the connections, those registered under that owner, and those named.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn wake_link_sessions(&self, provider: &str, affected: &[AffectedRef<'_>], now: Timestamp) -> Result<()> {
        for user in self.find_affected_users(provider, affected).await? {
            // Asked first: it is rare, and would take SQLite's one writer.
            if self.db.one(HAS_SESSION, params![user, provider], |_| Ok(())).await?.is_none() {
                continue;
            }
            let mut tx = self.db.begin().await?;
            if lock_user_if_exists(&mut tx, user).await? {
                tx.run(WAKE, params![user, provider, now]).await?;
            }
            tx.commit().await?;
        }
        Ok(())
    }

    async fn find_affected_users(&self, provider: &str, affected: &[AffectedRef<'_>]) -> Result<BTreeSet<UserId>> {
        let connections = self.find_affected_connections(provider, affected).await?;
        let mut users: BTreeSet<UserId> = connections.into_iter().map(|(user, _)| user).collect();
        for affected in affected {
            match affected {
                AffectedRef::User(user) => {
                    users.insert(*user);
                }
                AffectedRef::ProviderUser(id) => {
                    let provider_user = provider_user_digest(id);
                    let found =
                        self.db.all(FIND_REGISTERED, params![provider, &*provider_user], |row| row.id(0)).await?;
                    users.extend::<Vec<UserId>>(found);
                }
                AffectedRef::Connection(_) | AffectedRef::Account(_) => {}
            }
        }
        Ok(users)
    }

    /// Whether an event was taken already. `event` is what tells it from others: the provider's id of it, or its text.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn has_provider_event(&self, provider: &str, event: &str) -> Result<bool> {
        let found = self.db.one(HAS_EVENT, params![provider, hash(event).as_ref()], |_| Ok(())).await?;
        Ok(found.is_some())
    }

    /// Notes that an event was taken. One that is there already is no error.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn insert_provider_event(&self, provider: &str, event: &str, now: Timestamp) -> Result<()> {
        self.db.run(INSERT_EVENT, params![provider, hash(event).as_ref(), now]).await.map(|_| ())
    }
}

fn ids(row: &Row<'_>) -> Result<(UserId, ConnectionId)> {
    Ok((row.id(0)?, row.id(1)?))
}
