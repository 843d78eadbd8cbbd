//! When something needs an operator, once for the page Health and for the commands `doctor` and
//! `status`, which word it.

use bellbird_connections::job_kinds;
use bellbird_domain::ConnectionStatus::{Invalidated, PendingMfa, Revoked};
use bellbird_storage::{ConnectionCount, Instance, JobCounts, Storage, StorageError};
use jiff::{SignedDuration, Timestamp};

/// A difference between clocks that the operator should know.
pub const CLOCK_NOTICED: SignedDuration = SignedDuration::from_secs(2);
/// As the alert in `deploy/prometheus/rules.yml`.
const BACKUP_AGE_MAX: SignedDuration = SignedDuration::from_hours(48);
/// With less, the disk is full soon.
const FREE_MEBIBYTES_NOTED: u64 = 256;
/// A running service runs due jobs and deliveries within seconds, so an older one means that the
/// service is not running.
const OVERDUE_AFTER: SignedDuration = SignedDuration::from_mins(10);

#[derive(Debug, PartialEq, Eq)]
pub enum Backup {
    Recent(Timestamp),
    /// None yet of a database that was created then.
    NoneYet(Timestamp),
    /// None since then, so the operator should make one.
    Old(Timestamp),
}

/// None: this is PostgreSQL without a recorded backup, which may have others.
pub async fn backup(storage: &Storage, now: Timestamp) -> Result<Option<Backup>, StorageError> {
    let audit = storage.audit();
    let Some(since) = audit.unsaved_since(now).await? else {
        return Ok(None);
    };
    Ok(Some(if now.duration_since(since) > BACKUP_AGE_MAX {
        Backup::Old(since)
    } else if audit.last_backup_at(now).await?.is_some() {
        Backup::Recent(since)
    } else {
        Backup::NoneYet(since)
    }))
}

/// The MiB that are free on the disk of a SQLite database, if they are few.
pub fn few_mebibytes_free(storage: &Storage) -> Option<u64> {
    let free = storage.free_bytes()? / (1024 * 1024);
    (free < FREE_MEBIBYTES_NOTED).then_some(free)
}

/// By how much an instance's clock is ahead of the database's, if by [`CLOCK_NOTICED`] or more.
/// Negative for one that is behind.
pub fn clock_ahead(instance: &Instance) -> Option<SignedDuration> {
    let ahead = SignedDuration::from_millis(instance.clock_ahead_ms);
    (ahead.abs() >= CLOCK_NOTICED).then_some(ahead)
}

/// How many instances sync and deliver.
pub fn workers(instances: &[Instance]) -> u64 {
    let works = |instance: &&Instance| instance.roles.iter().any(|role| role == "worker");
    instances.iter().filter(works).count() as u64
}

/// How many connections their users must reconnect.
pub fn to_reconnect(connections: &[ConnectionCount]) -> u64 {
    let broken = connections
        .iter()
        .filter(|counted| matches!(counted.status, Invalidated | PendingMfa | Revoked));
    broken.map(|counted| counted.count).sum()
}

/// The jobs of each kind that this version has.
pub async fn jobs(storage: &Storage, now: Timestamp) -> Result<Vec<JobCounts>, StorageError> {
    let mut jobs = storage.jobs().count(now).await?;
    jobs.retain(|counts| job_kinds().any(|kind| kind == counts.kind));
    Ok(jobs)
}

/// Since when the oldest due job of a kind is due, if it should have run long ago.
pub fn overdue_job(counts: &JobCounts, now: Timestamp) -> Option<Timestamp> {
    overdue(counts.next.filter(|_| counts.due > 0), now)
}

/// As [`overdue_job`], of the oldest due delivery, or of another time.
pub fn overdue(oldest_due: Option<Timestamp>, now: Timestamp) -> Option<Timestamp> {
    oldest_due.filter(|due| now.duration_since(*due) > OVERDUE_AFTER)
}
