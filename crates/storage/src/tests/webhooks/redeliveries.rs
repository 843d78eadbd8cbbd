//! Pings, redeliveries, recovery, and deletion of old events.

use bellbird_domain::{
    ConnectionStatus, DeliveryState, EndpointId, EventId, EventType, SyncRunId, UserId,
};

use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, attempt, chunk, claimed_endpoint, connection_to_sync, endpoint,
    finish_attempts, finish_sync_with, finished_attempt, rotate_secret, states, user_with_endpoint,
    wait_for_lock_waiters,
};
use crate::tests::support::{assert_fails, at, both, connect, on_postgres};
use crate::{AttemptOutcome, FinishedAttempt, PingResult, Storage, in_tx};

use DeliveryState::{Delivered, Failed, Pending, Waiting};

async fn ping(
    db: &Storage,
    user: UserId,
    endpoint: EndpointId,
    delivered: bool,
) -> Option<EventId> {
    let event = EventId::new();
    let status = if delivered { Some(200) } else { None };
    let result = PingResult {
        at: at(50),
        duration_ms: 7,
        status,
        error: None,
        delivered,
    };
    db.deliveries()
        .insert_ping(user, endpoint, event, SyncRunId::new(), &result)
        .await
        .unwrap()
        .then_some(event)
}

both! {
    async fn ping_is_recorded(db) {
        let (user, _, id) = user_with_endpoint(db, "a@x").await;
        let delivered = ping(db, user, id, true).await.expect("written");
        let failed = ping(db, user, id, false).await.expect("written");
        assert_eq!(states(db, user, id).await, [Delivered, Failed]);
        let last = db.deliveries().find_last_ping(user, id).await.unwrap().expect("there");
        assert_eq!((last.event_id, last.connection_id, last.last_status), (failed, None, None));
        let other = endpoint(db, user, SYNCS_AND_CHANGES).await;
        assert_eq!(db.deliveries().find_last_ping(user, other).await.unwrap(), None);
        let event = db.webhook_events().find(user, delivered).await.unwrap().expect("there");
        assert_eq!(
            (event.event_type, event.connection_id, event.rows.len(), event.created_at),
            (EventType::Ping, None, 0, at(50))
        );
        let delivery = db.deliveries().list(user, id, None, 1).await.unwrap().remove(0);
        assert_eq!(
            (delivery.event_id, delivery.attempts, delivery.ended_at, delivery.last_duration_ms),
            (failed, 1, Some(at(50)), Some(7))
        );
        assert_eq!(db.deliveries().list_attempts(user, id, delivered).await.unwrap()[0].status, Some(200));
        assert_eq!(
            db.deliveries().claim_endpoints(at(99), at(100), 9, false).await.unwrap(),
            [],
            "a ping is not retried",
        );
        in_tx!(db, redeliveries::redeliver((user, id), failed, at(60))).await.unwrap_err();
        assert_eq!(in_tx!(db, redeliveries::recover((user, id), at(0), at(60))).await.unwrap(), Some(0));
        assert_eq!(ping(db, UserId::new(), id, true).await, None);
        assert_eq!(ping(db, user, EndpointId::new(), true).await, None);
        in_tx!(db, endpoints::disable((user, id), "by command", at(60))).await.unwrap().expect("there");
        assert!(ping(db, user, id, true).await.is_some(), "a ping tests a disabled endpoint");
    }

    async fn event_is_redelivered(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let events = [chunk(1, 1)];
        let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
        let event = events[0].id;
        let claim = claimed_endpoint(db, id, 30).await;
        for (now, outcome) in
            [(30, AttemptOutcome::Delivered), (32, AttemptOutcome::Failed), (34, AttemptOutcome::Retry(at(900)))]
        {
            assert!(attempt(db, &claim, (&events[0], run), now, outcome).await);
            let again = at(now + 2);
            in_tx!(db, redeliveries::redeliver((user, id), event, again)).await.unwrap();
            let delivery = db.deliveries().list(user, id, Some(Pending), 9).await.unwrap().remove(0);
            assert_eq!((delivery.attempts, delivery.next_attempt_at, delivery.ended_at), (0, Some(again), None));
        }
        let due = db.deliveries().list_due(&claim, at(40), 9).await.unwrap();
        assert_eq!(due.iter().map(|due| due.is_requested).collect::<Vec<_>>(), [true]);
        assert!(attempt(db, &claim, (&events[0], run), 36, AttemptOutcome::Retry(at(37))).await);
        let retried = db.deliveries().list_due(&claim, at(40), 9).await.unwrap().remove(0);
        assert!(retried.attempts == 1 && retried.is_requested, "whoever wanted it pays for each attempt");
        let attempts = db.deliveries().list_attempts(user, id, event).await.unwrap();
        let numbers: Vec<_> = attempts.iter().map(|attempt| attempt.attempt).collect();
        assert_eq!(numbers, [1, 2, 3, 4], "recorded attempts stay, and are counted on");
        for (user, id, event) in
            [(UserId::new(), id, event), (user, EndpointId::new(), event), (user, id, EventId::new())]
        {
            in_tx!(db, redeliveries::redeliver((user, id), event, at(50))).await.unwrap_err();
        }
        in_tx!(db, endpoints::disable((user, id), "by command", at(60))).await.unwrap().expect("there");
        in_tx!(db, redeliveries::redeliver((user, id), event, at(70))).await.unwrap_err();
        assert_eq!(states(db, user, id).await, [Failed]);
        db.raw(&format!("UPDATE webhook_events SET row_keys = {}", db.bytes(&[1; 17]))).await;
        assert_fails!(db.webhook_events().find(user, event).await, Corrupt("the keys of an event's rows"));
    }

    async fn running_attempt_does_not_undo_a_redelivery(db) {
        // The second one is requested by a clock that is behind.
        for (email, requested_at) in [("a@x", at(31)), ("b@x", at(19))] {
            let (user, connection, id) = user_with_endpoint(db, email).await;
            let events = [chunk(1, 2), chunk(2, 2)];
            let (run, _) = finish_sync_with(db, (user, connection), 20, &events).await;
            let claim = claimed_endpoint(db, id, 30).await;
            let due = db.deliveries().list_due(&claim, at(30), 9).await.unwrap().remove(0);
            assert_eq!(due.due_at, at(20));
            in_tx!(db, redeliveries::redeliver((user, id), events[0].id, requested_at)).await.unwrap();
            for outcome in [AttemptOutcome::Retry(at(900)), AttemptOutcome::Failed, AttemptOutcome::Delivered] {
                let late = FinishedAttempt { due_at: due.due_at, ..finished_attempt(&events[0], run, 30, outcome) };
                assert!(db.deliveries().finish_attempts(&claim, &[late], at(32)).await.unwrap());
                let delivery = db.deliveries().list(user, id, Some(Pending), 9).await.unwrap().remove(0);
                assert_eq!((delivery.attempts, delivery.next_attempt_at), (0, Some(requested_at)));
                assert_eq!(states(db, user, id).await, [Pending, Waiting]);
            }
            let due = db.deliveries().list_due(&claim, at(33), 9).await.unwrap().remove(0);
            let redelivered = finished_attempt(&events[0], run, 33, AttemptOutcome::Delivered);
            let redelivered = FinishedAttempt { due_at: due.due_at, ..redelivered };
            assert!(db.deliveries().finish_attempts(&claim, &[redelivered], at(34)).await.unwrap());
            assert_eq!(states(db, user, id).await, [Delivered, Pending]);
        }
    }

    async fn events_of_hidden_connection_are_not_sent_again(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let events = [chunk(1, 1), chunk(1, 1), chunk(1, 1)];
        let mut runs = Vec::new();
        for event in &events {
            runs.push(finish_sync_with(db, (user, connection), 20, std::slice::from_ref(event)).await.0);
        }
        let claim = claimed_endpoint(db, id, 30).await;
        let ended = [
            finished_attempt(&events[0], runs[0], 30, AttemptOutcome::Delivered),
            finished_attempt(&events[1], runs[1], 30, AttemptOutcome::Failed),
        ];
        assert!(finish_attempts(db, &claim, &ended, 31).await);
        assert_eq!(db.deliveries().list_due_ids(&claim, at(31), at(31), 9).await.unwrap(), [events[2].id]);
        db.hide(user, connection, 32, 90).await;
        assert_eq!(db.deliveries().list_due(&claim, at(33), 9).await.unwrap(), []);
        assert_eq!(db.deliveries().list_due_ids(&claim, at(33), at(33), 9).await.unwrap(), []);
        for event in events {
            in_tx!(db, redeliveries::redeliver((user, id), event.id, at(34))).await.unwrap_err();
        }
        assert_eq!(in_tx!(db, redeliveries::recover((user, id), at(0), at(34))).await.unwrap(), Some(0));
        assert_eq!(db.deliveries().list_due(&claim, at(35), 9).await.unwrap(), []);
    }

    async fn failed_deliveries_recover_in_order(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let (old, first, second) =
            ([chunk(1, 2), chunk(2, 2)], [chunk(1, 3), chunk(2, 3), chunk(3, 3)], [chunk(1, 2), chunk(2, 2)]);
        finish_sync_with(db, (user, connection), 20, &old).await;
        let (run, _) = finish_sync_with(db, (user, connection), 100, &first).await;
        let claim = claimed_endpoint(db, id, 110).await;
        assert!(attempt(db, &claim, (&first[0], run), 111, AttemptOutcome::Delivered).await);
        in_tx!(db, endpoints::disable((user, id), "failing", at(120))).await.unwrap().expect("there");
        finish_sync_with(db, (user, connection), 200, &second).await;
        assert_eq!(in_tx!(db, redeliveries::recover((user, id), at(0), at(300))).await.unwrap(), None, "it is disabled");
        assert!(in_tx!(db, endpoints::enable((user, id), at(100))).await.unwrap());
        assert_eq!(in_tx!(db, redeliveries::recover((UserId::new(), id), at(0), at(300))).await.unwrap(), None);
        assert_eq!(in_tx!(db, redeliveries::recover((user, id), at(100), at(300))).await.unwrap(), Some(4));
        assert_eq!(states(db, user, id).await, [Failed, Failed, Delivered, Pending, Waiting, Pending, Waiting]);
        assert_eq!(in_tx!(db, redeliveries::recover((user, id), at(100), at(300))).await.unwrap(), Some(0), "there is nothing left");
        assert_eq!(states(db, user, id).await, [Failed, Failed, Delivered, Pending, Waiting, Pending, Waiting]);
        let claim = claimed_endpoint(db, id, 300).await;
        let due: Vec<EventId> =
            db.deliveries().list_due(&claim, at(300), 9).await.unwrap().into_iter().map(|due| due.event.id).collect();
        assert_eq!(due, [first[1].id, second[0].id]);
        assert!(attempt(db, &claim, (&first[1], run), 302, AttemptOutcome::Failed).await);
        assert_eq!(states(db, user, id).await, [Failed, Failed, Delivered, Failed, Pending, Pending, Waiting]);
        // Later chunks wait for the recovered one again.
        assert_eq!(in_tx!(db, redeliveries::recover((user, id), at(0), at(310))).await.unwrap(), Some(3));
        assert_eq!(states(db, user, id).await, [Pending, Waiting, Delivered, Pending, Waiting, Pending, Waiting]);
    }

    async fn old_events_and_those_of_a_user_who_leaves_are_deleted(db) {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let (other, elsewhere, theirs) = user_with_endpoint(db, "b@x").await;
        let mut events = Vec::new();
        for now in [20, 30, 40, 50] {
            for (user, connection) in [(user, connection), (other, elsewhere)] {
                let event = chunk(1, 1);
                finish_sync_with(db, (user, connection), now, std::slice::from_ref(&event)).await;
                events.push((user, event.id));
            }
        }
        assert!(ping(db, user, id, false).await.is_some());
        assert_eq!(db.webhook_events().delete_outdated(at(20), at(20), 99).await.unwrap(), 0);
        assert_eq!(db.webhook_events().delete_outdated(at(99), at(20), 4).await.unwrap(), 0, "none is delivered");
        assert_eq!(db.webhook_events().delete_outdated(at(41), at(41), 4).await.unwrap(), 6);
        assert_eq!(db.webhook_events().delete_outdated(at(41), at(41), 4).await.unwrap(), 0);
        for (index, (user, event)) in events.iter().enumerate() {
            assert_eq!(db.webhook_events().find(*user, *event).await.unwrap().is_some(), index >= 6, "{index}");
        }
        assert_eq!(
            (states(db, user, id).await, states(db, other, theirs).await),
            (vec![Pending, Failed], vec![Pending])
        );
        assert_eq!(db.webhook_events().delete_outdated(at(51), at(51), 99).await.unwrap(), 3);
        for table in ["webhook_events", "webhook_deliveries", "webhook_attempts"] {
            assert_eq!(db.rows(table).await, 0, "{table}");
        }

        // So are those of a user who leaves.
        for (user, connection, id) in [(user, connection, id), (other, elsewhere, theirs)] {
            assert!(rotate_secret(db, (user, id), "second", 90).await);
            db.syncs().fingerprint_key(user, connection).await.unwrap().expect("made");
            finish_sync_with(db, (user, connection), 100, &[chunk(1, 1)]).await;
            ping(db, user, id, false).await.expect("written");
        }
        assert_fails!(in_tx!(db, user::delete(user, at(900))).await, Conflict(_), "connected");
        assert!(db.remove(user, connection, at(130)).await);
        db.delete_user(user).await;
        for (table, rows) in [
            ("webhook_endpoints", 1),
            ("webhook_queues", 1),
            ("webhook_events", 2),
            ("webhook_deliveries", 2),
            ("webhook_attempts", 1),
            ("secrets", 4),
        ] {
            assert_eq!(db.rows(table).await, rows, "{table}");
        }
        assert_eq!(states(db, other, theirs).await, [Pending, Failed]);
    }
}

/// Recording attempts holds an endpoint and a delivery, and wants another delivery, which the
/// deletion of events would hold.
#[test]
fn postgres_transactions_do_not_deadlock() {
    on_postgres(async |db| {
        let (user, connection, id) = user_with_endpoint(db, "a@x").await;
        let mut synced_events = Vec::new();
        for connection in [connection, connection_to_sync(db, user, "other", 20).await] {
            let events = [chunk(1, 2), chunk(2, 2)];
            finish_sync_with(db, (user, connection), 20, &events).await;
            synced_events.push((connection, events));
        }
        let (removed, of_removal) = synced_events.remove(0);
        let (_, of_prune) = synced_events.remove(0);
        for (events, prunes) in [(of_removal, false), (of_prune, true)] {
            let working = connect(&db.url).await;
            let touch = |event: EventId| {
                format!("UPDATE webhook_deliveries SET attempts = 1 WHERE event_id = '{event}'")
            };
            let begin = "BEGIN; UPDATE webhook_queues SET fence = fence";
            working
                .batch_execute(&format!("{begin}; {}", touch(events[1].id)))
                .await
                .unwrap();
            let deleting = async {
                if prunes {
                    db.webhook_events()
                        .delete_outdated(at(99), at(99), 99)
                        .await
                        .unwrap()
                        == 2
                } else {
                    let claim = db.hide(user, removed, 30, 90).await;
                    db.removals()
                        .delete_webhook_events(&claim, 9)
                        .await
                        .unwrap()
                        == Some(2)
                }
            };
            let working = async {
                wait_for_lock_waiters(db, 1).await;
                working
                    .batch_execute(&format!("{}; COMMIT", touch(events[0].id)))
                    .await
            };
            let (deleted, worked) = tokio::join!(deleting, working);
            worked.unwrap();
            assert!(deleted);
        }
        assert_eq!(states(db, user, id).await, []);
    });
}

both! {
    // Concurrent operations on several handles, in whatever order.
    async fn concurrent_operations_do_not_fail(db) {
        let (user, kept, id) = user_with_endpoint(db, "a@x").await;
        let (mut connections, mut events) = (Vec::new(), Vec::new());
        for number in 0..4 {
            let connection = connection_to_sync(db, user, &format!("c{number}"), 20).await;
            for _ in 0..8 {
                let event = chunk(1, 1);
                let (run, _) = finish_sync_with(db, (user, connection), 20, std::slice::from_ref(&event)).await;
                events.push((event, run));
            }
            connections.push(connection);
        }
        let claim = claimed_endpoint(db, id, 30).await;
        let handles = [db.reopen().await, db.reopen().await, db.reopen().await, db.reopen().await];
        let writing = async {
            for round in 0..10 {
                let again = |(event, run): &(_, _)| finished_attempt(event, *run, 30, AttemptOutcome::Retry(at(30)));
                let mut attempts: Vec<_> = events.iter().map(again).collect();
                if round % 2 == 1 {
                    attempts.reverse();
                }
                assert!(handles[0].deliveries().finish_attempts(&claim, &attempts, at(31)).await.unwrap());
            }
        };
        let removing = async {
            for connection in &connections {
                let removal =
                    handles[1].removals().begin(user, *connection, at(40), at(40)).await.unwrap().expect("hidden");
                assert!(handles[1].removals().finish(&removal, "deleted", at(41)).await.unwrap());
            }
        };
        let syncing = async {
            for round in 0..8 {
                finish_sync_with(&handles[2], (user, kept), 100 + round, &[chunk(1, 2), chunk(2, 2)]).await;
            }
        };
        let changing = async {
            let statuses = [ConnectionStatus::Active, ConnectionStatus::Revoked];
            for round in 0..8 {
                let (from, to) = (statuses[round % 2], statuses[(round + 1) % 2]);
                assert!(db.set_status((user, kept), from, to, at(99)).await);
            }
        };
        let pruning = async {
            for round in 0..8 {
                in_tx!(handles[3], redeliveries::recover((user, id), at(0), at(50))).await.unwrap();
                handles[3].webhook_events().delete_outdated(at(100 + round), at(100 + round), 3).await.unwrap();
            }
        };
        tokio::join!(writing, removing, syncing, changing, pruning);
        assert!(db.endpoints().find_any(id).await.unwrap().is_some());
    }
}
