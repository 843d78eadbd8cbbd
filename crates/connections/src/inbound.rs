//! Events from providers. Each of them only makes us look at the provider; what it says is never believed further.

use std::time::Duration;

use bellbird_domain::UserId;
use bellbird_providers::Provider;
use bellbird_providers::notifying::{Concern, Refused};
use bellbird_storage::{Concerned, StorageError};
use http::HeaderMap;
use jiff::SignedDuration;
use uuid::Uuid;

use crate::{Connections, ConnectionsError};

/// Akahu wants its answer within 5 s (docs/providers/akahu.md#webhooks), and a key may have to be fetched from it
/// first.
const DEADLINE: Duration = Duration::from_secs(4);
/// However many events come, a connection is looked at no more often.
const LOOKED_AT_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// Nor is it synced more often: providers send several events for one change.
const SYNCED_EVERY: SignedDuration = SignedDuration::from_secs(30);
/// The metric of events, by provider and by what became of them.
pub const EVENTS: &str = "bellbird_provider_events_total";

/// Why an event was not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotTaken {
    /// Nobody sends us events under this name: no such provider, or no secret to check its signatures with.
    #[error("no events are received here from this provider")]
    NotOffered,
    /// By the adapter.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// By our database: to be sent again.
    #[error(transparent)]
    Storage(#[from] StorageError),
}

impl Connections {
    /// Takes an event: checks it, writes down what has to be looked at, and wakes those who look. When this returns,
    /// nothing about the event can be lost any more. One that was taken before does nothing.
    ///
    /// # Errors
    /// [`NotTaken`].
    pub async fn receive(&self, provider: &str, headers: &HeaderMap, body: &[u8]) -> Result<(), NotTaken> {
        let Ok(adapter) = self.provider(provider) else { return Err(NotTaken::NotOffered) };
        let notifying = adapter.notifying().ok_or(NotTaken::NotOffered)?;
        let count = |outcome: &'static str| {
            let name = adapter.name().as_str();
            metrics::counter!(EVENTS, "provider" => name, "outcome" => outcome).increment(1);
        };
        let notification = match notifying.read(&self.call_within(DEADLINE), headers, body).await {
            Err(refused) => {
                count("refused");
                return Err(refused.into());
            }
            Ok(notification) => notification,
        };
        if let Some(id) = &notification.id
            && self.storage.has_event(provider, id).await?
        {
            count("repeated");
            return Ok(());
        }
        let concerned: Vec<Concerned<'_>> = notification.concerns.iter().filter_map(concerned).collect();
        if concerned.is_empty() {
            count("ignored");
        } else {
            count("taken");
            self.ask_for_looks(adapter.as_ref(), &concerned).await?;
        }
        // Behind the work: an event whose receiver was killed in the middle comes again.
        if let Some(id) = &notification.id {
            self.storage.insert_event(provider, id, self.clock.now()).await?;
        }
        Ok(())
    }

    async fn ask_for_looks(&self, provider: &dyn Provider, concerned: &[Concerned<'_>]) -> Result<(), StorageError> {
        let (name, now) = (provider.name().as_str(), self.clock.now());
        self.storage.hurry_link_sessions(name, concerned, now).await?;
        self.due.trips.notify_one();
        for (user, connection) in self.storage.find_concerned(name, concerned).await? {
            self.storage.request_look(user, connection, now, LOOKED_AT_EVERY).await?;
            if self.syncing.enabled {
                self.storage.request_sync(user, connection, now, SYNCED_EVERY).await?;
            }
        }
        self.due.looks.notify_one();
        self.due.syncs.notify_one();
        Ok(())
    }

    /// Forgets what is of no more use: addresses, trips and events long past.
    ///
    /// # Errors
    /// Those of the database.
    pub async fn tidy(&self) -> Result<u64, ConnectionsError> {
        Ok(self.storage.delete_outdated(self.clock.now()).await?)
    }
}

fn concerned(concern: &Concern) -> Option<Concerned<'_>> {
    Some(match concern {
        Concern::Connection(id) => Concerned::Connection(id),
        Concern::Account(id) => Concerned::Account(id),
        Concern::Owner(id) => Concerned::Owner(id),
        Concern::Reference(reference) => Concerned::User(UserId::from(Uuid::try_parse(reference).ok()?)),
    })
}
