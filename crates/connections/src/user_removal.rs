//! Removes a user with their connections: a job that waits until each consent is withdrawn,
//! unregisters the user at providers, and then deletes the user.

use std::time::Duration;

use bellbird_domain::TimestampExt as _;
use bellbird_providers::registry::PROVIDERS;
use bellbird_storage::{ClaimedJob, StorageError, job_kinds};

use crate::ConnectionsError;
use crate::jobs::{JobKind, require_lease};
use crate::linking::Links;
use crate::removal;
use crate::state::part;

/// How often the job looks whether all connections are removed. The last removal requests a run
/// too.
const INTERVAL: Duration = Duration::from_secs(60);

pub(crate) static KIND: JobKind = JobKind {
    has_provider: false,
    ..JobKind::new(
        job_kinds::USER_REMOVAL,
        Duration::from_secs(120),
        |state, claim| Box::pin(UserRemovals(state).run(claim)),
    )
};

part! {
    /// Removals of users with their connections.
    UserRemovals
}

impl UserRemovals<'_> {
    /// Starts a removal that was requested, and those of the user's connections, if this process is
    /// a service.
    pub fn wake(self) {
        self.0.wake(&KIND, "");
        for provider in PROVIDERS {
            self.0.wake(&removal::KIND, provider.name.as_str());
        }
    }

    async fn run(self, claim: &ClaimedJob) -> Result<(), ConnectionsError> {
        let (storage, user) = (&self.0.storage, claim.user_id());
        // Also one that the user has linked since.
        let left = storage
            .users()
            .hide_connections(claim, self.0.clock.now())
            .await?;
        if left.ok_or(ConnectionsError::Busy)? > 0 {
            self.wake();
            return self.look_again(claim).await;
        }
        Links(self.0).unregister_provider_users(user, false).await?;
        match storage
            .users()
            .finish_removal(claim, self.0.clock.now())
            .await
        {
            // A connection or a registration was made meanwhile.
            Err(StorageError::Conflict(_)) => self.look_again(claim).await,
            held => {
                require_lease(held?)?;
                tracing::info!(user_id = %user, "user removed");
                self.0.event_buffer.wake();
                Ok(())
            }
        }
    }

    async fn look_again(self, claim: &ClaimedJob) -> Result<(), ConnectionsError> {
        self.0
            .finish_job(claim, Some(self.0.clock.now().plus(INTERVAL)))
            .await
    }
}
