//! Ends leases that reach too far into the future. An instance whose clock was ahead took them. If it was killed, no
//! other would claim its work before then.

use jiff::{SignedDuration, Timestamp};

use crate::db::{params, statements};
use crate::error::Result;
use crate::{Jobs, StorageError};

/// Twice the longest lease, rounded up. A lease that has more left was not taken by a clock like ours.
pub const LEASE_LEFT_MAX: SignedDuration = SignedDuration::from_mins(5);

statements! {
    /// Runs before [`END_OF_JOBS`], which takes SQLite's one writer.
    HAS_OVERLONG = "SELECT 1 FROM jobs WHERE lease_until > $1
        UNION ALL SELECT 1 FROM webhook_endpoints WHERE lease_until > $1 LIMIT 1";

    END_OF_JOBS = "UPDATE jobs SET lease_until = $2 WHERE lease_until > $1";

    END_OF_ENDPOINTS = "UPDATE webhook_endpoints SET lease_until = $2 WHERE lease_until > $1";
}

/// The latest end of a lease that counts.
pub(crate) fn latest_end(now: Timestamp) -> Result<Timestamp> {
    now.checked_add(LEASE_LEFT_MAX).map_err(StorageError::unavailable)
}

impl Jobs<'_> {
    /// Makes each job and endpoint due whose lease has more than [`LEASE_LEFT_MAX`] left. Its holder keeps it until
    /// another task claims it. Returns how many there were. Reads both tables whole.
    pub async fn end_overlong_leases(self, now: Timestamp) -> Result<u64> {
        let latest = latest_end(now)?;
        if self.0.db.one(HAS_OVERLONG, params![latest], |_| Ok(())).await?.is_none() {
            return Ok(0);
        }
        let jobs = self.0.db.run(END_OF_JOBS, params![latest, now]).await?;
        Ok(jobs + self.0.db.run(END_OF_ENDPOINTS, params![latest, now]).await?)
    }
}
