//! Deliveries as jobs: claims of endpoints, due deliveries and outcomes of attempts.

use std::collections::BTreeSet;

use bellbird_domain::{DeliveryState, EndpointId, EventId, EventType, UserId};

use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, attempt, chunk, claimed_endpoint, connection_to_sync, endpoint,
    finish_attempts, finish_sync_with, finished_attempt, states, user_with_endpoint,
};
use crate::tests::support::{assert_fails, at, both};
use crate::{
    AttemptOutcome, AttemptRecord, ClaimedEndpoint, DeliveryOverview, FinishedAttempt,
    NewWebhookEvent, Storage, in_tx,
};

use DeliveryState::{Delivered, Failed, Pending, Waiting};

async fn due(db: &Storage, now: i64, failing: bool) -> Vec<ClaimedEndpoint> {
    db.deliveries()
        .claim_endpoints(at(now), at(now + 30), 8, failing)
        .await
        .unwrap()
}

/// The event ids of the due deliveries.
async fn due_events(db: &Storage, claim: &ClaimedEndpoint, now: i64) -> Vec<EventId> {
    db.deliveries()
        .list_due(claim, at(now), 99)
        .await
        .unwrap()
        .into_iter()
        .map(|due| due.event.id)
        .collect()
}

fn endpoint_ids(claims: &[ClaimedEndpoint]) -> Vec<EndpointId> {
    claims.iter().map(|claim| claim.endpoint_id).collect()
}

both! {
    async fn endpoint_is_claimed_by_one_instance(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        assert_eq!(due(db, 99, false).await, [], "nothing is due");
        let events = [NewWebhookEvent { row_keys: [[1; 8], [2; 8]].concat(), ..chunk(1, 1) }];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        assert_eq!(due(db, 19, false).await, []);
        assert_eq!(due(db, 20, true).await, [], "it has not failed");
        let claim = due(db, 20, false).await.remove(0);
        assert_eq!((claim.user_id, claim.endpoint_id, claim.failing_since), (user, id, None));
        assert_eq!(claim.url.as_deref(), Some("https://hooks.example.com/x"));
        assert_eq!(due(db, 49, false).await, [], "leased");
        let listed = db.deliveries().list_due(&claim, at(20), 9).await.unwrap();
        assert_eq!((listed.len(), listed[0].attempts), (1, 0));
        assert_eq!(Some(listed[0].event.clone()), db.webhook_events().find(user, events[0].id).await.unwrap());
        assert_eq!((listed[0].event.rows.len(), listed[0].event.sync_run_id), (2, run));
        assert_eq!(db.deliveries().list_due(&claim, at(19), 9).await.unwrap(), []);
        let next = due(db, 60, false).await.remove(0);
        assert_eq!(due_events(db, &claim, 60).await, []);
        assert!(!attempt(db, &claim, (&events[0], run), 61, AttemptOutcome::Delivered).await);
        assert!(!db.deliveries().disable_endpoint(&claim, "gone", at(61)).await.unwrap());
        assert!(!db.deliveries().release_endpoint(&claim, at(60)).await.unwrap());
        assert_eq!(due_events(db, &next, 60).await, [events[0].id]);
        assert!(db.deliveries().release_endpoint(&next, at(60)).await.unwrap());
        assert!(!db.deliveries().release_endpoint(&next, at(60)).await.unwrap(), "released");
        assert_eq!(endpoint_ids(&due(db, 61, false).await), [id]);
    }

    async fn claim_whose_commit_was_lost_frees_no_other(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let (run, _) = finish_sync_with(db, (user, connection), 20, &[chunk(1, 1)]).await;
        let fence = db.texts("SELECT CAST(fence AS TEXT) FROM webhook_queues").await.remove(0);
        let lost = claimed_endpoint(db, id, 20).await;
        // A fail-over to a database that has not got the claim yet.
        db.raw(&format!("UPDATE webhook_queues SET lease_until = NULL, holder = NULL, fence = {fence}")).await;
        let claim = claimed_endpoint(db, id, 21).await;
        assert_eq!(due_events(db, &lost, 21).await, []);
        assert!(!attempt(db, &lost, (&chunk(1, 1), run), 22, AttemptOutcome::Delivered).await);
        assert!(!db.deliveries().release_endpoint(&lost, at(22)).await.unwrap());
        assert!(db.deliveries().release_endpoint(&claim, at(22)).await.unwrap());
    }

    async fn due_endpoints_are_served_in_turn_and_shared(db) {
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        let ids = [
            endpoint(db, user, SYNCS_AND_CHANGES).await,
            endpoint(db, user, SYNCS_AND_CHANGES).await,
            endpoint(db, user, SYNCS_AND_CHANGES).await,
        ];
        finish_sync_with(db, (user, connection), 20, &[chunk(1, 1)]).await;
        let mut order = Vec::new();
        for now in 100..106 {
            let claim = db.deliveries().claim_endpoints(at(now), at(now + 30), 1, false).await.unwrap().remove(0);
            assert!(db.deliveries().release_endpoint(&claim, at(now)).await.unwrap());
            order.push(claim.endpoint_id);
        }
        assert_eq!((&order[..3], &order[3..]), (&ids[..], &ids[..]), "round robin");

        // Two instances share what is due.
        let mut all = BTreeSet::from(ids);
        for _ in 0..7 {
            all.insert(endpoint(db, user, SYNCS_AND_CHANGES).await);
        }
        assert_eq!(finish_sync_with(db, (user, connection), 110, &[chunk(1, 1)]).await.1, 1);
        let handles = [db.reopen().await, db.reopen().await];
        let mut seen = Vec::new();
        while seen.len() < all.len() {
            let (one, other) = tokio::join!(
                handles[0].deliveries().claim_endpoints(at(200), at(300), 3, false),
                handles[1].deliveries().claim_endpoints(at(200), at(300), 3, false),
            );
            let claims = [one.unwrap(), other.unwrap()].concat();
            assert!(!claims.is_empty());
            seen.extend(endpoint_ids(&claims));
        }
        assert_eq!((seen.len(), BTreeSet::from_iter(seen)), (10, all), "each is claimed once");
    }

    async fn chunks_are_delivered_in_order(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let events = [chunk(1, 3), chunk(2, 3), chunk(3, 3)];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        let other = [chunk(1, 2), chunk(2, 2)];
        let (other_run, _) = finish_sync_with(db, (user, connection), 25, &other).await;
        let claim = claimed_endpoint(db, id, 30).await;
        assert_eq!(due_events(db, &claim, 30).await, [events[0].id, other[0].id]);
        assert!(attempt(db, &claim, (&events[0], run), 31, AttemptOutcome::Retry(at(40))).await);
        assert_eq!(states(db, user, id).await, [Pending, Waiting, Waiting, Pending, Waiting]);
        assert_eq!(due_events(db, &claim, 39).await, [other[0].id]);
        let both = [
            FinishedAttempt { attempt: 2, ..finished_attempt(&events[0], run, 40, AttemptOutcome::Delivered) },
            finished_attempt(&other[0], other_run, 40, AttemptOutcome::Failed),
        ];
        assert!(finish_attempts(db, &claim, &both, 41).await);
        assert_eq!(states(db, user, id).await, [Delivered, Pending, Waiting, Failed, Pending]);
        assert_eq!(due_events(db, &claim, 40).await, [], "due when the chunk before has ended");
        assert_eq!(due_events(db, &claim, 41).await, [events[1].id, other[1].id]);
        // Attempts of ended deliveries change nothing.
        assert!(finish_attempts(db, &claim, &both, 42).await);
        assert_eq!(states(db, user, id).await, [Delivered, Pending, Waiting, Failed, Pending]);
        assert!(attempt(db, &claim, (&events[1], run), 43, AttemptOutcome::Delivered).await);
        assert!(attempt(db, &claim, (&events[2], run), 44, AttemptOutcome::Delivered).await);
        assert_eq!(states(db, user, id).await, [Delivered, Delivered, Delivered, Failed, Pending]);
    }

    async fn redelivered_chunk_blocks_waiting_chunks(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let events = [chunk(1, 3), chunk(2, 3), chunk(3, 3)];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        let claim = claimed_endpoint(db, id, 30).await;
        assert!(attempt(db, &claim, (&events[0], run), 30, AttemptOutcome::Delivered).await);
        in_tx!(db, redeliveries::redeliver((user, id), events[0].id, at(31))).await.unwrap();
        assert_eq!(states(db, user, id).await, [Pending, Pending, Waiting]);
        assert!(attempt(db, &claim, (&events[0], run), 32, AttemptOutcome::Delivered).await);
        assert_eq!(states(db, user, id).await, [Delivered, Pending, Waiting], "the second is not delivered");
        assert!(attempt(db, &claim, (&events[1], run), 33, AttemptOutcome::Delivered).await);
        assert_eq!(states(db, user, id).await, [Delivered, Delivered, Pending]);
    }

    async fn every_attempt_is_recorded(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let events = [NewWebhookEvent { new_count: 3, updated_count: 2, ..chunk(1, 1) }];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        let claim = claimed_endpoint(db, id, 30).await;
        let late = FinishedAttempt {
            status: None,
            error: Some("no response in time"),
            ..finished_attempt(&events[0], run, 30, AttemptOutcome::Retry(at(40)))
        };
        assert!(finish_attempts(db, &claim, &[late], 31).await);
        let delivery = db.deliveries().list(user, id, Some(Pending), 9).await.unwrap().remove(0);
        assert_eq!(
            (delivery.event_id, delivery.event_type, delivery.sync_run_id),
            (events[0].id, EventType::TransactionsSynced, run)
        );
        assert_eq!((delivery.chunk, delivery.total_chunks, delivery.new_count, delivery.updated_count), (1, 1, 3, 2));
        assert_eq!(
            (delivery.created_at, delivery.attempts, delivery.next_attempt_at, delivery.ended_at),
            (at(20), 1, Some(at(40)), None)
        );
        assert_eq!(
            (delivery.last_attempt_at, delivery.last_status, delivery.last_duration_ms),
            (Some(at(30)), None, Some(12))
        );
        assert_eq!(delivery.last_error.as_deref(), Some("no response in time"));
        let due = db.deliveries().list_due(&claim, at(40), 9).await.unwrap().remove(0);
        assert_eq!((due.attempts, due.last_attempt_at, due.last_error), (1, Some(at(30)), delivery.last_error));
        let success =
            FinishedAttempt { attempt: 2, ..finished_attempt(&events[0], run, 40, AttemptOutcome::Delivered) };
        assert!(finish_attempts(db, &claim, &[success], 41).await);
        let delivery = db.deliveries().list(user, id, None, 9).await.unwrap().remove(0);
        assert_eq!(
            (delivery.state, delivery.attempts, delivery.next_attempt_at, delivery.ended_at),
            (Delivered, 2, None, Some(at(41)))
        );
        assert_eq!((delivery.last_status, delivery.last_error), (Some(204), None));
        let first = AttemptRecord {
            attempt: 1,
            at: at(30),
            duration_ms: 12,
            status: None,
            error: Some("no response in time".to_owned()),
        };
        let second = AttemptRecord { attempt: 2, at: at(40), duration_ms: 12, status: Some(204), error: None };
        assert_eq!(db.deliveries().list_attempts(user, id, events[0].id).await.unwrap(), [first, second]);
        assert_eq!(db.deliveries().list_attempts(UserId::new(), id, events[0].id).await.unwrap(), []);
        assert_eq!(db.deliveries().list(user, id, Some(Failed), 9).await.unwrap(), []);
        assert_eq!(db.deliveries().list(UserId::new(), id, None, 9).await.unwrap(), []);
        db.raw("UPDATE webhook_deliveries SET last_status = 70000").await;
        assert_fails!(db.deliveries().list(user, id, None, 9).await, Corrupt(_));
    }

    async fn failing_endpoint_is_claimed_separately(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let events = [chunk(1, 1), chunk(1, 1)];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events[..1]).await;
        finish_sync_with(db, (user, connection), 20, &events[1..]).await;
        let claim = claimed_endpoint(db, id, 30).await;
        let find = async || db.endpoints().find_any(id).await.unwrap().expect("there");
        let retry = |now: i64, index: usize| finished_attempt(&events[index], run, now, AttemptOutcome::Retry(at(now)));
        let finish = async |claim: &ClaimedEndpoint, attempts: &[FinishedAttempt], now: i64| {
            assert!(finish_attempts(db, claim, attempts, now).await);
        };
        // Releases the endpoint and claims it again. Returns in which of the two classes it is now.
        let reclaim = async |claim: ClaimedEndpoint, now: i64| {
            assert!(db.deliveries().release_endpoint(&claim, at(now)).await.unwrap());
            let [healthy, failing] = [due(db, now, false).await, due(db, now, true).await];
            assert_eq!(healthy.len() + failing.len(), 1);
            let claim = healthy.into_iter().chain(failing).next().unwrap();
            (claim.is_failing, claim)
        };
        let not_sent = FinishedAttempt { exchange_failed: false, endpoint_at_fault: false, ..retry(30, 0) };
        finish(&claim, &[not_sent], 31).await;
        assert_eq!(find().await.failing_since, None, "the endpoint was not reached");
        let (is_failing, claim) = reclaim(claim, 31).await;
        assert_eq!((is_failing, claim.is_unhealthy), (false, false));

        finish(&claim, &[retry(33, 1), retry(32, 0)], 34).await;
        assert_eq!((find().await.failing_since, find().await.delivered_at), (Some(at(32)), None), "since the first");
        let (is_failing, claim) = reclaim(claim, 40).await;
        assert_eq!((is_failing, claim.is_unhealthy, claim.failing_since), (false, true, Some(at(32))));
        finish(&claim, &[retry(91, 0)], 91).await;
        let (is_failing, claim) = reclaim(claim, 91).await;
        assert!(!is_failing, "for less than a minute");
        finish(&claim, &[retry(92, 0)], 92).await;
        let (is_failing, claim) = reclaim(claim, 92).await;
        assert!(is_failing, "for a minute");
        let not_sent = FinishedAttempt { exchange_failed: false, endpoint_at_fault: false, ..retry(93, 0) };
        finish(&claim, &[not_sent], 93).await;
        let (is_failing, claim) = reclaim(claim, 93).await;
        assert!(is_failing, "still");

        finish(&claim, &[finished_attempt(&events[0], run, 94, AttemptOutcome::Delivered), retry(95, 1)], 95).await;
        assert_eq!((find().await.failing_since, find().await.delivered_at), (None, Some(at(94))));
        let (is_failing, claim) = reclaim(claim, 96).await;
        assert_eq!((is_failing, claim.is_unhealthy), (false, false));

        // Name servers that do not respond are not the endpoint's fault, but it is as slow.
        for now in [100, 160] {
            finish(&claim, &[FinishedAttempt { endpoint_at_fault: false, ..retry(now, 1) }], now).await;
        }
        let (is_failing, claim) = reclaim(claim, 160).await;
        assert!(is_failing);
        assert_eq!(find().await.failing_since, None);
        finish(&claim, &[retry(170, 1)], 170).await;
        assert_eq!((find().await.failing_since, find().await.delivered_at), (Some(at(170)), Some(at(94))));
        assert!(in_tx!(db, endpoints::enable((user, id), at(171))).await.unwrap());
        let (is_failing, claim) = reclaim(claim, 171).await;
        assert_eq!((is_failing, claim.is_unhealthy, claim.failing_since), (false, false, None));
    }

    async fn due_ids_need_the_lease_and_are_in_order(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let events = [chunk(1, 1), chunk(1, 1)];
        finish_sync_with(db, (user, connection), 20, &events[..1]).await;
        finish_sync_with(db, (user, connection), 21, &events[1..]).await;
        let claim = claimed_endpoint(db, id, 30).await;
        let ids = async |claim: &ClaimedEndpoint, now, lease_after, limit| {
            db.deliveries().list_due_ids(claim, at(now), at(lease_after), limit).await.unwrap()
        };
        assert_eq!(ids(&claim, 30, 59, 9).await, due_events(db, &claim, 30).await);
        assert_eq!(ids(&claim, 30, 59, 1).await, [events[0].id]);
        assert_eq!(ids(&claim, 19, 59, 9).await, [], "not due");
        assert_eq!(ids(&claim, 30, 60, 9).await, [], "the lease ends before");
        assert_eq!(due(db, 60, false).await.len(), 1);
        assert_eq!(ids(&claim, 60, 61, 9).await, [], "lease lost");

        // What is due for longest comes first.
        let (user, connection, id) = user_with_endpoint(db, "b@x").await;
        let events = [chunk(1, 1), chunk(1, 1), chunk(1, 1)];
        let mut runs = Vec::new();
        for (event, now) in events.iter().zip([20, 25, 30]) {
            runs.push(finish_sync_with(db, (user, connection), now, std::slice::from_ref(event)).await.0);
        }
        let claim = claimed_endpoint(db, id, 40).await;
        let attempts = [
            finished_attempt(&events[0], runs[0], 40, AttemptOutcome::Retry(at(60))),
            finished_attempt(&events[1], runs[1], 40, AttemptOutcome::Retry(at(60))),
            finished_attempt(&events[2], runs[2], 40, AttemptOutcome::Retry(at(50))),
        ];
        assert!(finish_attempts(db, &claim, &attempts, 41).await);
        assert_eq!(due_events(db, &claim, 60).await, [events[2].id, events[0].id, events[1].id]);
        assert_eq!(db.deliveries().list_due(&claim, at(60), 1).await.unwrap()[0].event.id, events[2].id);
    }

    async fn claim_holder_can_disable_the_endpoint(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        finish_sync_with(db, (user, connection), 20, &[chunk(1, 2), chunk(2, 2)]).await;
        let claim = claimed_endpoint(db, id, 30).await;
        assert!(db.deliveries().disable_endpoint(&claim, "gone", at(31)).await.unwrap());
        assert!(!db.deliveries().disable_endpoint(&claim, "gone", at(31)).await.unwrap());
        assert_eq!(states(db, user, id).await, [Failed, Failed]);
        assert_eq!(db.endpoints().find_any(id).await.unwrap().unwrap().disabled_reason.as_deref(), Some("gone"));
        assert_eq!((due(db, 99, false).await, due(db, 99, true).await), (vec![], vec![]));
        assert!(in_tx!(db, endpoints::enable((user, id), at(100))).await.unwrap());
        assert_eq!(due(db, 99, false).await, [], "failed deliveries stay failed");
    }

    async fn overview_counts_by_state(db) {
        assert_eq!(db.deliveries().overview(at(0)).await.unwrap(), DeliveryOverview::default());
        let user = db.user("a@x").await.id;
        let connection = connection_to_sync(db, user, "c", 20).await;
        let (id, off) =
            (endpoint(db, user, SYNCS_AND_CHANGES).await, endpoint(db, user, SYNCS_AND_CHANGES).await);
        in_tx!(db, endpoints::disable((user, off), "gone", at(1))).await.unwrap().expect("there");
        let events = [chunk(1, 3), chunk(2, 3), chunk(3, 3)];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        finish_sync_with(db, (user, connection), 25, &[chunk(1, 1)]).await;
        let claim = claimed_endpoint(db, id, 30).await;
        let overview =
            DeliveryOverview { due: 2, pending: 2, waiting: 2, oldest_due: Some(at(20)), disabled: 1, failing: 0 };
        assert_eq!(db.deliveries().overview(at(30)).await.unwrap(), overview);
        assert!(attempt(db, &claim, (&events[0], run), 31, AttemptOutcome::Retry(at(90))).await);
        let overview = DeliveryOverview { due: 1, oldest_due: Some(at(25)), failing: 1, ..overview };
        assert_eq!(db.deliveries().overview(at(31)).await.unwrap(), overview);
    }
}
