//! Endpoints of the installation, and their queues.

use bellbird_domain::{
    ApiVersion, DeliveryState, EndpointId, EndpointStatus, EventType, Plan, UserId,
};

use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, chunk, connection_to_sync, empty_sync, endpoint, finish_attempts,
    finish_sync_with, finished_attempt, start_sync, states,
};
use crate::tests::support::{TestDb, at, both};
use crate::{
    AttemptOutcome, ClaimedEndpoint, EndpointChange, FinishedAttempt, FinishedSync, NewEndpoint,
    UserChange, in_tx,
};

const OWNER: UserId = UserId::INSTALLATION;

/// Removes the user's only connection, and the user.
async fn remove(db: &TestDb, user: UserId) {
    let connection = db.connections().list(user).await.unwrap().remove(0).id;
    assert!(db.remove(user, connection, at(40)).await);
    in_tx!(db, user::delete(user, at(41))).await.unwrap();
}

/// Attempts everything that is due for a claim.
async fn attempt_all(
    db: &TestDb,
    claim: &ClaimedEndpoint,
    now: i64,
    outcome: AttemptOutcome,
) -> Vec<EventType> {
    let due = db.deliveries().list_due(claim, at(now), 99).await.unwrap();
    for delivery in &due {
        let event = chunk(1, 1);
        let attempt = FinishedAttempt {
            event_id: delivery.event.id,
            ..finished_attempt(&event, delivery.event.sync_run_id, now, outcome)
        };
        assert!(finish_attempts(db, claim, &[attempt], now).await);
    }
    assert!(
        db.deliveries()
            .release_endpoint(claim, at(now))
            .await
            .unwrap()
    );
    due.into_iter()
        .map(|delivery| delivery.event.event_type)
        .collect()
}

/// A user with a connection whose sync has found `rows` chunks.
async fn synced(db: &TestDb, email: &str, chunks: u32) -> UserId {
    let user = db.user(email).await.id;
    let connection = db.connection(user, email, &[]).await.id;
    let events: Vec<_> = (1..=chunks).map(|number| chunk(number, chunks)).collect();
    finish_sync_with(db, (user, connection), 20, &events).await;
    user
}

async fn claims(db: &TestDb, now: i64) -> Vec<ClaimedEndpoint> {
    let mut claims = db
        .deliveries()
        .claim_endpoints(at(now), at(now + 60), 99, false)
        .await
        .unwrap();
    claims.sort_by_key(|claim| claim.user_id);
    claims
}

/// The users with a queue at an endpoint.
async fn queue_users(db: &TestDb, endpoint: EndpointId) -> Vec<String> {
    let users =
        format!("SELECT user_id FROM webhook_queues WHERE endpoint_id = '{endpoint}' ORDER BY 1");
    db.texts(&users).await
}

both! {
    async fn each_user_has_a_queue(db) {
        let shared = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let anna = synced(db, "a@x", 1).await;
        db.change_user(anna, &UserChange { reference: Some(Some("customer-1")), ..UserChange::default() }).await;
        let own = endpoint(db, anna, SYNCS_AND_CHANGES).await;
        let ben = synced(db, "b@x", 3).await;
        db.user("quiet@x").await;

        let claims = claims(db, 30).await;
        let found: Vec<_> = claims.iter().map(|claim| (claim.user_id, claim.endpoint_id)).collect();
        assert_eq!(found, [(anna, shared), (ben, shared)], "the own endpoint had no event");
        let named: Vec<_> = claims.iter().map(|claim| (claim.owner_id, claim.user_reference.as_deref())).collect();
        assert_eq!(named, [(OWNER, Some("customer-1")), (OWNER, None)]);
        assert!(db.endpoints().secrets(OWNER, shared, at(30)).await.unwrap().is_some());

        // Commands see one endpoint, and users see theirs only.
        let ids = |endpoints: Vec<crate::Endpoint>| endpoints.into_iter().map(|one| one.id).collect::<Vec<_>>();
        assert_eq!(ids(db.endpoints().list(anna).await.unwrap()), [own]);
        assert_eq!(ids(db.endpoints().list(ben).await.unwrap()), []);
        assert_eq!(ids(db.endpoints().list(OWNER).await.unwrap()), [shared]);
        assert_eq!(db.endpoints().list_all().await.unwrap().len(), 2);
        assert_eq!(db.endpoints().find_any(shared).await.unwrap().expect("one").user_id, OWNER);

        let all = db.deliveries().list(OWNER, shared, None, 99).await.unwrap();
        let mut users: Vec<_> = all.iter().map(|record| record.user_id).collect();
        users.sort_unstable();
        assert_eq!(users, [anna, ben, ben, ben]);
        assert_eq!(db.deliveries().list(OWNER, shared, None, 2).await.unwrap(), all[..2]);
        let waiting = Some(DeliveryState::Waiting);
        assert_eq!(db.deliveries().list(OWNER, shared, waiting, 99).await.unwrap().len(), 2);
        assert_eq!(db.deliveries().list(anna, shared, None, 99).await.unwrap().len(), 1);
    }

    async fn change_of_the_endpoint_writes_no_queue(db) {
        let shared = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let users = [synced(db, "a@x", 1).await, synced(db, "b@x", 1).await];
        let queues = "SELECT CAST(fence AS TEXT) || COALESCE(CAST(due_at AS TEXT), '') FROM webhook_queues";
        let (running, before) = (claims(db, 30).await, db.texts(queues).await);
        assert_eq!(db.deliveries().list_due(&running[0], at(30), 9).await.unwrap().len(), 1);
        let change = EndpointChange {
            url: Some("https://new.example.com"),
            event_types: Some(&[EventType::TransactionsSynced]),
            api_version: Some(ApiVersion::NEWEST),
        };
        assert!(in_tx!(db, endpoints::update((OWNER, shared), &change)).await.unwrap());
        assert_eq!(db.texts(queues).await, before);
        for claim in &running {
            assert_eq!(db.deliveries().list_due(claim, at(30), 9).await.unwrap(), [], "not to the old URL");
            assert_eq!(db.deliveries().list_due_ids(claim, at(30), at(31), 9).await.unwrap(), []);
            assert!(!db.deliveries().disable_endpoint(claim, "gone", at(31)).await.unwrap(), "the new one is not gone");
            assert!(db.deliveries().release_endpoint(claim, at(31)).await.unwrap());
        }
        let again = claims(db, 32).await;
        let read: Vec<_> = again.iter().map(|claim| (claim.url.as_deref(), claim.api_version)).collect();
        assert_eq!(read, [(Some("https://new.example.com"), ApiVersion::NEWEST); 2], "they stay due");

        assert_eq!(in_tx!(db, endpoints::disable((users[0], shared), "by user", at(33))).await.unwrap(), None, "not theirs");
        assert!(!in_tx!(db, endpoints::delete((users[0], shared))).await.unwrap());
        assert_eq!(in_tx!(db, endpoints::disable((OWNER, shared), "by command", at(33))).await.unwrap(), Some(0));
        let late = synced(db, "c@x", 1).await;
        assert_eq!(states(db, late, shared).await, [DeliveryState::Failed], "recovered later");
        for claim in &again {
            assert_eq!(db.deliveries().list_due(claim, at(33), 9).await.unwrap(), []);
            assert!(db.deliveries().release_endpoint(claim, at(33)).await.unwrap());
        }
        for claim in claims(db, 34).await {
            assert_eq!(claim.url, None);
            assert!(db.deliveries().end_deliveries(&claim, at(34)).await.unwrap());
            assert_eq!(states(db, claim.user_id, shared).await, [DeliveryState::Failed]);
            assert!(!db.deliveries().release_endpoint(&claim, at(34)).await.unwrap(), "the claim has ended");
        }
        assert_eq!(claims(db, 99).await, [], "each fails once");

        assert!(in_tx!(db, endpoints::enable((OWNER, shared), at(103))).await.unwrap());
        assert_eq!(db.deliveries().recover_all(shared, at(0), at(104)).await.unwrap(), 3);
        assert_eq!(db.deliveries().recover_all(shared, at(0), at(104)).await.unwrap(), 0);
        for user in users.into_iter().chain([late]) {
            assert_eq!(states(db, user, shared).await, [DeliveryState::Pending]);
        }
    }

    async fn gone_disables_the_endpoint_for_all_users(db) {
        let shared = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let (anna, ben) = (synced(db, "a@x", 1).await, synced(db, "b@x", 1).await);
        let claims_before = claims(db, 30).await;
        let of_anna = claims_before.iter().find(|claim| claim.user_id == anna).expect("claimed");
        let of_ben = claims_before.iter().find(|claim| claim.user_id == ben).expect("claimed");
        assert!(db.deliveries().disable_endpoint(of_anna, "gone", at(31)).await.unwrap());
        let shown = db.endpoints().find_any(shared).await.unwrap().expect("one");
        assert_eq!((shown.status, shown.disabled_reason.as_deref()), (EndpointStatus::Disabled, Some("gone")));
        assert_eq!(states(db, anna, shared).await, [DeliveryState::Failed]);
        assert_eq!(db.deliveries().list_due(of_ben, at(31), 9).await.unwrap(), []);
        assert_eq!(db.deliveries().overview(at(31)).await.unwrap().disabled, 1);
    }

    async fn failures_of_one_user_are_over_when_the_endpoint_is_enabled(db) {
        let shared = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let (anna, ben) = (synced(db, "a@x", 1).await, synced(db, "b@x", 1).await);
        let claims_before = claims(db, 30).await;
        for claim in &claims_before {
            let outcome =
                if claim.user_id == anna { AttemptOutcome::Retry(at(60)) } else { AttemptOutcome::Delivered };
            attempt_all(db, claim, 32, outcome).await;
        }
        let shown = async || {
            let found = db.endpoints().find_any(shared).await.unwrap().expect("one");
            (found.failing_since, found.delivered_at)
        };
        assert_eq!(shown().await, (Some(at(32)), Some(at(32))));
        assert_eq!(db.deliveries().overview(at(34)).await.unwrap().failing, 1);
        assert_eq!(db.endpoints().list_troubled_after(None, false, 9).await.unwrap().len(), 1);
        let [claim] = &claims(db, 60).await[..] else { panic!("only the first user's is due") };
        assert_eq!((claim.user_id, claim.is_unhealthy, claim.failing_since), (anna, true, Some(at(32))));
        assert!(in_tx!(db, endpoints::enable((OWNER, shared), at(70))).await.unwrap());
        assert_eq!(shown().await, (None, Some(at(32))));
        assert_eq!(db.deliveries().overview(at(70)).await.unwrap().failing, 0);
        assert_eq!(db.endpoints().list_troubled_after(None, false, 9).await.unwrap(), []);
        let [claim] = &claims(db, 130).await[..] else { panic!("due again") };
        assert_eq!((claim.is_unhealthy, claim.failing_since), (false, None));
        attempt_all(db, claim, 131, AttemptOutcome::Retry(at(999))).await;
        assert_eq!(shown().await.0, Some(at(131)), "since the first failure after that");
        assert_eq!(states(db, ben, shared).await, [DeliveryState::Delivered]);
    }

    async fn endpoint_that_fails_one_user_fails_all_until_a_success(db) {
        let shared = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let joins = async |claim: &ClaimedEndpoint, now| {
            db.deliveries().join_failing(claim, at(now)).await.unwrap()
        };
        synced(db, "a@x", 1).await;
        for now in [30, 90] {
            let [claim] = &claims(db, now).await[..] else { panic!("due at {now}") };
            assert!(!joins(claim, now).await, "for less than a minute");
            attempt_all(db, claim, now, AttemptOutcome::Retry(at(now + 60))).await;
        }

        let (ben, dan) = (synced(db, "b@x", 1).await, synced(db, "d@x", 1).await);
        let own = endpoint(db, ben, SYNCS_AND_CHANGES).await;
        let connection = connection_to_sync(db, ben, "own", 100).await;
        finish_sync_with(db, (ben, connection), 100, &[chunk(1, 1)]).await;
        let found = claims(db, 100).await;
        assert_eq!(found.len(), 3);
        for claim in &found {
            assert_eq!(joins(claim, 100).await, claim.endpoint_id == shared, "an own endpoint is not concerned");
            assert!(db.deliveries().release_endpoint(claim, at(100)).await.unwrap());
            assert!(!joins(claim, 100).await, "the lease is lost");
        }
        let [claim] = &claims(db, 101).await[..] else { panic!("the healthy one") };
        assert_eq!(claim.endpoint_id, own);
        let failing = db.deliveries().claim_endpoints(at(101), at(161), 9, true).await.unwrap();
        assert_eq!(failing.len(), 2, "the first user's is due later");
        let of = |user: UserId| failing.iter().find(|claim| claim.user_id == user).expect("joined");
        for claim in [of(ben), of(dan)] {
            assert_eq!((claim.endpoint_id, claim.is_failing), (shared, true));
            assert!(!joins(claim, 101).await, "it has");
            assert_eq!(claim.failing_since, None, "nothing of this user has failed");
        }

        // A success is one for all. What fails after it has not failed for a minute.
        attempt_all(db, of(ben), 102, AttemptOutcome::Delivered).await;
        attempt_all(db, of(dan), 103, AttemptOutcome::Retry(at(999))).await;
        let carl = synced(db, "c@x", 1).await;
        let [claim] = &claims(db, 104).await[..] else { panic!("the new one") };
        assert_eq!((claim.user_id, joins(claim, 104).await), (carl, false));
    }

    async fn only_subscribed_events_make_queues_and_successes(db) {
        let of_trades = endpoint(db, OWNER, &[EventType::TradesSynced]).await;
        let user = synced(db, "a@x", 1).await;
        assert_eq!(states(db, user, of_trades).await, []);
        assert_eq!(db.rows("webhook_queues").await, 0);

        // The last success is written once a minute.
        let shared = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let delivered = async || db.endpoints().find_any(shared).await.unwrap().expect("one").delivered_at;
        let user = db.user("b@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        for (now, expected) in [(20, 20), (79, 20), (80, 80)] {
            finish_sync_with(db, (user, connection), now, &[chunk(1, 1)]).await;
            let [claim] = &claims(db, now).await[..] else { panic!("due at {now}") };
            attempt_all(db, claim, now, AttemptOutcome::Delivered).await;
            assert_eq!(delivered().await, Some(at(expected)), "{now}");
        }
    }

    async fn events_need_the_plan_that_reads_their_rows(db) {
        let shared = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        let set_plan = async |plan| {
            let change = UserChange { plan: Some(plan), ..UserChange::default() };
            db.change_user(user, &change).await;
        };
        let sync = async |now, event_type| {
            let claim = start_sync(db, user, connection, now).await;
            let events = [chunk(1, 1)];
            let finished = FinishedSync { events: &events, event_type, ..empty_sync(now) };
            db.syncs().finish(&claim, &finished).await.unwrap().expect("finished")
        };
        let (transactions, trades) = (EventType::TransactionsSynced, EventType::TradesSynced);
        set_plan(Plan::Saver).await;
        assert_eq!((sync(20, transactions).await, sync(21, trades).await), (0, 0));
        set_plan(Plan::Developer).await;
        assert_eq!((sync(22, transactions).await, sync(23, trades).await), (1, 0));
        set_plan(Plan::Professional).await;
        assert_eq!((sync(24, transactions).await, sync(25, trades).await), (1, 1));
        assert_eq!(states(db, user, shared).await, [DeliveryState::Pending; 3]);

        let [claim] = &claims(db, 30).await[..] else { panic!("due") };
        assert_eq!(claim.plan, Some(Plan::Professional));
        set_plan(Plan::Saver).await;
        assert_eq!(db.deliveries().list_due(claim, at(30), 9).await.unwrap(), [], "the claim has read another plan");
        assert!(db.deliveries().release_endpoint(claim, at(31)).await.unwrap());
        let [claim] = &claims(db, 32).await[..] else { panic!("due again") };
        assert_eq!(claim.plan, Some(Plan::Saver));
        assert_eq!(db.deliveries().list_due(claim, at(32), 9).await.unwrap().len(), 3);
    }

    async fn removed_endpoint_leaves_nothing(db) {
        let first = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let second = endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let secret = "whsec_c2VjcmV0".to_owned().into();
        let third = NewEndpoint {
            user_id: OWNER,
            url: "https://3.example.com",
            event_types: SYNCS_AND_CHANGES,
            api_version: ApiVersion::DEFAULT,
            secret: &secret,
        };
        assert!(in_tx!(db, endpoints::insert(db.secrets(), &third, 2, at(0))).await.is_err(), "too many");
        let (anna, ben) = (synced(db, "a@x", 1).await, synced(db, "b@x", 1).await);
        assert!(in_tx!(db, endpoints::delete((OWNER, first))).await.unwrap());
        let found = claims(db, 30).await;
        assert_eq!(found.len(), 4);
        let of_removed = found.iter().find(|claim| claim.endpoint_id == first && claim.user_id == ben).unwrap();
        assert_eq!(of_removed.url, None);
        assert!(db.deliveries().end_deliveries(of_removed, at(31)).await.unwrap());
        assert!(!db.deliveries().release_endpoint(of_removed, at(31)).await.unwrap(), "it is deleted");
        assert_eq!((states(db, anna, first).await.len(), states(db, ben, first).await.len()), (1, 0));
        db.endpoints().delete_ended_queues().await.unwrap();
        assert_eq!(states(db, anna, first).await, []);
        assert_eq!(states(db, anna, second).await, [DeliveryState::Pending]);
        assert_eq!(queue_users(db, second).await, [anna, ben].map(|user| user.to_string()));
        assert!(in_tx!(db, endpoints::delete((OWNER, second))).await.unwrap());
        db.endpoints().delete_ended_queues().await.unwrap();
        for table in ["webhook_endpoints", "webhook_queues", "webhook_deliveries", "webhook_attempts"] {
            assert_eq!(db.rows(table).await, 0, "{table}");
        }
        assert_eq!(db.texts("SELECT purpose FROM secrets WHERE purpose LIKE '%webhook%'").await, [""; 0]);
    }

    async fn undelivered_events_outlive_their_user(db) {
        let shared = endpoint(db, OWNER, EventType::SUBSCRIBABLE).await;
        let user = synced(db, "a@x", 2).await;
        let own = endpoint(db, user, EventType::SUBSCRIBABLE_BY_USERS).await;
        let reference = UserChange { reference: Some(Some("customer-1")), ..UserChange::default() };
        db.change_user(user, &reference).await;
        remove(db, user).await;
        assert_eq!(db.users().find(user).await.unwrap(), None);
        assert_eq!(states(db, user, own).await, [], "its own endpoint is gone");
        assert_eq!(queue_users(db, shared).await, [user.to_string()]);

        // The receiver is down at first.
        let expected = [EventType::ConnectionRemoved, EventType::UserRemoved];
        for (now, outcome) in [(50, AttemptOutcome::Retry(at(60))), (60, AttemptOutcome::Failed)] {
            let [claim] = &claims(db, now).await[..] else { panic!("due at {now}") };
            assert_eq!((claim.user_id, claim.user_reference.as_deref()), (user, Some("customer-1")));
            assert_eq!(claim.plan, None);
            assert_eq!(attempt_all(db, claim, now, outcome).await, expected);
            db.endpoints().delete_ended_queues().await.unwrap();
        }
        assert_eq!(db.deliveries().recover_all(shared, at(0), at(70)).await.unwrap(), 2, "for as long as it failed");
        let [claim] = &claims(db, 70).await[..] else { panic!("due again") };
        assert_eq!(attempt_all(db, claim, 70, AttemptOutcome::Delivered).await, expected);

        db.endpoints().delete_ended_queues().await.unwrap();
        for table in ["webhook_queues", "webhook_events", "webhook_deliveries", "webhook_attempts"] {
            assert_eq!(db.rows(table).await, 0, "{table}");
        }
    }

    async fn user_without_undelivered_events_leaves_nothing(db) {
        endpoint(db, OWNER, SYNCS_AND_CHANGES).await;
        let user = synced(db, "a@x", 1).await;
        let [claim] = &claims(db, 30).await[..] else { panic!("due") };
        attempt_all(db, claim, 30, AttemptOutcome::Delivered).await;
        remove(db, user).await;
        for table in ["webhook_queues", "webhook_events", "webhook_deliveries", "webhook_attempts"] {
            assert_eq!(db.rows(table).await, 0, "{table}");
        }
        // A sync that ends after its user leaves no queue.
        let user = db.user("b@x").await.id;
        let connection = db.connection(user, "c", &[]).await.id;
        let claim = start_sync(db, user, connection, 14).await;
        remove(db, user).await;
        let events = [chunk(1, 1)];
        let finished = FinishedSync { events: &events, ..empty_sync(17) };
        assert_eq!(db.syncs().finish(&claim, &finished).await.unwrap(), None);
        assert_eq!(db.rows("webhook_queues").await, 0);
    }
}
