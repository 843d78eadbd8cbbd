//! Stores jobs: work that outlives a request. Any instance may claim a job that is due.
//!
//! A claim has a lease, after which another task may claim the job, and a fence, a random number.
//! Whatever a job writes checks the fence in the same transaction: see [`begin_held`], [`hold`],
//! [`finished`] and [`delete`]. So a holder whose lease was lost changes nothing.
//!
//! The transaction that adds or deletes a subject also adds or deletes its jobs.

pub(crate) mod overview;

use bellbird_domain::{TimestampExt as _, UserId, random};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

use crate::Jobs;
use crate::db::{Bound, Db, Param, Row, Tx, params, statements};
use crate::error::Result;
use crate::locks::{begin_locked_write, lock_user_if_exists};

/// The kinds of jobs whose rows this crate adds and deletes. Other kinds have one job with an empty
/// subject.
pub mod job_kinds {
    /// Subject: the connection's id.
    pub const REFRESH: &str = "refresh";
    /// Subject: the connection's id.
    pub const SYNC: &str = "sync";
    /// Subject: the id of a connection with the status `deleting`.
    pub const REMOVAL: &str = "removal";
    /// Subject: the id of a user who is removed once their connections are.
    pub const USER_REMOVAL: &str = "user_removal";
    /// Subject: the id of a consent session that has not ended.
    pub const CONSENT_SESSION: &str = "consent_session";
    /// Subject: a provider, until the user is registered there.
    pub const PROVIDER_USER: &str = "provider_user";
}

/// Claims one job: with a larger or unknown number, PostgreSQL may sort the backlog or scan the
/// table. `MATERIALIZED` makes it pick the row once, however it joins. `$lock` skips rows that
/// another instance is claiming. A job is due at its time if no lease exists, and when a lease has
/// expired. Its holder was killed, which counts as a failure.
macro_rules! claim_due {
    ($lock:literal) => {
        concat!(
            "WITH due AS MATERIALIZED (
                SELECT user_id, kind, subject, lease_until FROM jobs
                WHERE kind = $1 AND provider = $2 AND COALESCE(lease_until, run_at) <= $3
                ORDER BY COALESCE(lease_until, run_at) LIMIT 1",
            $lock,
            ")
            UPDATE jobs SET lease_until = $4, fence = $5, holder = $6, started_at = $3,
                run_at = CASE WHEN run_at < $3 THEN run_at ELSE $3 - 1 END,
                attempts = CASE WHEN due.lease_until IS NULL THEN attempts ELSE attempts + 1 END,
                last_error = CASE WHEN due.lease_until IS NULL THEN NULLIF(last_error, 'interrupted')
                    ELSE 'interrupted' END
            FROM due WHERE jobs.user_id = due.user_id AND jobs.kind = due.kind AND jobs.subject = due.subject
            RETURNING jobs.user_id, jobs.subject, attempts, last_error, is_requested"
        )
    };
}

/// Releases a job until `$5`, or until an earlier run that was requested meanwhile.
macro_rules! release {
    () => {
        "run_at = CASE WHEN run_at >= started_at AND (run_at < $5 OR $5 IS NULL) THEN run_at ELSE $5 END,
            lease_until = NULL, fence = NULL
        WHERE user_id = $1 AND kind = $2 AND subject = $3 AND fence = $4"
    };
}

/// See `REQUEST`.
macro_rules! request {
    ($set:literal) => {
        concat!(
            "UPDATE jobs SET ",
            $set,
            "run_at = CASE
                WHEN run_at < CASE WHEN started_at > $5 THEN started_at - $5 + $4 ELSE $4 END
                    AND (lease_until IS NULL OR run_at >= started_at) THEN run_at
                WHEN started_at > $5 THEN started_at - $5 + $4 ELSE $4 END
            WHERE user_id = $1 AND kind = $2 AND subject = $3"
        )
    };
}

/// Whether the claim of a sync has the fence `:fence`.
macro_rules! sync_is_held {
    () => {
        "EXISTS (SELECT 1 FROM jobs WHERE user_id = :user AND kind = 'sync' AND subject = :subject
            AND fence = :fence)"
    };
}
pub(crate) use sync_is_held;

/// The parameters of a statement about one job: its key, then others.
macro_rules! job_params {
    ($key:expr $(, $value:expr)*) => {
        params![$key.user_id, $key.kind, &$key.subject $(, $value)*]
    };
}

statements! {
    INSERT = "INSERT INTO jobs (user_id, kind, subject, provider, run_at) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (user_id, kind, subject) DO NOTHING";

    /// `run_at` stays before `started_at`, which means that no other run is requested.
    CLAIM = "UPDATE jobs SET lease_until = $5, fence = $6, holder = $7, started_at = $4,
            run_at = CASE WHEN run_at < $4 THEN run_at ELSE $4 - 1 END
        WHERE user_id = $1 AND kind = $2 AND subject = $3 AND (lease_until IS NULL OR lease_until <= $4)
        RETURNING provider, attempts";

    /// Runs before [`CLAIM_DUE`] on SQLite, whose one writer a claim takes even if nothing is due.
    IS_DUE = "SELECT 1 FROM jobs WHERE kind = $1 AND provider = $2 AND COALESCE(lease_until, run_at) <= $3 LIMIT 1";

    CLAIM_DUE = claim_due!(""), on_postgres = claim_due!(" FOR UPDATE SKIP LOCKED");

    IS_RUNNING = "SELECT 1 FROM jobs WHERE user_id = $1 AND kind = $2 AND subject = $3 AND lease_until > $4";

    HELD = "SELECT attempts FROM jobs WHERE user_id = $1 AND kind = $2 AND subject = $3 AND fence = $4",
        lock = " FOR UPDATE";

    RENEW = "UPDATE jobs SET lease_until = $5 WHERE user_id = $1 AND kind = $2 AND subject = $3 AND fence = $4";

    FINISH = concat!(
        "UPDATE jobs SET attempts = 0, last_error = NULL,
            is_requested = CASE WHEN run_at >= started_at THEN is_requested ELSE 0 END, ",
        release!()
    );

    FAIL = concat!("UPDATE jobs SET attempts = attempts + 1, last_error = $6, ", release!());

    /// After a claim that has counted the failure already.
    DEFER = concat!("UPDATE jobs SET ", release!());

    DELETE = "DELETE FROM jobs WHERE user_id = $1 AND kind = $2 AND subject = $3 AND fence = $4";

    DELETE_OF_SUBJECT = "DELETE FROM jobs WHERE user_id = $1 AND subject = $2";

    DELETE_FREE = "DELETE FROM jobs WHERE user_id = $1 AND kind = $2 AND subject = $3
            AND (lease_until IS NULL OR lease_until <= $4)";

    DELETE_OF_USER = "DELETE FROM jobs WHERE user_id = $1";

    /// Requests a run at `$4`, or `$4 - $5` after the last start if that one is after `$5`. An
    /// earlier time stays, unless it belongs to the current run.
    REQUEST = request!("");

    REQUEST_FOR_USER = request!("is_requested = 1, ");

    /// The holder loses its lease. An earlier time stays, also that of the run that was
    /// interrupted.
    RESTART = "UPDATE jobs SET run_at = CASE WHEN run_at <= $4 OR $4 IS NULL THEN run_at ELSE $4 END, attempts = 0,
            last_error = NULL, lease_until = NULL, fence = NULL
        WHERE user_id = $1 AND kind = $2 AND subject = $3";
}

/// Names a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct JobKey {
    pub kind: &'static str,
    /// Nil: no user.
    pub user_id: UserId,
    /// What the job is about, unique for the kind and the user.
    pub subject: String,
}

impl JobKey {
    pub fn new(kind: &'static str, user_id: UserId, subject: impl ToString) -> Self {
        Self {
            kind,
            user_id,
            subject: subject.to_string(),
        }
    }

    /// The only job of a kind that serves all users.
    pub fn of_service(kind: &'static str) -> Self {
        Self::new(kind, UserId::from(Uuid::nil()), "")
    }
}

/// The right to run a job, until the lease ends and another task claims it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimedJob {
    pub key: JobKey,
    /// Empty: none.
    pub provider: String,
    /// Runs since the last success.
    pub attempts: u32,
    /// Whether the lease of the run before had expired: its process was killed. `attempts` counts
    /// that run.
    pub was_interrupted: bool,
    /// Whether a person or a program asked for this run. Known of due jobs only.
    pub is_requested: bool,
    pub(crate) fence: i64,
}

impl ClaimedJob {
    pub fn user_id(&self) -> UserId {
        self.key.user_id
    }

    /// The subject as an id. Nil if it is none.
    pub fn subject_id<T: From<Uuid>>(&self) -> T {
        T::from(Uuid::try_parse(&self.key.subject).unwrap_or_default())
    }

    /// Names this run in logs.
    pub fn run_id(&self) -> String {
        format!("{:016x}", self.fence)
    }
}

impl Jobs<'_> {
    /// Adds a job, unless it exists.
    pub async fn insert(self, key: &JobKey, provider: &str, run_at: Timestamp) -> Result<()> {
        self.db
            .execute(INSERT, job_params![key, provider, run_at])
            .await
    }

    /// Claims a job, due or not. None while another task holds its lease, or if there is no such
    /// job.
    pub async fn claim(
        self,
        key: &JobKey,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedJob>> {
        let fence = new_fence();
        let values = job_params![key, now, lease_until, fence, self.holder];
        let found = self.db.write_one(CLAIM, values, claimed).await?;
        Ok(found.map(|(provider, attempts)| by_key(key, provider, attempts, fence)))
    }

    /// Whether a task holds the lease of a job, so that [`Self::claim`] would return none.
    pub async fn is_running(self, key: &JobKey, now: Timestamp) -> Result<bool> {
        self.db.exists(IS_RUNNING, job_params![key, now]).await
    }

    /// Claims the longest due job of a kind and provider. An expired lease counts as due, and as a
    /// failed run, because its holder was killed.
    pub async fn claim_due(
        self,
        kind: &'static str,
        provider: &str,
        now: Timestamp,
        lease_until: Timestamp,
    ) -> Result<Option<ClaimedJob>> {
        let is_due = params![kind, provider, now];
        if self.claims_paused() || !self.db.may_be_due(IS_DUE, is_due).await? {
            return Ok(None);
        }
        // Drawn only for a claim, because a simulation repeats all draws of a seed.
        let fence = new_fence();
        let values = params![kind, provider, now, lease_until, fence, self.holder];
        let found = self.db.write_one(CLAIM_DUE, values, due).await?;
        Ok(found.map(
            |(user_id, subject, attempts, was_interrupted, is_requested)| ClaimedJob {
                key: JobKey {
                    kind,
                    user_id,
                    subject,
                },
                provider: provider.to_owned(),
                attempts,
                was_interrupted,
                is_requested,
                fence,
            },
        ))
    }

    /// Extends the lease. Returns false, and changes nothing, if the lease was lost.
    pub async fn renew(self, claim: &ClaimedJob, lease_until: Timestamp) -> Result<bool> {
        self.db
            .changes(RENEW, job_params![claim.key, claim.fence, lease_until])
            .await
    }

    /// Releases a job after a success, until `next` or an earlier run that was requested meanwhile.
    /// None: until it is requested. Returns false, and changes nothing, if the lease was lost.
    pub async fn finish(self, claim: &ClaimedJob, next: Option<Timestamp>) -> Result<bool> {
        self.db
            .changes(FINISH, job_params![claim.key, claim.fence, next])
            .await
    }

    /// Releases a job after a failure, with an error for the operator, until `retry_at` or an
    /// earlier run that was requested meanwhile. Returns false, and changes nothing, if the lease
    /// was lost.
    pub async fn fail(self, claim: &ClaimedJob, error: &str, retry_at: Timestamp) -> Result<bool> {
        self.db
            .changes(FAIL, job_params![claim.key, claim.fence, retry_at, error])
            .await
    }

    /// As [`Self::fail`], for a run that neither failed nor completed the job.
    pub async fn postpone(self, claim: &ClaimedJob, until: Timestamp) -> Result<bool> {
        let values = job_params![claim.key, claim.fence, until, Param::Null];
        self.db.changes(FAIL, values).await
    }

    /// Releases a claimed job until then, without a run.
    pub async fn defer(self, claim: &ClaimedJob, until: Timestamp) -> Result<bool> {
        self.db
            .changes(DEFER, job_params![claim.key, claim.fence, until])
            .await
    }

    /// Requests a run: now, or `at_most_every` after the last start if that is later. An earlier
    /// time stays. While the job runs, the next run waits for its end. Returns false if there is no
    /// such job.
    pub async fn request(
        self,
        key: &JobKey,
        now: Timestamp,
        at_most_every: SignedDuration,
    ) -> Result<bool> {
        let values = job_params![key, now, now.minus(at_most_every)];
        self.db.changes(REQUEST, values).await
    }
}

/// As `storage.jobs().request`, in a transaction, and for a person or a program, whose user the run
/// is charged to.
pub(crate) async fn request(
    tx: &mut Tx,
    key: &JobKey,
    now: Timestamp,
    at_most_every: SignedDuration,
) -> Result<bool> {
    let values = job_params![key, now, now.minus(at_most_every)];
    tx.changes(REQUEST_FOR_USER, values).await
}

/// As `storage.jobs().insert`. None: due on request only.
pub(crate) async fn insert(
    tx: &mut Tx,
    key: &JobKey,
    provider: &str,
    run_at: Option<Timestamp>,
) -> Result<()> {
    tx.execute(INSERT, job_params![key, provider, run_at]).await
}

/// As `storage.jobs().claim`.
pub(crate) async fn claim(
    tx: &mut Tx,
    holder: Option<Uuid>,
    key: &JobKey,
    now: Timestamp,
    lease_until: Timestamp,
) -> Result<Option<ClaimedJob>> {
    let fence = new_fence();
    let found = tx
        .one(
            CLAIM,
            job_params![key, now, lease_until, fence, holder],
            claimed,
        )
        .await?;
    Ok(found.map(|(provider, attempts)| by_key(key, provider, attempts, fence)))
}

/// The first part of a batch that writes for a claim, after the lock on the user's row: locks the
/// job. No row if the lease was lost.
pub(crate) fn held(claim: &ClaimedJob) -> Bound<'_> {
    (HELD, job_params![claim.key, claim.fence].to_vec())
}

/// The last part of such a batch, as `storage.jobs().finish`.
pub(crate) fn finished(claim: &ClaimedJob, next: Option<Timestamp>) -> Bound<'_> {
    (FINISH, job_params![claim.key, claim.fence, next].to_vec())
}

/// Begins a transaction that writes for a claim: it locks the user's row, and then the job. None if
/// the lease was lost.
pub(crate) async fn begin_held(db: &Db, claim: &ClaimedJob) -> Result<Option<Tx>> {
    let mut tx = db.begin().await?;
    if lock_user_if_exists(&mut tx, claim.user_id()).await? && hold(&mut tx, claim).await? {
        return Ok(Some(tx));
    }
    tx.rollback().await;
    Ok(None)
}

/// As [`begin_held`], and deletes the job, which is done for good.
pub(crate) async fn begin_deleted(db: &Db, claim: &ClaimedJob) -> Result<Option<Tx>> {
    let values = job_params![claim.key, claim.fence];
    begin_locked_write(db, claim.user_id(), DELETE, values).await
}

/// As [`begin_held`], and releases the job as `storage.jobs().finish`.
pub(crate) async fn begin_finished(
    db: &Db,
    claim: &ClaimedJob,
    next: Option<Timestamp>,
) -> Result<Option<Tx>> {
    let values = job_params![claim.key, claim.fence, next];
    begin_locked_write(db, claim.user_id(), FINISH, values).await
}

/// Locks the job until the end of the transaction. Returns false if the lease was lost.
pub(crate) async fn hold(tx: &mut Tx, claim: &ClaimedJob) -> Result<bool> {
    tx.exists(HELD, job_params![claim.key, claim.fence]).await
}

/// Deletes a job that is done for good. Returns false if the lease was lost.
pub(crate) async fn delete(tx: &mut Tx, claim: &ClaimedJob) -> Result<bool> {
    tx.changes(DELETE, job_params![claim.key, claim.fence])
        .await
}

/// As `storage.jobs().renew`.
pub(crate) async fn renew(tx: &mut Tx, claim: &ClaimedJob, lease_until: Timestamp) -> Result<bool> {
    tx.changes(RENEW, job_params![claim.key, claim.fence, lease_until])
        .await
}

/// Deletes a job unless a task holds its lease.
pub(crate) async fn delete_free(tx: &mut Tx, key: &JobKey, now: Timestamp) -> Result<()> {
    tx.execute(DELETE_FREE, job_params![key, now]).await
}

/// Deletes all jobs of a user. Their holders lose their leases.
pub(crate) async fn delete_of_user(tx: &mut Tx, user: UserId) -> Result<()> {
    tx.execute(DELETE_OF_USER, params![user]).await
}

/// Deletes all jobs of a subject. Their holders lose their leases.
pub(crate) async fn delete_of(tx: &mut Tx, user: UserId, subject: &str) -> Result<()> {
    tx.execute(DELETE_OF_SUBJECT, params![user, subject]).await
}

/// Starts a job again, because its subject has changed: its holder loses the lease, and its
/// failures are forgiven. It is due at `run_at` or at an earlier planned time.
pub(crate) async fn restart(tx: &mut Tx, key: &JobKey, run_at: Option<Timestamp>) -> Result<()> {
    tx.execute(RESTART, job_params![key, run_at]).await
}

/// A claim whose caller runs the job at once, however often it was interrupted.
fn by_key(key: &JobKey, provider: String, attempts: u32, fence: i64) -> ClaimedJob {
    ClaimedJob {
        key: key.clone(),
        provider,
        attempts,
        was_interrupted: false,
        is_requested: false,
        fence,
    }
}

/// The fence of a claim. A counter would give a number out again after a commit was lost.
pub(crate) fn new_fence() -> i64 {
    i64::try_from(random::number() >> 1).unwrap_or_default()
}

fn claimed(row: &Row<'_>) -> Result<(String, u32)> {
    Ok((row.get(0)?, row.number(1, "a number of attempts")?))
}

fn due(row: &Row<'_>) -> Result<(UserId, String, u32, bool, bool)> {
    let was_interrupted = row.opt_text(3)? == Some("interrupted");
    let attempts = row.number(2, "a number of attempts")?;
    Ok((
        row.get(0)?,
        row.get(1)?,
        attempts,
        was_interrupted,
        row.get(4)?,
    ))
}
