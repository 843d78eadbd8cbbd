//! The queue against a small model, its rows against their subjects, and its statements under
//! PostgreSQL's planner.

use bellbird_domain::lab::{self, Chance};
use jiff::SignedDuration;

use crate::job_kinds::SYNC;
use crate::tests::fixtures::{claimed_registration, secret, session_with_callback, start_session};
use crate::tests::support::{TestDb, at, both, new_connection};
use crate::{ClaimedJob, JobKey, NewConnection};

const KIND: &str = "test";
const SUBJECTS: usize = 3;
const LEASE: i64 = 20;

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Moves the clock.
    Wait(i64),
    ClaimDue,
    Claim(usize),
    /// These four act for any earlier holder, also one that lost its lease.
    Renew(usize),
    Finish(usize, Option<i64>),
    Fail(usize, i64),
    /// By a requester whose clock is behind by the first number.
    Request(usize, i64, i64),
}

fn step(chance: &mut Chance) -> Step {
    let seconds = |chance: &mut Chance, end: u64| chance.below(end).cast_signed();
    match chance.below(17) {
        0..3 => Step::Wait(seconds(chance, 15)),
        3..7 => Step::ClaimDue,
        7 => Step::Claim(chance.index(SUBJECTS)),
        8 => Step::Renew(chance.index(16)),
        9..12 => {
            let next = (!chance.one_in(2)).then(|| seconds(chance, 35) - 5);
            Step::Finish(chance.index(16), next)
        }
        12..14 => Step::Fail(chance.index(16), seconds(chance, 30)),
        _ => {
            let (behind, every) = (seconds(chance, 4), seconds(chance, 25));
            Step::Request(chance.index(SUBJECTS), behind, every)
        }
    }
}

/// What a queue has to know of a job.
#[derive(Debug, Default, Clone)]
struct Job {
    /// The planned run, and the earliest run that was requested since the last start.
    planned: Option<i64>,
    requested: Option<i64>,
    started: Option<i64>,
    /// The number of the claim and the end of its lease.
    holder: Option<(usize, i64)>,
    attempts: u32,
}

impl Job {
    /// When the job is due. The end of a lease, because the holder was killed.
    fn due_at(&self) -> Option<i64> {
        match self.holder {
            Some((_, until)) => Some(until),
            None => [self.planned, self.requested].into_iter().flatten().min(),
        }
    }

    fn start(&mut self, claim: usize, now: i64) {
        *self = Self {
            holder: Some((claim, now + LEASE)),
            started: Some(now),
            requested: None,
            planned: None,
            ..*self
        };
    }

    fn release(&mut self, next: Option<i64>) {
        (self.planned, self.holder) = (next, None);
    }
}

#[derive(Default)]
struct Model {
    now: i64,
    jobs: [Job; SUBJECTS],
    claims: Vec<(usize, ClaimedJob)>,
}

impl Model {
    /// The earlier claim with this number, its subject, and whether it holds its lease.
    fn holder(&self, number: usize) -> Option<(usize, ClaimedJob, bool)> {
        let number = number.checked_rem(self.claims.len())?;
        let (subject, claim) = self.claims[number].clone();
        let holds = self.jobs[subject]
            .holder
            .is_some_and(|(holder, _)| holder == number);
        Some((subject, claim, holds))
    }

    fn start(&mut self, subject: usize, claim: ClaimedJob) {
        assert_eq!(claim.attempts, self.jobs[subject].attempts);
        self.jobs[subject].start(self.claims.len(), self.now);
        self.claims.push((subject, claim));
    }
}

fn key(subject: usize) -> JobKey {
    JobKey {
        subject: subject.to_string(),
        ..JobKey::of_service(KIND)
    }
}

async fn play(db: &TestDb, steps: &[Step]) {
    db.raw("DELETE FROM jobs").await;
    let (mut model, jobs) = (Model::default(), db.jobs());
    for subject in 0..SUBJECTS {
        let run_at = i64::try_from(subject).unwrap() * 7;
        for run_at in [run_at, -99] {
            jobs.insert(&key(subject), "", at(run_at)).await.unwrap();
        }
        model.jobs[subject].planned = Some(run_at);
    }
    for step in steps {
        take(db, &mut model, *step).await;
    }
    // Whatever happened, no request is lost: each one is due, or it is running.
    model.now += 1_000;
    loop {
        let before = model.claims.len();
        take(db, &mut model, Step::ClaimDue).await;
        if model.claims.len() == before {
            break;
        }
    }
    assert!(
        model.jobs.iter().all(|job| job.requested.is_none()),
        "{:?}",
        model.jobs
    );
}

async fn take(db: &TestDb, model: &mut Model, step: Step) {
    let (now, lease, jobs) = (model.now, at(model.now + LEASE), db.jobs());
    match step {
        Step::Wait(seconds) => model.now += seconds,
        Step::ClaimDue => {
            let due = model.jobs.iter().filter_map(Job::due_at);
            let earliest = due.filter(|due| *due <= now).min();
            let claim = jobs.claim_due(KIND, "", at(now), lease).await.unwrap();
            match (claim, earliest) {
                (None, None) => {}
                (Some(claim), Some(earliest)) => {
                    let subject: usize = claim.key.subject.parse().unwrap();
                    let due_at = model.jobs[subject].due_at();
                    assert_eq!(due_at, Some(earliest), "the longest due job, at its time");
                    // The claim of a job whose lease had expired counts the run before as failed.
                    let was_interrupted = model.jobs[subject].holder.is_some();
                    assert_eq!(claim.was_interrupted, was_interrupted);
                    model.jobs[subject].attempts += u32::from(was_interrupted);
                    model.start(subject, claim);
                }
                (claim, earliest) => panic!("{claim:?}, but due: {earliest:?}"),
            }
        }
        Step::Claim(subject) => {
            let holder = model.jobs[subject].holder;
            let free = holder.is_none_or(|(_, until)| until <= now);
            let claim = jobs.claim(&key(subject), at(now), lease).await.unwrap();
            assert_eq!(claim.is_some(), free, "one holder at a time");
            if let Some(claim) = claim {
                model.start(subject, claim);
            }
        }
        Step::Renew(number) => {
            let Some((subject, claim, holds)) = model.holder(number) else {
                return;
            };
            assert_eq!(jobs.renew(&claim, lease).await.unwrap(), holds);
            if let Some((_, until)) = model.jobs[subject].holder.as_mut().filter(|_| holds) {
                *until = now + LEASE;
            }
        }
        Step::Finish(number, next) => {
            let Some((subject, claim, holds)) = model.holder(number) else {
                return;
            };
            let next = next.map(|after| now + after);
            assert_eq!(jobs.finish(&claim, next.map(at)).await.unwrap(), holds);
            if holds {
                model.jobs[subject].release(next);
                model.jobs[subject].attempts = 0;
            }
        }
        Step::Fail(number, after) => {
            let Some((subject, claim, holds)) = model.holder(number) else {
                return;
            };
            let failed = jobs.fail(&claim, "error", at(now + after)).await;
            assert_eq!(failed.unwrap(), holds);
            if holds {
                model.jobs[subject].release(Some(now + after));
                model.jobs[subject].attempts += 1;
            }
        }
        Step::Request(subject, behind, every) => {
            let (asked_at, apart) = (now - behind, SignedDuration::from_secs(every));
            let requested = jobs.request(&key(subject), at(asked_at), apart).await;
            assert!(requested.unwrap());
            let job = &mut model.jobs[subject];
            // A run that starts after the request fulfils it. Not sooner than allowed after the
            // last start.
            let allowed = job
                .started
                .filter(|started| asked_at - every < *started)
                .map_or(asked_at, |at| at + every);
            let earlier = if job.holder.is_some() {
                job.requested
            } else {
                job.due_at()
            };
            if earlier.is_none_or(|earlier| allowed <= earlier) {
                (job.requested, job.planned) = (Some(allowed), None);
            }
        }
    }
}

/// Plays random steps, of which a failure prints the seed.
async fn plays_as_the_model(db: &TestDb) {
    for seed in lab::seed().map_or(0..lab::times(96), |seed| seed..seed + 1) {
        lab::print(&format!("BELLBIRD_TEST_SEED={seed}"));
        let mut chance = Chance::new(seed);
        let steps: Vec<Step> = (0..1 + chance.below(60))
            .map(|_| step(&mut chance))
            .collect();
        play(db, &steps).await;
    }
}

both! {
    async fn queue_plays_as_the_model(db) {
        plays_as_the_model(db).await;
        // A job runs until its lease ends.
        let key = JobKey::of_service(KIND);
        db.jobs().insert(&key, "", at(0)).await.unwrap();
        let is_running = async |now| db.jobs().is_running(&key, at(now)).await.unwrap();
        assert!(!is_running(5).await);
        let claim = db.jobs().claim(&key, at(10), at(30)).await.unwrap().expect("free");
        assert!(is_running(29).await);
        assert!(!is_running(30).await);
        assert!(db.jobs().finish(&claim, None).await.unwrap());
        assert!(!is_running(29).await);
    }
}

/// Jobs without a subject, and subjects without their jobs.
const INCONSISTENT: &str = "SELECT 'no subject: ' || kind FROM jobs j WHERE NOT EXISTS (
        SELECT 1 FROM connections c WHERE c.user_id = j.user_id AND CAST(c.id AS TEXT) = j.subject
            AND c.provider = j.provider AND (j.kind = 'removal') = (c.status = 'deleting')
            AND j.kind IN ('refresh', 'sync', 'removal'))
        AND NOT EXISTS (SELECT 1 FROM consent_sessions s WHERE s.user_id = j.user_id AND CAST(s.id AS TEXT) = j.subject
            AND s.provider = j.provider AND s.phase <> 'ended' AND j.kind = 'consent_session')
        AND NOT EXISTS (SELECT 1 FROM provider_users p WHERE p.user_id = j.user_id AND p.provider = j.subject
            AND p.provider = j.provider AND j.kind = 'provider_user')
    UNION ALL SELECT 'no job: session' FROM consent_sessions s WHERE s.phase <> 'ended' AND NOT EXISTS (
        SELECT 1 FROM jobs j WHERE j.user_id = s.user_id AND j.kind = 'consent_session'
            AND j.subject = CAST(s.id AS TEXT))
    UNION ALL SELECT 'no job: ' || c.status FROM connections c WHERE (
        SELECT COUNT(*) FROM jobs j WHERE j.user_id = c.user_id AND j.subject = CAST(c.id AS TEXT)
    ) <> CASE WHEN c.status = 'deleting' THEN 1 ELSE 2 END";

both! {
    async fn jobs_come_and_go_with_their_subjects(db) {
        let user = db.user("a@x").await.id;
        let consistent = async || assert_eq!(db.texts(INCONSISTENT).await, [""; 0]);
        let id = db.connection(user, "c", &[]).await.id;
        db.connection(user, "other", &[]).await;
        consistent().await;
        db.connection(user, "c", &[]).await;
        consistent().await;
        let repair = NewConnection { repairs: Some(id), ..new_connection(user, "after") };
        db.connections().import(&repair, &[], at(20)).await.unwrap();
        consistent().await;
        let sync = db.claim(SYNC, user, id, at(21), at(90)).await.unwrap().expect("claimed");
        let removal = db.hide(user, id, 30, 60).await;
        consistent().await;
        assert!(!db.jobs().finish(&sync, Some(at(40))).await.unwrap());
        assert!(!db.jobs().request(&sync.key, at(40), SignedDuration::ZERO).await.unwrap());
        consistent().await;
        assert!(db.removals().finish(&removal, "deleted", at(50)).await.unwrap());
        assert!(!db.jobs().fail(&removal, "late", at(60)).await.unwrap());
        consistent().await;
        start_session(db, user, "expires").await;
        let session = session_with_callback(db, user, "ends").await;
        let registration = claimed_registration(db, user, 0).await;
        consistent().await;
        assert!(db.consent_sessions().end(&session, "linked").await.unwrap());
        assert!(!db.jobs().postpone(&session.job, at(60)).await.unwrap());
        consistent().await;
        assert_eq!(db.consent_sessions().delete_outdated(at(9_999_999)).await.unwrap(), 2);
        consistent().await;
        assert!(db.provider_users().finish(&registration, None, &secret("credentials")).await.unwrap());
        assert!(!db.jobs().fail(&registration.job, "late", at(60)).await.unwrap());
        consistent().await;
        let leaving = db.user("b@x").await.id;
        start_session(db, leaving, "open").await;
        db.delete_user(leaving).await;
        consistent().await;
        let other = db.connections().list(user).await.unwrap()[0].id;
        db.hide(user, other, 70, 90).await;
        consistent().await;
        db.raw("DELETE FROM jobs WHERE kind = 'removal'").await;
        assert_eq!(db.texts(INCONSISTENT).await, ["no job: deleting"; 2], "the search works");
    }
}
