//! The operations that meet in production, on one starting state.

use std::fmt::Debug;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::LazyLock;

use bellbird_domain::{
    ApiVersion, Confirmation, ConnectionId, ConnectionStatus, EndpointId, EventId, OperatorKeyId,
    Plan, UserId,
};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use uuid::Uuid;

use crate::error::Result;
use crate::job_kinds::REFRESH;
use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, chunk, claimed_endpoint, console_session, empty_sync, endpoint, fingerprint,
    fingerprints, finish_sync_with, finished_attempt, insert_setup_token, new_session, secret,
    sign_in_link, start_sync,
};
use crate::tests::support::{TestDb, at, key, new_account, new_connection, setup_token};
use crate::writes::{keys, sessions};
use crate::{
    AttemptOutcome, AuditAction, ClaimedEndpoint, ClaimedJob, FinishedAttempt, FinishedSync,
    Idempotency, IdempotentStart, JobKey, KeyRecord, NewConsentSession, NewEndpoint,
    ProviderUserState, SetupTokenClaim, Storage, StorageError, StoredResponse, UserChange, in_tx,
};

/// The outcome of an operation that the database failed.
pub(super) const BROKEN: &str = "failed: ";

/// When the operations run. Leases that were taken before have ended.
fn now() -> Timestamp {
    at(500)
}

fn lease() -> Timestamp {
    at(530)
}

/// A user with a connection, an endpoint, a key, and claims of their jobs.
pub(super) struct Start {
    user: UserId,
    connection: ConnectionId,
    endpoint: EndpointId,
    /// Failed to be delivered.
    failed: EventId,
    /// The first of two chunks, which a holder without a lease has sent.
    sent: FinishedAttempt,
    holder: ClaimedEndpoint,
    /// An endpoint whose deliveries have all ended, claimed too.
    idle: ClaimedEndpoint,
    /// A due job, and its holder without a lease.
    job: JobKey,
    holder_of_job: ClaimedJob,
    sync: ClaimedJob,
    refresh: ClaimedJob,
    key: KeyRecord,
    operator: OperatorKeyId,
    /// An endpoint of the installation, which has no queue for the user yet.
    of_installation: EndpointId,
    /// As that, and disabled.
    disabled: EndpointId,
}

impl Start {
    pub(super) async fn new(db: &TestDb) -> Self {
        let user = db.user("a@x").await.id;
        let key = db.key(user, 1).await;
        let accounts = [new_account("1", "One"), new_account("2", "Two")];
        let connection = db.connection(user, "consent", &accounts).await.id;
        let deliveries = db.deliveries();
        let (idle, endpoint) = (
            endpoint(db, user, SYNCS_AND_CHANGES).await,
            endpoint(db, user, SYNCS_AND_CHANGES).await,
        );
        let failed = chunk(1, 1);
        let (run, _) =
            finish_sync_with(db, (user, connection), 20, std::slice::from_ref(&failed)).await;
        for (id, outcome) in [
            (idle, AttemptOutcome::Delivered),
            (endpoint, AttemptOutcome::Failed),
        ] {
            let holder = claimed_endpoint(db, id, 20).await;
            let attempt = [finished_attempt(&failed, run, 20, outcome)];
            let finished = deliveries.finish_attempts(&holder, &attempt, at(20));
            assert!(finished.await.unwrap());
            let released = deliveries.release_endpoint(&holder, at(20));
            assert!(released.await.unwrap());
        }
        let chunks = [chunk(1, 2), chunk(2, 2)];
        let (run, _) = finish_sync_with(db, (user, connection), 60, &chunks).await;
        let idle = claimed_endpoint(db, idle, 60).await;
        let [sent, last] =
            chunks.map(|chunk| finished_attempt(&chunk, run, 60, AttemptOutcome::Delivered));
        let attempts = [sent.clone(), last];
        let finished = deliveries.finish_attempts(&idle, &attempts, at(60));
        assert!(finished.await.unwrap());
        let holder = claimed_endpoint(db, endpoint, 60).await;
        let session = NewConsentSession {
            expires_at: at(9000),
            next_attempt_at: at(9100),
            ..new_session(user, "s")
        };
        db.consent_sessions().insert(&session, at(0)).await.unwrap();
        insert_setup_token(db, user, 1, at(9000)).await;
        let job = JobKey::of_service("test");
        db.jobs().insert(&job, "", at(0)).await.unwrap();
        let holder_of_job = db.jobs().claim(&job, at(100), at(120)).await;
        let holder_of_job = holder_of_job.unwrap().expect("claimed");
        let sync = start_sync(db, user, connection, 500).await;
        let refresh = db.claim(REFRESH, user, connection, now(), lease()).await;
        let refresh = refresh.unwrap().expect("claimed");
        let owner = UserId::INSTALLATION;
        let mut of_installation = Vec::new();
        for _ in 0..2 {
            let new = endpoint_of(owner);
            let added = in_tx!(db, endpoints::insert(db.secrets(), &new, 3, at(0)));
            of_installation.push(added.await.unwrap().id);
        }
        let (of_installation, disabled) = (of_installation[0], of_installation[1]);
        let of_owner = (owner, disabled);
        let disable = in_tx!(db, endpoints::disable(of_owner, "by operator", at(0)));
        disable.await.unwrap();
        for token in ["link", "another link"] {
            let link = sign_in_link(user, token, 9000);
            assert!(db.sessions().insert_link(&link, 9, at(0)).await.unwrap());
        }
        Self {
            user,
            connection,
            endpoint,
            failed: failed.id,
            sent,
            holder,
            idle,
            job,
            holder_of_job,
            sync,
            refresh,
            key,
            operator: OperatorKeyId::new(),
            of_installation,
            disabled,
        }
    }
}

fn endpoint_of(user_id: UserId) -> NewEndpoint<'static> {
    static SECRET: LazyLock<SecretString> = LazyLock::new(|| secret("whsec"));
    let (url, api_version) = ("https://hooks.example.com/y", ApiVersion::DEFAULT);
    NewEndpoint {
        user_id,
        url,
        event_types: SYNCS_AND_CHANGES,
        api_version,
        secret: &SECRET,
    }
}

/// Signs in with a link, always in the same browser.
async fn sign_in(db: &Storage, link: &str, place: usize) -> Result<bool> {
    let token = format!("session {place}");
    let session = console_session(&token, "known");
    Ok(db
        .sessions()
        .sign_in(link, &session, now())
        .await?
        .is_some())
}

type Outcome = Pin<Box<dyn Future<Output = String>>>;

pub(super) struct Operation {
    pub(super) name: &'static str,
    /// Gets its place among the operations, which tells equal ones apart.
    pub(super) run: fn(Storage, Rc<Start>, usize) -> Outcome,
}

pub(super) fn find(name: &str) -> &'static Operation {
    OPERATIONS
        .iter()
        .find(|operation| operation.name == name)
        .expect(name)
}

fn said<T: Debug>(result: Result<T>) -> String {
    match result {
        Err(StorageError::Unavailable(error)) => format!("{BROKEN}{error}"),
        other => format!("{other:?}"),
    }
}

macro_rules! operations {
    ($($name:literal = |$db:ident, $start:ident, $place:ident| $body:expr;)*) => {
        pub(super) const OPERATIONS: &[Operation] = &[$(Operation {
            name: $name,
            run: |$db, $start, $place| Box::pin(async move {
                let _ = (&$start, $place);
                said(async { Ok::<_, StorageError>($body) }.await)
            }),
        }),*];
    };
}

operations! {
    "claim due job" = |db, s, place| {
        db.jobs().claim_due("test", "", now(), lease()).await?.map(|claim| (claim.attempts, claim.was_interrupted))
    };
    "claim job" = |db, s, place| db.jobs().claim(&s.job, now(), lease()).await?.map(|claim| claim.attempts);
    "renew job" = |db, s, place| db.jobs().renew(&s.holder_of_job, lease()).await?;
    "finish job" = |db, s, place| db.jobs().finish(&s.holder_of_job, Some(at(900))).await?;
    "fail job" = |db, s, place| db.jobs().fail(&s.holder_of_job, "error", at(700)).await?;
    "request job" = |db, s, place| db.jobs().request(&s.job, at(501), SignedDuration::ZERO).await?;
    "run job" = |db, s, place| match db.jobs().claim_due("test", "", now(), lease()).await? {
        Some(claim) => Some(db.jobs().finish(&claim, None).await?),
        None => None,
    };

    "finish sync" = |db, s, place| {
        let (events, rows) = ([chunk(1, 2), chunk(2, 2)], fingerprints(&[fingerprint(1, 0, 1)]));
        let finished = FinishedSync { events: &events, fingerprints: Some(&rows), ..empty_sync(500) };
        db.syncs().finish(&s.sync, &finished).await?
    };
    "renew sync" = |db, s, place| db.jobs().renew(&s.sync, at(560)).await?;
    "request sync" = |db, s, place| db.jobs().request(&s.sync.key, at(501), SignedDuration::ZERO).await?;
    "merge accounts" = |db, s, place| {
        db.refreshes().apply(&s.refresh, &[new_account("2", "Two"), new_account("3", "Three")], true, now()).await?
    };
    "finish refresh" = |db, s, place| db.jobs().finish(&s.refresh, Some(at(900))).await?;
    "end status" = |db, s, place| {
        let (active, revoked) = (ConnectionStatus::Active, ConnectionStatus::Revoked);
        db.refreshes().set_status(&s.refresh, active, revoked, "refreshed", now(), now()).await?
    };
    "import" = |db, s, place| {
        let accounts = [new_account("1", "One"), new_account("4", "Four")];
        db.connections().import(&new_connection(s.user, "consent"), &accounts, now()).await?.id
    };
    "import another" = |db, s, place| {
        db.connections().import(&new_connection(s.user, "another"), &[], now()).await?.id
    };
    "hide connection" = |db, s, place| {
        db.removals().begin(s.user, s.connection, now(), lease()).await?.is_some()
    };
    "remove connection" = |db, s, place| match db.removals().begin(s.user, s.connection, now(), lease()).await? {
        Some(claim) => Some(db.removals().finish(&claim, "deleted", now()).await?),
        None => None,
    };
    "begin removal" = |db, s, place| {
        in_tx!(db, removal::begin(s.user, now())).await?;
    };
    "delete user" = |db, s, place| in_tx!(db, user::delete(s.user, now())).await?;
    "change plan" = |db, s, place| {
        let change = UserChange { plan: Some(Plan::Saver), ..UserChange::default() };
        in_tx!(db, user::update(s.user, &change)).await?.plan
    };

    "add endpoint" = |db, s, place| in_tx!(db, endpoints::insert(db.secrets(), &endpoint_of(s.user), 3, now())).await?.status;
    "disable endpoint" = |db, s, place| in_tx!(db, endpoints::disable((s.user, s.endpoint), "by user", now())).await?;
    "enable endpoint" = |db, s, place| in_tx!(db, endpoints::enable((s.user, s.endpoint), now())).await?;
    "delete endpoint" = |db, s, place| in_tx!(db, endpoints::delete((s.user, s.endpoint))).await?;
    "rotate secret" = |db, s, place| {
        in_tx!(db, endpoints::rotate_secret(db.secrets(), (s.user, s.endpoint), &secret("whsec_new"), at(9000))).await?
    };
    "disable installation" = |db, s, place| {
        in_tx!(db, endpoints::disable((UserId::INSTALLATION, s.of_installation), "by operator", now())).await?
    };
    "enable installation" = |db, s, place| {
        in_tx!(db, endpoints::enable((UserId::INSTALLATION, s.disabled), now())).await?
    };
    "delete installation" = |db, s, place| {
        in_tx!(db, endpoints::delete((UserId::INSTALLATION, s.of_installation))).await?
    };
    "delete ended queues" = |db, s, place| db.endpoints().delete_ended_queues().await?;
    "recover installation" = |db, s, place| {
        db.deliveries().recover_all(s.of_installation, at(0), now()).await?
    };
    "claim endpoint" = |db, s, place| db.deliveries().claim_endpoints(now(), lease(), 4, false).await?.len();
    "finish attempt" = |db, s, place| {
        db.deliveries().finish_attempts(&s.holder, std::slice::from_ref(&s.sent), now()).await?
    };
    "fail attempt" = |db, s, place| {
        let failed = FinishedAttempt { outcome: AttemptOutcome::Failed, ..s.sent.clone() };
        db.deliveries().finish_attempts(&s.holder, &[failed], now()).await?
    };
    "release endpoint" = |db, s, place| db.deliveries().release_endpoint(&s.idle, now()).await?;
    "finish and release" = |db, s, place| {
        let finished = db.deliveries().finish_attempts(&s.holder, std::slice::from_ref(&s.sent), now()).await?;
        (finished, db.deliveries().release_endpoint(&s.holder, now()).await?)
    };
    "give up endpoint" = |db, s, place| db.deliveries().disable_endpoint(&s.holder, "gone", now()).await?;
    "redeliver failed" = |db, s, place| in_tx!(db, redeliveries::redeliver((s.user, s.endpoint), s.failed, now())).await?;
    "redeliver sent" = |db, s, place| in_tx!(db, redeliveries::redeliver((s.user, s.endpoint), s.sent.event_id, now())).await?;
    "recover" = |db, s, place| in_tx!(db, redeliveries::recover((s.user, s.endpoint), at(0), now())).await?;
    "delete events" = |db, s, place| db.webhook_events().delete_outdated(at(300), at(300), 9).await?;

    "insert key" = |db, s, place| {
        in_tx!(db, keys::insert(s.user, &key(20 + u8::try_from(place).unwrap()), "new", None, now())).await?.prefix
    };
    "rotate key" = |db, s, place| {
        in_tx!(db, keys::rotate(&s.key, &key(30 + u8::try_from(place).unwrap()), at(600), now())).await?.0.name
    };
    "revoke key" = |db, s, place| in_tx!(db, keys::revoke(s.key.id, now())).await?.revoked_at;
    "use key" = |db, s, place| {
        let found = db.keys().find_caller(&key(1), now()).await?;
        db.keys().touch(s.user, s.key.id, now()).await?;
        found.map(|found| found.caller.plan)
    };
    "claim setup token" = |db, s, place| {
        match db.setup_tokens().claim(&setup_token(1), &key(40 + u8::try_from(place).unwrap()), now()).await? {
            SetupTokenClaim::Created(key) => format!("created {}", key.prefix),
            SetupTokenClaim::Repeated { .. } => "repeated".to_owned(),
            SetupTokenClaim::Unknown => "unknown".to_owned(),
        }
    };
    "receive callback" = |db, s, place| {
        let confirmed = (Confirmation::Confirmed, None);
        db.consent_sessions().receive_callback("s", &secret("code"), confirmed, now(), lease()).await?.is_some()
    };
    "create key as operator" = |db, s, place| {
        let idempotency = Idempotency { key_hash: [7; 32], request_digest: [7; 32] };
        match db.begin_repeatable_change(s.operator, idempotency, now()).await? {
            IdempotentStart::New(mut change) => {
                let key = key(50 + u8::try_from(place).unwrap());
                keys::insert(change.tx(), s.user, &key, "operator's", None, now()).await?;
                change.record(&AuditAction::of_user("key.create", s.user)).await?;
                let response = StoredResponse { status: 201, body: format!("{place}").into() };
                change.commit_with(&response).await?;
                format!("{place}")
            }
            IdempotentStart::Repeated(response) => secrecy::ExposeSecret::expose_secret(&response.body).to_owned(),
            IdempotentStart::KeyInUse => "in use".to_owned(),
        }
    };
    "clean up" = |db, s, place| db.consent_sessions().delete_outdated(at(500_000)).await?;

    "register" = |db, s, place| match db.provider_users().claim(s.user, "snaptrade", now(), lease()).await? {
        ProviderUserState::Claimed(claim) => {
            let is_stored = db.provider_users().set_reference(&claim, "reference").await?;
            Some((is_stored, db.provider_users().finish(&claim, Some("theirs"), &secret("registered")).await?))
        }
        ProviderUserState::Ready(_) => Some((false, true)),
        ProviderUserState::Busy => None,
    };
    "forget registration" = |db, s, place| db.provider_users().delete(s.user, "snaptrade").await?;
    "deregister" = |db, s, place| db.provider_users().delete_of(s.user, "snaptrade", "theirs").await?;

    "sign in" = |db, s, place| sign_in(&db, "link", place).await?;
    "sign in by another link" = |db, s, place| sign_in(&db, "another link", place).await?;
    "ask for a link" = |db, s, place| {
        let token = format!("link {place}");
        db.sessions().insert_link(&sign_in_link(s.user, &token, 9000), 3, now()).await?
    };
    "end sessions" = |db, s, place| {
        let mut change = db.begin_own_change(s.user, Uuid::nil(), now()).await?;
        sessions::revoke_others(change.tx(), s.user, Uuid::nil()).await?;
        change.record(&AuditAction::of_user("session.revoke_others", s.user)).await?;
        change.commit().await?;
    };
}
