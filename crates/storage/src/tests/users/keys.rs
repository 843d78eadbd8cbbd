use bellbird_domain::{KeyId, Plan, UserId};
use jiff::tz::TimeZone;

use crate::tests::fixtures::insert_setup_token;
use crate::tests::support::{assert_fails, at, both, key, setup_token};
use crate::{NewUser, SetupTokenClaim, StorageError, UserChange, in_tx};

both! {
    async fn key_finds_its_user(db) {
        let (email, timezone) = ("a@x", Some("Pacific/Auckland"));
        let new = NewUser { email, plan: Plan::Developer, timezone, reference: None, console_sign_in: true };
        let user = in_tx!(db, user::insert(&new, at(0))).await.unwrap();
        let record = in_tx!(db, keys::insert(user.id, &key(1), "laptop", None, at(1))).await.unwrap();
        assert_eq!((record.name.as_str(), record.prefix.as_str()), ("laptop", "bb_1111111"));
        assert_eq!((record.created_at, record.last_used_at, record.expires_at), (at(1), None, None));
        let found = db.keys().find_caller(&key(1), at(2)).await.unwrap().expect("valid");
        assert_eq!((found.caller.key_id, found.caller.user_id), (record.id, user.id));
        assert_eq!((found.caller.plan, found.caller.revision, found.last_used_at), (Plan::Developer, 0, None));
        assert_eq!(found.caller.timezone, TimeZone::get("Pacific/Auckland").unwrap());
        assert_eq!(db.keys().find_caller(&key(2), at(2)).await.unwrap(), None);
        assert_eq!(db.keys().find_caller_by_id(user.id, record.id, at(2)).await.unwrap(), Some(found));
        assert_eq!(db.keys().find_caller_by_id(UserId::new(), record.id, at(2)).await.unwrap(), None, "wrong user");
        assert_eq!(db.keys().find(record.id).await.unwrap().as_ref(), Some(&record));

        // A use is recorded, and its time never moves back.
        for (user, now) in [(user.id, 20), (user.id, 10), (UserId::new(), 30)] {
            db.keys().touch(user, record.id, at(now)).await.unwrap();
        }
        assert_eq!(db.keys().find_caller(&key(1), at(30)).await.unwrap().unwrap().last_used_at, Some(at(20)));
        assert_eq!(db.keys().find(record.id).await.unwrap().unwrap().last_used_at, Some(at(20)), "wrong user");
        assert_eq!(db.revision(user.id).await, 0);

        // A change of the user is visible at once.
        let change = UserChange { plan: Some(Plan::Saver), timezone: Some(None), ..UserChange::default() };
        db.change_user(user.id, &change).await;
        let caller = db.keys().find_caller(&key(1), at(1)).await.unwrap().unwrap().caller;
        assert_eq!((caller.plan, caller.revision), (Plan::Saver, 1));
        assert_eq!(caller.timezone, TimeZone::get("Australia/Sydney").unwrap(), "the default");
        db.raw("UPDATE users SET timezone = 'Mars/Olympus'").await;
        assert_fails!(db.keys().find_caller(&key(1), at(1)).await, Corrupt("a timezone"));
    }

    async fn revoking_again_keeps_the_first_time(db) {
        assert_fails!(in_tx!(db, keys::insert(UserId::new(), &key(1), "k", None, at(0))).await, NotFound("user"));
        let user = db.user("a@x").await;
        let record = db.key(user.id, 1).await;
        assert_fails!(in_tx!(db, keys::insert(user.id, &key(1), "k", None, at(0))).await, Conflict("this key"));
        assert_eq!(in_tx!(db, keys::revoke(record.id, at(5))).await.unwrap().revoked_at, Some(at(5)));
        assert_eq!(db.keys().find_caller(&key(1), at(4)).await.unwrap(), None);
        assert_eq!(db.keys().find_caller_by_id(user.id, record.id, at(4)).await.unwrap(), None);
        assert_eq!(in_tx!(db, keys::revoke(record.id, at(9))).await.unwrap().revoked_at, Some(at(5)));
        assert_eq!(db.revision(user.id).await, 0, "a revision does not cover keys");
        assert_fails!(in_tx!(db, keys::revoke(KeyId::new(), at(5))).await, NotFound("key"));
        // Whoever read it before does not rotate it.
        assert_fails!(in_tx!(db, keys::rotate(&record, &key(2), at(9), at(6))).await, NotFound("key"));
        assert_eq!(db.keys().find_caller(&key(2), at(7)).await.unwrap(), None);
    }

    async fn a_key_is_valid_before_its_expiry(db) {
        let user = db.user("a@x").await;
        let record = in_tx!(db, keys::insert(user.id, &key(1), "k", Some(at(100)), at(0))).await.unwrap();
        assert!(db.keys().find_caller(&key(1), at(99)).await.unwrap().is_some());
        assert!(db.keys().find_caller(&key(1), at(100)).await.unwrap().is_none());
        assert!(db.keys().find_caller_by_id(user.id, record.id, at(99)).await.unwrap().is_some());
        assert!(db.keys().find_caller_by_id(user.id, record.id, at(100)).await.unwrap().is_none());
        let (new, old) = in_tx!(db, keys::rotate(&record, &key(2), at(200), at(10))).await.unwrap();
        assert_eq!((old.expires_at, old.replaced_by), (Some(at(100)), Some(new.id)), "the earlier one stays");
        assert_eq!(new.expires_at, Some(at(100)), "the expiry of the old one");
        let (_, old) = in_tx!(db, keys::rotate(&record, &key(3), at(50), at(10))).await.unwrap();
        assert_eq!(old.expires_at, Some(at(50)));
        assert!(db.keys().find_caller(&key(1), at(50)).await.unwrap().is_none());
        let without_expiry = db.key(user.id, 4).await;
        let (new, old) = in_tx!(db, keys::rotate(&without_expiry, &key(5), at(70), at(10))).await.unwrap();
        assert_eq!((new.expires_at, old.expires_at), (None, Some(at(70))));
        // However often the old one is rotated, a new key does not end with its grace period.
        in_tx!(db, keys::rotate(&new, &key(6), at(60), at(20))).await.unwrap();
        for number in [7, 8] {
            let (new, again) = in_tx!(db, keys::rotate(&old, &key(number), at(80), at(30))).await.unwrap();
            assert_eq!((new.expires_at, again.expires_at), (None, Some(at(70))));
        }
    }

    async fn lists_only_the_users_keys_oldest_first(db) {
        let (user, other) = (db.user("a@x").await, db.user("b@x").await);
        for (number, user_id, made) in [(1, user.id, 30), (2, user.id, 10), (3, other.id, 5), (4, user.id, 20)] {
            in_tx!(db, keys::insert(user_id, &key(number), &format!("k{number}"), None, at(made))).await.unwrap();
        }
        let names: Vec<_> = db.keys().list(user.id).await.unwrap().into_iter().map(|key| key.name).collect();
        assert_eq!(names, ["k2", "k4", "k1"]);
        assert_eq!(db.keys().list(UserId::new()).await.unwrap(), []);
    }

    async fn keys_of_a_user_are_counted(db) {
        const DAY: i64 = 86_400;
        let (user, other) = (db.user("a@x").await.id, db.user("b@x").await.id);
        let insert = async |user, now| in_tx!(db, keys::insert(user, &crate::new_key(), "k", None, at(now))).await;
        let too_many = |inserted| matches!(inserted, Err(StorageError::TooMany(_)));
        for number in 0..100 {
            let made = insert(user, 0).await.unwrap();
            if number < 90 {
                in_tx!(db, keys::revoke(made.id, at(1))).await.unwrap();
            }
        }
        assert!(too_many(insert(user, 2).await), "those that were revoked count too");
        let newest = db.keys().list(user).await.unwrap().into_iter().find(|key| key.revoked_at.is_none()).unwrap();
        assert!(too_many(in_tx!(db, keys::rotate(&newest, &crate::new_key(), at(9), at(2))).await.map(|(new, _)| new)));
        let unchanged = db.keys().find(newest.id).await.unwrap().unwrap();
        assert_eq!(unchanged.expires_at, None, "the old key is as before");
        insert_setup_token(db, user, 1, at(60)).await;
        assert_fails!(db.setup_tokens().claim(&setup_token(1), &crate::new_key(), at(2)).await, TooMany(_));
        insert(other, 2).await.unwrap();

        for _ in 0..90 {
            insert(user, 30 * DAY).await.unwrap();
        }
        assert!(too_many(insert(user, 30 * DAY).await), "ten work, and 90 are new");
    }

    async fn ended_keys_are_deleted_after_90_days(db) {
        const DAYS: i64 = 90 * 86_400;
        let user = db.user("a@x").await.id;
        insert_setup_token(db, user, 1, at(60)).await;
        let claimed = db.setup_tokens().claim(&setup_token(1), &key(1), at(0)).await.unwrap();
        let SetupTokenClaim::Created(revoked) = claimed else { panic!("{claimed:?}") };
        in_tx!(db, keys::revoke(revoked.id, at(5))).await.unwrap();
        let expired = in_tx!(db, keys::insert(user, &key(2), "expired", Some(at(7)), at(0))).await.unwrap();
        let kept = [Some(at(9)), None];
        for (number, expires_at) in (3..).zip(kept) {
            in_tx!(db, keys::insert(user, &key(number), "kept", expires_at, at(0))).await.unwrap();
        }
        assert_eq!(db.keys().delete_ended(at(DAYS + 4)).await.unwrap(), 0);
        assert_eq!(db.setup_tokens().list_key_audit(user, revoked.id).await.unwrap().len(), 1);
        assert_eq!(db.keys().delete_ended(at(DAYS + 7)).await.unwrap(), 2);
        let left = db.keys().list(user).await.unwrap();
        assert_eq!(left.iter().map(|key| key.expires_at).collect::<Vec<_>>(), kept);
        assert!(left.iter().all(|key| key.id != expired.id));
        assert_eq!(db.setup_tokens().list_key_audit(user, revoked.id).await.unwrap(), []);
    }
}

/// On PostgreSQL, requests that wait at the same moment share a statement.
mod at_the_same_moment {
    use futures_util::future::join_all;

    use super::*;
    use crate::tests::fixtures::wait_for_lock_waiters;
    use crate::tests::support::{
        TestDb, cancel_after, connect, on_postgres, on_postgres_unprepared,
    };

    /// Users 0 to 9, each with a key. That of user 3 is revoked, that of user 5 has expired, and
    /// the plan of user 7 is unknown.
    async fn fill(db: &TestDb) -> Vec<UserId> {
        let mut users = Vec::new();
        for number in 0..10 {
            let user = db.user(&format!("{number}@x")).await.id;
            let expires_at = (number == 5).then(|| at(1));
            let record = in_tx!(db, keys::insert(user, &key(number), "k", expires_at, at(0)))
                .await
                .unwrap();
            if number == 3 {
                in_tx!(db, keys::revoke(record.id, at(1))).await.unwrap();
            }
            users.push(user);
        }
        db.raw(&format!(
            "UPDATE users SET plan = 'another' WHERE id = '{}'",
            users[7]
        ))
        .await;
        users
    }

    async fn each_finds_its_own(db: &TestDb) {
        let users = fill(db).await;
        let asked = (0..40).map(|request| request % 11);
        let found = join_all(
            asked.map(async |number| (number, db.keys().find_caller(&key(number), at(2)).await)),
        )
        .await;
        assert_eq!(found.len(), 40);
        for (number, found) in found {
            match number {
                3 | 5 | 10 => assert_eq!(found.unwrap(), None, "{number}"),
                7 => assert!(matches!(found, Err(StorageError::Corrupt(_))), "{found:?}"),
                _ => assert_eq!(
                    found.unwrap().unwrap().caller.user_id,
                    users[usize::from(number)]
                ),
            }
        }
        // A request that leaves takes no other along.
        for polls in 0..6 {
            let (first, others) = (key(1), [key(2), key(4)]);
            let (left, found) = tokio::join!(
                cancel_after(polls, db.keys().find_caller(&first, at(2))),
                join_all(others.iter().map(|key| db.keys().find_caller(key, at(2)))),
            );
            assert!(left.is_none_or(|found| found.unwrap().is_some()));
            let found: Vec<_> = found
                .into_iter()
                .map(|found| found.unwrap().unwrap().caller.user_id)
                .collect();
            assert_eq!(found, [users[2], users[4]], "left after {polls}");
        }
    }

    #[test]
    fn postgres_finds_each_its_own() {
        on_postgres(each_finds_its_own);
        on_postgres_unprepared(each_finds_its_own);
    }

    /// As when a connection is lost without a word: nobody waits behind it.
    #[test]
    fn postgres_statement_that_hangs_holds_up_no_other() {
        on_postgres(async |db| {
            let users = fill(db).await;
            let locker = connect(&db.url).await;
            locker
                .batch_execute("BEGIN; LOCK TABLE api_keys IN ACCESS EXCLUSIVE MODE")
                .await
                .unwrap();
            let (first, second) = (key(1), key(2));
            let mut hanging = Box::pin(db.keys().find_caller(&first, at(2)));
            tokio::select! {
                found = &mut hanging => panic!("the table is locked: {found:?}"),
                () = wait_for_lock_waiters(db, 1) => {}
            }
            let backend = "SELECT CAST(MIN(a.pid) AS BIGINT) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid
                WHERE a.datname = current_database() AND NOT l.granted";
            let stuck: i64 = locker.query_one(backend, &[]).await.unwrap().get(0);
            let mut later = Box::pin(db.keys().find_caller(&second, at(2)));
            tokio::select! {
                found = &mut later => panic!("the table is locked: {found:?}"),
                // One beside the other.
                () = wait_for_lock_waiters(db, 2) => {}
            }
            locker
                .batch_execute(&format!("SELECT pg_terminate_backend({stuck}); COMMIT"))
                .await
                .unwrap();
            assert_fails!(hanging.await, Unavailable(_));
            assert_eq!(later.await.unwrap().unwrap().caller.user_id, users[2]);
        });
    }
}
