//! Syncs as jobs: claims, leases, due times and results.

use bellbird_domain::{
    AccountId, ApiVersion, ConnectionId, EventType, RemovedRow, RowKey, SyncRunId, UserId,
};
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;

use crate::job_kinds::SYNC;
use crate::tests::fixtures::{
    SYNCS_AND_CHANGES, chunk, connection_to_sync, empty_sync, endpoint, fingerprint, fingerprints,
    finish_sync_with, start_sync, state_after, wait_for_lock_waiters,
};
use crate::tests::jobs::fixtures::ids;
use crate::tests::support::{assert_fails, at, both, connect, new_connection, on_postgres};
use crate::{
    ClaimedJob, DegradedConnection, FailingJob, FinishedSync, JobCounts, JobKey, NewConnection,
    NewEndpoint, NewWebhookEvent, Storage, SyncState, UnreadRange, UnreadableRows, in_tx,
    removed_bytes,
};

async fn due(db: &Storage, now: i64) -> Vec<ClaimedJob> {
    db.claim_due(SYNC, at(now), at(now + 30), 8).await.unwrap()
}

async fn request(db: &Storage, user: UserId, id: ConnectionId, now: i64, every: i64) -> bool {
    db.jobs()
        .request(
            &JobKey::new(SYNC, user, id),
            at(now),
            SignedDuration::from_secs(every),
        )
        .await
        .unwrap()
}

async fn range_of(
    db: &Storage,
    user: UserId,
    id: ConnectionId,
) -> (Option<Timestamp>, Option<Timestamp>) {
    let state = db.syncs().find(user, id).await.unwrap().expect("there");
    (state.synced_at, state.covered_from)
}

async fn next_sync_of(db: &Storage, user: UserId, id: ConnectionId) -> Timestamp {
    db.syncs()
        .find(user, id)
        .await
        .unwrap()
        .expect("there")
        .next_at
        .expect("planned")
}

both! {
    async fn sync_is_due_at_the_planned_time(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        assert_eq!(due(db, 19).await, []);
        let first = due(db, 20).await.remove(0);
        assert_eq!((first.user_id(), first.connection_id(), first.attempts), (user, id, 0));
        assert_eq!(range_of(db, user, id).await, (None, None));
        assert_eq!(due(db, 49).await, [], "leased");
        assert_eq!(db.claim(SYNC, user, id, at(49), at(99)).await.unwrap(), None);
        assert_eq!(db.syncs().finish(&first, &empty_sync(20)).await.unwrap(), Some(0));
        assert_eq!(db.syncs().finish(&first, &empty_sync(21)).await.unwrap(), None, "released");
        assert!(!db.jobs().fail(&first, "late", at(1)).await.unwrap());
        assert!(!db.jobs().finish(&first, Some(at(1))).await.unwrap());
        assert!(!db.jobs().renew(&first, at(1)).await.unwrap());
        let (synced_at, covered_from) = (Some(at(20)), Some(at(-480)));
        assert_eq!(db.syncs().find(user, id).await.unwrap(), Some(state_after(20)));
        assert_eq!(due(db, 1019).await, []);
        let second = due(db, 1020).await.remove(0);
        assert!(db.jobs().finish(&second, Some(at(1100))).await.unwrap());
        assert_eq!(ids(&due(db, 1100).await), [id]);
        assert_eq!(range_of(db, user, id).await, (synced_at, covered_from), "nothing was read");
        assert_eq!(db.revision(user).await, 1, "syncs do not change it");
        assert_eq!(db.syncs().find(UserId::new(), id).await.unwrap(), None);
    }

    async fn state_after_a_run_is_kept(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        assert_eq!(db.syncs().list_degraded(9).await.unwrap(), []);
        let unread = UnreadRange { to: at(-100), after_account: Some(AccountId::new()) };
        let unreadable = UnreadableRows { count: 3, reason: "invalid_amount".to_owned(), since: at(-200) };
        let after = SyncState {
            newest_row_at: Some(at(15)),
            rows_backfill_began_at: at(10),
            unread: Some(unread),
            unreadable: Some(unreadable.clone()),
            ..state_after(20)
        };
        let claim = start_sync(db, user, id, 20).await;
        db.syncs().finish(&claim, &FinishedSync { after: &after, ..empty_sync(20) }).await.unwrap().expect("finished");
        assert_eq!(db.syncs().find(user, id).await.unwrap(), Some(after));
        let degraded = DegradedConnection { id, provider: "akahu".to_owned(), rows: unreadable };
        assert_eq!(db.syncs().list_degraded(9).await.unwrap(), [degraded]);

        let claim = start_sync(db, user, id, 30).await;
        db.syncs().finish(&claim, &empty_sync(30)).await.unwrap().expect("finished");
        let state = db.syncs().find(user, id).await.unwrap().unwrap();
        assert_eq!((state.sequence, state.unread, state.unreadable), (1, None, None));
        assert_eq!(db.syncs().list_degraded(9).await.unwrap(), []);
        // A renewal begins the backfill again.
        let began = async || db.syncs().find(user, id).await.unwrap().unwrap().rows_backfill_began_at;
        assert_eq!(began().await, at(0));
        db.connections().import(&new_connection(user, "c"), &[], at(70)).await.unwrap();
        assert_eq!(began().await, at(70));
        let repair = NewConnection { repairs: Some(id), ..new_connection(user, "after") };
        db.connections().import(&repair, &[], at(90)).await.unwrap();
        assert_eq!(began().await, at(90));
    }

    async fn sync_without_its_lease_or_a_statement_writes_nothing(db) {
        let user = db.user("a@x").await.id;
        endpoint(db, user, &[EventType::TransactionsSynced]).await;
        // Claimed long before it is due.
        let id = connection_to_sync(db, user, "c", 5000).await;
        let killed = start_sync(db, user, id, 20).await;
        assert!(db.jobs().renew(&killed, at(60)).await.unwrap());
        assert_eq!(due(db, 59).await, []);
        let next = due(db, 60).await.remove(0);
        assert!(!db.jobs().renew(&killed, at(999)).await.unwrap());
        assert!(!db.jobs().fail(&killed, "late", at(1)).await.unwrap());
        assert!(!db.jobs().finish(&killed, Some(at(1))).await.unwrap());
        let events = [chunk(1, 1)];
        let known = fingerprints(&[fingerprint(1, 0, 1)]);
        let late = FinishedSync { fingerprints: Some(&known), events: &events, ..empty_sync(20) };
        assert_eq!(db.syncs().finish(&killed, &late).await.unwrap(), None);
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows, [], "nothing is written");
        assert_eq!(db.webhook_events().find(user, events[0].id).await.unwrap(), None);
        assert_eq!(db.syncs().finish(&next, &late).await.unwrap(), Some(1));
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows, [fingerprint(1, 0, 1)]);
        assert_eq!(next_sync_of(db, user, id).await, at(1020));

        // A statement that fails rolls back all of them.
        let event = chunk(1, 2);
        let claim = start_sync(db, user, id, 2_000).await;
        let twice = FinishedSync { events: &[event.clone(), event.clone()], ..empty_sync(2_000) };
        assert_fails!(db.syncs().finish(&claim, &twice).await, Conflict(_));
        assert_eq!(db.webhook_events().find(user, event.id).await.unwrap(), None);
        assert_eq!(range_of(db, user, id).await, (Some(at(20)), Some(at(-480))));
        let once = FinishedSync { events: &[event], ..empty_sync(2_000) };
        assert_eq!(db.syncs().finish(&claim, &once).await.unwrap(), Some(1), "it still holds the lease");
    }

    async fn failed_sync_records_error_and_time(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        for attempts in 0..2 {
            let claim = due(db, 20 + attempts * 100).await.remove(0);
            assert_eq!(i64::from(claim.attempts), attempts);
            assert!(db.jobs().fail(&claim, "the provider is not available", at(120 + attempts * 100)).await.unwrap());
        }
        let state = db.syncs().find(user, id).await.unwrap().unwrap();
        assert_eq!(
            (state.attempts, state.last_error.as_deref(), state.next_at),
            (2, Some("the provider is not available"), Some(at(220)))
        );
        let failing = FailingJob {
            kind: "sync".to_owned(),
            provider: "akahu".to_owned(),
            subject: id.to_string(),
            attempts: 2,
            last_error: "the provider is not available".to_owned(),
            next_attempt_at: Some(at(220)),
        };
        assert_eq!(db.jobs().list_failing(9).await.unwrap(), [failing]);
        let claim = due(db, 220).await.remove(0);
        db.syncs().finish(&claim, &empty_sync(220)).await.unwrap().expect("finished");
        let state = db.syncs().find(user, id).await.unwrap().unwrap();
        assert_eq!((state.attempts, state.last_error, state.synced_at), (0, None, Some(at(220))));
    }

    async fn jobs_are_counted_by_state(db) {
        let user = db.user("a@x").await.id;
        assert_eq!(db.jobs().count(at(0)).await.unwrap(), []);
        for (number, next_sync_at) in [10, 20, 30, 500, 400].into_iter().enumerate() {
            connection_to_sync(db, user, &format!("c{number}"), next_sync_at).await;
        }
        let gone = connection_to_sync(db, user, "gone", 5).await;
        let removal = db.hide(user, gone, 6, 999).await;
        assert!(db.jobs().fail(&removal, "the provider is not available", at(60)).await.unwrap());
        let running = db.claim_due(SYNC, at(40), at(80), 1).await.unwrap().remove(0);
        let killed = db.claim_due(SYNC, at(40), at(45), 1).await.unwrap().remove(0);
        assert_ne!(running, killed);
        let counts = |kind: &str, [due, running, failing, waiting]: [u64; 4], next: Option<i64>| JobCounts {
            kind: kind.to_owned(),
            due,
            running,
            failing,
            waiting,
            next: next.map(at),
        };
        assert_eq!(
            db.jobs().count(at(50)).await.unwrap(),
            [
                counts("refresh", [0, 0, 0, 0], None),
                counts("removal", [0, 0, 1, 1], Some(60)),
                counts("sync", [2, 1, 0, 2], Some(30)),
            ]
        );
    }

    // The model of `tests/jobs/queue.rs` has clocks that differ, and more times.
    async fn request_during_sync_is_kept(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let claim = start_sync(db, user, id, 100).await;
        assert!(request(db, user, id, 110, 60).await);
        assert_eq!(due(db, 120).await, [], "leased");
        db.syncs().finish(&claim, &empty_sync(100)).await.unwrap().expect("finished");
        assert_eq!(next_sync_of(db, user, id).await, at(160));
        let claim = start_sync(db, user, id, 2000).await;
        db.syncs().finish(&claim, &empty_sync(2000)).await.unwrap().expect("finished");
        assert_eq!(next_sync_of(db, user, id).await, at(3000), "no request");
        // An interval that begins before all times.
        let key = JobKey::new(SYNC, user, id);
        assert!(db.jobs().request(&key, at(2001), SignedDuration::MAX).await.unwrap());
        assert_eq!(next_sync_of(db, user, id).await, at(3000), "the earlier time stays");
    }

    async fn connection_being_deleted_is_not_synced(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let claim = due(db, 20).await.remove(0);
        db.hide(user, id, 30, 90).await;
        assert_eq!(db.syncs().finish(&claim, &empty_sync(20)).await.unwrap(), None);
        assert!(!db.jobs().renew(&claim, at(40)).await.unwrap());
        assert!(!db.jobs().fail(&claim, "late", at(40)).await.unwrap());
        assert!(!db.jobs().finish(&claim, Some(at(40))).await.unwrap());
        assert!(!request(db, user, id, 40, 0).await);
        assert_eq!(db.claim(SYNC, user, id, at(99), at(200)).await.unwrap(), None);
        assert_eq!((due(db, 999).await, db.syncs().find(user, id).await.unwrap()), (vec![], None));
    }

    async fn removed_rows_are_sent_in_versions_that_report_them(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let types = [EventType::TransactionsSynced];
        let default = endpoint(db, user, &types).await;
        let secret = SecretString::from("whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQgc2VjcmV0IQ==");
        let api_version = ApiVersion::V2026_12_01;
        let url = "https://hooks.example.com/later";
        let new = NewEndpoint { user_id: user, url, event_types: &types, api_version, secret: &secret };
        let later = in_tx!(db, endpoints::insert(db.secrets(), &new, 20, at(0))).await.unwrap().id;
        let removed = [RemovedRow { key: RowKey([7; 8]), account_id: AccountId::new() }];
        let event = NewWebhookEvent { removed: removed_bytes(&removed), ..chunk(1, 1) };
        let claim = start_sync(db, user, id, 20).await;
        let events = [chunk(1, 1)];
        let removed_events = (SyncRunId::new(), std::slice::from_ref(&event));
        let finished = FinishedSync { events: &events, removed_events, ..empty_sync(20) };
        assert_eq!(db.syncs().finish(&claim, &finished).await.unwrap(), Some(2));
        let sent = async |endpoint| db.deliveries().list(user, endpoint, None, 9).await.unwrap().len();
        assert_eq!((sent(default).await, sent(later).await), (1, 2));
        let stored = db.webhook_events().find(user, event.id).await.unwrap().expect("there");
        assert_eq!(stored.removed, removed);
    }

    async fn reimport_syncs_again_and_keeps_fingerprints(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let first = due(db, 20).await.remove(0);
        let finished = FinishedSync { fingerprints: Some(&fingerprints(&[fingerprint(1, 0, 1)])), ..empty_sync(20) };
        db.syncs().finish(&first, &finished).await.unwrap().expect("finished");
        let running = start_sync(db, user, id, 50).await;
        assert!(db.jobs().fail(&running, "the consent ended", at(900)).await.unwrap());
        let running = start_sync(db, user, id, 60).await;
        assert_eq!(connection_to_sync(db, user, "c", 5000).await, id);
        assert_eq!(
            db.syncs().finish(&running, &empty_sync(60)).await.unwrap(),
            None,
            "it holds the old credentials"
        );
        let state = db.syncs().find(user, id).await.unwrap().unwrap();
        assert_eq!((state.attempts, state.last_error, state.synced_at), (0, None, Some(at(20))));
        let again = due(db, 61).await.remove(0);
        assert_eq!(again.connection_id(), id, "the interrupted sync is due");
        assert_eq!(range_of(db, user, id).await.1, Some(at(-480)));
        db.syncs().finish(&again, &empty_sync(61)).await.unwrap().expect("finished");
        assert_eq!(next_sync_of(db, user, id).await, at(1061));
        connection_to_sync(db, user, "c", 2000).await;
        assert_eq!(next_sync_of(db, user, id).await, at(1061), "an earlier time stays");
        let repair =
            NewConnection { repairs: Some(id), next_sync_at: at(70), ..new_connection(user, "after") };
        db.connections().import(&repair, &[], at(65)).await.unwrap();
        assert_eq!(next_sync_of(db, user, id).await, at(70));
        db.raw("UPDATE jobs SET run_at = NULL").await;
        connection_to_sync(db, user, "after", 80).await;
        assert_eq!(ids(&due(db, 80).await), [id], "not the one being removed");
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows.len(), 1);
    }

    async fn sync_notifies_subscribed_endpoints(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_sync(db, user, "c", 20).await;
        let keys = [1, 2, 3].map(|number| RowKey([number; 8]));
        let events = [
            NewWebhookEvent {
                row_keys: keys.iter().flat_map(|key| key.0).collect(),
                new_count: 2,
                updated_count: 1,
                ..chunk(1, 2)
            },
            NewWebhookEvent { row_keys: keys[0].0.to_vec(), ..chunk(2, 2) },
        ];
        let (_, written) = finish_sync_with(db, (user, id), 20, &events).await;
        assert_eq!((written, db.webhook_events().find(user, events[0].id).await.unwrap()), (0, None), "no endpoint");
        let trades = endpoint(db, user, &[EventType::TradesSynced]).await;
        let (_, written) = finish_sync_with(db, (user, id), 60, &events).await;
        assert_eq!((written, db.webhook_events().find(user, events[0].id).await.unwrap()), (0, None), "other type");
        let both = endpoint(db, user, SYNCS_AND_CHANGES).await;
        let transactions = endpoint(db, user, &[EventType::TransactionsSynced]).await;
        let (run, written) = finish_sync_with(db, (user, id), 100, &events).await;
        assert_eq!(written, 2);
        let found = db.webhook_events().find(user, events[0].id).await.unwrap().expect("written");
        assert_eq!(
            (found.event_type, found.connection_id, found.sync_run_id),
            (EventType::TransactionsSynced, Some(id), run)
        );
        assert_eq!((found.created_at, found.date_range, found.rows), (at(100), (at(-400), at(100)), keys.to_vec()));
        assert_eq!((found.new_count, found.updated_count, found.chunk, found.total_chunks), (2, 1, 1, 2));
        assert_eq!(db.webhook_events().find(UserId::new(), events[0].id).await.unwrap(), None);
        for (endpoint, expected) in [(trades, 0), (both, 2), (transactions, 2)] {
            assert_eq!(db.deliveries().list(user, endpoint, None, 9).await.unwrap().len(), expected);
        }
    }
}

/// While the sync waits for the job's row, another task claims it.
#[test]
fn postgres_keeps_no_part_of_a_sync_that_lost_its_lease() {
    on_postgres(async |db| {
        let user = db.user("a@x").await.id;
        endpoint(db, user, &[EventType::TransactionsSynced]).await;
        let id = connection_to_sync(db, user, "c", 20).await;
        let claim = start_sync(db, user, id, 20).await;
        let events = [chunk(1, 1)];
        let late = FinishedSync {
            fingerprints: Some(&fingerprints(&[fingerprint(1, 0, 1)])),
            events: &events,
            ..empty_sync(20)
        };
        let other = connect(&db.url).await;
        other
            .batch_execute("BEGIN; UPDATE jobs SET fence = 7 WHERE kind = 'sync'")
            .await
            .unwrap();
        let (finished, ()) = tokio::join!(db.syncs().finish(&claim, &late), async {
            wait_for_lock_waiters(db, 1).await;
            other.batch_execute("COMMIT").await.unwrap();
        });
        assert_eq!(finished.unwrap(), None);
        assert_eq!(range_of(db, user, id).await, (None, None));
        assert_eq!(db.syncs().fingerprints(user, id).await.unwrap().rows, []);
        assert_eq!(
            db.webhook_events().find(user, events[0].id).await.unwrap(),
            None
        );
        assert_eq!(
            db.texts("SELECT endpoint_id FROM webhook_queues WHERE due_at IS NOT NULL")
                .await,
            [""; 0]
        );
    });
}
