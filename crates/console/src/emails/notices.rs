//! Sends the e-mails that are due. One instance at a time does it, and a restart forgets none.

use std::time::Duration;

use bellbird_domain::{Clock, TimestampExt as _};
use bellbird_storage::{JobKey, LastFailure, Storage, StorageError};
use jiff::SignedDuration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{Mailer, SendError, Text};

const INTERVAL: Duration = Duration::from_secs(60);
/// Names the lease of the instance that sends.
const LEASE: &str = "emails";
const LEASE_LENGTH: SignedDuration = SignedDuration::from_mins(5);
/// How long one run sends: less than the lease, by more than one e-mail takes. The next run goes
/// on.
const RUN_MAX: Duration = Duration::from_mins(4);
/// A server may reject the operator's settings and not the recipient, and they may be mended.
const REJECTED_AGAIN_AFTER: SignedDuration = SignedDuration::from_hours(24);

impl Mailer {
    /// Sends, each minute, what is due, until `stop`.
    pub async fn run(&self, storage: &Storage, clock: &Clock, stop: &CancellationToken) {
        let mut failure = LastFailure::default();
        while stop
            .run_until_cancelled(tokio::time::sleep(INTERVAL))
            .await
            .is_some()
        {
            let sent = self.send_due(storage, clock, stop).await;
            if let Some(error) = failure.news(&sent) {
                tracing::warn!(error, "could not read which e-mails are due");
            }
        }
    }

    /// Sends what is due, unless another instance does. What the server rejects is sent again in a
    /// day, and what fails otherwise in a minute.
    ///
    /// # Errors
    /// If the database cannot be used.
    pub async fn send_due(
        &self,
        storage: &Storage,
        clock: &Clock,
        stop: &CancellationToken,
    ) -> Result<(), StorageError> {
        let (key, now) = (JobKey::of_service(LEASE), clock.now());
        storage.jobs().insert(&key, "", now).await?;
        let Some(lease) = storage
            .jobs()
            .claim(&key, now, now.plus(LEASE_LENGTH))
            .await?
        else {
            return Ok(());
        };
        let sent = self.send_all(storage, clock, stop).await;
        storage.jobs().finish(&lease, None).await?;
        sent
    }

    async fn send_all(
        &self,
        storage: &Storage,
        clock: &Clock,
        stop: &CancellationToken,
    ) -> Result<(), StorageError> {
        storage.emails().forget_outdated(clock.now()).await?;
        let started = Instant::now();
        let mut last = None;
        let mut failed = Vec::new();
        'all: loop {
            let due = storage
                .emails()
                .list_due(last.as_ref(), clock.now())
                .await?;
            let Some(end) = due.last() else { break };
            last = Some(end.key.clone());
            for email in &due {
                // Not while one is on its way: it would be sent twice.
                if stop.is_cancelled() || started.elapsed() > RUN_MAX {
                    break 'all;
                }
                let sent = match Text::of_due(email, &self.console_url()) {
                    Ok(text) => self.send(&email.address, text).await,
                    Err(error) => Err(SendError::Rejected(error.to_string())),
                };
                let retry_at = match sent {
                    Ok(()) => None,
                    Err(error @ SendError::Rejected(_)) => {
                        let (user_id, retry_at) =
                            (email.key.user_id, clock.now().plus(REJECTED_AGAIN_AFTER));
                        tracing::warn!(%user_id, kind = %email.key.kind, %retry_at, %error, "could not send an e-mail");
                        Some(retry_at)
                    }
                    Err(SendError::Unavailable(reason)) => {
                        failed.push(reason);
                        continue;
                    }
                };
                storage.emails().record(&email.key, retry_at).await?;
            }
        }
        if let Some(error) = failed.first() {
            tracing::warn!(
                count = failed.len(),
                error,
                "could not send e-mails, trying again in a minute"
            );
        }
        Ok(())
    }
}
