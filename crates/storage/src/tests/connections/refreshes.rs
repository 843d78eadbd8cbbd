//! Refreshes as jobs: claims, leases, due times and results.

use bellbird_domain::{AccountId, ConnectionId, ConnectionStatus, UserId};
use jiff::{SignedDuration, Timestamp};

use crate::job_kinds::REFRESH;
use crate::tests::fixtures::{empty_sync, start_sync, state_after};
use crate::tests::support::{TestDb, at, both, new_account, new_connection};
use crate::{ClaimedJob, FinishedSync, JobKey, NewAccount, NewConnection, Storage, SyncState};

/// A connection with this next refresh, whose backfill ends at 500.
async fn connection_to_refresh(
    db: &TestDb,
    user: UserId,
    consent: &str,
    next_refresh_at: Option<Timestamp>,
) -> ConnectionId {
    let new = NewConnection {
        next_refresh_at,
        backfill_ends_at: Some(at(500)),
        ..new_connection(user, consent)
    };
    db.connections().import(&new, &[], at(0)).await.unwrap().id
}

async fn due(db: &Storage, now: i64) -> Vec<ClaimedJob> {
    db.claim_due(REFRESH, at(now), at(now + 30), 8)
        .await
        .unwrap()
}

/// A user whose only connection is being refreshed since 20, with a lease until 50.
async fn claimed(db: &TestDb) -> (UserId, ConnectionId, ClaimedJob) {
    let user = db.user("a@x").await.id;
    let id = connection_to_refresh(db, user, "c", Some(at(20))).await;
    (user, id, due(db, 20).await.remove(0))
}

/// Whether a request, or a claim after the lease, finds the job.
async fn is_found(db: &Storage, user: UserId, id: ConnectionId) -> bool {
    let key = JobKey::new(REFRESH, user, id);
    let request = db.jobs().request(&key, at(40), SignedDuration::ZERO);
    let claim = db.claim(REFRESH, user, id, at(99), at(200));
    request.await.unwrap() || claim.await.unwrap().is_some()
}

both! {
    async fn refresh_is_due_at_the_planned_time(db) {
        let user = db.user("a@x").await.id;
        let id = connection_to_refresh(db, user, "c", Some(at(20))).await;
        connection_to_refresh(db, user, "on request only", None).await;
        assert_eq!(due(db, 19).await, []);
        let claim = due(db, 20).await.remove(0);
        assert_eq!(
            (
                claim.user_id(),
                claim.connection_id(),
                db.refreshes().find_backfill_end(user, id).await.unwrap(),
                claim.attempts,
            ),
            (user, id, Some(at(500)), 0)
        );
        assert_eq!(due(db, 49).await, [], "leased");
        assert!(db.jobs().fail(&claim, "the provider is not available", at(60)).await.unwrap());
        assert!(!db.refreshes().finish_backfill(&claim, Some(at(1))).await.unwrap(), "released");
        assert_eq!(due(db, 59).await, []);
        let claim = due(db, 60).await.remove(0);
        assert_eq!((claim.attempts, db.refreshes().find_backfill_end(user, id).await.unwrap()), (1, Some(at(500))));
        assert!(db.refreshes().finish_backfill(&claim, None).await.unwrap());
        assert_eq!(due(db, 9999).await, [], "only on request");
        let claim = db.claim(REFRESH, user, id, at(70), at(100)).await.unwrap().expect("claimed before it is due");
        assert_eq!((claim.attempts, db.refreshes().find_backfill_end(user, id).await.unwrap()), (0, None));
        assert_eq!(db.revision(user).await, 2, "two imports: refreshes do not change it");
    }

    async fn refresh_changes_the_status_and_the_end_of_the_consent(db) {
        let (user, id, killed) = claimed(db).await;
        let (active, mfa, revoked) =
            (ConnectionStatus::Active, ConnectionStatus::PendingMfa, ConnectionStatus::Revoked);
        let claim = due(db, 50).await.remove(0);
        let set = async |claim, from, to| {
            db.refreshes().set_status(claim, from, to, "refreshed", at(51), at(51)).await.unwrap()
        };
        assert!(!set(&killed, active, mfa).await, "lease lost");
        assert!(!set(&claim, mfa, revoked).await, "it has another status");
        assert_eq!((db.revision(user).await, db.connections().list_audit(id).await.unwrap().len()), (1, 1));
        assert!(set(&claim, active, mfa).await && set(&claim, mfa, mfa).await);
        assert_eq!((db.revision(user).await, db.connections().list_audit(id).await.unwrap().len()), (2, 2));

        let set_end = async |claim, end| db.refreshes().set_consent_expiry(claim, end).await.unwrap();
        let stored = async || {
            let found = db.connections().find(user, id).await.unwrap().unwrap();
            (found.consent_expires_at, db.revision(user).await)
        };
        assert!(!set_end(&killed, Some(at(900))).await, "lease lost");
        assert_eq!(stored().await, (None, 2));
        let half_a_microsecond_later = at(900) + SignedDuration::from_nanos(500);
        for (end, expected) in [
            (None, (None, 2)),
            (Some(at(900)), (Some(at(900)), 3)),
            (Some(at(900)), (Some(at(900)), 3)),
            (Some(half_a_microsecond_later), (Some(at(900)), 3)),
            (Some(at(-5)), (Some(at(-5)), 4)),
            (None, (None, 5)),
        ] {
            assert!(set_end(&claim, end).await);
            assert_eq!(stored().await, expected, "{end:?}");
        }

        assert!(db.jobs().finish(&claim, None).await.unwrap());
        assert!(!set(&claim, mfa, revoked).await && !set_end(&claim, Some(at(900))).await, "released");
        let claim = db.claim(REFRESH, user, id, at(60), at(90)).await.unwrap().expect("claimed");
        db.hide(user, id, 61, 90).await;
        assert!(!set(&claim, mfa, active).await, "it is being deleted");
        assert_eq!(db.connections().find_any(id).await.unwrap().unwrap().status, ConnectionStatus::Deleting);
    }

    async fn connection_being_deleted_is_not_refreshed(db) {
        let (user, id, claim) = claimed(db).await;
        let others = [(UserId::new(), id), (user, ConnectionId::new())];
        for (user, id) in others {
            assert!(!is_found(db, user, id).await);
        }
        db.hide(user, id, 30, 90).await;
        assert!(!db.jobs().finish(&claim, Some(at(40))).await.unwrap());
        assert!(!db.refreshes().apply(&claim, &[], true, at(40)).await.unwrap());
        for (user, id) in [(user, id), others[0], others[1]] {
            assert!(!is_found(db, user, id).await);
        }
        assert_eq!(due(db, 999).await, []);
    }

    async fn missing_account_is_hidden_then_deleted(db) {
        const HOUR: i64 = 3_600;
        const DAY: i64 = 24 * HOUR;
        let (user, id, claim) = claimed(db).await;
        let accounts = [new_account("acc_1", "One"), new_account("acc_2", "Two")];
        let refresh = async |listed: &[NewAccount<'_>], is_complete, now| {
            assert!(db.refreshes().apply(&claim, listed, is_complete, at(now)).await.unwrap());
            let visible = db.visible_accounts(user).await.len();
            assert_eq!(db.accounts().list_of_connection(user, id).await.unwrap().len(), visible);
            assert_eq!(db.accounts().list(user, 1, 0).await.unwrap().1, visible as u64, "the total");
            let listed = db.accounts().list_visible(user, id).await.unwrap().len();
            let stored = db.accounts().list_with_hidden(user, id).await.unwrap().len();
            (listed, visible, stored, db.revision(user).await)
        };
        assert_eq!(refresh(&accounts, true, 30).await, (2, 2, 2, 2));
        let two = db.visible_accounts(user).await.remove(1);
        for (now, is_complete, expected) in [
            (40, false, (2, 2, 2, 2)),
            (50, true, (1, 2, 2, 2)),
            (49 + HOUR, true, (1, 2, 2, 2)),
            (50 + HOUR, true, (1, 1, 2, 3)),
            (51 + HOUR, true, (1, 1, 2, 3)),
            (49 + 30 * DAY, true, (1, 1, 2, 3)),
        ] {
            assert_eq!(refresh(&accounts[..1], is_complete, now).await, expected, "{now}");
        }
        for ids in [vec![two.id], vec![two.id; 9]] {
            assert_eq!(db.accounts().find(user, &ids).await.unwrap(), []);
        }
        assert_eq!(refresh(&accounts, true, 49 + 30 * DAY).await, (2, 2, 2, 4), "it returns");
        assert_eq!(db.visible_accounts(user).await[1], two);
        let first = 50 + 30 * DAY;
        let state = db.syncs().find(user, id).await.unwrap().unwrap();
        assert_eq!((state.reread_from, state.missing_since), (Some(at(50)), None));
        assert_eq!(refresh(&accounts[..1], true, first).await, (1, 2, 2, 4));
        assert_eq!(db.syncs().find(user, id).await.unwrap().unwrap().missing_since, Some(at(first)));
        assert_eq!(refresh(&accounts[..1], false, first + 31 * DAY).await, (1, 2, 2, 4), "an incomplete list");
        assert_eq!(refresh(&accounts[..1], true, first + 32 * DAY).await, (1, 1, 2, 5), "no refresh came between");
        assert_eq!(refresh(&accounts[..1], true, first + 33 * DAY).await, (1, 1, 1, 6), "it was hidden before");
        assert_eq!(db.accounts().find(user, &[two.id, AccountId::new()]).await.unwrap(), []);
    }

    async fn account_that_returns_during_a_sync_is_read_by_the_next(db) {
        let (user, id, claim) = claimed(db).await;
        let accounts = ["acc_1", "acc_2", "acc_3"].map(|account| new_account(account, account));
        let reread_from = async || db.syncs().find(user, id).await.unwrap().unwrap().reread_from;
        for (listed, now, since) in [(3, 30, None), (1, 40, None), (2, 50, Some(at(40)))] {
            assert!(db.refreshes().apply(&claim, &accounts[..listed], true, at(now)).await.unwrap());
            assert_eq!(reread_from().await, since, "{now}");
        }
        let sync = start_sync(db, user, id, 60).await;
        assert!(db.refreshes().apply(&claim, &accounts, true, at(61)).await.unwrap());
        let before = SyncState { reread_from: Some(at(40)), ..state_after(20) };
        let finished = FinishedSync { before: &before, ..empty_sync(60) };
        db.syncs().finish(&sync, &finished).await.unwrap().expect("finished");
        let left = reread_from().await;
        assert!(left.is_some_and(|since| since <= at(40)), "{left:?}");
        let sync = start_sync(db, user, id, 70).await;
        let before = SyncState { reread_from: left, ..before };
        let finished = FinishedSync { before: &before, ..empty_sync(70) };
        db.syncs().finish(&sync, &finished).await.unwrap().expect("finished");
        assert_eq!(reread_from().await, None);
    }
}
