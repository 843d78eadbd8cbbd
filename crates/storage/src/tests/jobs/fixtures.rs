//! Refreshes, syncs, removals and link sessions as the jobs that they are, in short.

use bellbird_domain::{ConnectionId, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::error::Result;
use crate::{ClaimedJob, ClaimedLinkSession, JobKey, Storage, job_kinds};

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
            let Some(claim) = self.jobs().claim_due(kind, "akahu", now, lease_until).await? else { break };
            claims.push(claim);
        }
        Ok(claims)
    }

    pub(crate) async fn claim_due_refreshes(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedJob>> {
        self.claim_due(job_kinds::REFRESH, now, lease_until, limit).await
    }

    pub(crate) async fn claim_due_syncs(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedJob>> {
        self.claim_due(job_kinds::SYNC, now, lease_until, limit).await
    }

    pub(crate) async fn claim_due_removals(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedJob>> {
        self.claim_due(job_kinds::REMOVAL, now, lease_until, limit).await
    }

    /// Claims up to `limit` due link sessions at any provider.
    pub(crate) async fn claim_due_link_sessions(
        &self,
        now: Timestamp,
        lease_until: Timestamp,
        limit: usize,
    ) -> Result<Vec<ClaimedLinkSession>> {
        let mut claims = Vec::new();
        for provider in ["akahu", "fiskil", "other"] {
            while claims.len() < limit {
                let claim = self.jobs().claim_due(job_kinds::LINK_SESSION, provider, now, lease_until).await?;
                let Some(claim) = claim else { break };
                claims.extend(self.link_sessions().find_claimed(&claim).await?);
            }
        }
        Ok(claims)
    }

    pub(crate) async fn postpone_link_session(&self, claim: &ClaimedLinkSession, until: Timestamp) -> Result<bool> {
        self.jobs().postpone(&claim.job, until).await
    }

    pub(crate) async fn claim_refresh(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedJob>> {
        self.jobs().claim(&JobKey::new(job_kinds::REFRESH, user, id), now, lease_until).await
    }

    pub(crate) async fn claim_sync(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedJob>> {
        self.jobs().claim(&JobKey::new(job_kinds::SYNC, user, id), now, lease_until).await
    }

    pub(crate) async fn claim_removal(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedJob>> {
        self.jobs().claim(&JobKey::new(job_kinds::REMOVAL, user, id), now, lease_until).await
    }

    pub(crate) async fn request_refresh(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        at_most_every: SignedDuration,
    ) -> Result<bool> {
        self.jobs().request(&JobKey::new(job_kinds::REFRESH, user, id), now, at_most_every).await
    }

    pub(crate) async fn request_sync(
        &self,
        user: UserId,
        id: ConnectionId,
        now: Timestamp,
        at_most_every: SignedDuration,
    ) -> Result<bool> {
        self.jobs().request(&JobKey::new(job_kinds::SYNC, user, id), now, at_most_every).await
    }
}
