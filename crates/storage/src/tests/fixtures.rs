//! Rows and steps that several test modules need.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bellbird_domain::{
    AccountTag, ApiVersion, Confirmation, ConnectionId, ContentDigest, DeliveryState, Digest,
    EndpointId, EventId, EventType, Fingerprint, Fingerprints, OperatorKeyId, RowDigests, RowKey,
    SyncRunId, UserId, UtcDay,
};
use jiff::Timestamp;
use secrecy::SecretString;
use uuid::Uuid;

use crate::job_kinds::SYNC;
use crate::tests::support::{TestDb, at, new_connection, setup_token};
use crate::{
    AttemptOutcome, AuditAction, ClaimedConsentSession, ClaimedEndpoint, ClaimedJob,
    ClaimedProviderUser, FinishedAttempt, FinishedSync, Idempotency, IdempotentStart,
    NewConnection, NewConsentSession, NewEndpoint, NewLink, NewSession, NewSetupToken,
    NewSignInLink, NewWebhookEvent, ProviderUserState, Sealer, Storage, StoredResponse, SyncState,
    in_tx,
};

/// The events of syncs and of changes: not those of a new, ending or removed connection.
pub(crate) const SYNCS_AND_CHANGES: &[EventType] = &[
    EventType::TransactionsSynced,
    EventType::TradesSynced,
    EventType::ConnectionUpdated,
];

/// A consent session that expires after a minute and is due after two.
pub(crate) fn new_session(user_id: UserId, state: &str) -> NewConsentSession<'_> {
    NewConsentSession {
        user_id,
        link_id: Uuid::nil(),
        provider: "akahu",
        connection_id: None,
        known_consents: &[],
        browser: "browser",
        state,
        expires_at: at(60),
        next_attempt_at: at(120),
        open_max: u64::MAX,
    }
}

/// Stores [`new_session`].
pub(crate) async fn start_session(db: &Storage, user: UserId, state: &str) {
    let new = new_session(user, state);
    assert!(db.consent_sessions().insert(&new, at(0)).await.unwrap());
}

pub(crate) fn secret(text: &str) -> SecretString {
    SecretString::from(text)
}

/// A consent session whose callback was received, with a lease from 10 to 40.
pub(crate) async fn session_with_callback(
    db: &Storage,
    user: UserId,
    state: &str,
) -> ClaimedConsentSession {
    receive_callback(db, &new_session(user, state)).await
}

/// As [`session_with_callback`], of this session.
pub(crate) async fn receive_callback(
    db: &Storage,
    new: &NewConsentSession<'_>,
) -> ClaimedConsentSession {
    db.consent_sessions().insert(new, at(0)).await.unwrap();
    let claim = receive(db, new.state, "code=answer", (10, 40)).await;
    claim.expect("in time")
}

/// A confirmed callback with this text, and a lease that ends at the second time.
pub(crate) async fn receive(
    db: &Storage,
    state: &str,
    text: &str,
    (now, until): (i64, i64),
) -> Option<ClaimedConsentSession> {
    let (text, confirmed) = (secret(text), (Confirmation::Confirmed, None));
    db.consent_sessions()
        .receive_callback(state, &text, confirmed, at(now), at(until))
        .await
        .unwrap()
}

/// A link to sign in that no browser asked for.
pub(crate) fn sign_in_link(user_id: UserId, token: &str, expires: i64) -> NewSignInLink<'_> {
    NewSignInLink {
        user_id,
        token,
        browser: None,
        expires_at: at(expires),
    }
}

/// A session of the console, in a browser that keeps the other cookie.
pub(crate) fn console_session<'a>(token: &'a str, known_browser: &'a str) -> NewSession<'a> {
    NewSession {
        token,
        browser: "Firefox on Linux",
        known_browser,
        expires_at: at(1_000),
    }
}

/// A link for any provider.
pub(crate) fn new_link(user_id: UserId, token: &str, expires_at: Timestamp) -> NewLink<'_> {
    NewLink {
        user_id,
        token,
        provider: None,
        connection_id: None,
        expires_at,
        session: None,
        console_session: None,
    }
}

/// A setup token of this number.
pub(crate) async fn insert_setup_token(
    db: &Storage,
    user_id: UserId,
    number: u8,
    expires_at: Timestamp,
) {
    let token = setup_token(number);
    let new = NewSetupToken {
        user_id,
        token: &token,
        name: "Actual",
        expires_at,
    };
    in_tx!(db, setup_tokens::insert(&new, at(0))).await.unwrap();
}

/// Claims the registration of a user who is not registered at the provider.
pub(crate) async fn claimed_registration(
    db: &Storage,
    user: UserId,
    now: i64,
) -> ClaimedProviderUser {
    match claim_registration(db, user, now).await {
        ProviderUserState::Claimed(claim) => claim,
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn claim_registration(db: &Storage, user: UserId, now: i64) -> ProviderUserState {
    db.provider_users()
        .claim(user, "fiskil", at(now), at(now + 30))
        .await
        .unwrap()
}

/// Registers a user at the provider.
pub(crate) async fn register_provider_user(
    db: &Storage,
    user: UserId,
    provider_user_id: &str,
    credentials: &str,
) {
    let (claim, users) = (claimed_registration(db, user, 0).await, db.provider_users());
    assert!(users.set_reference(&claim, "ref").await.unwrap());
    let credentials = secret(credentials);
    let finished = users.finish(&claim, Some(provider_user_id), &credentials);
    assert!(finished.await.unwrap());
}

pub(crate) const SECRET: &str = "whsec_that_must_not_leak";

/// An endpoint that subscribes to these events.
pub(crate) async fn endpoint(db: &Storage, user: UserId, events: &[EventType]) -> EndpointId {
    let secret = secret(SECRET);
    let new = NewEndpoint {
        user_id: user,
        url: "https://hooks.example.com/x",
        event_types: events,
        api_version: ApiVersion::DEFAULT,
        secret: &secret,
    };
    in_tx!(db, endpoints::insert(db.secrets(), &new, 20, at(0)))
        .await
        .unwrap()
        .id
}

/// Replaces an endpoint's secret, which stays valid until then. Returns false if there is no such
/// endpoint.
pub(crate) async fn rotate_secret(
    db: &Storage,
    of: (UserId, EndpointId),
    to: &str,
    until: i64,
) -> bool {
    let secret = secret(to);
    let rotate = in_tx!(
        db,
        endpoints::rotate_secret(db.secrets(), of, &secret, at(until))
    );
    rotate.await.unwrap().is_some()
}

/// A user with a connection and an endpoint.
pub(crate) async fn user_with_endpoint(
    db: &TestDb,
    email: &str,
) -> (UserId, ConnectionId, EndpointId) {
    let user = db.user(email).await.id;
    (
        user,
        connection_to_sync(db, user, email, 20).await,
        endpoint(db, user, SYNCS_AND_CHANGES).await,
    )
}

/// A fingerprint that was last seen at 20.
pub(crate) fn fingerprint(row: u8, occurrence: u32, content: u8) -> Fingerprint {
    let digests = RowDigests {
        row: Digest([row; 16]),
        content: ContentDigest([content; 8]),
        likeness: ContentDigest([row; 8]),
        account: AccountTag(7),
        day: UtcDay(20_000),
    };
    let (key, seen_at) = (RowKey([row; 8]), Fingerprint::seconds(at(20)));
    Fingerprint {
        digests,
        occurrence,
        key,
        seen_at,
        misses: 0,
        is_gone: false,
        first_version: 1,
        changed_version: 1,
    }
}

pub(crate) fn fingerprints(rows: &[Fingerprint]) -> Fingerprints {
    Fingerprints {
        rows: rows.to_vec(),
        change_versions: vec![1, 20],
        forgotten_version: 1,
    }
}

/// A connection with this time of its next sync.
pub(crate) async fn connection_to_sync(
    db: &Storage,
    user: UserId,
    consent: &str,
    next_sync_at: i64,
) -> ConnectionId {
    let new = NewConnection {
        next_sync_at: at(next_sync_at),
        ..new_connection(user, consent)
    };
    db.connections().import(&new, &[], at(0)).await.unwrap().id
}

pub(crate) async fn start_sync(
    db: &Storage,
    user: UserId,
    id: ConnectionId,
    now: i64,
) -> ClaimedJob {
    db.claim(SYNC, user, id, at(now), at(now + 30))
        .await
        .unwrap()
        .expect("claimed")
}

/// What is known after the first sync, which started at `now`. The next one is due 1,000 seconds
/// later.
pub(crate) fn state_after(now: i64) -> SyncState {
    SyncState {
        linked_at: at(0),
        sequence: 1,
        synced_at: Some(at(now)),
        covered_from: Some(at(now - 500)),
        newest_row_at: None,
        rows_backfill_began_at: at(0),
        missing_since: None,
        reread_from: None,
        unread: None,
        restore_id: 0,
        change_version: 0,
        removal_hints: Vec::new(),
        last_changes_poll_at: None,
        unreadable: None,
        next_at: Some(at(now + 1000)),
        attempts: 0,
        last_error: None,
    }
}

/// A sync that started at `now` and found nothing.
pub(crate) fn empty_sync(now: i64) -> FinishedSync<'static> {
    let after: &SyncState = Box::leak(Box::new(state_after(now)));
    FinishedSync {
        run: SyncRunId::new(),
        started_at: at(now),
        date_range: (at(now - 500), at(now)),
        before: after,
        after,
        fingerprints: None,
        first_attempt_at: at(now),
        event_type: EventType::TransactionsSynced,
        events: &[],
        removed_events: (SyncRunId::new(), &[]),
    }
}

/// An event of one new row.
pub(crate) fn chunk(chunk: u32, total_chunks: u32) -> NewWebhookEvent {
    NewWebhookEvent {
        new_count: 1,
        chunk,
        total_chunks,
        ..NewWebhookEvent::without_rows(EventId::new())
    }
}

/// Runs a sync that ends with these events. Returns how many of them will be sent.
pub(crate) async fn finish_sync_with(
    db: &Storage,
    (user, id): (UserId, ConnectionId),
    now: i64,
    events: &[NewWebhookEvent],
) -> (SyncRunId, u64) {
    let claim = start_sync(db, user, id, now).await;
    let finished = FinishedSync {
        events,
        ..empty_sync(now)
    };
    (
        finished.run,
        db.syncs()
            .finish(&claim, &finished)
            .await
            .unwrap()
            .expect("finished"),
    )
}

/// Claims the endpoint. Claims of other endpoints are released.
pub(crate) async fn claimed_endpoint(db: &Storage, id: EndpointId, now: i64) -> ClaimedEndpoint {
    let (mut found, deliveries) = (None, db.deliveries());
    let claims = deliveries.claim_endpoints(at(now), at(now + 30), 8, false);
    for claim in claims.await.unwrap() {
        if claim.endpoint_id == id {
            found = Some(claim);
        } else {
            let released = deliveries.release_endpoint(&claim, at(now));
            assert!(released.await.unwrap());
        }
    }
    found.expect("something is due for it")
}

/// A first attempt. The endpoint responds to a failed one with 500.
pub(crate) fn finished_attempt(
    event: &NewWebhookEvent,
    run: SyncRunId,
    now: i64,
    outcome: AttemptOutcome,
) -> FinishedAttempt {
    let delivered = outcome == AttemptOutcome::Delivered;
    FinishedAttempt {
        event_id: event.id,
        sync_run_id: run,
        chunk: event.chunk,
        total_chunks: event.total_chunks,
        attempt: 1,
        due_at: at(now),
        at: at(now),
        duration_ms: 12,
        status: Some(if delivered { 204 } else { 500 }),
        error: if delivered {
            None
        } else {
            Some("unexpected status")
        },
        exchange_failed: !delivered,
        endpoint_at_fault: !delivered,
        outcome,
    }
}

/// Stores attempts that were due when their deliveries say. Returns false if the lease was lost.
pub(crate) async fn finish_attempts(
    db: &TestDb,
    claim: &ClaimedEndpoint,
    attempts: &[FinishedAttempt],
    now: i64,
) -> bool {
    let listed = db
        .deliveries()
        .list(claim.user_id, claim.endpoint_id, None, 99);
    let listed = listed.await.unwrap();
    let due_at = |id: EventId| {
        let mut listed = listed.iter();
        listed
            .find(|delivery| delivery.event_id == id)?
            .next_attempt_at
    };
    let mut attempts = attempts.to_vec();
    for attempt in &mut attempts {
        attempt.due_at = due_at(attempt.event_id).unwrap_or(attempt.due_at);
    }
    db.deliveries()
        .finish_attempts(claim, &attempts, at(now))
        .await
        .unwrap()
}

/// As [`finish_attempts`], a first attempt.
pub(crate) async fn attempt(
    db: &TestDb,
    claim: &ClaimedEndpoint,
    (event, run): (&NewWebhookEvent, SyncRunId),
    now: i64,
    outcome: AttemptOutcome,
) -> bool {
    let attempts = [finished_attempt(event, run, now, outcome)];
    finish_attempts(db, claim, &attempts, now).await
}

/// The states of the endpoint's deliveries, oldest event first.
pub(crate) async fn states(db: &TestDb, user: UserId, endpoint: EndpointId) -> Vec<DeliveryState> {
    let deliveries = db.deliveries().list(user, endpoint, None, 99).await;
    let oldest_first = deliveries.unwrap().into_iter().rev();
    oldest_first.map(|delivery| delivery.state).collect()
}

/// Waits until `count` PostgreSQL sessions wait for a lock.
pub(crate) async fn wait_for_lock_waiters(db: &TestDb, count: usize) {
    let waiting =
        "SELECT CAST(a.pid AS TEXT) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
        WHERE a.datname = current_database() AND NOT l.granted";
    while db.texts(waiting).await.len() < count {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Keys in the order of `numbers`. The same number gives the same key.
pub(crate) fn sealer_of(numbers: &[u8]) -> Sealer {
    let entry = |number: &u8| format!("k{number}:{}", STANDARD.encode([*number; 32]));
    Sealer::parse(&numbers.iter().map(entry).collect::<Vec<_>>().join(",")).expect("good keys")
}

/// Opens the same database with these keys.
pub(crate) async fn with_keys(db: &TestDb, numbers: &[u8]) -> Storage {
    Storage::open(&db.url, sealer_of(numbers))
        .await
        .expect("opens")
}

pub(crate) const REMEMBERED: Idempotency = Idempotency {
    key_hash: [7; 32],
    request_digest: [7; 32],
};

/// An operator's request whose response is remembered. Returns the operator.
pub(crate) async fn remembered_response(db: &Storage, user: UserId, body: &str) -> OperatorKeyId {
    let operator = OperatorKeyId::new();
    let IdempotentStart::New(mut change) = db
        .begin_repeatable_change(operator, REMEMBERED, at(1))
        .await
        .unwrap()
    else {
        panic!("a new request")
    };
    let action = AuditAction::of_user("key.create", user);
    change.record(&action).await.unwrap();
    let response = StoredResponse {
        status: 201,
        body: body.into(),
    };
    change.commit_with(&response).await.unwrap();
    operator
}
