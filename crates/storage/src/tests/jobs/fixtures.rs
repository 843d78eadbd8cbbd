//! Refreshes, syncs, removals and consent sessions as the jobs that they are, in short.

use bellbird_domain::{ConnectionId, UserId};
use jiff::Timestamp;

use crate::error::Result;
use crate::{ClaimedConsentSession, ClaimedJob, JobKey, Storage, job_kinds};

impl ClaimedJob {
    pub(crate) fn connection_id(&self) -> ConnectionId {
        self.subject_id()
    }
}

pub(crate) fn ids(claims: &[ClaimedJob]) -> Vec<ConnectionId> {
    claims.iter().map(ClaimedJob::connection_id).collect()
}

impl Storage {
    /// Claims up to `limit` due jobs, of connections at Akahu.
    pub(crate) async fn claim_due(
        &self,
        kind: &'static str,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedJob>> {
        let mut claims = Vec::new();
        while claims.len() < limit {
            let Some(claim) = self
                .jobs()
                .claim_due(kind, "akahu", now, lease_until)
                .await?
            else {
                break;
            };
            claims.push(claim);
        }
        Ok(claims)
    }

    /// Claims up to `limit` due consent sessions at any provider.
    pub(crate) async fn claim_due_consent_sessions(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedConsentSession>> {
        let mut claims = Vec::new();
        for provider in ["akahu", "fiskil", "other"] {
            while claims.len() < limit {
                let claim = self
                    .jobs()
                    .claim_due(job_kinds::CONSENT_SESSION, provider, now, lease_until)
                    .await?;
                let Some(claim) = claim else { break };
                claims.extend(self.consent_sessions().find_claimed(&claim).await?);
            }
        }
        Ok(claims)
    }

    /// Claims a job of a connection, due or not.
    pub(crate) async fn claim(
        &self,
        kind: &'static str,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedJob>> {
        self.jobs()
            .claim(&JobKey::new(kind, user, id), now, lease_until)
            .await
    }
}
